/* JOIN: an agent asks to take part in the job. */
#ifndef DD_DAEMON_JOIN_H
#define DD_DAEMON_JOIN_H

#include "daemon/job.h"

/* Called for a node with a valid JOIN before the job learns of it. */
typedef void join_accepted_f(void *arg, struct session *s, const struct msg_join *m);

/* May free s. */
void join_take(struct job *j, struct session *s, const struct msg_join *m,
               join_accepted_f *accepted, void *arg);

#endif
