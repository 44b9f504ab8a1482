/* Reports of worker exits to the daemon: EXIT for each worker that failed by itself, DONE when all
 * workers of a round have exited. */
#ifndef DD_AGENT_EXIT_REPORT_H
#define DD_AGENT_EXIT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct round;
struct worker_end;

void exit_report_begin(struct round *r);
/* Count the exit, or report it to the daemon. */
void exit_report_worker(struct round *r, const struct worker_end *e);
/* No worker could be started. why: report it by EXIT; NULL: send none. */
void exit_report_no_start(struct round *r, int round, int code, const char *why);
/* True if the round failed or was stopped, and another may follow: check the node's health before
 * DONE. */
bool exit_report_wants_check(const struct round *r);
/* Sends DONE. unfit: why this node can take part in no further round; "": it can. */
void exit_report_done(const struct round *r, const char *unfit);

#endif
