/* Events published to the workers of a round under reserved keys of its store, where libddrun waits
 * for them. Src: docs/protocol/store-c10d.md, "Keys of ddrun". */
#ifndef DD_DAEMON_WORKER_EVENTS_H
#define DD_DAEMON_WORKER_EVENTS_H

#include "base/log.h"
#include "store/store_server.h"

struct worker_events {
    struct store_server *store;
    const struct dd_log *log;
    int n;        /* events published in this round */
    bool stopped; /* the stop was published in this round */
};

/* Publish SIGUSR1 or SIGUSR2. */
void worker_events_signal(struct worker_events *w, int round, int sig);
/* Publish the stop, once per round. requested: the end of the job was requested, so its workers may
 * still want to communicate; otherwise a worker or node is lost, and waiting for it is useless. */
void worker_events_stop(struct worker_events *w, int round, int sig, bool requested);
void worker_events_new_round(struct worker_events *w);

#endif
