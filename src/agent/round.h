/* One round on this node: from the plan to running workers, from their exits to messages.
 *
 * A struct round exists as long as the agent and holds one round at a time. What a round offers
 * beyond running its workers is a feature (agent/features.h); features see the round as const.
 * The round uses nothing of the agent but struct round_port. */
#ifndef DD_AGENT_ROUND_H
#define DD_AGENT_ROUND_H

#include "base/err.h"
#include "net/addr.h"
#include "rdzv/plan.h"
#include "worker/worker_group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct agent_cfg; /* agent/agent.h */
struct event;
struct event_base;
struct features;      /* agent/features.h */
struct gpu_usage;     /* node/gpu_usage.h */
struct msg;           /* rdzv/msg.h */
struct msg_plan;      /* rdzv/msg.h */
struct net_peer;      /* net/peer_uid.h */
struct round_feature; /* agent/features.h */
struct round_message; /* agent/features.h */
struct warm_fork;     /* worker/warm_fork.h */
struct worker_output; /* worker/output.h */

/* The exit of a worker. */
struct worker_end {
    struct worker_exit exit; /* features may change code and signal */
    char why[120];           /* reason beyond the exit code; "": unknown */
    const char *error_file;  /* file in which the worker may have written the reason; "": none */
    bool settling;           /* failed while the scheduler ends the job: not counted as a failure */
};

/* Numbers of worker exits in the present round (agent/exit_report.h). */
struct exit_tally {
    int left, stopped, killed; /* as in DONE */
    int first_rank;            /* as in DONE */
    uint64_t first_ns;
    int failed;         /* workers reported by EXIT */
    int round;          /* round number for DONE */
    uint64_t oom_kills; /* OOM kills of this node's cgroup when the round began */
    bool files_hang;    /* the file system of the error files does not respond */
};

/* Services of the agent for a round. arg is round_env.port_arg. */
struct round_port {
    void (*send)(void *arg, const struct msg *m); /* send to the daemon; dropped without a link */
    int (*send_piece)(void *arg, const void *piece, size_t len); /* 0 without a link */
    /* Send a message of the store's relay; dropped without a link. p NULL: out of memory for the
     * message, so end the link. */
    void (*send_store)(void *arg, const void *p, size_t n);
    void (*refuse_store)(void *arg); /* the daemon has sent a malformed message: end the link */
    /* Handle signals that have arrived, which may stop the round. Returns true while the scheduler
     * is ending the job, so failures of workers are a consequence. */
    bool (*settling)(void *arg);
    void (*gone)(void *arg); /* the round has ended on this node */
    /* Return the interpreter that forks the workers; NULL: execute the workers. */
    const struct warm_fork *(*warm)(void *arg);
    void (*warm_failed)(void *arg, const char *why); /* the interpreter did not fork the workers */
    /* staging_is_settled() or compile_cache_is_settled() has become true. */
    void (*staged)(void *arg);
    /* As node_health_gpus(); NULL: GPUs are not read. */
    int (*gpus)(void *arg, struct gpu_usage *ret, uint64_t *ret_readings);
    /* Show on the terminal what the workers wait for; "": they no longer wait. */
    void (*progress)(void *arg, const char *text);
};

/* All pointers are borrowed until round_free(). */
struct round_env {
    const struct agent_cfg *cfg;
    struct event_base *base;
    const struct round_port *port;
    void *port_arg;
    const struct round_feature *const *features; /* ends with NULL */
};

/* Written by round.c and exit_report.c only. */
struct round {
    const struct agent_cfg *cfg;
    struct event_base *base;
    struct net_peer *peer; /* finds the owners of local connections */
    const struct round_port *port;
    void *port_arg;
    struct plan plan;             /* empty before the first round */
    char addr[NET_ADDR_TEXT];     /* address of this node in the link that delivered the plan; "":
                                     this is the daemon's node, reached at plan.master_addr */
    struct worker_output *output; /* NULL: workers inherit stdout and stderr */
    struct worker_group *group;   /* NULL: no worker runs */
    int stop_sig;                 /* signal that stops the round; 0: none yet */
    struct features *features;
    struct exit_tally exits;
    struct event *left; /* activated by round_leave() */
    bool prepared;      /* the prepare hooks have been called */
    bool leaving;       /* no worker is left; a feature has not finished yet */
    bool ended_well;    /* all workers of this node in the last round exited with 0 */
};

/* Addresses of the link that delivered the plan. */
struct round_link {
    const struct net_addr *local, *peer;
    bool of_first_node; /* this node is the first one */
};

int round_new(struct round **ret, const struct round_env *env, struct dd_err *err);
/* Take the plan of the next round. No worker may run. */
int round_plan(struct round *r, const struct msg_plan *m, const struct round_link *link,
               struct dd_err *err);
/* Call the prepare hooks, some time before the workers are started. On failure the round has ended.
 */
int round_prepare(struct round *r, struct dd_err *err);
/* Start the workers of the plan and send STARTED. On failure no worker is left. */
int round_launch(struct round *r, const struct round_link *link, struct dd_err *err);
bool round_is_running(const struct round *r); /* True while workers or their descendants run. */
void round_stop(struct round *r, int sig, unsigned grace_ms);
int round_signal(const struct round *r, int sig);      /* as worker_group_signal() */
void round_has_signal(const struct round *r, int sig); /* as worker_group_has_signal() */
/* Pass a message of the daemon to the features. */
void round_message(const struct round *r, const struct round_message *m);
/* Kill remaining processes, then call the end hooks. r may be NULL. */
void round_end(struct round *r);
void round_free(struct round *r); /* NULL is fine */

/* Send m to the daemon; also for features. */

static inline void round_send(const struct round *r, const struct msg *m)
{
    r->port->send(r->port_arg, m);
}

/* Call when the feature whose `leave` hook returned true has finished: the event loop then ends the
 * round. */
void round_leave(const struct round *r);

/* Keep a child that is not a worker from being killed when the workers are stopped. */
static inline void round_protect(const struct round *r, pid_t pid)
{
    if (r->group != NULL)
        (void)worker_group_protect(r->group, pid);
}

#endif
