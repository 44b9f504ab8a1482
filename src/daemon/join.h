/* JOIN: an agent asks to take part in the job. */
#ifndef DD_DAEMON_JOIN_H
#define DD_DAEMON_JOIN_H

#include "daemon/job.h"

/* May free s. */
void join_take(struct job *j, struct session *s, const struct msg_join *m);

#endif
