/* What a starting process knows of its nodes, and what it decides. */
#include "launch/launcher_inner.h"

#include "base/sig.h"
#include "launch/codes.h"

#include <stdlib.h>
#include <string.h>

enum { SLOW_S = 30 };

static bool is_ending(const struct root *r)
{
    return r->over || r->asked;
}

static void tell_up(const struct root *r, enum launch_word_type type, int index, int value)
{
    if (r->cfg->up != NULL)
        launch_up_say(r->cfg->up, type, index, (uint32_t)value);
}

/* None is left of those that came: who has not come until now is not waited for much longer. */
static void check_left(struct root *r)
{
    bool came = false;
    if (r->cfg->up != NULL)
        return;
    for (int i = 0; i < r->nnodes; i++) {
        if (r->children[i].state == CHILD_CAME)
            return;
        came |= r->children[i].state == CHILD_ENDED;
    }
    if (came && !r->over)
        root_end_in_grace(r);
}

/* To be started by that one, which has not said yet that it has come. */
static bool is_due(const struct root *r, const struct child *by, int index)
{
    return r->children[index].lead == by->index && r->children[index].state == CHILD_STARTING;
}

/* One whose starter has gone away may come all the same, unless it is started from up there now. */
bool root_is_to_come(const struct root *r, const struct child *c)
{
    return c->lead == c->index &&
           (c->state == CHILD_STARTING || (c->state == CHILD_MISSING && r->cfg->up == NULL));
}

void root_node_came(struct root *r, struct child *c)
{
    if (c->state == CHILD_MISSING)
        r->missing--;
    c->state = CHILD_CAME;
    tell_up(r, WORD_CAME, c->index, 0);
    for (int i = 0; i < c->nshare; i++) /* of its task, since it has it */
        if (!is_due(r, c, c->share[i]))
            launch_door_say(r->door, c->index, WORD_DROP, c->share[i], 0);
    if (c->lead == c->index && is_ending(r))
        launch_door_say(r->door, c->index, WORD_SIGNAL, c->index, SIGTERM | DD_SIGNAL_AT_ONCE);
    else if (!is_ending(r)) /* somebody is there again */
        evtimer_del(r->end);
}

void root_node_ended(struct root *r, struct child *c, int code)
{
    /* The agent of this node knows how the job has ended, unless that goes on without it. */
    const bool knows = c->index == r->here && (!r->cfg->go_on || code == 0);
    if (c->state == CHILD_ENDED)
        return;
    c->state = CHILD_ENDED;
    tell_up(r, WORD_ENDED, c->index, code);
    root_look(r);
    if (r->cfg->up != NULL) {
        if (c->index == r->here)
            r->code = code;
        return;
    }
    if (!r->over)
        r->code = knows ? code : launch_code_of_job(r->code, code, r->cfg->go_on);
    if (knows)
        root_job_over(r);
    check_left(r);
}

/* A node that never came: nobody else has to wait for it. */
static void not_started(struct root *r, const struct child *c, int code)
{
    const struct root_cfg *cfg = r->cfg;
    const bool enough = ++r->missing <= r->nnodes - cfg->min_nodes;
    dd_log(cfg->log, DD_LOG_ERR, "cannot start ddrun on %s: %s exited with code %d%s",
           root_name_of(r, c->index), cfg->starter->name, code,
           enough ? "; the other nodes may go on without it" : "");
    if (!enough)
        root_fail(r);
}

static void start_from_here(struct root *r, const int *nodes, int n)
{
    struct dd_err err = {0};
    if (n == 0 || root_start_nodes(r, nodes, n, &err) == 0)
        return;
    dd_log(r->cfg->log, DD_LOG_ERR, "%s", err.text);
    for (int i = 0; i < n; i++)
        if (r->children[nodes[i]].lead == nodes[i] && r->children[nodes[i]].pid == 0)
            root_node_missing(r, &r->children[nodes[i]], 1);
}

/* What this one was to start and has not started: gives the nodes, and how many. */
static int take_share(struct root *r, struct child *c, int *nodes)
{
    int n = 0;
    for (int i = 0; i < c->nshare; i++) {
        struct child *of = &r->children[c->share[i]];
        if (!is_due(r, c, of->index))
            continue;
        if (c->state == CHILD_CAME) {
            launch_door_say(r->door, c->index, WORD_DROP, of->index, 0);
            of->was = c->index;
        }
        nodes[n++] = of->index;
    }
    free(DD_TAKE(c->share));
    c->nshare = 0;
    return n;
}

static void start_share(struct root *r, struct child *c)
{
    DD_AUTO(free) int *nodes = c->nshare > 0 ? calloc((size_t)c->nshare, sizeof(*nodes)) : NULL;
    const int n = nodes != NULL ? take_share(r, c, nodes) : 0;
    if (!is_ending(r))
        start_from_here(r, nodes, n);
}

void root_node_missing(struct root *r, struct child *c, int code)
{
    c->state = CHILD_MISSING;
    root_look(r);
    if (is_ending(r))
        return;
    if (r->cfg->up != NULL)
        tell_up(r, WORD_MISSING, c->index, code); /* is tried from up there */
    else
        not_started(r, c, code);
    start_share(r, c);
    check_left(r);
}

void root_node_gone(struct root *r, struct child *c)
{
    const int code = c->code != 0 ? c->code : 1;
    if (c->state == CHILD_CAME) /* it has not said how it ended */
        root_node_ended(r, c, code);
    start_share(r, c);
    for (int i = 0; i < r->nnodes; i++)
        if (r->children[i].lead == c->index && i != c->index && r->children[i].state == CHILD_CAME)
            root_node_ended(r, &r->children[i], code);
}

/* Not of one that is about to come: it has its task, and cannot be told yet. First all are taken,
 * then they are dealt out anew: so no node is taken twice, and no more than the fan-out are started
 * from here. */
void root_take_shares(struct root *r)
{
    DD_AUTO(free) int *late = calloc((size_t)r->nnodes, sizeof(*late));
    int n = 0;
    for (int i = 0; i < r->nnodes && late != NULL; i++) {
        struct child *c = &r->children[i];
        if (c->nshare > 0 && (c->state != CHILD_STARTING || !c->has_task))
            n += take_share(r, c, late + n);
    }
    start_from_here(r, late, n);
}

static void say_slow(const struct root *r)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(600);
    for (int i = 0; i < r->nnodes; i++)
        if (r->children[i].state == CHILD_STARTING)
            (void)dd_buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", root_name_of(r, i));
    dd_log(r->cfg->log, DD_LOG_NOTICE, "%s has not started ddrun on %s for %d s",
           r->cfg->starter->name, dd_buf_str(&names), SLOW_S);
}

bool root_tick(struct root *r)
{
    bool starting = false;
    for (int i = 0; i < r->nnodes; i++)
        starting |= r->children[i].state == CHILD_STARTING;
    if (is_ending(r) || !starting)
        return false;
    r->ticks++;
    if (r->ticks == SLOW_S)
        say_slow(r);
    if (r->ticks % SLOW_S == 0) /* the next time those whose new lead is no better */
        root_take_shares(r);
    return true;
}

/* It had come there before that one heard that it was to be dropped: a node has one agent. */
static void give_back(struct root *r, struct child *c)
{
    if (c->lead != c->index)
        launch_door_say(r->door, c->lead, WORD_DROP, c->index, 0);
    else
        root_kill(r, c, SIGKILL);
    c->lead = c->was;
    root_node_came(r, c);
}

void root_trim_share(const struct root *r, struct child *c)
{
    int n = 0;
    for (int i = 0; i < c->nshare; i++)
        if (is_due(r, c, c->share[i]))
            c->share[n++] = c->share[i];
    c->nshare = n;
}

void root_drop(struct root *r, struct child *c)
{
    if (c->state != CHILD_STARTING)
        return;
    if (c->lead != c->index)
        launch_door_say(r->door, c->lead, WORD_DROP, c->index, 0);
    else
        root_kill(r, c, SIGKILL);
    c->state = CHILD_NONE;
}

/* The one that was to start it cannot: perhaps we can. */
static void missing_there(struct root *r, const struct child *by, struct child *c, int code)
{
    if (is_ending(r))
        return;
    if (r->cfg->up != NULL) {
        c->lead = -1;
        c->state = CHILD_NONE;
        tell_up(r, WORD_MISSING, c->index, code);
        return;
    }
    dd_log(r->cfg->log, DD_LOG_NOTICE,
           "%s could not start ddrun on %s: %s ended with %d there; trying from here",
           root_name_of(r, by->index), root_name_of(r, c->index), r->cfg->starter->name, code);
    start_from_here(r, &c->index, 1);
}

void root_node_says(struct root *r, struct child *by, const struct launch_word *w)
{
    if (w->type < WORD_CAME ||
        w->type > WORD_ENDED) /* nothing that comes from there; nor need `node` be one */
        return;
    struct child *c = &r->children[w->node];
    if (w->type == WORD_CAME && c->state == CHILD_STARTING && c->lead != by->index &&
        c->was == by->index)
        give_back(r, c);
    if (w->type == WORD_CAME && c->lead != by->index) /* it is there twice, or soon would be */
        launch_door_say(r->door, by->index, WORD_SIGNAL, c->index, SIGTERM | DD_SIGNAL_AT_ONCE);
    if (c != by && c->lead != by->index)
        return;
    if (w->type == WORD_CAME && c->state == CHILD_STARTING)
        root_node_came(r, c);
    else if (w->type == WORD_MISSING && c != by && c->state == CHILD_STARTING)
        missing_there(r, by, c, (int)(w->value & 255));
    else if (w->type == WORD_ENDED)
        root_node_ended(r, c, (int)(w->value & 255));
}
