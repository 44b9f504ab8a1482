/* A simulator of whole jobs of a fixed number of nodes under one daemon: the product's round
 * machine among modelled agents, in virtual time, from one seed.
 *
 *     sim [SEEDS [FIRST]]
 *
 * Each seed is one job: 1 to 40 nodes that start in any order, after any time, crash, are started
 * again, lose their links and are stopped by users; workers that succeed, fail or hang. Messages
 * keep their order on a link, as with TCP, and take any time. The promises below are checked after
 * every step; a broken one prints the seed and a trace. */
#include "rdzv/machine.h"
#include "kit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NODES = 40,
    DEADLINE = 600000, /* all times in virtual milliseconds */
    END_OF_TIME = 100 * DEADLINE,
};

enum node_state { AWAY, JOINED, RUNNING, STOPPING, IDLE, LEFT };

/* Kinds of scheduled items. An item of an earlier life of its node is dropped. */
enum item_kind {
    NODE_STARTS,
    NODE_CRASHES,
    WORKER_ENDS,    /* arg: local rank; arg2: code */
    WORKERS_KILLED, /* the grace period is over */
    USER_STOPS,
    TO_DAEMON, /* event */
    TO_NODE,   /* action */
    LINK_DEAD, /* the daemon notices the end of a link */
    TIME_IS_UP,
};

struct item {
    enum item_kind kind;
    int node;
    int life;
    int arg, arg2;
    struct rdzv_event event;
    struct rdzv_action action;
    struct plan plan; /* of a PLAN, without its strings */
};

struct node {
    enum node_state state;
    int life; /* starts so far; a crash ends one */
    int slots;
    int running; /* workers */
    bool ended[PLAN_MAX_SLOTS > 8 ? 8 : PLAN_MAX_SLOTS];
    int round;      /* the running one; -1: none */
    int last_round; /* the last one that ran; -1: none */
    long up, down;  /* arrival time of the last message of each direction */
    int code;       /* of FINISH, -1: none */
};

struct world {
    struct kit kit;
    struct item items[KIT_ITEMS];
    int nnodes, max_restarts;
    long timer;
    struct rdzv *machine;
    struct node nodes[MAX_NODES];
    int id_of[MAX_NODES]; /* id of a node's link at the daemon; -1: none */
    int node_of[MAX_NODES];
    int planned_round; /* newest round that the machine has planned */
    int planned;       /* nodes that have its plan */
    int world_size;
    bool rank_taken[MAX_NODES * 8];
    bool any_failure, any_stop, any_lost;
    int verdict; /* exit code by the first failure of the newest round; 0: none yet */
    bool alive;  /* the daemon runs */
};

static unsigned rnd(struct world *w, unsigned below)
{
    return kit_rnd(&w->kit, below);
}

#define trace(w, ...) kit_trace(&(w)->kit, __VA_ARGS__)
#define must(w, holds, promise) kit_must(&(w)->kit, holds, promise)

static void later(struct world *w, long at, struct item it)
{
    w->items[kit_later(&w->kit, at)] = it;
}

/* ---- messages ---- */

static long delay(struct world *w)
{
    return rnd(w, 20) == 0 ? (long)rnd(w, 3000) : (long)rnd(w, 5);
}

static void tell_daemon(struct world *w, int n, struct rdzv_event e)
{
    struct node *node = &w->nodes[n];
    long at = w->kit.now + delay(w);
    node->up = at > node->up ? at : node->up;
    e.name = "node";
    e.addr = n == 0 ? "" : "10.0.0.1";
    e.text = e.kind == RDZV_JOIN ? NULL : "text";
    later(w, node->up, (struct item){.kind = TO_DAEMON, .node = n, .life = node->life, .event = e});
}

static void tell_node(struct world *w, int n, const struct rdzv_action *a)
{
    struct node *node = &w->nodes[n];
    struct item it = {.kind = TO_NODE, .node = n, .life = node->life, .action = *a};
    long at = w->kit.now + delay(w);
    node->down = at > node->down ? at : node->down;
    if (a->kind == RDZV_SEND_PLAN) {
        DD_AUTO(plan) struct plan p = {0};
        must(w, rdzv_plan(w->machine, a->id, &p) == 0, "a plan can be had when it is announced");
        it.plan = p;
        it.plan.sizes = NULL;
        it.plan.nodes = it.plan.master_addr = NULL;
    }
    later(w, node->down, it);
}

/* The daemon notices the end of a link after everything that was sent on it. */
static void drop_link(struct world *w, int n)
{
    struct node *node = &w->nodes[n];
    long at = w->kit.now + delay(w);
    node->up = at > node->up ? at : node->up;
    later(w, node->up, (struct item){.kind = LINK_DEAD, .node = n, .life = node->life});
}

/* Each rank of a round is assigned exactly once. */
static void check_plan(struct world *w, const struct rdzv_action *a)
{
    DD_AUTO(plan) struct plan p = {0};
    must(w, rdzv_plan(w->machine, a->id, &p) == 0, "a plan can be had");
    if (p.round != w->planned_round) {
        must(w, w->planned == 0 || w->planned == w->nnodes, "a round is planned for all nodes");
        must(w, p.round == w->planned_round + 1, "rounds are numbered without gaps");
        w->planned_round = p.round;
        w->planned = 0;
        w->verdict = 0;
        memset(w->rank_taken, 0, sizeof(w->rank_taken));
    }
    must(w, p.restart_count <= w->max_restarts, "the restart budget is kept");
    for (int r = p.first_rank; r < p.first_rank + p.local_size; r++) {
        must(w, r < p.world_size && !w->rank_taken[r], "ranks are unique and below the world size");
        w->rank_taken[r] = true;
    }
    w->world_size = p.world_size;
    if (++w->planned == w->nnodes)
        for (int r = 0; r < p.world_size; r++)
            must(w, w->rank_taken[r], "ranks are dense");
}

static void run_actions(struct world *w)
{
    struct rdzv_action a;
    while (rdzv_next_action(w->machine, &a)) {
        if (a.kind == RDZV_DROP_STORE) {
            for (int n = 0; n < w->nnodes; n++)
                must(w, w->nodes[n].state != RUNNING || w->nodes[n].running == 0 || w->id_of[n] < 0,
                     "no worker lives when the store is dropped");
            continue;
        }
        if (a.kind == RDZV_EXCLUDED) /* no message */
            continue;
        int n = w->node_of[a.id];
        if (a.kind == RDZV_SEND_PLAN)
            check_plan(w, &a);
        trace(w, "daemon -> node %d: action %d", n, (int)a.kind);
        if (n >= 0)
            tell_node(w, n, &a);
    }
}

/* ---- the nodes ---- */

static void node_done(struct world *w, int n)
{
    struct node *node = &w->nodes[n];
    node->state = IDLE;
    tell_daemon(w, n, (struct rdzv_event){.kind = RDZV_DONE, .round = node->round});
    node->round = -1;
}

static void node_plan(struct world *w, int n, const struct plan *p)
{
    struct node *node = &w->nodes[n];
    must(w, node->state == JOINED || node->state == IDLE, "a node runs one round at a time");
    must(w, p->round > node->last_round, "a node never runs an old round");
    *node = (struct node){.state = RUNNING,
                          .life = node->life,
                          .slots = node->slots,
                          .running = node->slots,
                          .round = p->round,
                          .last_round = p->round,
                          .up = node->up,
                          .down = node->down,
                          .code = -1};
    tell_daemon(w, n, (struct rdzv_event){.kind = RDZV_STARTED, .round = p->round});
    for (int i = 0; i < node->slots; i++) {
        unsigned fate = rnd(w, 100);
        int code = fate < 6 ? 1 + (int)rnd(w, 255) : 0;
        later(w, w->kit.now + 1 + (long)rnd(w, 20000),
              (struct item){.kind = WORKER_ENDS,
                            .node = n,
                            .life = node->life,
                            .arg = i,
                            .arg2 = code,
                            .plan = {.round = p->round}});
    }
}

static void worker_ends(struct world *w, const struct item *it)
{
    struct node *node = &w->nodes[it->node];
    if (node->round != it->plan.round || node->ended[it->arg])
        return;
    node->ended[it->arg] = true;
    node->running--;
    trace(w, "node %d: worker %d ends with %d", it->node, it->arg, it->arg2);
    tell_daemon(
        w, it->node,
        (struct rdzv_event){.kind = RDZV_PROGRESS, .round = node->round, .step = node->round});
    if (it->arg2 != 0) {
        w->any_failure = true;
        tell_daemon(
            w, it->node,
            (struct rdzv_event){
                .kind = RDZV_EXIT, .round = node->round, .local_rank = it->arg, .code = it->arg2});
    }
    if (node->running == 0)
        node_done(w, it->node);
}

static void node_gets(struct world *w, const struct item *it)
{
    struct node *node = &w->nodes[it->node];
    switch (it->action.kind) {
    case RDZV_SEND_PLAN:
        node_plan(w, it->node, &it->plan);
        break;
    case RDZV_SEND_STOP:
        if (node->state != RUNNING)
            break;
        node->state = STOPPING;
        later(w, w->kit.now + (long)rnd(w, 3000),
              (struct item){.kind = WORKERS_KILLED,
                            .node = it->node,
                            .life = node->life,
                            .plan = {.round = node->round}});
        break;
    case RDZV_SEND_FINISH:
        must(w, node->running == 0, "nobody is sent home while its workers live");
        node->code = rdzv_code(w->machine);
        node->state = LEFT;
        drop_link(w, it->node);
        break;
    case RDZV_SEND_REFUSE:
        node->state = LEFT;
        drop_link(w, it->node);
        break;
    case RDZV_SEND_WELCOME:
    case RDZV_SEND_PROBE_REQUEST:
    case RDZV_SEND_ROUND_STARTED:
    case RDZV_SEND_COMMIT:
    case RDZV_SEND_ROUND_MEMBERS:
    case RDZV_SEND_SIGNAL:
    case RDZV_SEND_NOTE:
    case RDZV_EXCLUDED:
    case RDZV_DROP_STORE:
        break;
    }
}

static void node_crashes(struct world *w, int n)
{
    struct node *node = &w->nodes[n];
    if (node->state == LEFT)
        return;
    bool was_here = node->state != AWAY;
    trace(w, "node %d crashes", n);
    w->any_lost = true;
    if (was_here)
        drop_link(w, n);
    *node = (struct node){.state = AWAY,
                          .life = node->life,
                          .slots = node->slots,
                          .round = -1,
                          .last_round = node->last_round,
                          .up = node->up,
                          .code = -1};
    if (rnd(w, 2) == 0) /* a supervisor starts it again */
        later(w, w->kit.now + 10000 + (long)rnd(w, 10000),
              (struct item){.kind = NODE_STARTS, .node = n, .life = -1});
}

static void node_starts(struct world *w, int n)
{
    struct node *node = &w->nodes[n];
    if (node->state != AWAY || !w->alive)
        return;
    node->life++;
    node->state = JOINED;
    node->up = node->up > w->kit.now ? node->up
                                     : w->kit.now; /* by then the old link's end is noticed */
    node->down = w->kit.now;
    trace(w, "node %d starts", n);
    tell_daemon(w, n,
                (struct rdzv_event){
                    .kind = RDZV_JOIN, .index = n, .nnodes = w->nnodes, .slots = node->slots});
}

/* ---- the daemon ---- */

static int free_id(const struct world *w)
{
    for (int id = 0; id < w->nnodes; id++)
        if (w->node_of[id] < 0)
            return id;
    return -1;
}

/* The first failure or stop of a running round decides the exit code. */
static void note_trouble(struct world *w, int code)
{
    if (w->verdict == 0 && rdzv_state(w->machine) == RDZV_RUNNING)
        w->verdict = code;
}

static void daemon_gets(struct world *w, struct item *it)
{
    int n = it->node;
    if (it->event.kind == RDZV_JOIN) {
        if (w->id_of[n] >= 0 || (w->id_of[n] = free_id(w)) < 0)
            return; /* The daemon has not noticed the end of the old link: it refuses, the node
                       tries again. */
        w->node_of[w->id_of[n]] = n;
    }
    it->event.id = w->id_of[n];
    if (it->event.id < 0)
        return;
    trace(w, "node %d -> daemon: event %d", n, (int)it->event.kind);
    if (it->event.kind == RDZV_EXIT)
        note_trouble(w, it->event.code);
    if (it->event.kind == RDZV_STOP_REQUEST)
        note_trouble(w, 128 + SIGTERM);
    if (it->event.kind == RDZV_STOP_REQUEST && rdzv_state(w->machine) == RDZV_GATHERING)
        w->verdict = 128 + SIGTERM; /* the failure of the previous round no longer counts */
    (void)rdzv_step(w->machine, &it->event, (uint64_t)w->kit.now);
}

static void link_dead(struct world *w, const struct item *it)
{
    int n = it->node;
    int id = w->id_of[n];
    if (id < 0)
        return;
    trace(w, "daemon: link of node %d is dead", n);
    note_trouble(w, 1);
    w->id_of[n] = -1;
    w->node_of[id] = -1;
    (void)rdzv_step(w->machine, &(struct rdzv_event){.kind = RDZV_LOST, .id = id, .text = "gone"},
                    (uint64_t)w->kit.now);
}

static void happen(struct world *w, struct item *it)
{
    struct node *node = &w->nodes[it->node];
    bool stale = it->life >= 0 && it->life != node->life;
    switch (it->kind) {
    case NODE_STARTS:
        node_starts(w, it->node);
        break;
    case NODE_CRASHES:
        node_crashes(w, it->node);
        break;
    case WORKER_ENDS:
        if (!stale)
            worker_ends(w, it);
        break;
    case WORKERS_KILLED:
        for (int i = 0; !stale && node->round == it->plan.round && i < node->slots; i++)
            worker_ends(w,
                        &(struct item){.node = it->node, .arg = i, .arg2 = 143, .plan = it->plan});
        break;
    case USER_STOPS:
        if (node->state != AWAY && node->state != LEFT) {
            w->any_stop = true;
            tell_daemon(w, it->node,
                        (struct rdzv_event){.kind = RDZV_STOP_REQUEST, .signal = SIGTERM});
        }
        break;
    case TO_DAEMON:
        daemon_gets(w, it); /* messages sent before a crash still arrive */
        break;
    case TO_NODE:
        if (!stale && node->state != AWAY)
            node_gets(w, it);
        break;
    case LINK_DEAD:
        link_dead(w, it);
        break;
    case TIME_IS_UP:
        w->timer = -1;
        (void)rdzv_step(w->machine, &(struct rdzv_event){.kind = RDZV_TIME, .id = -1},
                        (uint64_t)w->kit.now);
        break;
    }
    run_actions(w);
}

/* ---- one job ---- */

static void set_up(struct world *w, unsigned seed)
{
    memset((char *)w + offsetof(struct world, nnodes), 0,
           sizeof(*w) - offsetof(struct world, nnodes));
    kit_begin(&w->kit, seed);
    (void)rnd(w, 2);
    w->nnodes = 1 + (int)rnd(w, rnd(w, 4) == 0 ? MAX_NODES : 6);
    w->max_restarts = (int)rnd(w, 4);
    w->planned_round = -1;
    w->alive = true;
    const struct rdzv_cfg cfg = {.min_nodes = w->nnodes,
                                 .max_nodes = w->nnodes,
                                 .max_restarts = w->max_restarts,
                                 .join_ns = DEADLINE,
                                 .rejoin_ns = 30000,
                                 .master_port = 30000};
    must(w, rdzv_new(&w->machine, &cfg, 0) == 0, "memory");
    w->timer = -1;
    for (int n = 0; n < w->nnodes; n++) {
        w->id_of[n] = w->node_of[n] = -1;
        w->nodes[n] = (struct node){
            .slots = 1 + (int)rnd(w, 8), .round = -1, .last_round = -1, .code = -1};
        if (rnd(w, 200) != 0) /* some nodes never start */
            later(w, (long)rnd(w, rnd(w, 8) == 0 ? 120000 : 50),
                  (struct item){.kind = NODE_STARTS, .node = n, .life = -1});
        if (rnd(w, 60) == 0)
            later(w, (long)rnd(w, 40000),
                  (struct item){.kind = NODE_CRASHES, .node = n, .life = -1});
    }
    if (rnd(w, 10) == 0)
        later(w, (long)rnd(w, 30000),
              (struct item){
                  .kind = USER_STOPS, .node = (int)rnd(w, (unsigned)w->nnodes), .life = -1});
}

/* All remaining nodes have left with the same exit code, that of the first failure. */
static void check_end(struct world *w)
{
    int stuck;
    must(w, rdzv_state(w->machine) == RDZV_FINISHED, "every job ends");
    must(w, rdzv_step_reached(w->machine, &stuck) <= rdzv_round(w->machine),
         "no step is higher than those that nodes have reported");
    int code = rdzv_code(w->machine);
    for (int n = 0; n < w->nnodes; n++) {
        const struct node *node = &w->nodes[n];
        must(w, node->running == 0, "no worker is left");
        must(w, node->code < 0 || node->code == code, "all survivors get the same verdict");
        must(w, node->state == LEFT || node->state == AWAY || w->id_of[n] < 0,
             "everybody is sent home");
    }
    must(w, w->planned_round < 0 || code == w->verdict, "the first trouble decides the exit code");
    if (code == 0)
        must(w, w->planned == w->nnodes, "success means that all nodes ran");
    else
        must(w, w->any_failure || w->any_stop || w->any_lost || w->planned_round < 0,
             "a failure has a reason");
    must(w, (code == 0) == (rdzv_text(w->machine)[0] == '\0'),
         "a failure, and only that, is explained");
}

static void set_timer(struct world *w)
{
    uint64_t at = rdzv_timer(w->machine);
    if (at == RDZV_NEVER || (long)at == w->timer)
        return;
    w->timer = (long)at;
    later(w, w->timer > w->kit.now ? w->timer : w->kit.now, (struct item){.kind = TIME_IS_UP});
}

static void run(struct world *w, unsigned seed)
{
    set_up(w, seed);
    set_timer(w);
    for (int slot; (slot = kit_next(&w->kit)) >= 0;) {
        struct item it = w->items[slot];
        must(w, w->kit.now < END_OF_TIME, "it ends in time");
        happen(w, &it);
        set_timer(w);
    }
    check_end(w);
    rdzv_free(w->machine);
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
    unsigned restarted = 0;
    unsigned well = 0;
    for (unsigned s = first; s < first + seeds; s++) {
        run(w, s);
        restarted += w->planned_round > 0;
        well += !w->any_failure && !w->any_lost && !w->any_stop;
    }
    (void)printf(
        "%u jobs, %u restarted at least once, %u without any trouble; every promise held\n", seeds,
        restarted, well);
    free(w);
    return seeds == 0 || restarted == 0 || well == 0;
}
