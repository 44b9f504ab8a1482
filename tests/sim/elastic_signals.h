/* Signals in the jobs of tests/sim/elastic, and the operations that delay an agent: draining the
 * signals of a scheduler, a health check, a request to the scheduler. */
#ifndef DD_SIM_ELASTIC_SIGNALS_H
#define DD_SIM_ELASTIC_SIGNALS_H

#include "elastic_world.h"

#include <signal.h>

/* Defined in elastic.c. */
static void node_steps(struct world *w, int n, struct am_event e);
static void step(struct world *w, int d, struct rdzv_event *e);
static void daemon_ends(struct world *w, int d);

/* Schedule the end of a health check or a request to the scheduler; for most nodes it takes no
 * time. */
static void takes_time(struct world *w, int n, enum item_kind end)
{
    struct node *p = &w->nodes[n];
    later(w, rnd(w, 4) == 0 ? (long)rnd(w, 2000) : 0,
          (struct item){.kind = end, .node = n, .life = p->life, .arg = p->checks});
}

/* Carry out an action on signals. False: the action is of another kind. */
static bool act_on_signals(struct world *w, int n, const struct am_action *a)
{
    struct node *p = &w->nodes[n];
    switch ((int)a->kind) {
    case AM_DO_SEND_STOP:
        if (p->link >= 0)
            send_up(w, p->link, (struct rdzv_event){.kind = RDZV_STOP_REQUEST, .signal = a->arg});
        return true;
    case AM_DO_KILL_WORKERS:
        later(w, 0,
              (struct item){
                  .kind = WORKER_ENDS, .node = n, .life = p->life, .arg = p->batch, .code = 143});
        return true;
    case AM_DO_DRAIN_SIGNALS:
        p->explained = p->settling;
        if (!p->settling)
            node_steps(w, n, (struct am_event){.kind = AM_SETTLED});
        return true;
    default:
        return false;
    }
}

/* A scheduler signals the workers, too; the agent identifies the signal only after SETTLE_MS. */
static void signals(struct world *w, int n, bool by_scheduler)
{
    struct node *p = &w->nodes[n];
    if (p->at != HERE || p->settling)
        return;
    trace(w, "node %d is signalled by %s", n, by_scheduler ? "the scheduler" : "a person");
    if (p->signalled < 0)
        p->signalled = w->kit.now;
    if (!by_scheduler) {
        node_steps(w, n, (struct am_event){.kind = AM_SIGNAL, .sig = SIGTERM});
        return;
    }
    p->settling = true;
    later(w, SETTLE_MS, (struct item){.kind = SETTLES, .node = n, .life = p->life});
    if (p->running > 0 && rnd(w, 4) != 0)
        later(w, (long)rnd(w, rnd(w, 2) == 0 ? 10 : 500),
              (struct item){
                  .kind = WORKER_ENDS, .node = n, .life = p->life, .arg = p->batch, .code = 143});
}

static void settles(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    p->settling = p->explained = false;
    if (p->am.sig == 0) /* ignore the scheduler's repeated signals */
        node_steps(w, n, (struct am_event){.kind = AM_SIGNAL, .sig = SIGTERM});
    node_steps(w, n, (struct am_event){.kind = AM_SETTLED});
}

/* ddrund has received SIGTERM. */
static void daemon_stops(struct world *w, const struct item *it)
{
    struct daemon *p = &w->daemons[it->node];
    if (!p->alive || p->life != it->life)
        return;
    if (rdzv_state(p->m) == RDZV_FINISHED)
        daemon_ends(w, it->node);
    else
        step(w, it->node,
             &(struct rdzv_event){
                 .kind = RDZV_STOP_REQUEST, .id = -1, .signal = SIGTERM, .text = "signalled"});
}

static void happen_of_signals(struct world *w, const struct item *it, bool current)
{
    switch ((int)it->kind) {
    case SIGNALS:
        signals(w, it->node, it->arg == 1);
        break;
    case SETTLES:
        if (current)
            settles(w, it->node);
        break;
    case CHECKED:
        if (current && it->arg == w->nodes[it->node].checks)
            node_steps(w, it->node, (struct am_event){.kind = AM_CHECKED});
        break;
    case REQUEUED:
        if (current)
            node_steps(w, it->node, (struct am_event){.kind = AM_REQUEUED});
        break;
    case GUARDIAN_CRASHES:
        trace(w, "node %d loses its guardian", it->node);
        node_steps(w, it->node, (struct am_event){.kind = AM_GUARDIAN_LOST, .sig = SIGTERM});
        break;
    case DAEMON_STOPS:
        daemon_stops(w, it);
        break;
    default:
        break;
    }
}

#endif
