/* Setup of one job of tests/sim/elastic: its size, its limits and its planned failures. */
#ifndef DD_SIM_ELASTIC_SETUP_H
#define DD_SIM_ELASTIC_SETUP_H

#include "elastic_world.h"

/* As in agent.c. */
static inline bool may_ask_peers(const struct world *w)
{
    return w->nnodes > 1 && (rdzv_is_elastic(&w->cfg) || w->cfg.max_restarts > 0);
}

/* Workers fail with codes from 1 to 200, and with 143 when they are stopped. */
static inline void set_up_rules(struct world *w)
{
    unsigned char *of = w->cfg.exit_rules.of;
    memset(of + 1, rnd(w, 3) == 0 ? EXIT_RESTART : EXIT_MOVE, 140);
    w->cfg.blame_window_ns = rnd(w, 2) == 0 ? 0 : JOIN_MS;
    w->cfg.leave_signal = rnd(w, 4) == 0 ? 0 : 10;
    w->cfg.leave_ns = rnd(w, 5000);
    w->cfg.progress_restarts = rnd(w, 4) == 0 ? 1 + (int)rnd(w, 3) : 0;
    memset(of + 150, rnd(w, 2) == 0 ? EXIT_RESTART : EXIT_STOP, 20);
}

static inline void set_up_cfg(struct world *w)
{
    struct rdzv_cfg *c = &w->cfg;
    w->nnodes = w->kind == MILD ? 3 + (int)rnd(w, 6) : 1 + (int)rnd(w, MAX_NODES);
    w->grace = w->kind == RESTARTS ? QUICK_GRACE_MS : GRACE_MS;
    *c = (struct rdzv_cfg){.max_nodes = w->nnodes,
                           .min_nodes = w->nnodes,
                           .expected = w->nnodes,
                           .capacity = w->nnodes,
                           .max_restarts = w->kind == MILD ? 0 : (int)rnd(w, 4),
                           .join_ns = JOIN_MS,
                           .last_call_ns = LAST_CALL_MS,
                           .rejoin_ns = REJOIN_MS,
                           .grow = rnd(w, 3),
                           .master_port = 30000};
    if (w->kind == RESTARTS) {
        c->last_call_ns = GAP_MS;
        c->join_ns = 2 * GAP_MS;
    }
    if (w->kind == MILD) {
        c->min_nodes = 1 + (int)rnd(w, (unsigned)w->nnodes - 1);
        c->grow = RDZV_GROW_NEXT;
        return;
    }
    if (rnd(w, 4) != 0)
        c->min_nodes = 1 + (int)rnd(w, (unsigned)w->nnodes);
    if (rnd(w, 3) == 0)
        c->max_nodes = c->min_nodes + (int)rnd(w, (unsigned)(w->nnodes - c->min_nodes + 1));
    set_up_rules(w);
    c->probes_first = !w->blind && may_ask_peers(w);
}

/* A scheduler signals all nodes, one after the other; a person signals one node, perhaps twice. */
static inline void plan_signals(struct world *w, long at)
{
    const bool by_scheduler = rnd(w, 2) == 0;
    const int one = (int)rnd(w, (unsigned)w->nnodes);
    for (int n = 0; by_scheduler && n < w->nnodes; n++)
        later(w, at + (long)rnd(w, rnd(w, 8) == 0 ? 3000 : 50),
              (struct item){.kind = SIGNALS, .node = n, .life = -1, .arg = 1});
    for (int times = by_scheduler ? 0 : 1 + (int)rnd(w, 2); times > 0; times--, at += 3000)
        later(w, at, (struct item){.kind = SIGNALS, .node = one, .life = -1});
    if (rnd(w, 4) == 0)
        later(w, at + (long)rnd(w, 3000),
              (struct item){.kind = GUARDIAN_CRASHES, .node = one, .life = -1});
}

static inline void plan_disasters(struct world *w)
{
    const long soon = 100 + (long)rnd(w, 60000);
    if (w->kind == MILD) { /* while all nodes run */
        later(w, 5000 + (long)rnd(w, 20000),
              (struct item){.kind = rnd(w, 3) == 0 ? DAEMON_CRASHES : NODE_CRASHES,
                            .node = rnd(w, 2) == 0 ? 0 : (int)rnd(w, (unsigned)w->nnodes),
                            .life = -1});
        return;
    }
    for (int n = 0; n < w->nnodes; n++) {
        bool restarts = w->kind == RESTARTS;
        if (rnd(w, restarts ? n == 0 ? 2 : 6 : 12) == 0)
            later(w, (long)rnd(w, 90000),
                  (struct item){.kind = NODE_CRASHES, .node = n, .life = -1});
        if (rnd(w, 20) == 0)
            later(w, (long)rnd(w, 90000),
                  (struct item){.kind = DAEMON_CRASHES, .node = n, .life = -1});
    }
    if (rnd(w, 4) == 0)
        later(w, soon,
              (struct item){.kind = SICKENS,
                            .node = rnd(w, 3) == 0 ? 0 : (int)rnd(w, (unsigned)w->nnodes),
                            .life = -1});
    if (rnd(w, 5) == 0)
        plan_signals(w, (long)rnd(w, 90000));
    if (w->kind == RESTARTS)
        return;
    if (rnd(w, 2) == 0)
        later(w, soon, (struct item){.kind = PARTS});
    if (rnd(w, 6) == 0)
        later(w, soon + 1000 + (long)rnd(w, 30000), (struct item){.kind = PARTS});
    for (unsigned n = rnd(w, 4); n < 3; n++)
        later(w, (long)rnd(w, 60000),
              (struct item){.kind = rnd(w, 2) == 0 ? DRAINS : MARKS,
                            .node = (int)rnd(w, (unsigned)w->nnodes),
                            .life = -1});
}

static inline void set_up(struct world *w, unsigned seed)
{
    kit_begin(&w->kit, seed);
    w->nlinks = w->successes = w->failures_of_workers = 0;
    w->kind = seed % 4 == 0 ? MILD : seed % 4 == 1 ? RESTARTS : WILD;
    memset(w->daemons, 0, sizeof(w->daemons));
    set_up_cfg(w);
    for (int n = 0; n < w->nnodes; n++) {
        (void)snprintf(w->names[n], sizeof(w->names[n]), "n%d", n);
        w->nodes[n] = (struct node){.plan = RDZV_MEMBERS_NONE,
                                    .last = RDZV_MEMBERS_NONE,
                                    .committed = RDZV_MEMBERS_NONE,
                                    .link = -1,
                                    .other = -1,
                                    .found = -1,
                                    .code = -1,
                                    .asks = -1,
                                    .signalled = -1,
                                    .timer = -1};
        later(w, (long)rnd(w, w->kind == WILD && rnd(w, 8) == 0 ? 30000 : 50),
              (struct item){.kind = NODE_STARTS, .node = n, .life = -1});
        w->nodes[n].unfit = w->kind != MILD && rnd(w, n == 0 ? 8 : 30) == 0;
    }
    plan_disasters(w);
}

#endif
