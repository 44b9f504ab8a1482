#include "launch/node_tree.h"

#include "base/buf.h"
#include "base/num.h"
#include "base/sig.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Exit codes of a starter. KILLED + N: signal N killed the starter or its command; NOT_RUN: the
 * starter could not be run. */
enum { NODE_TREE_SLOW_S = 30, SSH_FAILED = 255, KILLED = 128, NOT_RUN = -1 };

enum node_state { NODE_NONE, NODE_STARTING, NODE_CONNECTED, NODE_FAILED, NODE_EXITED };

struct tree_node {
    int index;
    int parent; /* node that starts this one; its own index: this process starts it; -1: a node
                   elsewhere in the tree starts it */
    int former_parent; /* previous parent, which has the order to cancel; -1: none */
    bool has_task;     /* the node was given its subtree, perhaps before it connected */
    enum node_state state;
    int *subtree; /* nodes that this node is to start */
    int nsubtree;
};

struct node_tree {
    struct node_tree_cfg cfg;
    struct tree_node *nodes; /* [nnodes] */
    int nnodes;
    int missing; /* number of nodes that could not be started */
    int ticks;   /* seconds in which nodes were being started and this process was not stopped */
    bool ending;
};

int node_tree_new(struct node_tree **ret, const struct node_tree_cfg *cfg)
{
    struct node_tree *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return -ENOMEM;
    t->cfg = *cfg;
    t->nnodes = (int)hostlist_count(cfg->nodes);
    t->nodes = calloc((size_t)t->nnodes, sizeof(*t->nodes));
    if (t->nodes == NULL) {
        free(t);
        return -ENOMEM;
    }
    for (int i = 0; i < t->nnodes; i++)
        t->nodes[i] = (struct tree_node){.index = i, .parent = -1, .former_parent = -1};
    *ret = t;
    return 0;
}

void node_tree_free(struct node_tree *t)
{
    if (t == NULL)
        return;
    for (int i = 0; i < t->nnodes; i++)
        free(t->nodes[i].subtree);
    free(t->nodes);
    free(t);
}

const char *node_tree_name(const struct node_tree *t, int index)
{
    return hostlist_nth(t->cfg.nodes, (size_t)index);
}

int node_tree_parent(const struct node_tree *t, int index)
{
    return t->nodes[index].parent;
}

bool node_tree_is_connected(const struct node_tree *t, int index)
{
    return t->nodes[index].state == NODE_CONNECTED;
}

bool node_tree_all_ended(const struct node_tree *t)
{
    for (int i = 0; i < t->nnodes; i++)
        if (t->nodes[i].state == NODE_CONNECTED || t->nodes[i].state == NODE_STARTING)
            return false;
    return true;
}

void node_tree_end(struct node_tree *t)
{
    t->ending = true;
}

static void node_tree_changed(const struct node_tree *t)
{
    t->cfg.port.changed(t->cfg.port.arg);
}

static void node_tree_send(const struct node_tree *t, int to, enum launch_msg_type type, int node,
                           uint32_t value)
{
    t->cfg.port.send(t->cfg.port.arg, to, type, node, value);
}

static void node_tree_report(const struct node_tree *t, enum launch_msg_type type, int node,
                             int value)
{
    if (t->cfg.relay)
        t->cfg.port.report(t->cfg.port.arg, type, node, value);
}

static void node_tree_kill(const struct node_tree *t, int index, int sig)
{
    t->cfg.port.kill(t->cfg.port.arg, index, sig);
}

/* If no connected node is left, limit the wait for nodes that are not connected yet. */
static void node_tree_check_left(const struct node_tree *t)
{
    bool exited = false;
    if (t->cfg.relay)
        return;
    for (int i = 0; i < t->nnodes; i++) {
        if (t->nodes[i].state == NODE_CONNECTED)
            return;
        exited |= t->nodes[i].state == NODE_EXITED;
    }
    if (exited)
        t->cfg.port.none_left(t->cfg.port.arg);
}

/* ---- starting ---- */

static int node_tree_give_subtree(struct node_tree *t, struct tree_node *c, const int *nodes, int n)
{
    free(DD_TAKE(c->subtree));
    c->nsubtree = 0;
    if (n == 0)
        return 0;
    c->subtree = calloc((size_t)n, sizeof(*c->subtree));
    if (c->subtree == NULL)
        return -ENOMEM;
    memcpy(c->subtree, nodes, (size_t)n * sizeof(*nodes));
    c->nsubtree = n;
    for (int i = 0; i < n; i++) {
        t->nodes[nodes[i]].parent = c->index;
        t->nodes[nodes[i]].state = NODE_STARTING;
    }
    return 0;
}

int node_tree_start(struct node_tree *t, const int *nodes, int n, struct dd_err *err)
{
    int at = 0;
    int size;
    int failed = 0;
    for (int k = 0; (size = launch_subtree(n, t->cfg.fanout, k, &at)) > 0; k++) {
        struct tree_node *c = &t->nodes[nodes[at]];
        int rc = node_tree_give_subtree(t, c, nodes + at + 1, size - 1);
        if (rc == 0) {
            c->parent = c->index;
            c->state = NODE_STARTING;
            rc = t->cfg.port.start(t->cfg.port.arg, c->index);
        }
        if (rc < 0)
            failed = dd_err_set(err, rc, "cannot start ddrun on %s: %s",
                                node_tree_name(t, c->index), strerror(-rc));
    }
    return failed;
}

static void node_tree_starter_failed(struct node_tree *t, struct tree_node *c, int code);

static void node_tree_start_from_here(struct node_tree *t, const int *nodes, int n)
{
    struct dd_err err = {0};
    if (n == 0 || node_tree_start(t, nodes, n, &err) == 0)
        return;
    dd_log(t->cfg.log, DD_LOG_ERR, "%s", err.text);
    for (int i = 0; i < n; i++)
        if (t->nodes[nodes[i]].parent == nodes[i] &&
            !t->cfg.port.is_running(t->cfg.port.arg, nodes[i]))
            node_tree_starter_failed(t, &t->nodes[nodes[i]], NOT_RUN);
}

/* True if node `by` is to start node `index`, and has not reported its connection. */
static bool node_tree_is_due(const struct node_tree *t, const struct tree_node *by, int index)
{
    return t->nodes[index].parent == by->index && t->nodes[index].state == NODE_STARTING;
}

/* Take back the nodes that c was to start and has not started. Store them in nodes[]; return their
 * number. */
static int node_tree_take_subtree(struct node_tree *t, struct tree_node *c, int *nodes)
{
    int n = 0;
    for (int i = 0; i < c->nsubtree; i++) {
        struct tree_node *of = &t->nodes[c->subtree[i]];
        if (!node_tree_is_due(t, c, of->index))
            continue;
        if (c->state == NODE_CONNECTED) {
            node_tree_send(t, c->index, LAUNCH_CANCEL, of->index, 0);
            of->former_parent = c->index;
        }
        nodes[n++] = of->index;
    }
    free(DD_TAKE(c->subtree));
    c->nsubtree = 0;
    return n;
}

static void node_tree_start_subtree(struct node_tree *t, struct tree_node *c)
{
    DD_AUTO(free) int *nodes = c->nsubtree > 0 ? calloc((size_t)c->nsubtree, sizeof(*nodes)) : NULL;
    const int n = nodes != NULL ? node_tree_take_subtree(t, c, nodes) : 0;
    if (!t->ending)
        node_tree_start_from_here(t, nodes, n);
}

/* Redistribute the nodes that their parents have not started yet. Skip a parent that is about to
 * connect: it has its task, and cannot be reached yet. Take all nodes first and distribute them
 * afterwards, so that no node is taken twice, and no more than the fan-out are started from here.
 */
static void node_tree_redistribute(struct node_tree *t)
{
    DD_AUTO(free) int *late = calloc((size_t)t->nnodes, sizeof(*late));
    int n = 0;
    for (int i = 0; i < t->nnodes && late != NULL; i++) {
        struct tree_node *c = &t->nodes[i];
        if (c->nsubtree > 0 && (c->state != NODE_STARTING || !c->has_task))
            n += node_tree_take_subtree(t, c, late + n);
    }
    node_tree_start_from_here(t, late, n);
}

void node_tree_cancel(struct node_tree *t, int index)
{
    struct tree_node *c = &t->nodes[index];
    if (c->state != NODE_STARTING)
        return;
    if (c->parent != c->index)
        node_tree_send(t, c->parent, LAUNCH_CANCEL, c->index, 0);
    else
        node_tree_kill(t, c->index, SIGKILL);
    c->state = NODE_NONE;
}

void node_tree_cancel_starting(struct node_tree *t)
{
    for (int i = 0; i < t->nnodes; i++) {
        if (t->nodes[i].state != NODE_STARTING)
            continue;
        node_tree_kill(t, i, SIGTERM);
        if (t->nodes[i].parent != i)
            node_tree_cancel(t, i);
    }
}

/* ---- a node connects ---- */

/* True if the node may connect here. This includes a node whose starter has exited, unless another
 * node starts it now. */
static bool node_tree_expects(const struct node_tree *t, const struct tree_node *c)
{
    return c->parent == c->index &&
           (c->state == NODE_STARTING || (c->state == NODE_FAILED && !t->cfg.relay));
}

/* Remove from c's subtree the nodes that c need not start any more. */
static void node_tree_trim_subtree(const struct node_tree *t, struct tree_node *c)
{
    int n = 0;
    for (int i = 0; i < c->nsubtree; i++)
        if (node_tree_is_due(t, c, c->subtree[i]))
            c->subtree[n++] = c->subtree[i];
    c->nsubtree = n;
}

bool node_tree_take_task(struct node_tree *t, int index, const int **ret_nodes, int *ret_n)
{
    struct tree_node *c = &t->nodes[index];
    if (!node_tree_expects(t, c))
        return false;
    if (!c->has_task)
        node_tree_trim_subtree(t, c);
    c->has_task = true;
    *ret_nodes = c->subtree;
    *ret_n = c->nsubtree;
    return true;
}

static void node_tree_set_connected(struct node_tree *t, struct tree_node *c)
{
    if (c->state == NODE_FAILED)
        t->missing--;
    c->state = NODE_CONNECTED;
    node_tree_report(t, LAUNCH_CONNECTED, c->index, 0);
    /* the task of c may be out of date: cancel the nodes that c need not start any more */
    for (int i = 0; i < c->nsubtree; i++)
        if (!node_tree_is_due(t, c, c->subtree[i]))
            node_tree_send(t, c->index, LAUNCH_CANCEL, c->subtree[i], 0);
    if (c->parent == c->index && t->ending)
        node_tree_send(t, c->index, LAUNCH_SIGNAL, c->index, SIGTERM | DD_SIGNAL_AT_ONCE);
    else if (!t->ending)
        t->cfg.port.connected(t->cfg.port.arg);
}

bool node_tree_connect(struct node_tree *t, int index)
{
    if (!node_tree_expects(t, &t->nodes[index]))
        return false;
    node_tree_set_connected(t, &t->nodes[index]);
    return true;
}

void node_tree_agent_started(struct node_tree *t, int index)
{
    t->nodes[index].state = NODE_CONNECTED;
}

/* ---- a node ends ---- */

static void node_tree_set_exited(struct node_tree *t, struct tree_node *c, int code)
{
    if (c->state == NODE_EXITED)
        return;
    c->state = NODE_EXITED;
    node_tree_report(t, LAUNCH_EXITED, c->index, code);
    node_tree_changed(t);
    t->cfg.port.exited(t->cfg.port.arg, c->index, code);
    node_tree_check_left(t);
}

void node_tree_agent_exited(struct node_tree *t, int index, int code)
{
    node_tree_set_exited(t, &t->nodes[index], code);
}

/* Log a node that could not be started. If fewer than min_nodes remain, report the failure. */
static void node_tree_log_missing(struct node_tree *t, const struct tree_node *c, int code)
{
    const bool enough = ++t->missing <= t->nnodes - t->cfg.min_nodes;
    const char *name = node_tree_name(t, c->index);
    const bool ssh = strcmp(t->cfg.starter, "ssh") == 0 && code == SSH_FAILED;
    const char *then = enough ? "; continuing without it" : "";
    if (code == NOT_RUN)
        dd_log(t->cfg.log, DD_LOG_ERR, "cannot start ddrun on %s: cannot run %s on this node%s",
               name, t->cfg.starter, then);
    else if (code > KILLED && code <= KILLED + SIGRTMAX)
        dd_log(t->cfg.log, DD_LOG_ERR,
               "cannot start ddrun on %s: %s exited with code %d, or was killed by signal %d%s",
               name, t->cfg.starter, code, code - KILLED, then);
    else
        dd_log(t->cfg.log, DD_LOG_ERR, "cannot start ddrun on %s: %s exited with code %d%s%s%s%s",
               name, t->cfg.starter, code, then, ssh ? "\n  tip: try 'ssh " : "", ssh ? name : "",
               ssh ? " true'" : "");
    if (!enough)
        t->cfg.port.failed(t->cfg.port.arg);
}

static void node_tree_starter_failed(struct node_tree *t, struct tree_node *c, int code)
{
    c->state = NODE_FAILED;
    node_tree_changed(t);
    if (t->ending)
        return;
    if (t->cfg.relay)
        node_tree_report(t, LAUNCH_FAILED, c->index,
                         code == NOT_RUN ? 1 : code); /* the parent tries to start the node */
    else
        node_tree_log_missing(t, c, code);
    node_tree_start_subtree(t, c);
    node_tree_check_left(t);
}

void node_tree_gone(struct node_tree *t, int index, int code)
{
    struct tree_node *c = &t->nodes[index];
    code = code != 0 ? code : 1;
    if (c->state == NODE_CONNECTED) /* lost without having reported an exit code */
        node_tree_set_exited(t, c, code);
    node_tree_start_subtree(t, c);
    for (int i = 0; i < t->nnodes; i++)
        if (t->nodes[i].parent == index && i != index && t->nodes[i].state == NODE_CONNECTED)
            node_tree_set_exited(t, &t->nodes[i], code);
}

void node_tree_starter_exited(struct node_tree *t, int index, int code, bool linked)
{
    struct tree_node *c = &t->nodes[index];
    if (c->parent != index)
        return;
    if (c->state == NODE_STARTING)
        node_tree_starter_failed(t, c, code);
    else if (!linked)
        node_tree_gone(t, index, code);
}

/* ---- messages from nodes ---- */

/* Node c connected to its former parent before LAUNCH_CANCEL reached that parent: cancel the later
 * start, since a node has one agent. */
static void node_tree_give_back(struct node_tree *t, struct tree_node *c)
{
    if (c->parent != c->index)
        node_tree_send(t, c->parent, LAUNCH_CANCEL, c->index, 0);
    else
        node_tree_kill(t, c->index, SIGKILL);
    c->parent = c->former_parent;
    node_tree_set_connected(t, c);
}

/* Node `by` could not start c: pass the failure on (relay), or start c from this node. */
static void node_tree_failed_there(struct node_tree *t, const struct tree_node *by,
                                   struct tree_node *c, int code)
{
    if (t->ending)
        return;
    if (t->cfg.relay) {
        c->parent = -1;
        c->state = NODE_NONE;
        node_tree_report(t, LAUNCH_FAILED, c->index, code);
        return;
    }
    dd_log(t->cfg.log, DD_LOG_NOTICE,
           "%s on %s failed with code %d while starting ddrun on %s; retrying from this node",
           t->cfg.starter, node_tree_name(t, by->index), code, node_tree_name(t, c->index));
    node_tree_start_from_here(t, &c->index, 1);
}

void node_tree_receive(struct node_tree *t, int from, const struct launch_msg *m)
{
    struct tree_node *by = &t->nodes[from];
    if (m->type < LAUNCH_CONNECTED ||
        m->type > LAUNCH_EXITED) /* only a parent sends this; its `node` may be out of range */
        return;
    struct tree_node *c = &t->nodes[m->node];
    if (m->type == LAUNCH_CONNECTED && c->state == NODE_STARTING && c->parent != from &&
        c->former_parent == from)
        node_tree_give_back(t, c);
    if (m->type == LAUNCH_CONNECTED &&
        c->parent != from) /* the node is connected twice, or will be */
        node_tree_send(t, from, LAUNCH_SIGNAL, c->index, SIGTERM | DD_SIGNAL_AT_ONCE);
    if (c != by && c->parent != from)
        return;
    if (m->type == LAUNCH_CONNECTED && c->state == NODE_STARTING)
        node_tree_set_connected(t, c);
    else if (m->type == LAUNCH_FAILED && c != by && c->state == NODE_STARTING)
        node_tree_failed_there(t, by, c, (int)(m->value & 255));
    else if (m->type == LAUNCH_EXITED)
        node_tree_set_exited(t, c, (int)(m->value & 255));
}

/* ---- time ---- */

static void node_tree_log_slow(const struct node_tree *t)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(600);
    for (int i = 0; i < t->nnodes; i++)
        if (t->nodes[i].state == NODE_STARTING)
            (void)dd_buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", node_tree_name(t, i));
    char limit[DD_DURATION_TEXT];
    dd_num_duration_text(limit, t->cfg.limit_s);
    dd_log(t->cfg.log, DD_LOG_NOTICE,
           "%s has not started ddrun on %s after %d s; still waiting%s%s", t->cfg.starter,
           dd_buf_str(&names), NODE_TREE_SLOW_S,
           t->cfg.limit_s > 0 ? "; the job gives up after " : "", t->cfg.limit_s > 0 ? limit : "");
}

bool node_tree_tick(struct node_tree *t)
{
    bool starting = false;
    for (int i = 0; i < t->nnodes; i++)
        starting |= t->nodes[i].state == NODE_STARTING;
    if (t->ending || !starting)
        return false;
    t->ticks++;
    if (t->ticks == NODE_TREE_SLOW_S)
        node_tree_log_slow(t);
    if (t->ticks % NODE_TREE_SLOW_S == 0) /* repeat: a new parent may be late, too */
        node_tree_redistribute(t);
    return true;
}
