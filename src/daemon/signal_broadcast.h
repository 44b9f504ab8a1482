/* Forward SIGUSR1 and SIGUSR2 from one agent to the workers of all nodes. */
#ifndef DD_DAEMON_SIGNAL_BROADCAST_H
#define DD_DAEMON_SIGNAL_BROADCAST_H

#include "daemon/job.h"

struct signal_broadcast {
    struct job *job;
    const struct dd_log *log;
    uint64_t sent_ns[SESSION_SIGNALS]; /* time at which each was last forwarded; 0: never */
};

/* Return false for other signals and for duplicates, since a launcher may signal the agents of all
 * nodes. end_near: the time limit of the job is near. */
bool signal_broadcast(struct signal_broadcast *b, struct session *from, int sig, bool end_near);
/* The scheduler has signalled a node itself. Publish SIGUSR1 or SIGUSR2 to the workers once for all
 * nodes, which the agents report seconds apart on a machine that stalls. */
void signal_broadcast_heard(struct signal_broadcast *b, struct session *from, int sig);

#endif
