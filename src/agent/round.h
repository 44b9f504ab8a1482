/* One round on this node: from the plan to running workers, from their exits to messages.
 *
 * A struct round lives as long as the agent and holds one round at a time. What a round offers
 * beyond running its workers is a feature (agent/features.h); features see the round as const.
 * The round knows nothing of the agent but its port. */
#ifndef DD_AGENT_ROUND_H
#define DD_AGENT_ROUND_H

#include "base/err.h"
#include "rdzv/plan.h"
#include "worker/group.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct agent_cfg; /* agent/agent.h */
struct event_base;
struct features;      /* agent/features.h */
struct msg;           /* rdzv/msg.h */
struct msg_plan;      /* the same */
struct net_addr;      /* net/addr.h */
struct net_peer;      /* net/peer.h */
struct round_feature; /* agent/features.h */
struct round_message; /* the same */
struct worker_output; /* worker/output.h */

/* A worker has exited, and what is known of it. */
struct worker_end {
    struct worker_exit exit; /* features may have changed code and signal */
    char why[80];            /* more than the code tells; "": nothing is known */
    const char *error_file;  /* where the worker may have written why; "": nowhere */
    bool settling;           /* failed while the scheduler ends the job: no failure */
};

/* How the workers of a round have exited so far (agent/exit_report.h). */
struct exit_tally {
    int left, stopped, killed; /* as in DONE */
    int failed;                /* reported by EXIT */
    int round;                 /* of the DONE that is to be sent */
    uint64_t oom_kills;        /* of this node's cgroup when the round began */
};

/* What a round needs of the agent. arg is round_env.port_arg. */
struct round_port {
    void (*send)(void *arg, const struct msg *m); /* to the daemon, if there is one */
    int (*send_piece)(void *arg, const void *piece, size_t len); /* 0 without a daemon */
    /* Drains the signals that have arrived, which may stop the round. True: the scheduler is ending
     * the job just now, and failures of workers are a consequence. */
    bool (*settling)(void *arg);
    void (*gone)(void *arg); /* the round is over here; the next one may begin */
};

/* All borrowed until round_free(). */
struct round_env {
    const struct agent_cfg *cfg;
    struct event_base *base;
    struct net_peer *peer;
    const struct round_port *port;
    void *port_arg;
    const struct round_feature *const *features; /* ends with NULL */
};

/* Read by everybody, written by round.c and exit_report.c alone. */
struct round {
    const struct agent_cfg *cfg;
    struct event_base *base;
    struct net_peer *peer;
    const struct round_port *port;
    void *port_arg;
    struct plan plan;             /* empty before the first round */
    struct worker_output *output; /* NULL: workers inherit stdout and stderr */
    struct worker_group *group;   /* NULL: no worker runs */
    int stop_sig;                 /* the signal that the round is stopped with; 0: none yet */
    struct features *features;
    struct exit_tally exits;
    bool ended_well; /* all workers of the last round have, here */
};

/* The ends of the link that the plan came by. */
struct round_link {
    const struct net_addr *local, *peer;
    bool of_first_node; /* this node is the first one, which the others must reach */
};

int round_new(struct round **ret, const struct round_env *env, struct dd_err *err);
/* Takes the plan. No worker runs. */
int round_plan(struct round *r, const struct msg_plan *m, const struct round_link *link,
               struct dd_err *err);
/* Starts the workers of the plan and sends STARTED. On failure nothing of it is left. */
int round_launch(struct round *r, const struct round_link *link, struct dd_err *err);
bool round_is_running(const struct round *r); /* workers, or what they have left behind, live */
void round_stop(struct round *r, int sig, unsigned grace_ms);
void round_signal(const struct round *r, int sig);     /* as worker_group_signal() */
void round_has_signal(const struct round *r, int sig); /* as worker_group_has_signal() */
/* The daemon has sent something for the features of this round. */
void round_message(const struct round *r, const struct round_message *m);
void round_free(struct round *r); /* NULL is fine */

/* For features, too: */

static inline void round_send(const struct round *r, const struct msg *m)
{
    r->port->send(r->port_arg, m);
}

/* A child of the agent that is no worker: it is not ended with the workers. */
static inline void round_protect(const struct round *r, pid_t pid)
{
    if (r->group != NULL)
        (void)worker_group_protect(r->group, pid);
}

#endif
