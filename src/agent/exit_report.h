/* The exits of workers, as the daemon is to know them: EXIT for each that failed by itself, DONE
 * for all of a round. */
#ifndef DD_AGENT_EXIT_REPORT_H
#define DD_AGENT_EXIT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct round;
struct worker_end;

void exit_report_begin(struct round *r);
/* Counts the exit, or reports it to the daemon. */
void exit_report_worker(struct round *r, const struct worker_end *e);
/* No worker could be started; with why the daemon gets an EXIT. */
void exit_report_no_start(struct round *r, int round, int code, const char *why);
/* The round was no success, and there may be a next one: the node is to be checked before DONE. */
bool exit_report_wants_check(const struct round *r);
/* Sends DONE. unfit: why this node can take part in no further round; "": it can. */
void exit_report_done(const struct round *r, const char *unfit);

#endif
