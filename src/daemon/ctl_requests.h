/* The requests of ddctl, which come through the agent of a node. Answers are JSON, or one sentence
 * with the reason for which there is none. Src: docs/protocol/control-1.md. */
#ifndef DD_DAEMON_CTL_REQUESTS_H
#define DD_DAEMON_CTL_REQUESTS_H

#include "daemon/event_log.h"
#include "daemon/session.h"
#include "rdzv/machine.h"
#include "store/server.h"

/* What a request changes; each may free the session that asked. */
struct ctl_ops {
    /* Passes SIGUSR1 or SIGUSR2 to all workers; false: the same signal has just gone out. */
    bool (*broadcast)(void *arg, struct session *from, int sig);
    void (*stop)(void *arg, struct session *from, int sig, const char *why);
    /* Leaves a node out of further rounds; known: it was left out already. */
    void (*drain)(void *arg, int id, const char *node, const char *why, bool known);
};

struct ctl_requests { /* all that is pointed to is borrowed */
    const char *job_id;
    const struct rdzv_cfg *cfg;
    struct rdzv *machine; /* queries alone */
    struct store_server *store;
    struct event_log *events;
    uint64_t store_max_bytes, start_ns;
    const struct ctl_ops *ops;
    void *arg;
};

void ctl_request(const struct ctl_requests *c, struct session *s, const struct msg_ctl_request *m);

#endif
