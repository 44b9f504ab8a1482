/* State of the jobs of elastic.c: nodes, daemons, links and scheduled items. */
#ifndef DD_SIM_ELASTIC_WORLD_H
#define DD_SIM_ELASTIC_WORLD_H

#include "agent/agent_machine.h"
#include "rdzv/machine.h"
#include "rdzv/successor.h"

#include "kit.h"

#include <string.h>

enum {
    MAX_NODES = 12,
    JOIN_MS = 60000,
    LAST_CALL_MS = 3000,
    REJOIN_MS = 30000,
    HEARTBEAT_MS = 5000,
    GRACE_MS = 30000,      /* of stopped workers */
    QUICK_GRACE_MS = 5000, /* in jobs with RESTARTS */
    GAP_MS = 2000 + QUICK_GRACE_MS + 1000 + RDZV_SUCCESSORS * 3000 +
             2000,        /* longest time without a daemon */
    CROSSING_MS = 4100,   /* one message in each direction */
    ATTEMPT_MS = 1000,    /* of a probe of a node that does not answer */
    SETTLE_MS = 100,      /* until a scheduler's signal is identified (signals.c) */
    DAEMON_STOP_MS = 300, /* from SIGTERM to the end of ddrund (job.c) */
    LEAVE_MS = 30000,     /* until a signalled node leaves, besides the grace period */
    END_OF_TIME = 4000000,
};

enum world_kind { MILD, RESTARTS, WILD };
enum node_at { AWAY, HERE, LEFT };

struct node {
    enum node_at at;
    int life;
    struct agent_machine am;
    struct am_cfg cfg;
    bool acting; /* node_steps() is carrying out actions */
    long timer;  /* -1: none */
    int running; /* workers that run: 0 or 1 */
    bool stopping;
    int batch;                /* number of the workers' start; items of older ones are stale */
    int checks;               /* health checks begun; results of older ones are dropped */
    struct rdzv_members plan; /* of the last round started */
    struct rdzv_members last; /* the same, or a later round without this node */
    struct rdzv_members committed;
    int link, other, found; /* -1: none; other: to a daemon asked beside the one in use */
    int tries, passes;      /* of the locators: items with other numbers are stale */
    int asks;               /* next node to probe; -1: none */
    bool ended_well;
    bool settling;  /* a scheduler's signal is pending */
    bool explained; /* the pending signal may explain the workers' exit */
    long signalled; /* time of the first signal; -1: none */
    bool unfit;     /* result of its health check; survives restarts of the agent */
    int code;
    int group; /* of the network; nodes of different groups cannot connect */
};

struct daemon {
    bool alive;
    int life;
    int64_t epoch;
    struct rdzv *m;
    int link_of[MAX_NODES]; /* link of each id; -1: none */
    long timer;
    long begun; /* time of its last plan; -1: none */
    bool said_success;
    bool asked_to_stop;
    bool ruled; /* a rule ends the job */
};

/* A link from a node to a daemon. Each end is closed separately. */
struct link {
    bool used;
    int node, daemon, daemon_life;
    int id; /* in the daemon's machine; -1: not joined */
    bool node_open, daemon_open;
    unsigned sent[2], got[2]; /* messages up and down, whose order is kept */
};

enum { MAX_LINKS = 3000, UP = 0, DOWN = 1 };

enum item_kind {
    NODE_STARTS,
    NODE_CRASHES,
    DAEMON_CRASHES,
    WORKER_ENDS,
    TRY,
    PEERS,
    MEMBERS,
    NODE_TIMER,
    SIGNALS,
    SETTLES,
    CHECKED,
    REQUEUED,
    GUARDIAN_CRASHES,
    DAEMON_STOPS,
    TO_DAEMON,
    TO_NODE,
    END_CLOSES,
    TIMER,
    PARTS,
    DRAINS,
    MARKS,
    SICKENS,
    HEALS,
};

struct item {
    enum item_kind kind;
    int node, life; /* life -1: any */
    int arg, code;
    int link, end;
    unsigned number; /* sequence number on its link */
    int to;          /* the node of the daemon to redirect to; -1: none */
    int64_t epoch;   /* of the daemon that sent the message */
    long since;      /* time of a close; noticed by the heartbeat if the network is cut */
    struct rdzv_event event;
    struct rdzv_action action;
    int round;
    struct rdzv_members *members; /* of a PLAN; owned */
    struct rdzv_members *committed;
};

struct world {
    struct kit kit;
    struct item items[KIT_ITEMS];
    struct link links[MAX_LINKS];
    int nlinks;
    const struct item *message; /* the last one that a node received */
    struct node nodes[MAX_NODES];
    struct daemon daemons[MAX_NODES];
    int nnodes;
    struct rdzv_cfg cfg;
    bool blind;
    enum world_kind kind; /* MILD: one loss, and enough nodes are left: the job must succeed */
    long grace;
    int successes, failures_of_workers;
    unsigned rounds, took_over, came_back, drained, marked, left, left_out, stopped, observed;
    char names[MAX_NODES][8];
};

#define trace(w, ...) kit_trace(&(w)->kit, __VA_ARGS__)
#define must(w, holds, promise) kit_must(&(w)->kit, holds, promise)

static inline unsigned rnd(struct world *w, unsigned below)
{
    return kit_rnd(&w->kit, below);
}

static inline void later(struct world *w, long ms, struct item it)
{
    w->items[kit_later(&w->kit, w->kit.now + ms)] = it;
}

static inline long delay(struct world *w)
{
    return rnd(w, 30) == 0 ? (long)rnd(w, 2000) : (long)rnd(w, 5);
}

static inline bool reach(const struct world *w, int a, int b)
{
    return w->nodes[a].group == w->nodes[b].group;
}

static inline void heals(struct world *w)
{
    trace(w, "the network heals");
    for (int n = 0; n < w->nnodes; n++)
        w->nodes[n].group = 0;
}

static inline struct rdzv_members *copy(struct world *w, const struct rdzv_members *m)
{
    struct rdzv_members *c = calloc(1, sizeof(*c));
    must(w, c != NULL, "memory");
    *c = RDZV_MEMBERS_NONE;
    must(w, rdzv_members_copy(c, m) == 0, "memory");
    return c;
}

static inline void drop(struct rdzv_members *m)
{
    if (m == NULL)
        return;
    rdzv_members_clear(m);
    free(m);
}

/* ---- links ---- */

static inline int connect_to(struct world *w, int n, int d)
{
    must(w, w->nlinks < MAX_LINKS, "the number of connections is bounded");
    struct link *l = &w->links[w->nlinks];
    *l = (struct link){.used = true,
                       .node = n,
                       .daemon = d,
                       .daemon_life = w->daemons[d].life,
                       .id = -1,
                       .node_open = true,
                       .daemon_open = true};
    return w->nlinks++;
}

static inline bool daemon_has(const struct world *w, const struct link *l)
{
    return l->daemon_open && w->daemons[l->daemon].alive &&
           w->daemons[l->daemon].life == l->daemon_life;
}

/* Close one end: the other end notices by a message or by the heartbeat. */
static inline void close_end(struct world *w, int link, int end)
{
    struct link *l = &w->links[link];
    bool *open = end == UP ? &l->node_open : &l->daemon_open;
    if (!*open)
        return;
    *open = false;
    later(w, delay(w),
          (struct item){.kind = END_CLOSES,
                        .link = link,
                        .end = 1 - end,
                        .number = l->sent[end],
                        .since = w->kit.now});
}

static inline void send_up(struct world *w, int link, struct rdzv_event e)
{
    struct link *l = &w->links[link];
    struct node *p = &w->nodes[l->node];
    struct item it = {.kind = TO_DAEMON, .link = link, .event = e, .number = l->sent[UP]++};
    if (e.kind == RDZV_JOIN) {
        it.members = copy(w, &p->plan);
        it.committed = copy(w, &p->committed);
    }
    later(w, delay(w), it);
}

static inline void send_down(struct world *w, int link, const struct rdzv_action *a,
                             const struct rdzv *m)
{
    struct item it = {.kind = TO_NODE,
                      .link = link,
                      .action = *a,
                      .number = w->links[link].sent[DOWN]++,
                      .round = rdzv_round(m),
                      .to = -1};
    it.code = rdzv_code(m);
    it.epoch = w->daemons[w->links[link].daemon].epoch;
    if (a->kind == RDZV_SEND_PLAN || a->kind == RDZV_SEND_ROUND_MEMBERS)
        it.members = copy(w, rdzv_planned(m));
    later(w, delay(w), it);
}

#endif
