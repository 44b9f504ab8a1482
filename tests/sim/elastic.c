/* A simulator of whole jobs that lose nodes, daemons and networks: every agent runs the product's
 * state machine (agent/agent_machine.h) and every daemon its round machine (rdzv/machine.h), in
 * virtual time, from one seed. The simulator models only the effects of their actions.
 *
 *     elastic [SEEDS [FIRST [blind]]]
 *
 * blind: a restarted first node does not probe the other nodes, which must break a promise.
 *
 * Each seed is one job of 1 to 12 nodes. Agents and daemons crash at any moment and are started
 * again, networks partition and heal, workers fail, nodes are drained or become unfit (a health
 * check excludes them), a scheduler or a person stops the job. Health checks, requests to the
 * scheduler and draining of signals take time. Messages keep their order on a link, as with TCP,
 * and take any time; a partitioned link delivers nothing, and each side drops it after the
 * heartbeat. The promises below are checked after every step.
 *
 * In some jobs (RESTARTS) the first node is started again after a crash as well, without any state.
 * These jobs satisfy its conditions: no network partitions, and --last-call is longer than nodes
 * can be without a daemon (docs/design.md, "Nodes may be started again from outside"). */
#include "elastic_setup.h"
#include "elastic_drains.h"
#include "elastic_locators.h"
#include "elastic_signals.h"
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

bool rdzv_unmarked_quorum(const struct rdzv *m)
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
        if (w->links[i].daemon == d && w->links[i].daemon_life == p->life &&
            w->links[i].daemon_open)
            close_end(w, i, DOWN);
    node_steps(w, d, (struct am_event){.kind = AM_DAEMON_ENDED});
}

static void daemon_starts(struct world *w, int d, int64_t epoch)
{
    struct daemon *p = &w->daemons[d];
    struct rdzv_cfg cfg = w->cfg;
    must(w, !p->alive, "a node has one daemon at most");
    if (epoch > 0)
        successor_cfg(&cfg, epoch, d, (uint64_t)w->grace);
    *p = (struct daemon){
        .alive = true, .life = p->life + 1, .timer = -1, .epoch = epoch, .begun = -1};
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
    must(w, p->n >= w->cfg.min_nodes && p->n <= w->cfg.max_nodes,
         "a round has at least MIN and at most MAX nodes");
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
        w->left_out += a.kind == RDZV_EXCLUDED;
        if (a.kind == RDZV_DROP_STORE || a.kind == RDZV_EXCLUDED)
            continue;
        int link = p->link_of[a.id];
        must(w, link >= 0, "actions are for who is here");
        trace(w, "daemon %d -> node %d: action %d %.60s", d, w->links[link].node, (int)a.kind,
              a.text);
        if (a.kind == RDZV_SEND_PLAN)
            must(w, !p->asked_to_stop && !p->ruled, "a job that is to end begins no round");
        if (a.kind == RDZV_SEND_PLAN && !checked) {
            check_round(w, p->m);
            checked = true;
            w->rounds++;
            p->begun = w->kit.now;
        }
        must(w, a.kind != RDZV_SEND_FINISH || !p->asked_to_stop || rdzv_code(p->m) != 0,
             "a job that was stopped does not end well");
        if (a.kind == RDZV_SEND_FINISH && rdzv_code(p->m) == 0 && !p->said_success) {
            p->said_success = true;
            w->successes++;
        }
        w->left += a.kind == RDZV_SEND_NOTE && strstr(a.text, "; restarting without ") != NULL;
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
    p->ruled |= ends_by_rule(w, p->m, e);
    if (e->kind == RDZV_STOP_REQUEST && rdzv_state(p->m) != RDZV_FINISHED) {
        p->asked_to_stop = true;
        w->stopped++;
    }
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
    if (l->node == l->daemon && rdzv_may_continue(p->m, (uint64_t)w->kit.now))
        daemon_ends(w, l->daemon);
    else
        step(w, l->daemon,
             &(struct rdzv_event){.kind = RDZV_LOST, .id = id, .clean = clean, .text = "gone"});
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

static bool runs(const struct node *p)
{
    return p->at == HERE && p->running > 0 && !p->stopping;
}

static bool is_live(const struct world *w, int n)
{
    const struct rdzv_members *m = &w->nodes[n].plan;
    for (int k = 0; k < m->n; k++) {
        const struct node *o = &w->nodes[m->index[k]];
        if (!runs(o) || !same_round(&o->plan, m))
            return false;
    }
    return true;
}

static void forget_all(struct node *p)
{
    rdzv_members_clear(&p->plan);
    rdzv_members_clear(&p->last);
    rdzv_members_clear(&p->committed);
    *p = (struct node){.at = p->at,
                       .life = p->life,
                       .plan = RDZV_MEMBERS_NONE,
                       .last = RDZV_MEMBERS_NONE,
                       .committed = RDZV_MEMBERS_NONE,
                       .link = -1,
                       .other = -1,
                       .found = -1,
                       .group = p->group,
                       .asks = -1,
                       .timer = -1,
                       .signalled = -1,
                       .unfit = p->unfit};
}

/* Two rounds that can both make progress would be two jobs. */
static void check_one_round(struct world *w, int n)
{
    if (!is_live(w, n))
        return;
    for (int o = 0; o < w->nnodes; o++)
        if (runs(&w->nodes[o]) && !same_round(&w->nodes[o].plan, &w->nodes[n].plan))
            must(w, !is_live(w, o), "one round runs at a time");
}

/* In jobs with RESTARTS a node that has failed is often started again without state, as after a
 * crash. */
static void may_start_again(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (w->kind != RESTARTS || p->code != 1 || p->life > 3 || rnd(w, 2) == 0)
        return;
    p->at = AWAY;
    forget_all(p);
    later(w, 100 + (long)rnd(w, 10000), (struct item){.kind = NODE_STARTS, .node = n, .life = -1});
}

/* Apart from messages that cross, no node ends its own daemon while a round runs. */
static void check_leaves_daemon(struct world *w, int n)
{
    const struct daemon *d = &w->daemons[n];
    must(w,
         !d->alive || rdzv_state(d->m) == RDZV_FINISHED || rdzv_state(d->m) == RDZV_GATHERING ||
             w->kit.now - d->begun < CROSSING_MS,
         "no node ends its own daemon under a round");
}

static void join(struct world *w, int n, int link)
{
    const struct node *p = &w->nodes[n];
    send_up(w, link,
            (struct rdzv_event){.kind = RDZV_JOIN,
                                .index = n,
                                .nnodes = w->cfg.max_nodes,
                                .slots = 1,
                                .min_nodes = w->cfg.min_nodes,
                                .epoch = p->am.epoch,
                                .ended_well = p->ended_well,
                                .elsewhere = p->link >= 0 && p->link != link});
}

static void node_found(struct world *w, int n, int link)
{
    w->nodes[n].found = link;
    node_steps(w, n, (struct am_event){.kind = AM_FOUND});
}

static void close_link(struct world *w, int *link)
{
    if (*link >= 0)
        close_end(w, *link, UP);
    *link = -1;
}

/* ---- actions of the agent ---- */

static void start_daemon(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    daemon_starts(w, n, p->am.epoch);
    p->link = connect_to(w, n, n);
    join(w, n, p->link);
}

/* Leave the own daemon, which has begun no round, for another one and redirect its other nodes
 * there. */
static void move_after(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    struct daemon *own = &w->daemons[n];
    trace(w, "node %d goes over to the daemon of %d", n, w->links[p->other].daemon);
    check_leaves_daemon(w, n);
    for (int id = 0; id < MAX_NODES && own->alive && own->begun < 0; id++)
        if (own->link_of[id] >= 0 && own->link_of[id] != p->link)
            later(w, delay(w),
                  (struct item){.kind = TO_NODE,
                                .link = own->link_of[id],
                                .action = {.kind = RDZV_SEND_PROBE_REQUEST},
                                .number = w->links[own->link_of[id]].sent[DOWN]++,
                                .to = w->links[p->other].daemon});
    close_link(w, &p->link);
    daemon_ends(w, n);
    w->came_back++;
    p->link = p->other;
    p->other = -1;
}

static void start_round(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    must(w, p->running == 0, "a node runs one round at a time");
    must(w, rdzv_members_newer(w->message->members, &p->plan), "a node never runs an old round");
    must(w,
         rdzv_members_copy(&p->plan, w->message->members) == 0 &&
             rdzv_members_copy(&p->last, w->message->members) == 0,
         "memory");
    p->running = 1;
    trace(w, "node %d runs epoch %ld round %d of %d", n, (long)p->plan.epoch, p->plan.round,
          p->plan.n);
    send_up(w, p->link, (struct rdzv_event){.kind = RDZV_STARTED, .round = p->plan.round});
    int code = w->kind != MILD && rnd(w, 100) < 4 ? 1 + (int)rnd(w, 200) : 0;
    later(w, 1 + (long)rnd(w, 1000) + (code == 0 ? 40000 : 0),
          (struct item){
              .kind = WORKER_ENDS, .node = n, .life = p->life, .arg = p->batch, .code = code});
}

/* Most workers end soon, some only at SIGKILL. */
static void stop_workers(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (p->stopping)
        return;
    p->stopping = true;
    later(w, rnd(w, 20) == 0 ? w->grace : (long)rnd(w, 2500),
          (struct item){
              .kind = WORKER_ENDS, .node = n, .life = p->life, .arg = p->batch, .code = 143});
}

static void leave(struct world *w, int n)
{
    must(w, w->nodes[n].running == 0, "nobody leaves before its workers");
    for (int i = 0; i < w->nlinks; i++)
        if (w->links[i].node == n && w->links[i].node_open)
            close_end(w, i, UP);
    w->nodes[n].link = w->nodes[n].other = w->nodes[n].asks = -1;
    w->nodes[n].passes++;
}

static void exits(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    must(w, !w->daemons[n].alive, "no daemon outlives its agent");
    must(w, p->signalled < 0 || w->kit.now - p->signalled <= w->grace + LEAVE_MS,
         "a node that was signalled leaves in time");
    p->at = LEFT;
    p->code = p->am.code;
    trace(w, "node %d exits with %d", n, p->code);
    may_start_again(w, n);
}

static void send_simple(struct world *w, int n, enum rdzv_event_kind kind)
{
    const struct node *p = &w->nodes[n];
    if (p->link >= 0)
        send_up(w, p->link, (struct rdzv_event){.kind = kind, .round = p->plan.round});
}

/* Carry out an action on links. False: the action is of another kind. */
static bool act_on_links(struct world *w, int n, enum am_action_kind kind)
{
    struct node *p = &w->nodes[n];
    switch ((int)kind) {
    case AM_DO_JOIN:
        p->link = p->found;
        p->asks = -1;
        join(w, n, p->link);
        return true;
    case AM_DO_ASK:
        p->other = p->found;
        join(w, n, p->other);
        return true;
    case AM_DO_DROP:
        close_link(w, &p->found);
        return true;
    case AM_DO_MOVE:
        p->link = p->other;
        p->other = -1;
        return true;
    case AM_DO_MOVE_AFTER:
        move_after(w, n);
        return true;
    case AM_DO_DROP_OTHER:
        close_link(w, &p->other);
        if (p->asks >= 0)
            peers_later(w, n, (long)rnd(w, 5));
        return true;
    case AM_DO_DROP_LINK:
        close_link(w, &p->link);
        return true;
    default:
        return false;
    }
}

static bool act_on_locators(struct world *w, int n, enum am_action_kind kind)
{
    struct node *p = &w->nodes[n];
    switch ((int)kind) {
    case AM_DO_LOCATE:
        locate(w, n, 0);
        return true;
    case AM_DO_LOCATE_THERE:
        locate(w, n, w->message->to);
        return true;
    case AM_DO_ASK_PEERS:
        begin_peers(w, n);
        return true;
    case AM_DO_ASK_MEMBERS:
        p->passes++;
        members_later(w, n, 0);
        return true;
    case AM_DO_END_SEARCHES:
        p->passes++;
        p->asks = -1;
        close_link(w, &p->other);
        return true;
    default:
        return false;
    }
}

static bool act_on_daemon(struct world *w, int n, const struct am_action *a)
{
    switch ((int)a->kind) {
    case AM_DO_START_DAEMON:
        start_daemon(w, n);
        return true;
    case AM_DO_STOP_DAEMON:
        check_leaves_daemon(w, n);
        daemon_ends(w, n);
        return true;
    case AM_DO_SIGNAL_DAEMON:
        if (a->arg == SIGKILL)
            daemon_ends(w, n);
        else if (w->daemons[n].alive)
            later(w, rdzv_state(w->daemons[n].m) == RDZV_FINISHED ? 0 : DAEMON_STOP_MS,
                  (struct item){.kind = DAEMON_STOPS, .node = n, .life = w->daemons[n].life});
        return true;
    default:
        return false;
    }
}

/* There is no etcd, and the agent can read every message. */
static void act(struct world *w, int n, const struct am_action *a)
{
    if (act_on_links(w, n, a->kind) || act_on_locators(w, n, a->kind) || act_on_daemon(w, n, a) ||
        act_on_signals(w, n, a))
        return;
    switch ((int)a->kind) {
    case AM_DO_SEND_PROBE_RESULT:
        send_simple(w, n, RDZV_PROBE_RESULT);
        break;
    case AM_DO_START_ROUND:
        start_round(w, n);
        break;
    case AM_DO_STOP_WORKERS:
        stop_workers(w, n);
        break;
    case AM_DO_CHECK_HEALTH:
        w->nodes[n].checks++;
        takes_time(w, n, CHECKED);
        break;
    case AM_DO_SEND_DONE:
        must(w, !w->nodes[n].explained, "DONE waits for a signal that explains the workers' end");
        send_simple(w, n, RDZV_DONE);
        break;
    case AM_DO_REQUEUE:
        takes_time(w, n, REQUEUED);
        break;
    case AM_DO_LEAVE:
        leave(w, n);
        break;
    case AM_DO_EXIT:
        exits(w, n);
        break;
    case AM_DO_REPORT:
        break;
    default:
        must(w, false, "no action that the simulation does not know");
    }
}

static void set_node_timer(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    const uint64_t at = agent_machine_timer(&p->am);
    if (p->at != HERE || at == RDZV_NEVER || p->timer == (long)at)
        return;
    p->timer = (long)at;
    later(w, p->timer - w->kit.now, (struct item){.kind = NODE_TIMER, .node = n, .life = p->life});
}

/* An action may cause another event, whose actions are queued behind the present ones. */
static void node_steps(struct world *w, int n, struct am_event e)
{
    struct node *p = &w->nodes[n];
    struct am_action a;
    const enum am_state from = p->am.state;
    if (p->at != HERE)
        return;
    agent_machine_step(&p->am, &e, (uint64_t)w->kit.now);
    if (p->am.state != from)
        trace(w, "node %d: %s -%s-> %s", n, agent_machine_state_name(from),
              agent_machine_event_name(e.kind), agent_machine_state_name(p->am.state));
    if (p->acting)
        return;
    p->acting = true;
    while (p->at == HERE && agent_machine_next(&p->am, &a))
        act(w, n, &a);
    p->acting = false;
    if (runs(p))
        check_one_round(w, n);
    set_node_timer(w, n);
}

static void node_timer(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    enum am_event_kind kind;
    p->timer = -1;
    while (p->at == HERE && (kind = agent_machine_due(&p->am, (uint64_t)w->kit.now)) != AM_EVENTS)
        node_steps(w, n, (struct am_event){.kind = kind});
    set_node_timer(w, n);
}

/* ---- events of a node ---- */

static void worker_ends(struct world *w, const struct item *it)
{
    struct node *p = &w->nodes[it->node];
    if (p->batch != it->arg || p->running == 0)
        return;
    p->running = 0;
    p->stopping = false;
    p->batch++;
    trace(w, "node %d: its worker ends with %d", it->node, it->code);
    w->failures_of_workers += it->code != 0;
    p->ended_well = it->code == 0;
    if (it->code != 0 && p->link >= 0 && !p->settling)
        send_up(w, p->link,
                (struct rdzv_event){.kind = RDZV_EXIT, .round = p->plan.round, .code = it->code});
    node_steps(w, it->node, (struct am_event){.kind = AM_WORKERS_GONE});
}

/* Handle the reply of a daemon that was asked beside the one in use. */
static void node_gets_answer(struct world *w, int n, const struct item *it)
{
    struct am_event e = {.epoch = it->epoch};
    if (it->action.kind != RDZV_SEND_REFUSE && it->action.kind != RDZV_SEND_WELCOME &&
        it->action.kind != RDZV_SEND_FINISH)
        return;
    e.kind = it->action.kind == RDZV_SEND_REFUSE    ? AM_OTHER_REFUSES
             : it->action.kind == RDZV_SEND_WELCOME ? AM_OTHER_TAKES
                                                    : AM_OTHER_ENDED;
    node_steps(w, n, e);
}

static void node_gets(struct world *w, struct item *it)
{
    static const struct {
        bool is;
        enum am_event_kind event;
    } events[] = {
        [RDZV_SEND_REFUSE] = {true, AM_REFUSE},
        [RDZV_SEND_PLAN] = {true, AM_PLAN},
        [RDZV_SEND_ROUND_STARTED] = {true, AM_ROUND_STARTED},
        [RDZV_SEND_STOP] = {true, AM_STOP},
        [RDZV_SEND_FINISH] = {true, AM_FINISH},
        [RDZV_SEND_PROBE_REQUEST] = {true, AM_PROBE_REQUEST},
        [RDZV_SEND_ROUND_MEMBERS] = {true, AM_ROUND_MEMBERS},
        [RDZV_DROP_STORE] = {false, AM_EVENTS},
        [RDZV_SEND_SIGNAL] = {false, AM_EVENTS},
    };
    int n = w->links[it->link].node;
    struct node *p = &w->nodes[n];
    w->message = it;
    if (it->link == p->other)
        node_gets_answer(w, n, it);
    if (it->link != p->link)
        return;
    if (it->action.kind == RDZV_SEND_COMMIT && it->round == p->plan.round)
        must(w, rdzv_members_copy(&p->committed, &p->plan) == 0, "memory");
    if (it->action.kind == RDZV_SEND_ROUND_MEMBERS) {
        must(w, rdzv_members_copy(&p->last, it->members) == 0, "memory");
        w->observed++;
    }
    if (it->action.kind == RDZV_SEND_SIGNAL)
        worker_saves(w, n);
    if (!events[it->action.kind].is)
        return;
    struct am_event e = {.kind = events[it->action.kind].event, .code = it->code};
    if (e.kind == AM_STOP)
        e.code = it->round == p->plan.round ? SIGTERM : 0;
    if (e.kind == AM_PROBE_REQUEST && it->to >= 0)
        e.kind = AM_REDIRECT;
    node_steps(w, n, e);
}

static void node_starts(struct world *w, int n)
{
    struct node *p = &w->nodes[n];
    if (p->at != AWAY)
        return;
    daemon_ends(w, n); /* an agent starts only after the daemon of the previous one has ended */
    p->life++;
    p->at = HERE;
    trace(w, "node %d starts", n);
    p->cfg = (struct am_cfg){.rdzv = &w->cfg,
                             .asks_peers = n == 0 ? w->cfg.probes_first : may_ask_peers(w),
                             .seek_ms = JOIN_MS,
                             .rejoin_ms = REJOIN_MS,
                             .grace_ms = (uint64_t)w->grace};
    agent_machine_init(&p->am, &p->cfg, &p->last);
    p->am.index = n;
    node_steps(w, n, (struct am_event){.kind = n == 0 ? AM_LEAD : AM_SEEK});
}

/* Return the time until the crashed node is started again; -1: never. */
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
    if (p->at != HERE)
        return;
    trace(w, "node %d crashes", n);
    p->at = AWAY;
    daemon_ends(w, n);
    for (int i = 0; i < w->nlinks; i++)
        if (w->links[i].node == n && w->links[i].node_open)
            close_end(w, i, UP);
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
    if (p->other == link)
        node_steps(w, l->node, (struct am_event){.kind = AM_OTHER_GONE});
    else if (p->link == link)
        node_steps(w, l->node, (struct am_event){.kind = AM_LOST});
}

/* A close arrives behind all messages; over a partitioned network the heartbeat replaces it. */
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

/* Take the message if it is the next one of its link. False: postponed, or the link is closed. */
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
    it->members = it->committed = NULL; /* owned by the copy */
    later(w, 20, again);
    return false;
}

/* Each side drops a partitioned link after the heartbeat, unless the network heals before. */
static void notice_silence(struct world *w)
{
    for (int i = 0; i < w->nlinks; i++) {
        struct link *l = &w->links[i];
        if ((!l->node_open && !l->daemon_open) || reach(w, l->node, l->daemon))
            continue;
        for (int end = UP; end <= DOWN; end++)
            later(w, HEARTBEAT_MS + (long)rnd(w, 1700),
                  (struct item){.kind = PARTS, .link = i, .end = end, .arg = 1});
    }
}

static void parts(struct world *w, struct item *it)
{
    if (it->arg == 1) { /* heartbeat timeout of one end */
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

static void daemon_timer(struct world *w, const struct item *it)
{
    struct daemon *p = &w->daemons[it->node];
    if (!p->alive || p->life != it->life)
        return;
    p->timer = -1;
    step(w, it->node, &(struct rdzv_event){.kind = RDZV_TIME, .id = -1});
}

/* Handle an item that its node has scheduled; those of an earlier life are dropped. */
static void happen_in_life(struct world *w, const struct item *it)
{
    switch ((int)it->kind) {
    case WORKER_ENDS:
        worker_ends(w, it);
        break;
    case TRY:
        try_host(w, it);
        break;
    case PEERS:
        ask_peers(w, it->node);
        break;
    case MEMBERS:
        ask_members(w, it);
        break;
    case NODE_TIMER:
        node_timer(w, it->node);
        break;
    default:
        break;
    }
}

static void happen(struct world *w, struct item *it)
{
    bool current = it->life < 0 || it->life == w->nodes[it->node].life;
    happen_of_signals(w, it, current);
    if (current)
        happen_in_life(w, it);
    switch ((int)it->kind) {
    case NODE_STARTS:
        node_starts(w, it->node);
        break;
    case NODE_CRASHES:
        node_crashes(w, it->node);
        break;
    case DAEMON_CRASHES:
        daemon_ends(w, it->node);
        break;
    case TO_DAEMON:
        if (delivered(w, it, UP))
            daemon_gets(w, it);
        break;
    case TO_NODE:
        if (delivered(w, it, DOWN))
            node_gets(w, it);
        break;
    case END_CLOSES:
        end_closes(w, it);
        break;
    case TIMER:
        daemon_timer(w, it);
        break;
    case PARTS:
        parts(w, it);
        break;
    case SICKENS:
        w->nodes[it->node].unfit = true;
        break;
    case MARKS:
        marks(w, it->node);
        break;
    case DRAINS:
        drains(w, it->node);
        break;
    case HEALS:
        heals(w);
        break;
    default:
        break;
    }
    drop(it->members);
    drop(it->committed);
}

/* ---- one job ---- */

static void check_end(struct world *w)
{
    int with_0 = 0;
    for (int n = 0; n < w->nnodes; n++) {
        struct node *p = &w->nodes[n];
        must(w, p->at == LEFT || p->at == AWAY, "everybody comes to an end");
        must(w, p->running == 0, "no worker is left");
        must(w, !w->daemons[n].alive || p->at != AWAY, "no daemon outlives its node");
        with_0 += p->at == LEFT && p->code == 0;
        rdzv_members_clear(&p->plan);
        rdzv_members_clear(&p->last);
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

static void run_again(void *w, unsigned seed)
{
    run(w, seed);
}

int main(int argc, char **argv)
{
    unsigned seeds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 20000;
    unsigned first = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    struct world *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return 1;
    w->kit.again = run_again;
    w->kit.arg = w;
    w->blind = argc > 3 && strcmp(argv[3], "blind") == 0;
    unsigned well = 0;
    for (unsigned s = first; s < first + seeds; s++) {
        run(w, s);
        well += w->successes > 0;
    }
    (void)printf(
        "%u jobs, %u rounds, %u daemons took a lost one's place, %u times a first node came back to one, %u nodes were drained, %u marked, %u times the job left marked ones, "
        "%u left out as unfit, %u times a daemon was asked to stop, %u jobs ended well; every promise held\n",
        seeds, w->rounds, w->took_over, w->came_back, w->drained, w->marked, w->left, w->left_out,
        w->stopped, well);
    bool seen = w->took_over > 0 && w->came_back > 0 && w->drained > 0 && w->left > 0 &&
                w->left_out > 0 && w->stopped > 0 && w->observed > 0 && well > 0 && well < seeds;
    free(w);
    return seeds >= 1000 && !seen;
}
