/* What a starting process knows of its nodes, and what it decides. */
#include "launch/launcher_inner.h"

#include "base/sig.h"
#include "launch/codes.h"

#include <stdlib.h>
#include <string.h>

enum { SLOW_S = 30 };

static bool is_ending(const struct launcher *l)
{
    return l->over || l->asked;
}

static void tell_parent(const struct launcher *l, enum launch_msg_type type, int index, int value)
{
    if (l->cfg->parent != NULL)
        parent_link_send(l->cfg->parent, type, index, (uint32_t)value);
}

/* None is left of those that came: who has not come until now is not waited for much longer. */
static void check_left(struct launcher *l)
{
    bool came = false;
    if (l->cfg->parent != NULL)
        return;
    for (int i = 0; i < l->nnodes; i++) {
        if (l->children[i].state == CHILD_CONNECTED)
            return;
        came |= l->children[i].state == CHILD_EXITED;
    }
    if (came && !l->over)
        launcher_end_in_grace(l);
}

/* To be started by that one, which has not said yet that it has come. */
static bool is_due(const struct launcher *l, const struct child *by, int index)
{
    return l->children[index].parent == by->index && l->children[index].state == CHILD_STARTING;
}

/* One whose starter has gone away may come all the same, unless it is started from up there now. */
bool launcher_is_to_come(const struct launcher *l, const struct child *c)
{
    return c->parent == c->index &&
           (c->state == CHILD_STARTING || (c->state == CHILD_FAILED && l->cfg->parent == NULL));
}

void launcher_node_came(struct launcher *l, struct child *c)
{
    if (c->state == CHILD_FAILED)
        l->missing--;
    c->state = CHILD_CONNECTED;
    tell_parent(l, LAUNCH_CONNECTED, c->index, 0);
    for (int i = 0; i < c->nsubtree; i++) /* of its task, since it has it */
        if (!is_due(l, c, c->subtree[i]))
            bootstrap_server_send(l->server, c->index, LAUNCH_CANCEL, c->subtree[i], 0);
    if (c->parent == c->index && is_ending(l))
        bootstrap_server_send(l->server, c->index, LAUNCH_SIGNAL, c->index,
                              SIGTERM | DD_SIGNAL_AT_ONCE);
    else if (!is_ending(l)) /* somebody is there again */
        evtimer_del(l->end);
}

void launcher_node_ended(struct launcher *l, struct child *c, int code)
{
    /* The agent of this node knows how the job has ended, unless that goes on without it. */
    const bool knows = c->index == l->here && (!l->cfg->go_on || code == 0);
    if (c->state == CHILD_EXITED)
        return;
    c->state = CHILD_EXITED;
    tell_parent(l, LAUNCH_EXITED, c->index, code);
    launcher_look(l);
    if (l->cfg->parent != NULL) {
        if (c->index == l->here)
            l->code = code;
        return;
    }
    if (!l->over)
        l->code = knows ? code : launch_code_of_job(l->code, code, l->cfg->go_on);
    if (knows)
        launcher_job_over(l);
    check_left(l);
}

/* A node that never came: nobody else has to wait for it. */
static void not_started(struct launcher *l, const struct child *c, int code)
{
    const struct launcher_cfg *cfg = l->cfg;
    const bool enough = ++l->missing <= l->nnodes - cfg->min_nodes;
    dd_log(cfg->log, DD_LOG_ERR, "cannot start ddrun on %s: %s exited with code %d%s",
           launcher_name_of(l, c->index), cfg->starter->name, code,
           enough ? "; the other nodes may go on without it" : "");
    if (!enough)
        launcher_fail(l);
}

static void start_from_here(struct launcher *l, const int *nodes, int n)
{
    struct dd_err err = {0};
    if (n == 0 || launcher_start_nodes(l, nodes, n, &err) == 0)
        return;
    dd_log(l->cfg->log, DD_LOG_ERR, "%s", err.text);
    for (int i = 0; i < n; i++)
        if (l->children[nodes[i]].parent == nodes[i] && l->children[nodes[i]].pid == 0)
            launcher_node_missing(l, &l->children[nodes[i]], 1);
}

/* What this one was to start and has not started: gives the nodes, and how many. */
static int take_subtree(struct launcher *l, struct child *c, int *nodes)
{
    int n = 0;
    for (int i = 0; i < c->nsubtree; i++) {
        struct child *of = &l->children[c->subtree[i]];
        if (!is_due(l, c, of->index))
            continue;
        if (c->state == CHILD_CONNECTED) {
            bootstrap_server_send(l->server, c->index, LAUNCH_CANCEL, of->index, 0);
            of->former_parent = c->index;
        }
        nodes[n++] = of->index;
    }
    free(DD_TAKE(c->subtree));
    c->nsubtree = 0;
    return n;
}

static void start_subtree(struct launcher *l, struct child *c)
{
    DD_AUTO(free) int *nodes = c->nsubtree > 0 ? calloc((size_t)c->nsubtree, sizeof(*nodes)) : NULL;
    const int n = nodes != NULL ? take_subtree(l, c, nodes) : 0;
    if (!is_ending(l))
        start_from_here(l, nodes, n);
}

void launcher_node_missing(struct launcher *l, struct child *c, int code)
{
    c->state = CHILD_FAILED;
    launcher_look(l);
    if (is_ending(l))
        return;
    if (l->cfg->parent != NULL)
        tell_parent(l, LAUNCH_FAILED, c->index, code); /* is tried from up there */
    else
        not_started(l, c, code);
    start_subtree(l, c);
    check_left(l);
}

void launcher_node_gone(struct launcher *l, struct child *c)
{
    const int code = c->code != 0 ? c->code : 1;
    if (c->state == CHILD_CONNECTED) /* it has not said how it ended */
        launcher_node_ended(l, c, code);
    start_subtree(l, c);
    for (int i = 0; i < l->nnodes; i++)
        if (l->children[i].parent == c->index && i != c->index &&
            l->children[i].state == CHILD_CONNECTED)
            launcher_node_ended(l, &l->children[i], code);
}

/* Not of one that is about to come: it has its task, and cannot be told yet. First all are taken,
 * then they are dealt out anew: so no node is taken twice, and no more than the fan-out are started
 * from here. */
void launcher_take_subtrees(struct launcher *l)
{
    DD_AUTO(free) int *late = calloc((size_t)l->nnodes, sizeof(*late));
    int n = 0;
    for (int i = 0; i < l->nnodes && late != NULL; i++) {
        struct child *c = &l->children[i];
        if (c->nsubtree > 0 && (c->state != CHILD_STARTING || !c->has_task))
            n += take_subtree(l, c, late + n);
    }
    start_from_here(l, late, n);
}

static void say_slow(const struct launcher *l)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(600);
    for (int i = 0; i < l->nnodes; i++)
        if (l->children[i].state == CHILD_STARTING)
            (void)dd_buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", launcher_name_of(l, i));
    dd_log(l->cfg->log, DD_LOG_NOTICE, "%s has not started ddrun on %s for %d s",
           l->cfg->starter->name, dd_buf_str(&names), SLOW_S);
}

bool launcher_tick(struct launcher *l)
{
    bool starting = false;
    for (int i = 0; i < l->nnodes; i++)
        starting |= l->children[i].state == CHILD_STARTING;
    if (is_ending(l) || !starting)
        return false;
    l->ticks++;
    if (l->ticks == SLOW_S)
        say_slow(l);
    if (l->ticks % SLOW_S == 0) /* the next time those whose new parent is no better */
        launcher_take_subtrees(l);
    return true;
}

/* It had come there before that one heard that it was to be dropped: a node has one agent. */
static void give_back(struct launcher *l, struct child *c)
{
    if (c->parent != c->index)
        bootstrap_server_send(l->server, c->parent, LAUNCH_CANCEL, c->index, 0);
    else
        launcher_kill(l, c, SIGKILL);
    c->parent = c->former_parent;
    launcher_node_came(l, c);
}

void launcher_trim_subtree(const struct launcher *l, struct child *c)
{
    int n = 0;
    for (int i = 0; i < c->nsubtree; i++)
        if (is_due(l, c, c->subtree[i]))
            c->subtree[n++] = c->subtree[i];
    c->nsubtree = n;
}

void launcher_drop(struct launcher *l, struct child *c)
{
    if (c->state != CHILD_STARTING)
        return;
    if (c->parent != c->index)
        bootstrap_server_send(l->server, c->parent, LAUNCH_CANCEL, c->index, 0);
    else
        launcher_kill(l, c, SIGKILL);
    c->state = CHILD_NONE;
}

/* The one that was to start it cannot: perhaps we can. */
static void missing_there(struct launcher *l, const struct child *by, struct child *c, int code)
{
    if (is_ending(l))
        return;
    if (l->cfg->parent != NULL) {
        c->parent = -1;
        c->state = CHILD_NONE;
        tell_parent(l, LAUNCH_FAILED, c->index, code);
        return;
    }
    dd_log(l->cfg->log, DD_LOG_NOTICE,
           "%s could not start ddrun on %s: %s ended with %d there; trying from here",
           launcher_name_of(l, by->index), launcher_name_of(l, c->index), l->cfg->starter->name,
           code);
    start_from_here(l, &c->index, 1);
}

void launcher_node_says(struct launcher *l, struct child *by, const struct launch_msg *m)
{
    if (m->type < LAUNCH_CONNECTED ||
        m->type > LAUNCH_EXITED) /* nothing that comes from there; nor need `node` be one */
        return;
    struct child *c = &l->children[m->node];
    if (m->type == LAUNCH_CONNECTED && c->state == CHILD_STARTING && c->parent != by->index &&
        c->former_parent == by->index)
        give_back(l, c);
    if (m->type == LAUNCH_CONNECTED &&
        c->parent != by->index) /* it is there twice, or soon would be */
        bootstrap_server_send(l->server, by->index, LAUNCH_SIGNAL, c->index,
                              SIGTERM | DD_SIGNAL_AT_ONCE);
    if (c != by && c->parent != by->index)
        return;
    if (m->type == LAUNCH_CONNECTED && c->state == CHILD_STARTING)
        launcher_node_came(l, c);
    else if (m->type == LAUNCH_FAILED && c != by && c->state == CHILD_STARTING)
        missing_there(l, by, c, (int)(m->value & 255));
    else if (m->type == LAUNCH_EXITED)
        launcher_node_ended(l, c, (int)(m->value & 255));
}
