#include "launch/launch_end.h"

#include "base/io.h"
#include "base/sig.h"
#include "launch/codes.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>

enum {
    STARTER_KILL_MS = 2000,
    FAIL_MS = 300,   /* after a failed start: time for other failures to be reported, too */
    COMING_MS = 500, /* after cancelling: wait for nodes that are about to connect */
    TRIES_MAX = 3,   /* SIGTERM, then SIGKILL, then stop waiting */
};

static void launch_end_set_over(struct launch_end *e)
{
    e->over = true;
    if (e->parts->tree != NULL)
        node_tree_end(e->parts->tree);
}

void launch_end_request(struct launch_end *e)
{
    e->asked = true;
    node_tree_end(e->parts->tree);
}

void launch_end_stop(struct launch_end *e, int sig, int how)
{
    const struct launch_parts *p = e->parts;
    const bool at_once = how == DD_SIGNAL_AT_ONCE;
    e->stopped = true;
    launch_procs_tell_agent(p->procs, sig, how);
    for (int i = 0; i < p->nnodes; i++) {
        if (bootstrap_server_is_connected(p->server, i))
            bootstrap_server_send(p->server, i, LAUNCH_SIGNAL, i, (uint32_t)(sig | how));
        else if (!at_once)
            launch_procs_close_stdin(p->procs, i);
    }
    if (!at_once)
        node_tree_cancel_starting(p->tree);
}

static void launch_end_add_timer(struct event *timer, unsigned ms)
{
    const struct timeval t = dd_timeval(ms * DD_NS_PER_MS);
    evtimer_add(timer, &t);
}

void launch_end_in_grace(struct launch_end *e)
{
    launch_end_add_timer(e->timer, e->cfg->grace_ms);
}

/* Signal the processes that remain after the end of the job. A process that only waits until its
 * output is read may continue, unless the end was requested. */
static void launch_end_on_end(evutil_socket_t fd, short what, void *arg)
{
    struct launch_end *e = arg;
    const struct launch_parts *p = e->parts;
    (void)fd;
    (void)what;
    launch_end_set_over(e);
    launch_end_add_timer(e->timer, STARTER_KILL_MS);
    if (!e->asked && node_tree_all_ended(p->tree) && !output_forward_flushed(p->output))
        return;
    for (int i = 0; i < p->nnodes; i++)
        launch_procs_kill(p->procs, i, e->tries > 0 ? SIGKILL : SIGTERM);
    if (!e->stopped)
        launch_end_stop(e, SIGTERM, 0);
    if (++e->tries == TRIES_MAX)
        event_base_loopbreak(p->base);
}

static void launch_end_job_over(struct launch_end *e)
{
    if (e->over)
        return;
    launch_end_set_over(e);
    launch_end_in_grace(e);
    node_tree_cancel_starting(e->parts->tree);
    if (e->code != 0 && !e->stopped)
        launch_end_stop(e, SIGTERM, 0);
}

/* Order the connected nodes to stop, and COMING_MS later cancel the nodes that are still starting.
 * A node that connects in between is ordered to stop, too. */
static void launch_end_on_fail(evutil_socket_t fd, short what, void *arg)
{
    struct launch_end *e = arg;
    (void)fd;
    (void)what;
    if (e->over) {
        node_tree_cancel_starting(e->parts->tree);
        return;
    }
    launch_end_set_over(e);
    launch_end_stop(e, SIGTERM, DD_SIGNAL_AT_ONCE);
    launch_end_add_timer(e->fail_timer, COMING_MS);
    launch_end_in_grace(e);
}

/* A job of a fixed size ends when it loses a node. Its daemon sees to that, unless the node was
 * lost before it had joined: the others would wait for it until --rdzv-timeout. */
static void launch_end_on_lost(evutil_socket_t fd, short what, void *arg)
{
    struct launch_end *e = arg;
    (void)fd;
    (void)what;
    if (e->over)
        return;
    dd_log(e->cfg->log, DD_LOG_ERR,
           "lost %s, and the job has not ended within %.10g s after that; ending it",
           node_tree_name(e->parts->tree, e->lost), (double)e->cfg->grace_ms / 1e3);
    launch_end_on_failed(e);
}

static bool launch_end_has_links(const struct launch_end *e)
{
    for (int i = 0; i < e->parts->nnodes; i++)
        if (bootstrap_server_is_connected(e->parts->server, i))
            return true;
    return false;
}

static void launch_end_on_check(evutil_socket_t fd, short what, void *arg)
{
    struct launch_end *e = arg;
    const struct launch_parts *p = e->parts;
    const struct launcher_cfg *cfg = e->cfg;
    (void)fd;
    (void)what;
    output_forward_push(p->output);
    const bool gone = launch_procs_left(p->procs) == 0 && !launch_end_has_links(e);
    if (gone && cfg->here >= 0 && output_forward_sources_done(p->output, cfg->here))
        output_forward_end_pipes(
            p->output, cfg->here); /* all other processes that write to these pipes have exited */
    const bool done = gone && output_forward_sources_done(p->output, -1);
    if (done && cfg->parent != NULL)
        parent_link_end(
            cfg->parent); /* the parent can then treat an incomplete last line as the end */
    if (done && output_forward_flushed(p->output)) {
        event_base_loopbreak(p->base);
        return;
    }
    output_forward_wait(p->output);
    if (e->asked && cfg->parent == NULL && node_tree_all_ended(p->tree))
        output_forward_limit_wait(p->output);
}

void launch_end_request_without_agent(struct launch_end *e, int sig, bool again)
{
    if (e->sig == 0) {
        e->sig = sig;
        launch_end_in_grace(e);
    } else if (again) {
        launch_end_on_end(-1, 0, e);
    }
}

void launch_end_on_exited(struct launch_end *e, int index, int code)
{
    const struct launcher_cfg *cfg = e->cfg;
    /* The exit code of this node's agent is that of the job, unless the job continues without this
     * node. */
    const bool knows = index == cfg->here && (!cfg->go_on || code == 0);
    if (cfg->parent != NULL) {
        if (index == cfg->here)
            e->code = code;
        return;
    }
    if (!e->over)
        e->code = knows ? code : launch_code_of_job(e->code, code, cfg->go_on);
    if (knows)
        launch_end_job_over(e);
    else if (code != 0 && cfg->min_nodes == e->parts->nnodes &&
             !evtimer_pending(e->lost_timer, NULL)) {
        e->lost = index;
        launch_end_add_timer(e->lost_timer, cfg->grace_ms);
    }
}

void launch_end_on_failed(struct launch_end *e)
{
    e->code = 1;
    if (!evtimer_pending(e->fail_timer, NULL))
        launch_end_add_timer(e->fail_timer, FAIL_MS);
}

void launch_end_on_none_left(struct launch_end *e)
{
    if (!e->over)
        launch_end_in_grace(e);
}

void launch_end_on_connected(struct launch_end *e)
{
    evtimer_del(e->timer);
}

void launch_end_give_up(struct launch_end *e, int code)
{
    const struct launch_parts *p = e->parts;
    e->code = code;
    launch_end_set_over(e);
    if (p->procs != NULL && launch_procs_left(p->procs) > 0)
        launch_end_on_end(-1, 0, e);
}

void launch_end_obey(struct launch_end *e, int sig, int how)
{
    launch_end_request(e);
    launch_end_stop(e, sig, how);
    launch_end_in_grace(e);
}

/* A lost relay is a lost node, and costs the job the nodes below it; the first process is the job's
 * own. */
void launch_end_on_parent_lost(struct launch_end *e)
{
    launch_end_request(e);
    if (!e->stopped)
        launch_end_stop(e, SIGTERM, e->cfg->task->by_relay ? DD_SIGNAL_LEAVE : 0);
    launch_end_in_grace(e);
    launch_end_check_soon(e);
}

void launch_end_check_soon(const struct launch_end *e)
{
    event_active(e->check, EV_WRITE, 0);
}

int launch_end_init(struct launch_end *e)
{
    e->check = event_new(e->parts->base, -1, 0, launch_end_on_check, e);
    e->timer = evtimer_new(e->parts->base, launch_end_on_end, e);
    e->fail_timer = evtimer_new(e->parts->base, launch_end_on_fail, e);
    e->lost_timer = evtimer_new(e->parts->base, launch_end_on_lost, e);
    return e->check != NULL && e->timer != NULL && e->fail_timer != NULL && e->lost_timer != NULL
               ? 0
               : -ENOMEM;
}

void launch_end_done(struct launch_end *e)
{
    struct event *events[] = {e->check, e->timer, e->fail_timer, e->lost_timer};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
}

int launch_end_code(const struct launch_end *e)
{
    if (e->sig != 0 &&
        (e->code < 0 ||
         e->code ==
             128 + SIGTERM)) /* SIGTERM is the reaction of a node that has lost its launcher */
        return 128 + e->sig;
    return e->code < 0 ? 1 : e->code;
}
