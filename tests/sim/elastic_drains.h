/* Nodes of tests/sim/elastic that a user drains, or the scheduler takes out of service. */
#ifndef DD_SIM_ELASTIC_DRAINS_H
#define DD_SIM_ELASTIC_DRAINS_H

#include "elastic_signals.h"
#include "elastic_world.h"

/* The scheduler takes the node out of service, perhaps with others, or no node any more. */
static void marks(struct world *w, int n)
{
    char text[MAX_NODES * 16] = "";
    const bool none = rnd(w, 4) == 0;
    for (int i = 0; i < w->nnodes && !none; i++)
        if (i == n || rnd(w, 4) == 0)
            (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s\tdrained\n",
                           w->names[i]);
    for (int d = 0; d < w->nnodes; d++)
        if (w->daemons[d].alive) {
            trace(w, "node %d and others are marked at daemon %d", n, d);
            w->marked++;
            step(w, d, &(struct rdzv_event){.kind = RDZV_MARKS, .id = -1, .text = text});
        }
}

/* Drain the node at every daemon that it is linked to. */
static void drains(struct world *w, int n)
{
    for (int d = 0; d < w->nnodes; d++)
        for (int id = 0; w->daemons[d].alive && id < w->cfg.capacity; id++) {
            int link = w->daemons[d].link_of[id];
            if (link < 0 || w->links[link].node != n || !rdzv_can_drain(w->daemons[d].m, id))
                continue;
            trace(w, "node %d is drained at daemon %d", n, d);
            w->drained++;
            step(w, d, &(struct rdzv_event){.kind = RDZV_DRAIN, .id = id, .text = "drained"});
        }
}

/* Many programs save their state at a signal and exit, some find an error. */
static void worker_saves(struct world *w, int n)
{
    const struct node *p = &w->nodes[n];
    if (p->running > 0 && rnd(w, 3) != 0)
        later(w, (long)rnd(w, 3000),
              (struct item){.kind = WORKER_ENDS,
                            .node = n,
                            .life = p->life,
                            .arg = p->batch,
                            .code = 1 + (int)rnd(w, 200)});
}

/* A rule for this exit code ends the job, also if the round is about to be restarted. */
static bool ends_by_rule(const struct world *w, const struct rdzv *m, const struct rdzv_event *e)
{
    struct rdzv_view v;
    return e->kind == RDZV_EXIT && rdzv_state(m) == RDZV_RUNNING && e->round == rdzv_round(m) &&
           rdzv_view(m, e->id, &v) && v.part &&
           exit_rules_get(&w->cfg.exit_rules, e->code) == EXIT_STOP;
}

#endif
