/* The requests of ddctl, forwarded by a node's agent. An answer is JSON, or one sentence that
 * explains why there is none. Src: docs/protocol/control-1.md. */
#ifndef DD_DAEMON_CTL_REQUESTS_H
#define DD_DAEMON_CTL_REQUESTS_H

#include "daemon/charges_follow.h"
#include "daemon/event_log.h"
#include "daemon/job_metrics.h"
#include "daemon/session.h"
#include "daemon/stacks_collect.h"
#include "daemon/step_collect.h"
#include "rdzv/machine.h"
#include "store/store_server.h"

/* Changes that a request may cause. Each may free the session that sent the request. */
struct ctl_ops {
    void (*broadcast)(void *arg, struct session *from, int64_t id,
                      int sig); /* signal_broadcast_counted() */
    void (*stop)(void *arg, struct session *from, int sig, const char *why);
    int64_t (*stacks)(void *arg, const struct stacks_question *q); /* stacks_collect_ask() */
    /* usage_collect_ask() */
    int (*usage)(void *arg, struct session *from, int64_t id, const char *ranks, bool all_lines);
    /* Exclude a node from further rounds. */
    void (*drain)(void *arg, int id, const char *why);
};

struct ctl_requests { /* all pointers are borrowed */
    const char *job_id;
    const struct rdzv_cfg *cfg;
    struct rdzv *machine; /* for queries only */
    struct store_server *store;
    struct event_log *events;
    struct job_metrics *metrics;
    struct charges_follow *charges;
    const struct step_collect *steps;
    uint64_t start_ns;
    const struct ctl_ops *ops;
    void *arg;
};

void ctl_request(const struct ctl_requests *c, struct session *s, const struct msg_ctl_request *m);

#endif
