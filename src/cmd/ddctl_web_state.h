/* The state of the job for 'ddctl web': the answers to ddctl's requests, and all events so far. */
#ifndef DD_CMD_DDCTL_WEB_STATE_H
#define DD_CMD_DDCTL_WEB_STATE_H

#include "base/err.h"

#include <stdbool.h>

struct event_base;
struct web_state;

/* Ask for the state of the job, follow its events by a process of 'ddctl events', and wait for the
 * first of them. job: as for job_ask(). Errors: those of job_ask() and of starting the process. */
int web_state_new(struct web_state **ret, struct event_base *base, const char *job,
                  struct dd_err *err);
void web_state_free(struct web_state *s); /* NULL does nothing; ends the process */

const char *web_state_job(const struct web_state *s); /* whole id of the job */
/* Return the state as JSON, which the caller frees; NULL: out of memory. Asks the job again if the
 * last answer is older than 0.9 s. docs/web.md describes the members. */
char *web_state_json(struct web_state *s, bool has_timeline);

#endif
