/* What workers may learn of their round, under reserved keys of its store: libddrun waits for them.
 * Src: docs/protocol/store-c10d.md, "Keys of ddrun". */
#ifndef DD_DAEMON_WORKER_EVENTS_H
#define DD_DAEMON_WORKER_EVENTS_H

#include "base/log.h"
#include "store/server.h"

struct worker_events {
    struct store_server *store;
    const struct dd_log *log;
    /* Of this round. */
    int n;
    uint64_t signal_ns[2]; /* SIGUSR1, SIGUSR2 */
    bool stopped;
};

/* SIGUSR1 or SIGUSR2, from one agent, or from all of them when the scheduler signals every node. */
void worker_events_signal(struct worker_events *w, int round, int sig);
/* Once a round. requested: the job is to end by request, so its workers may still have something
 * to settle with each other; else one of them has failed, and waiting for it is in vain. */
void worker_events_stop(struct worker_events *w, int round, int sig, bool requested);
void worker_events_new_round(struct worker_events *w);

#endif
