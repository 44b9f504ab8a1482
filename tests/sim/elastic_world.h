/* What elastic.c's jobs are made of: nodes, daemons, links, and what will happen. */
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
    GRACE_MS = 30000,      /* for workers that are stopped */
    QUICK_GRACE_MS = 5000, /* in jobs with RESTARTS */
    GAP_MS = 2000 + QUICK_GRACE_MS + 1000 + RDZV_SUCCESSORS * 3000 +
             2000,        /* until there is a daemon again */
    CROSSING_MS = 4100,   /* a message each way */
    ATTEMPT_MS = 1000,    /* of a look at a node that does not answer */
    SETTLE_MS = 100,      /* of a scheduler's signal (signals.c) */
    DAEMON_STOP_MS = 300, /* of SIGTERM to ddrund (job.c) */
    LEAVE_MS = 30000,     /* besides the grace period, for a node that was signalled */
    END_OF_TIME = 4000000,
};

enum world_kind { MILD, RESTARTS, WILD };
enum node_at { AWAY, HERE, LEFT };

struct node {
    enum node_at at;
    int life;
    struct agent_machine am;
    struct am_cfg cfg;
    bool acting; /* its machine's actions are being carried out */
    long timer;  /* -1: none */
    int running; /* workers; each ends at a time of its own */
    bool stopping;
    int batch;                /* of workers: those of an older one are gone */
    int checks;               /* of its health: the results of older ones are dropped */
    struct rdzv_members plan; /* of the last round started */
    struct rdzv_members last; /* the same, or a later one that runs without this node */
    struct rdzv_members committed;
    int link, other, found; /* -1; other: to a daemon that is asked beside the one in use */
    int tries, passes;      /* of the locators: items with other numbers are stale */
    int asks;               /* the next node to ask; -1: none */
    bool ended_well;
    bool settling;  /* a scheduler's signal is under way */
    bool explained; /* and may explain the end of the workers */
    long signalled; /* when the first signal came; -1: none has */
    bool unfit;     /* its health check says so, of the machine, whoever is started on it */
    int code;
    int group; /* of the network */
};

struct daemon {
    bool alive;
    int life;
    int64_t epoch;
    struct rdzv *m;
    int link_of[MAX_NODES]; /* by id; -1 */
    long timer;
    long begun; /* when its last round did; -1: none has */
    bool said_success;
    bool asked_to_stop;
};

/* From a node to a daemon. Each end closes by itself. */
struct link {
    bool used;
    int node, daemon, daemon_life;
    int id; /* of the machine; -1: not joined */
    bool node_open, daemon_open;
    unsigned sent[2], got[2]; /* up, down: messages keep their order */
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
    SICKENS,
    HEALS,
};

struct item {
    enum item_kind kind;
    int node, life; /* life -1: of whichever */
    int arg, code;
    int link, end;
    unsigned number; /* of the message on its link */
    int to;          /* LOOK: the node of another daemon; -1 */
    int64_t epoch;   /* of the daemon that says so */
    long since;      /* a close that cannot be told: given up after the heartbeat */
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
    const struct item *message; /* the last one that came to a node */
    struct node nodes[MAX_NODES];
    struct daemon daemons[MAX_NODES];
    int nnodes;
    struct rdzv_cfg cfg;
    bool blind;
    enum world_kind kind; /* MILD: one loss only, and enough nodes: the job must go on */
    long grace;
    int successes, failures_of_workers;
    unsigned rounds, took_over, came_back, drained, left_out, stopped, observed;
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

/* One end is closed: the other one will see it, now or by the heartbeat. */
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
