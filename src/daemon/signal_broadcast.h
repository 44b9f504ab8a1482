/* Passes SIGUSR1 and SIGUSR2 from one agent to the workers of all nodes. */
#ifndef DD_DAEMON_SIGNAL_BROADCAST_H
#define DD_DAEMON_SIGNAL_BROADCAST_H

#include "daemon/job.h"

struct signal_broadcast {
    struct job *job;
    const struct dd_log *log;
    uint64_t sent_ns[SESSION_SIGNALS]; /* the last one; 0: never */
};

/* False if another signal, or a copy of one that was just passed on: a launcher may signal the
 * agents of all nodes. end_near: the job's time is nearly over. */
bool signal_broadcast(struct signal_broadcast *b, struct session *from, int sig, bool end_near);

#endif
