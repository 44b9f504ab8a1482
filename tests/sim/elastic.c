/* clang-format off */
/* A simulator of whole jobs that lose nodes, daemons and networks: the real round machine in every daemon, modelled agents
 * that do as src/agent/succession.c and search.c do, in virtual time, from one seed. Who may start a daemon when, how long
 * one looks and when one gives up is asked of rdzv/successor.h here as there.
 *
 *     elastic [SEEDS [FIRST [blind]]]
 *
 * blind: a first node that is started again looks at nobody, which must break a promise.
 * Each seed is one job of 1 to 12 nodes. Agents and daemons crash at any moment and come again, networks part and heal,
 * workers fail, nodes are drained or fall ill (a health check leaves them out). Messages keep their order on a link, as TCP's do, and take any time; a parted link stands still, and is
 * given up after the heartbeat on each side by itself. After every step the promises below are checked.
 *
 * In some jobs (RESTARTS) the first node, too, is started again after a crash, knowing nothing. It can then see whom the
 * network reaches, and who has a daemon: so no network parts there, and --last-call is longer than nodes can be without a
 * daemon (docs/design.md, "Nodes may be started again from outside").
 */
#include "elastic_world.h"

#include <errno.h>
#include <signal.h>

#ifdef PLANTED_FAULT
#include "rdzv/machine_inner.h"

bool rdzv_quorum(const struct rdzv *m)
{
    (void)m;
    return true;
}

bool rdzv_part_quorum(const struct rdzv *m)
{
    (void)m;
    return true;
}
#endif

/* ---- daemons ---- */

static void set_timer(struct world *w, int d)
{
    struct daemon *p = &w->daemons[d];
    uint64_t at = p->alive ? rdzv_timer(p->m) : RDZV_NEVER;
    if (at == RDZV_NEVER || p->timer == (long)at)
        return;
    p->timer = (long)at;
    later(w, p->timer - w->kit.now, (struct item){.kind = TIMER, .node = d, .life = p->life});
}

static void daemon_ends(struct world *w, int d)
{
    struct daemon *p = &w->daemons[d];
    if (!p->alive)
        return;
    p->alive = false;
    trace(w, "daemon %d ends", d);
    rdzv_free(p->m);
    p->m = NULL;
    for (int i = 0; i < w->nlinks; i++)
        if (w->links[i].daemon == d && w->links[i].daemon_life == p->life && w->links[i].daemon_open)
            close_end(w, i, DOWN);
}

static void daemon_starts(struct world *w, int d, int64_t epoch)
{
    struct daemon *p = &w->daemons[d];
    struct rdzv_cfg cfg = w->cfg;
    must(w, !p->alive, "a node has one daemon at most");
    if (epoch > 0)
        successor_cfg(&cfg, epoch, d, (uint64_t)w->grace);
    *p = (struct daemon){.alive = true, .life = p->life + 1, .timer = -1, .epoch = epoch, .begun = -1};
    memset(p->link_of, -1, sizeof(p->link_of));
    must(w, rdzv_new(&p->m, &cfg, (uint64_t)w->kit.now) == 0, "memory");
    w->took_over += epoch > 0;
    trace(w, "daemon %d starts, epoch %ld", d, (long)epoch);
    set_timer(w, d);
}

static void check_round(struct world *w, const struct rdzv *m)
{
    const struct rdzv_members *p = rdzv_planned(m);
    bool seen[MAX_NODES] = {false};
    must(w, p->n >= w->cfg.min_nodes && p->n <= w->cfg.max_nodes, "a round has at least MIN and at most MAX nodes");
    must(w, p->restarts <= w->cfg.max_restarts, "the restart budget is kept");
    for (int k = 0; k < p->n; k++) {
        must(w, p->index[k] < w->nnodes && !seen[p->index[k]], "each node has one rank");
        seen[p->index[k]] = true;
    }
}

static void run_actions(struct world *w, int d)
{
    struct daemon *p = &w->daemons[d];
    struct rdzv_action a;
    bool checked = false;
    while (p->alive && rdzv_next_action(p->m, &a)) {
        if (a.kind == RDZV_DROP_STORE)
            continue;
        int link = p->link_of[a.id];
        must(w, link >= 0, "actions are for who is here");
        trace(w, "daemon %d -> node %d: action %d %.60s", d, w->links[link].node, (int)a.kind, a.text);
        if (a.kind == RDZV_SEND_PLAN && !checked) {
            check_round(w, p->m);
            checked = true;
            w->rounds++;
            p->begun = w->kit.now;
        }
        if (a.kind == RDZV_SEND_FINISH && rdzv_code(p->m) == 0 && !p->said_success) {
            p->said_success = true;
            w->successes++;
        }
        w->left_out += a.kind == RDZV_SEND_NOTE && strstr(a.text, "is left out: its disk") != NULL;
        send_down(w, link, &a, p->m);
        if (a.kind == RDZV_SEND_REFUSE) {
            p->link_of[a.id] = -1;
            w->links[link].id = -1;
            close_end(w, link, DOWN);
        }
    }
}

static void step(struct world *w, int d, struct rdzv_event *e)
{
    struct daemon *p = &w->daemons[d];
    int rc = rdzv_step(p->m, e, (uint64_t)w->kit.now);
    must(w, rc == 0 || rc == -EINVAL, "memory");
    run_actions(w, d);
    if (p->alive && rdzv_state(p->m) == RDZV_FINISHED && rdzv_members(p->m) == 0)
        daemon_ends(w, d);
    else
        set_timer(w, d);
}

static void lose(struct world *w, int link, bool clean)
{
    struct link *l = &w->links[link];
    struct daemon *p = &w->daemons[l->daemon];
    int id = l->id;
    l->id = -1;
    if (id < 0)
        return;
    p->link_of[id] = -1;
    if (l->node == l->daemon && rdzv_may_go_on(p->m, (uint64_t)w->kit.now))
        daemon_ends(w, l->daemon);
    else
        step(w, l->daemon, &(struct rdzv_event){.kind = RDZV_LOST, .id = id, .clean = clean, .text = "gone"});
}

static void daemon_gets(struct world *w, struct item *it)
{
    struct link *l = &w->links[it->link];
    struct daemon *p = &w->daemons[l->daemon];
    if (it->event.kind == RDZV_JOIN) {
        for (int id = 0; id < MAX_NODES && l->id < 0; id++)
            if (p->link_of[id] < 0 && id < w->cfg.capacity)
                l->id = id;
        if (l->id < 0) {
            close_end(w, it->link, DOWN);
            return;
        }
        p->link_of[l->id] = it->link;
        it->event.planned = it->members;
        it->event.committed = it->committed;
        it->event.name = w->names[l->node];
        it->event.addr = "10.0.0.1";
    }
    if (l->id < 0)
        return;
    it->event.id = l->id;
    it->event.text = it->event.kind == RDZV_JOIN ? NULL : "text";
    it->event.unfit = w->nodes[l->node].unfit ? "its disk is full" : NULL;
    trace(w, "node %d -> daemon %d: event %d", l->node, l->daemon, (int)it->event.kind);
    step(w, l->daemon, &it->event);
}

/* ---- nodes ---- */

static bool same_round(const struct rdzv_members *a, const struct rdzv_members *b)
{
    return a->epoch == b->epoch && a->round == b->round;
}

static bool is_live(const struct world *w, int n)
{
    const struct rdzv_members *m = &w->nodes[n].plan;
    for (int k = 0; k < m->n; k++) {
        const struct node *o = &w->nodes[m->index[k]];
        if (o->state != RUNNING || !same_round(&o->plan, m))
            return false;
    }
    return true;
}

static void forget_all(struct node *p)
{
    rdzv_members_clear(&p->plan);
    rdzv_members_clear(&p->committed);
    *p = (struct node){.state = p->state, .life = p->life, .plan = RDZV_MEMBERS_NONE, .committed = RDZV_MEMBERS_NONE, .link = -1,
                       .other = -1, .group = p->group, .orphan = -1, .asks = -1, .unfit = p->unfit};
}

/* Two rounds that could both make progress would be two jobs. */
static void check_one_round(struct world *w, int n)
{
    if (!is_live(w, n))
        return;
    for (int o = 0; o < w->nnodes; o++)
        if (w->nodes[o].state == RUNNING && !same_round(&w->nodes[o].plan, &w->nodes[n].plan))
            must(w, !is_live(w, o), "one round runs at a time");
}

/* In jobs with RESTARTS whoever is there starts many a node again that has given up, as after a crash: it knows nothing. */
static void may_start_again(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (w->kind != RESTARTS || p->code != 1 || p->life > 3 || rnd(w, 2) == 0)
        return;
    p->state = AWAY;
    forget_all(p);
    later(w, 100 + (long)rnd(w, 10000), (struct item){.kind = NODE_STARTS, .node = n, .life = -1});
}

static void leave(struct world *w, int n, int code)
{
    struct node *p = &w->nodes[n];
    must(w, p->running == 0, "nobody leaves before its workers");
    p->state = LEFT;
    p->code = code;
    p->looking = p->searching = false;
    trace(w, "node %d leaves with %d", n, code);
    for (int i = 0; i < w->nlinks; i++)
        if (w->links[i].node == n && w->links[i].node_open)
            close_end(w, i, UP);
    p->link = p->other = -1;
    may_start_again(w, n);
}

static void join(struct world *w, int n, int link)
{
    const struct node *p = &w->nodes[n];
    send_up(w, link, (struct rdzv_event){.kind = RDZV_JOIN, .index = n, .nnodes = w->cfg.max_nodes, .slots = 1,
                                         .min_nodes = w->cfg.min_nodes, .epoch = p->epoch, .ended_well = p->ended_well,
                                         .elsewhere = p->link >= 0 && p->link != link});
}

/* Messages that are under way may cross; beyond that nobody ends a daemon whose nodes run. */
static void check_leaves_daemon(struct world *w, int n)
{
    const struct daemon *d = &w->daemons[n];
    must(w, !d->alive || rdzv_state(d->m) == RDZV_FINISHED || rdzv_state(d->m) == RDZV_GATHERING ||
                w->kit.now - d->begun < CROSSING_MS,
         "no node ends its own daemon under a round");
}

static void use_link(struct world *w, int n, int link)
{
    w->nodes[n].link = link;
    w->nodes[n].state = JOINED;
}

static void be_host(struct world *w, int n)
{
    daemon_starts(w, n, w->nodes[n].epoch);
    use_link(w, n, connect_to(w, n, n));
    join(w, n, w->nodes[n].link);
}

static void look_later(struct world *w, int n, long ms)
{
    later(w, ms, (struct item){.kind = LOOK, .node = n, .life = w->nodes[n].life});
}

static void look_again(struct world *w, int n)
{
    look_later(w, n, (long)successor_again_ms(&w->nodes[n].again_ms));
}

static void orphan_looks(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    int place = successor_place(&p->plan, n);
    bool again = p->orphan >= 0;
    if (!again)
        p->orphan = w->kit.now;
    p->looking = true;
    p->again_ms = 0;
    p->limit = p->orphan + (long)successor_limit_ms(&p->plan, REJOIN_MS, (uint64_t)w->grace);
    look_later(w, n, 0);
    if (place >= 0)
        later(w, (long)successor_turn_ms(place, again), (struct item){.kind = TURN, .node = n, .life = p->life});
    later(w, p->limit - w->kit.now, (struct item){.kind = LIMIT, .node = n, .life = p->life});
}

/* Most end soon, some only with SIGKILL. */
static void stop_workers(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    later(w, rnd(w, 20) == 0 ? w->grace : (long)rnd(w, 2500), (struct item){.kind = WORKERS_KILLED, .node = n, .life = p->life, .arg = p->batch});
}

static bool may_succeed(const struct world *w, const struct node *p)
{
    return successor_possible(&w->cfg, &p->plan);
}

static void link_lost(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    trace(w, "node %d has lost its daemon", n);
    p->link = -1;
    if (p->state == LEFT || p->state == AWAY)
        return;
    if (!may_succeed(w, p)) {
        if (p->running > 0) {
            p->state = STOPPING;
            stop_workers(w, n);
        } else {
            leave(w, n, 1);
        }
        return;
    }
    p->state = ORPHAN;
    p->limit = END_OF_TIME; /* not yet */
    if (p->running > 0)
        stop_workers(w, n);
    else
        orphan_looks(w, n);
}

static void workers_gone(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    p->batch++;
    if (p->state == ORPHAN) {
        orphan_looks(w, n);
    } else if (p->link < 0) {
        leave(w, n, 1);
    } else {
        p->state = IDLE;
        send_up(w, p->link, (struct rdzv_event){.kind = RDZV_DONE, .round = p->plan.round});
    }
}

static void worker_ends(struct world *w, const struct item *it)
{
    struct node *p = &w->nodes[it->node];
    if (p->batch != it->arg || p->running == 0)
        return;
    p->running = 0;
    trace(w, "node %d: its worker ends with %d", it->node, it->code);
    w->failures_of_workers += it->code != 0;
    p->ended_well = it->code == 0;
    if (it->code != 0 && p->link >= 0)
        send_up(w, p->link, (struct rdzv_event){.kind = RDZV_EXIT, .round = p->plan.round, .code = it->code});
    workers_gone(w, it->node);
}

static void node_plans(struct world *w, struct item *it)
{
    int n = w->links[it->link].node;
    struct node *p = &w->nodes[n];
    must(w, p->running == 0 && p->state != RUNNING && p->state != STOPPING, "a node runs one round at a time");
    must(w, rdzv_members_newer(it->members, &p->plan), "a node never runs an old round");
    p->looking = p->searching = false;
    p->orphan = -1;
    if (p->other >= 0)
        close_end(w, p->other, UP);
    p->other = -1;
    must(w, rdzv_members_copy(&p->plan, it->members) == 0, "memory");
    p->state = RUNNING;
    p->running = 1;
    trace(w, "node %d runs epoch %ld round %d of %d", n, (long)p->plan.epoch, p->plan.round, p->plan.n);
    send_up(w, p->link, (struct rdzv_event){.kind = RDZV_STARTED, .round = p->plan.round});
    int code = w->kind != MILD && rnd(w, 100) < 4 ? 1 + (int)rnd(w, 200) : 0;
    later(w, 1 + (long)rnd(w, 1000) + (code == 0 ? 40000 : 0),
          (struct item){.kind = WORKER_ENDS, .node = n, .life = p->life, .arg = p->batch, .code = code});
    check_one_round(w, n);
}

static void adopt(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    int other = p->other;
    trace(w, "node %d joins another daemon", n);
    check_leaves_daemon(w, n);
    if (p->link >= 0)
        close_end(w, p->link, UP);
    p->other = -1;
    p->looking = false;
    daemon_ends(w, n);
    use_link(w, n, other);
}

/* The next node of the list is asked, or all have been. */
static void search_on(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (!p->searching || p->other >= 0 || p->asks < 0)
        return;
    for (; p->asks < w->nnodes; p->asks++) {
        int d = p->asks;
        if (d == n || !w->daemons[d].alive || !reach(w, n, d))
            continue;
        p->asks++;
        p->other = connect_to(w, n, d);
        trace(w, "node %d asks node %d whether the job goes on there", n, d);
        join(w, n, p->other);
        return;
    }
    p->asks = -1;
    if (p->wanted && !p->refused) {
        send_up(w, p->link, (struct rdzv_event){.kind = RDZV_LOOKED});
        p->wanted = false;
    }
    later(w, (long)(p->refused ? search_refused_ms() : search_wait_ms(&p->search_ms, true)),
          (struct item){.kind = SEARCH, .node = n, .life = p->life});
}

static void search_later(struct world *w, int n)
{
    later(w, (long)rnd(w, 5), (struct item){.kind = SEARCH_ON, .node = n, .life = w->nodes[n].life});
}

/* One look at all nodes; those that are down cost some time, once. */
static void search(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (!p->searching || (p->asks >= 0 && !p->wanted))
        return;
    p->asks = 0;
    p->refused = false;
    if (p->other >= 0)
        close_end(w, p->other, UP);
    p->other = -1;
    later(w, rnd(w, 2) == 0 ? ATTEMPT_MS : (long)rnd(w, 5), (struct item){.kind = SEARCH_ON, .node = n, .life = p->life});
}

/* Our own daemon has begun nothing; it sends its guests after us. */
static void go_over(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    struct daemon *own = &w->daemons[n];
    int other = p->other;
    trace(w, "node %d goes over to the daemon of %d", n, w->links[other].daemon);
    check_leaves_daemon(w, n);
    for (int id = 0; id < MAX_NODES && own->alive && own->begun < 0; id++)
        if (own->link_of[id] >= 0 && own->link_of[id] != p->link)
            later(w, delay(w), (struct item){.kind = TO_NODE, .link = own->link_of[id], .action = {.kind = RDZV_SEND_LOOK},
                                             .number = w->links[own->link_of[id]].sent[DOWN]++, .to = w->links[other].daemon});
    close_end(w, p->link, UP);
    p->searching = false;
    p->other = -1;
    daemon_ends(w, n);
    w->came_back++;
    use_link(w, n, other);
}

/* true: this was about the search. */
static bool search_gets(struct world *w, const struct item *it)
{
    int n = w->links[it->link].node;
    struct node *p = &w->nodes[n];
    if (!p->searching || it->link != p->other)
        return false;
    if (it->action.kind == RDZV_SEND_WELCOME && it->epoch > p->epoch) {
        go_over(w, n);
    } else if (it->action.kind == RDZV_SEND_REFUSE || it->action.kind == RDZV_SEND_FINISH) {
        p->refused |= it->action.kind == RDZV_SEND_REFUSE && it->epoch > p->epoch;
        close_end(w, it->link, UP);
        p->other = -1;
        search_later(w, n);
    }
    return true;
}

static void seek(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    p->state = SEEKING;
    p->limit = w->kit.now + JOIN_MS;
}

static void node_looks(struct world *w, struct item *it)
{
    int n = w->links[it->link].node;
    struct node *p = &w->nodes[n];
    if (it->to >= 0) {
        close_end(w, it->link, UP);
        p->link = -1;
        seek(w, n);
        later(w, 0, (struct item){.kind = TRY, .node = n, .life = p->life, .arg = it->to});
    } else if (p->searching) {
        p->wanted = true;
        search(w, n);
    } else if (!p->looking && p->plan.n > 1) {
        p->looking = true;
        p->again_ms = 0;
        look_later(w, n, 0);
    }
}

static void node_gets(struct world *w, struct item *it)
{
    int n = w->links[it->link].node;
    struct node *p = &w->nodes[n];
    if (search_gets(w, it))
        return;
    if (it->link == p->other && it->action.kind == RDZV_SEND_REFUSE) {
        close_end(w, it->link, UP);
        p->other = -1;
        look_again(w, n);
        return;
    }
    if (it->link == p->other && p->running == 0)
        adopt(w, n);
    if (it->link != p->link)
        return;
    switch (it->action.kind) {
    case RDZV_SEND_REFUSE:
        close_end(w, it->link, UP);
        p->link = -1;
        if (p->looking && !w->daemons[n].alive) {
            p->state = ORPHAN;
            look_again(w, n);
        } else {
            leave(w, n, 2);
        }
        break;
    case RDZV_SEND_PLAN:
        node_plans(w, it);
        break;
    case RDZV_SEND_BEGUN:
        p->looking = p->searching = false;
        if (p->other >= 0)
            close_end(w, p->other, UP);
        p->other = -1;
        break;
    case RDZV_SEND_COMMIT:
        if (it->round == p->plan.round)
            must(w, rdzv_members_copy(&p->committed, &p->plan) == 0, "memory");
        break;
    case RDZV_SEND_STOP:
        if (p->state == RUNNING && it->round == p->plan.round) {
            p->state = STOPPING;
            stop_workers(w, n);
        }
        break;
    case RDZV_SEND_FINISH:
        leave(w, n, it->code);
        break;
    case RDZV_SEND_LOOK:
        node_looks(w, it);
        break;
    case RDZV_SEND_WELCOME:
    case RDZV_SEND_ROUND:
    case RDZV_SEND_NOTE:
    case RDZV_DROP_STORE:
        break;
    }
}

/* One pass over the nodes of the last round. */
static void look(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    bool own = w->daemons[n].alive;
    if (!p->looking || p->other >= 0 || (p->link >= 0 && !own))
        return;
    for (int k = 0; k < p->plan.n && k <= RDZV_SUCCESSORS; k++) {
        int d = p->plan.index[k];
        if (d == n || !w->daemons[d].alive || !reach(w, n, d))
            continue;
        int link = connect_to(w, n, d);
        if (own)
            p->other = link;
        else
            use_link(w, n, link);
        trace(w, "node %d asks the daemon of %d", n, d);
        join(w, n, link);
        return;
    }
    look_later(w, n, 300 + (long)rnd(w, 300));
}

static void turn(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (p->state != ORPHAN || p->link >= 0 || !p->looking)
        return;
    daemon_ends(w, n);
    p->epoch = rdzv_next_epoch(p->epoch > p->plan.epoch ? p->epoch : p->plan.epoch, n);
    be_host(w, n);
    look_later(w, n, 300);
}

/* Whoever is just being asked may refuse. */
static void limit(struct world *w, int n)
{
    const struct node *p = &w->nodes[n];
    if (!p->looking || w->kit.now < p->limit)
        return;
    if (p->state == ORPHAN && p->link < 0)
        leave(w, n, 1);
    else
        later(w, 1000, (struct item){.kind = LIMIT, .node = n, .life = p->life});
}

/* A guest tries the first node, or the one that it was sent to; later on any node that has a daemon. */
static void try_host(struct world *w, int n, int host)
{
    struct node *p = &w->nodes[n];
    unsigned wait = 0;
    bool wide = w->kit.now - (p->limit - JOIN_MS) >= (long)search_wait_ms(&wait, false);
    if (p->state != SEEKING)
        return;
    if (wide && rnd(w, 3) == 0)
        host = (int)rnd(w, (unsigned)w->nnodes);
    if (w->daemons[host].alive && reach(w, n, host)) {
        use_link(w, n, connect_to(w, n, host));
        join(w, n, p->link);
    } else if (w->kit.now > p->limit) {
        leave(w, n, 1);
    } else {
        later(w, 50 + (long)rnd(w, 500), (struct item){.kind = TRY, .node = n, .life = p->life, .arg = host});
    }
}

static void node_starts(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (p->state != AWAY)
        return;
    daemon_ends(w, n); /* an agent waits for its own */
    p->life++;
    seek(w, n);
    trace(w, "node %d starts", n);
    if (n > 0) {
        try_host(w, n, 0);
        return;
    }
    be_host(w, 0);
    p->searching = w->cfg.looks_first;
    p->asks = -1;
    if (p->searching)
        later(w, (long)search_wait_ms(&p->search_ms, true), (struct item){.kind = SEARCH, .node = n, .life = p->life});
}

/* When it comes back, if it does; -1. */
static long back_after(struct world *w, int n)
{
    if (n == 0 && w->kind != RESTARTS)
        return -1;
    if (w->kind == RESTARTS ? rnd(w, 4) == 0 : rnd(w, 3) != 0)
        return -1;
    return 1000 + (long)rnd(w, 20000);
}

static void node_crashes(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (p->state == LEFT || p->state == AWAY)
        return;
    trace(w, "node %d crashes", n);
    daemon_ends(w, n);
    for (int i = 0; i < w->nlinks; i++)
        if (w->links[i].node == n && w->links[i].node_open)
            close_end(w, i, UP);
    p->state = AWAY;
    forget_all(p);
    long back = back_after(w, n);
    if (back >= 0)
        later(w, back, (struct item){.kind = NODE_STARTS, .node = n, .life = -1});
}

/* ---- the network ---- */

static void node_end_closes(struct world *w, int link)
{
    struct link *l = &w->links[link];
    struct node *p = &w->nodes[l->node];
    l->node_open = false;
    if (p->other == link) {
        p->other = -1;
        if (p->searching)
            search_later(w, l->node);
        else
            look_again(w, l->node);
    } else if (p->link == link) {
        link_lost(w, l->node);
    }
}

/* A close travels like a message; over a parted network it is the silence that is noticed. */
static void end_closes(struct world *w, struct item *it)
{
    struct link *l = &w->links[it->link];
    bool open = it->end == UP ? l->node_open : daemon_has(w, l);
    int from = 1 - it->end;
    if (!open)
        return;
    bool cut = !reach(w, l->node, l->daemon);
    bool messages_left = l->got[from] < it->number;
    if ((cut || messages_left) && w->kit.now - it->since < HEARTBEAT_MS + 1700) {
        later(w, 50, *it);
        return;
    }
    if (it->end == UP) {
        node_end_closes(w, it->link);
    } else {
        l->daemon_open = false;
        lose(w, it->link, false);
    }
}

/* false: it comes later, or never. */
static bool delivered(struct world *w, struct item *it, int way)
{
    struct link *l = &w->links[it->link];
    bool open = way == UP ? daemon_has(w, l) : l->node_open;
    if (!open)
        return false;
    if (l->got[way] == it->number && reach(w, l->node, l->daemon)) {
        l->got[way]++;
        return true;
    }
    struct item again = *it;
    it->members = it->committed = NULL; /* are the copy's */
    later(w, 20, again);
    return false;
}

/* Each side of a parted link gives it up by itself, unless it heals before. */
static void notice_silence(struct world *w)
{
    for (int i = 0; i < w->nlinks; i++) {
        struct link *l = &w->links[i];
        if ((!l->node_open && !l->daemon_open) || reach(w, l->node, l->daemon))
            continue;
        for (int end = UP; end <= DOWN; end++)
            later(w, HEARTBEAT_MS + (long)rnd(w, 1700), (struct item){.kind = PARTS, .link = i, .end = end, .arg = 1});
    }
}

static void parts(struct world *w, struct item *it)
{
    if (it->arg == 1) { /* the heartbeat of one end */
        struct link *l = &w->links[it->link];
        if (reach(w, l->node, l->daemon))
            return;
        if (it->end == UP && l->node_open) {
            close_end(w, it->link, UP);
            node_end_closes(w, it->link);
        }
        if (it->end == DOWN && daemon_has(w, l)) {
            close_end(w, it->link, DOWN);
            lose(w, it->link, false);
        }
        return;
    }
    trace(w, "the network parts");
    unsigned kind = rnd(w, 3);
    int one = (int)rnd(w, (unsigned)w->nnodes);
    for (int n = 0; n < w->nnodes; n++)
        w->nodes[n].group = kind == 0 ? n == one : (int)rnd(w, kind == 1 ? 2 : 3);
    notice_silence(w);
    later(w, 1000 + (long)rnd(w, 60000), (struct item){.kind = HEALS});
}

/* A person wants a node to have no further part, and asks every daemon that he finds. */
static void drains(struct world *w, int n)
{
    for (int d = 0; d < w->nnodes; d++)
        for (int id = 0; w->daemons[d].alive && id < w->cfg.capacity; id++) {
            int link = w->daemons[d].link_of[id];
            if (link < 0 || w->links[link].node != n || !rdzv_can_spare(w->daemons[d].m, id))
                continue;
            trace(w, "node %d is drained at daemon %d", n, d);
            w->drained++;
            step(w, d, &(struct rdzv_event){.kind = RDZV_DRAIN, .id = id, .text = "drained"});
        }
}

static void happen(struct world *w, struct item *it)
{
    bool current = it->life < 0 || it->life == w->nodes[it->node].life;
    switch (it->kind) {
    case NODE_STARTS: node_starts(w, it->node); break;
    case NODE_CRASHES: node_crashes(w, it->node); break;
    case DAEMON_CRASHES: daemon_ends(w, it->node); break;
    case WORKER_ENDS: if (current) worker_ends(w, it); break;
    case WORKERS_KILLED:
        if (current) {
            it->code = 143;
            worker_ends(w, it);
        }
        break;
    case TRY: if (current) try_host(w, it->node, it->arg); break;
    case SEARCH: if (current) search(w, it->node); break;
    case SEARCH_ON: if (current) search_on(w, it->node); break;
    case LOOK: if (current) look(w, it->node); break;
    case TURN: if (current) turn(w, it->node); break;
    case LIMIT:
        if (current)
            limit(w, it->node);
        break;
    case TO_DAEMON: if (delivered(w, it, UP)) daemon_gets(w, it); break;
    case TO_NODE: if (delivered(w, it, DOWN)) node_gets(w, it); break;
    case END_CLOSES: end_closes(w, it); break;
    case TIMER:
        if (w->daemons[it->node].alive && w->daemons[it->node].life == it->life) {
            w->daemons[it->node].timer = -1;
            step(w, it->node, &(struct rdzv_event){.kind = RDZV_TIME, .id = -1});
        }
        break;
    case PARTS: parts(w, it); break;
    case SICKENS: w->nodes[it->node].unfit = true; break;
    case DRAINS: drains(w, it->node); break;
    case HEALS:
        trace(w, "the network heals");
        for (int n = 0; n < w->nnodes; n++)
            w->nodes[n].group = 0;
        break;
    }
    drop(it->members);
    drop(it->committed);
}

/* ---- one job ---- */

static void set_up_cfg(struct world *w)
{
    struct rdzv_cfg *c = &w->cfg;
    w->nnodes = w->kind == MILD ? 3 + (int)rnd(w, 6) : 1 + (int)rnd(w, MAX_NODES);
    w->grace = w->kind == RESTARTS ? QUICK_GRACE_MS : GRACE_MS;
    *c = (struct rdzv_cfg){.max_nodes = w->nnodes, .min_nodes = w->nnodes, .expected = w->nnodes, .capacity = w->nnodes,
                           .max_restarts = w->kind == MILD ? 0 : (int)rnd(w, 4), .join_ns = JOIN_MS, .last_call_ns = LAST_CALL_MS,
                           .rejoin_ns = REJOIN_MS, .grow = rnd(w, 3), .master_port = 30000};
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
    c->looks_first = !w->blind && w->nnodes > 1 && (rdzv_is_elastic(c) || c->max_restarts > 0);
}

static void plan_disasters(struct world *w)
{
    const long soon = 100 + (long)rnd(w, 60000);
    if (w->kind == MILD) { /* while all of them run */
        later(w, 5000 + (long)rnd(w, 20000), (struct item){.kind = rnd(w, 3) == 0 ? DAEMON_CRASHES : NODE_CRASHES,
                                            .node = rnd(w, 2) == 0 ? 0 : (int)rnd(w, (unsigned)w->nnodes), .life = -1});
        return;
    }
    for (int n = 0; n < w->nnodes; n++) {
        bool restarts = w->kind == RESTARTS;
        if (rnd(w, restarts ? n == 0 ? 2 : 6 : 12) == 0)
            later(w, (long)rnd(w, 90000), (struct item){.kind = NODE_CRASHES, .node = n, .life = -1});
        if (rnd(w, 20) == 0)
            later(w, (long)rnd(w, 90000), (struct item){.kind = DAEMON_CRASHES, .node = n, .life = -1});
    }
    if (rnd(w, 4) == 0)
        later(w, soon, (struct item){.kind = SICKENS, .node = rnd(w, 3) == 0 ? 0 : (int)rnd(w, (unsigned)w->nnodes), .life = -1});
    if (w->kind == RESTARTS)
        return;
    if (rnd(w, 2) == 0)
        later(w, soon, (struct item){.kind = PARTS});
    if (rnd(w, 6) == 0)
        later(w, soon + 1000 + (long)rnd(w, 30000), (struct item){.kind = PARTS});
    for (unsigned n = rnd(w, 4); n < 3; n++)
        later(w, (long)rnd(w, 60000), (struct item){.kind = DRAINS, .node = (int)rnd(w, (unsigned)w->nnodes), .life = -1});
}

static void set_up(struct world *w, unsigned seed)
{
    kit_begin(&w->kit, seed);
    w->nlinks = w->successes = w->failures_of_workers = 0;
    w->kind = seed % 4 == 0 ? MILD : seed % 4 == 1 ? RESTARTS : WILD;
    memset(w->daemons, 0, sizeof(w->daemons));
    set_up_cfg(w);
    for (int n = 0; n < w->nnodes; n++) {
        (void)snprintf(w->names[n], sizeof(w->names[n]), "n%d", n);
        w->nodes[n] = (struct node){.plan = RDZV_MEMBERS_NONE, .committed = RDZV_MEMBERS_NONE, .link = -1, .other = -1, .code = -1, .orphan = -1, .asks = -1};
        later(w, (long)rnd(w, w->kind == WILD && rnd(w, 8) == 0 ? 30000 : 50), (struct item){.kind = NODE_STARTS, .node = n, .life = -1});
        w->nodes[n].unfit = w->kind != MILD && rnd(w, n == 0 ? 8 : 30) == 0;
    }
    plan_disasters(w);
}

static void check_end(struct world *w)
{
    int with_0 = 0;
    for (int n = 0; n < w->nnodes; n++) {
        struct node *p = &w->nodes[n];
        must(w, p->state == LEFT || p->state == AWAY, "everybody comes to an end");
        must(w, p->running == 0, "no worker is left");
        must(w, !w->daemons[n].alive || p->state != AWAY, "no daemon outlives its node");
        with_0 += p->state == LEFT && p->code == 0;
        rdzv_members_clear(&p->plan);
        rdzv_members_clear(&p->committed);
    }
    must(w, with_0 == 0 || w->successes > 0, "who ends well was told so");
    if (w->kind == MILD)
        must(w, w->successes > 0, "a job that could go on did");
    for (int n = 0; n < w->nnodes; n++)
        if (w->daemons[n].alive) {
            must(w, rdzv_state(w->daemons[n].m) == RDZV_FINISHED, "every daemon comes to an end");
            rdzv_free(w->daemons[n].m);
        }
}

static void run(struct world *w, unsigned seed)
{
    set_up(w, seed);
    for (int slot; (slot = kit_next(&w->kit)) >= 0;) {
        struct item it = w->items[slot];
        must(w, w->kit.now < END_OF_TIME, "it ends in time");
        happen(w, &it);
    }
    check_end(w);
}

int main(int argc, char **argv)
{
    unsigned seeds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 20000;
    unsigned first = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    struct world *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return 1;
    w->blind = argc > 3 && strcmp(argv[3], "blind") == 0;
    unsigned well = 0;
    for (unsigned s = first; s < first + seeds; s++) {
        run(w, s);
        well += w->successes > 0;
    }
    (void)printf("%u jobs, %u rounds, %u daemons took a lost one's place, %u times a first node came back to one, %u nodes were drained, "
                 "%u left out as unfit, %u jobs ended well; every promise held\n", seeds, w->rounds, w->took_over, w->came_back, w->drained,
                 w->left_out, well);
    bool seen = w->took_over > 0 && w->came_back > 0 && w->drained > 0 && w->left_out > 0 && well > 0 && well < seeds;
    free(w);
    return seeds >= 1000 && !seen;
}
