/* Forward SIGUSR1 and SIGUSR2 from one agent to the workers of all nodes. */
#ifndef DD_DAEMON_SIGNAL_BROADCAST_H
#define DD_DAEMON_SIGNAL_BROADCAST_H

#include "daemon/job.h"

struct signal_broadcast {
    struct job *job;
    const struct dd_log *log;
    uint64_t sent_ns[SESSION_SIGNALS]; /* time of the last forwarding of each signal; 0: never */
};

/* Forward SIGUSR1 or SIGUSR2. Ignore other signals, and duplicates, since a launcher may signal the
 * agents of all nodes. end_near: the time limit of the job is near. */
void signal_broadcast(struct signal_broadcast *b, struct session *from, int sig, bool end_near);
/* Forward SIGUSR1 or SIGUSR2 for request `id` of ddctl, and count the processes that get it; the
 * reply follows. Each request is forwarded: no scheduler has copied it. */
void signal_broadcast_counted(const struct signal_broadcast *b, struct session *from, int64_t id,
                              int sig);
/* The scheduler has signalled the processes of the agent's node. Publish SIGUSR1 or SIGUSR2 to the
 * workers once, although the agents of all nodes report it, possibly seconds apart. */
void signal_broadcast_heard(struct signal_broadcast *b, struct session *from, int sig);

#endif
