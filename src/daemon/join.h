/* JOIN: an agent asks to take part in the job. */
#ifndef DD_DAEMON_JOIN_H
#define DD_DAEMON_JOIN_H

#include "daemon/job.h"

/* Called for a node with a valid JOIN, before the round machine gets the JOIN. */
typedef void join_accepted_f(void *arg, struct session *s, const struct msg_join *m);

/* Take a JOIN of session s: add the node to the job, or refuse it. May free s. */
void join_take(struct job *j, struct session *s, const struct msg_join *m,
               join_accepted_f *accepted, void *arg);

#endif
