/* The last lines of a rank for the page of 'ddctl web'. A child process asks the job, so that a
 * slow node delays no other request of the page. */
#ifndef DD_CMD_DDCTL_WEB_LOG_H
#define DD_CMD_DDCTL_WEB_LOG_H

#include "base/err.h"

struct event_base;
struct web_logs;

/* Called once, from the loop. text: a JSON object (docs/web.md), lent; NULL: out of memory. */
typedef void web_log_done_f(void *arg, const char *text);

/* Return 0 or -ENOMEM. job is borrowed. */
int web_logs_new(struct web_logs **ret, struct event_base *base, const char *job);
/* End all child processes without calling done(). NULL does nothing. */
void web_logs_free(struct web_logs *l);

/* Ask for the last lines of a rank. -EBUSY with a message: too many requests wait. On failure done
 * is not called. */
int web_logs_ask(struct web_logs *l, int rank, web_log_done_f *done, void *arg, struct dd_err *err);

#endif
