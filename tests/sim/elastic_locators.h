/* How agents of tests/sim/elastic find a daemon: the first node, the members of the last round, or
 * all nodes in turn. */
#ifndef DD_SIM_ELASTIC_LOCATORS_H
#define DD_SIM_ELASTIC_LOCATORS_H

#include "elastic_signals.h"
#include "elastic_world.h"

static void node_found(struct world *w, int n, int link);
static void close_link(struct world *w, int *link);

/* Try the first node, or the one that the node was redirected to. */
static void try_host(struct world *w, const struct item *it)
{
    const int n = it->node, host = it->arg;
    if (w->nodes[n].am.state != AM_SEEKING || w->nodes[n].tries != it->code)
        return;
    if (w->daemons[host].alive && reach(w, n, host))
        node_found(w, n, connect_to(w, n, host));
    else
        later(
            w, 50 + (long)rnd(w, 500),
            (struct item){.kind = TRY, .node = n, .life = it->life, .arg = host, .code = it->code});
}

static void locate(struct world *w, int n, int host)
{
    struct node *p = &w->nodes[n];
    later(w, 0,
          (struct item){.kind = TRY, .node = n, .life = p->life, .arg = host, .code = ++p->tries});
}

static void members_later(struct world *w, int n, long ms)
{
    struct node *p = &w->nodes[n];
    later(w, ms, (struct item){.kind = MEMBERS, .node = n, .life = p->life, .code = p->passes});
}

/* Probe the members of the last round once. */
static void ask_members(struct world *w, const struct item *it)
{
    const int n = it->node;
    struct node *p = &w->nodes[n];
    if (p->passes != it->code)
        return;
    for (int k = 0; k < p->last.n && k <= RDZV_SUCCESSORS; k++) {
        int d = p->last.index[k];
        if (d == n || !w->daemons[d].alive || !reach(w, n, d))
            continue;
        trace(w, "node %d finds the daemon of %d", n, d);
        p->passes++;
        node_found(w, n, connect_to(w, n, d));
        return;
    }
    members_later(w, n, 300 + (long)rnd(w, 300));
}

static void peers_later(struct world *w, int n, long ms)
{
    later(w, ms, (struct item){.kind = PEERS, .node = n, .life = w->nodes[n].life});
}

/* Probe the next node of the list, or report that all have been probed. */
static void ask_peers(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (p->other >= 0 || p->asks < 0)
        return;
    for (; p->asks < w->nnodes; p->asks++) {
        int d = p->asks;
        if (d == n || !w->daemons[d].alive || !reach(w, n, d))
            continue;
        p->asks++;
        trace(w, "node %d asks node %d whether the job goes on there", n, d);
        node_found(w, n, connect_to(w, n, d));
        return;
    }
    p->asks = -1;
    node_steps(w, n, (struct am_event){.kind = AM_PEERS_PROBED});
}

/* Begin to probe all nodes; the attempts at nodes that are down add one delay. */
static void begin_peers(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    close_link(w, &p->other);
    p->asks = 0;
    peers_later(w, n, rnd(w, 2) == 0 ? ATTEMPT_MS : (long)rnd(w, 5));
}

#endif
