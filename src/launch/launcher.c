#include "launch/launcher.h"

#include "base/core.h"
#include "base/io.h"
#include "base/sig.h"
#include "launch/bootstrap_server.h"
#include "launch/codes.h"
#include "launch/launch_procs.h"
#include "launch/launch_signals.h"
#include "launch/node_tree.h"
#include "launch/output_forward.h"
#include "launch/relay.h"
#include "net/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    STARTER_KILL_MS = 2000,
    FAIL_MS = 300,   /* collect further nodes that cannot be started, to report them together */
    COMING_MS = 500, /* after cancelling: for nodes that are about to connect */
    TRIES_MAX = 3,   /* SIGTERM, then SIGKILL, then stop waiting */
    TOO_LARGE = 2,   /* exit code of a usage error, before any node starts */
};

/* State of the end of the job. */
struct launch_end {
    struct event *timer, *fail_timer;
    int code;     /* exit code; < 0: unknown */
    int tries;    /* number of signals sent to the remaining processes */
    bool over;    /* the job has ended, or cannot begin */
    bool asked;   /* a signal or the parent has requested the end */
    bool stopped; /* all nodes have received the order to stop */
    int sig;      /* signal that requested the end if there is no agent on this node; 0: none */
};

struct launcher {
    const struct launcher_cfg *cfg;
    int nnodes;
    struct event_base *base;
    struct dd_buf payload;
    struct bootstrap_server *server; /* NULL: this process serves no nodes */
    struct node_tree *tree;
    struct launch_procs *procs;
    struct output_forward *output;
    struct launch_signals *signals;
    struct relay *relay; /* NULL: a user or a scheduler has started this process */
    struct event *tick, *check;
    struct launch_end end;
};

/* Schedule a check from the event loop, since callers may be in the middle of a change: pass on
 * output, and see whether all has ended. */
static void launcher_check_soon(void *arg)
{
    const struct launcher *l = arg;
    event_active(l->check, EV_WRITE, 0);
}

/* ---- the end ---- */

static void launcher_set_over(struct launcher *l)
{
    l->end.over = true;
    if (l->tree != NULL)
        node_tree_end(l->tree);
}

static void launcher_set_asked(struct launcher *l)
{
    l->end.asked = true;
    node_tree_end(l->tree);
}

/* Send all nodes the order to stop. at_once: no workers run yet. Without at_once, cancel the nodes
 * that are not connected. */
static void launcher_stop(struct launcher *l, int sig, bool at_once)
{
    l->end.stopped = true;
    launch_procs_tell_agent(l->procs, sig, at_once);
    for (int i = 0; i < l->nnodes; i++) {
        if (bootstrap_server_is_connected(l->server, i))
            bootstrap_server_send(l->server, i, LAUNCH_SIGNAL, i,
                                  (uint32_t)sig | (at_once ? DD_SIGNAL_AT_ONCE : 0));
        else if (!at_once)
            launch_procs_close_stdin(l->procs, i);
    }
    if (!at_once)
        node_tree_cancel_starting(l->tree);
}

static void launcher_add_timer(struct event *timer, unsigned ms)
{
    const struct timeval t = dd_timeval(ms * DD_NS_PER_MS);
    evtimer_add(timer, &t);
}

/* Start the timer after which the remaining processes are signalled. */
static void launcher_end_in_grace(struct launcher *l)
{
    launcher_add_timer(l->end.timer, l->cfg->grace_ms);
}

/* Signal the processes that remain after the end of the job. A process that only waits until its
 * output is read may continue, unless the end was requested. */
static void launcher_on_end(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    (void)fd;
    (void)what;
    launcher_set_over(l);
    launcher_add_timer(l->end.timer, STARTER_KILL_MS);
    if (!l->end.asked && node_tree_all_ended(l->tree) && !output_forward_flushed(l->output))
        return;
    for (int i = 0; i < l->nnodes; i++)
        launch_procs_kill(l->procs, i, l->end.tries > 0 ? SIGKILL : SIGTERM);
    if (!l->end.stopped)
        launcher_stop(l, SIGTERM, false);
    if (++l->end.tries == TRIES_MAX)
        event_base_loopbreak(l->base);
}

static void launcher_job_over(struct launcher *l)
{
    if (l->end.over)
        return;
    launcher_set_over(l);
    launcher_end_in_grace(l);
    node_tree_cancel_starting(l->tree);
    if (l->end.code != 0 && !l->end.stopped)
        launcher_stop(l, SIGTERM, false);
}

/* First order the connected nodes to stop. Nodes that connect later get the order, too, with
 * at_once. */
static void launcher_on_fail(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    (void)fd;
    (void)what;
    if (l->end.over) {
        node_tree_cancel_starting(l->tree);
        return;
    }
    launcher_set_over(l);
    launcher_stop(l, SIGTERM, true);
    launcher_add_timer(l->end.fail_timer, COMING_MS);
    launcher_end_in_grace(l);
}

static bool launcher_has_links(const struct launcher *l)
{
    for (int i = 0; i < l->nnodes; i++)
        if (bootstrap_server_is_connected(l->server, i))
            return true;
    return false;
}

static void launcher_on_check(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    const struct launcher_cfg *cfg = l->cfg;
    (void)fd;
    (void)what;
    output_forward_push(l->output);
    const bool gone = launch_procs_left(l->procs) == 0 && !launcher_has_links(l);
    if (gone && cfg->here >= 0 && output_forward_sources_done(l->output, cfg->here))
        output_forward_end_pipes(
            l->output, cfg->here); /* all other processes that write to these pipes have exited */
    const bool done = gone && output_forward_sources_done(l->output, -1);
    if (done && cfg->parent != NULL)
        parent_link_end(
            cfg->parent); /* the parent can then treat an incomplete last line as the end */
    if (done && output_forward_flushed(l->output)) {
        event_base_loopbreak(l->base);
        return;
    }
    output_forward_wait(l->output);
    if (l->end.asked && cfg->parent == NULL && node_tree_all_ended(l->tree))
        output_forward_limit_wait(l->output);
}

/* ---- callbacks of the tree ---- */

static int launcher_start_node(void *arg, int index)
{
    const struct launcher *l = arg;
    const struct launcher_cfg *cfg = l->cfg;
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(free) char *ticket = bootstrap_server_argument(l->server, index, cfg->ticket);
    const char *command[] = {cfg->ddrun, ticket, NULL};
    const struct start s = {.program = cfg->program,
                            .words = cfg->words,
                            .host = node_tree_name(l->tree, index),
                            .nnodes = l->nnodes,
                            .command = command};
    if (ticket == NULL || starter_command(&argv, cfg->starter, &s) < 0)
        return -ENOMEM;
    return launch_procs_start_starter(l->procs, index, argv.v);
}

static bool launcher_is_starting(void *arg, int index)
{
    const struct launcher *l = arg;
    return launch_procs_is_running(l->procs, index);
}

static void launcher_kill_starter(void *arg, int index, int sig)
{
    const struct launcher *l = arg;
    launch_procs_kill(l->procs, index, sig);
}

static void launcher_send(void *arg, int to, enum launch_msg_type type, int node, uint32_t value)
{
    const struct launcher *l = arg;
    if (to >= 0)
        bootstrap_server_send(l->server, to, type, node, value);
}

static void launcher_report(void *arg, enum launch_msg_type type, int node, int value)
{
    const struct launcher *l = arg;
    parent_link_send(l->cfg->parent, type, node, (uint32_t)value);
}

static void launcher_on_exited(void *arg, int index, int code)
{
    struct launcher *l = arg;
    const struct launcher_cfg *cfg = l->cfg;
    /* The agent of this node knows the exit code of the job, unless the job continues without this
     * node. */
    const bool knows = index == cfg->here && (!cfg->go_on || code == 0);
    if (cfg->parent != NULL) {
        if (index == cfg->here)
            l->end.code = code;
        return;
    }
    if (!l->end.over)
        l->end.code = knows ? code : launch_code_of_job(l->end.code, code, cfg->go_on);
    if (knows)
        launcher_job_over(l);
}

static void launcher_on_failed(void *arg)
{
    struct launcher *l = arg;
    l->end.code = 1;
    if (!evtimer_pending(l->end.fail_timer, NULL))
        launcher_add_timer(l->end.fail_timer, FAIL_MS);
}

static void launcher_on_none_left(void *arg)
{
    struct launcher *l = arg;
    if (!l->end.over)
        launcher_end_in_grace(l);
}

static void launcher_on_connected(void *arg)
{
    const struct launcher *l = arg;
    evtimer_del(l->end.timer);
}

static int launcher_make_tree(struct launcher *l)
{
    const struct launcher_cfg *cfg = l->cfg;
    return node_tree_new(&l->tree, &(struct node_tree_cfg){
                                       .nodes = cfg->payload->alloc->nodes,
                                       .fanout = cfg->fanout,
                                       .min_nodes = cfg->min_nodes,
                                       .limit_s = cfg->limit_s,
                                       .relay = cfg->parent != NULL,
                                       .starter = cfg->starter != NULL ? cfg->starter->name : NULL,
                                       .log = cfg->log,
                                       .port = {.start = launcher_start_node,
                                                .is_running = launcher_is_starting,
                                                .kill = launcher_kill_starter,
                                                .send = launcher_send,
                                                .report = launcher_report,
                                                .exited = launcher_on_exited,
                                                .failed = launcher_on_failed,
                                                .none_left = launcher_on_none_left,
                                                .connected = launcher_on_connected,
                                                .changed = launcher_check_soon,
                                                .arg = l}});
}

/* ---- processes ---- */

static int launcher_run_agent(void *arg, int index)
{
    const struct launcher *l = arg;
    return l->cfg->node(l->cfg->arg, index);
}

/* Kill the process group of a starter that exits: it starts no node any more. */
static void launcher_on_exiting(void *arg, int index)
{
    const struct launcher *l = arg;
    if (index != l->cfg->here && !node_tree_is_connected(l->tree, index))
        launch_procs_kill(l->procs, index, SIGKILL);
}

static void launcher_on_exit(void *arg, int index, int code)
{
    struct launcher *l = arg;
    if (index == l->cfg->here)
        node_tree_agent_exited(l->tree, index, code);
    else
        node_tree_starter_exited(l->tree, index, code,
                                 bootstrap_server_is_connected(l->server, index));
    launcher_check_soon(l);
}

static int launcher_make_procs(struct launcher *l)
{
    const struct launcher_cfg *cfg = l->cfg;
    return launch_procs_new(&l->procs,
                            &(struct launch_procs_cfg){.nnodes = l->nnodes,
                                                       .here = cfg->here,
                                                       .relay = cfg->parent != NULL,
                                                       .starter = cfg->starter,
                                                       .key_for_stdin = cfg->key_for_stdin,
                                                       .signals = l->signals,
                                                       .output = l->output,
                                                       .agent = launcher_run_agent,
                                                       .on_exiting = launcher_on_exiting,
                                                       .on_exit = launcher_on_exit,
                                                       .arg = l});
}

/* ---- signals ---- */

/* Without an agent on this node, a second signal or a time limit ends the starters. */
static void launcher_end_asked(struct launcher *l, int sig, bool again)
{
    if (l->end.sig == 0) {
        l->end.sig = sig;
        launcher_end_in_grace(l);
    } else if (again) {
        launcher_on_end(-1, 0, l);
    }
}

/* Without an agent on this node, let one other node forward the signal to all. */
static void launcher_announce(const struct launcher *l, int sig)
{
    for (int i = 0; i < l->nnodes; i++)
        if (node_tree_is_connected(l->tree, i) && bootstrap_server_is_connected(l->server, i)) {
            bootstrap_server_send(l->server, i, LAUNCH_SIGNAL, i, (uint32_t)sig);
            return;
        }
}

/* The agents of other nodes learn of the first signal from the daemon, not by a signal. On a
 * repeated request, send them two different signals: an agent takes the second one for a repeated
 * request. */
static void launcher_on_signal(void *arg, int sig, bool terminal, bool again)
{
    struct launcher *l = arg;
    const bool agent = launch_procs_has_agent(l->procs);
    const bool ends = dd_signal_ends_jobs(sig);
    if (again) {
        launcher_stop(l, sig, false);
        launcher_stop(l, sig == SIGTERM ? SIGINT : SIGTERM, false);
    }
    if (ends)
        launcher_set_asked(l);
    if (agent && !terminal)
        launch_procs_tell_agent(l->procs, sig, false);
    else if (!agent && ends)
        launcher_stop(l, sig, false);
    else if (!agent)
        launcher_announce(l, sig);
    if (!agent && ends)
        launcher_end_asked(l, sig, again);
    launcher_check_soon(l);
}

static void launcher_on_child(void *arg)
{
    const struct launcher *l = arg;
    launch_procs_reap(l->procs);
}

/* ---- callbacks of the bootstrap server ---- */

static bool launcher_give_task(void *arg, int index, struct launch_task *ret)
{
    const struct launcher *l = arg;
    const struct launcher_cfg *cfg = l->cfg;
    const int *nodes;
    int n;
    if (!node_tree_take_task(l->tree, index, &nodes, &n))
        return false;
    *ret = (struct launch_task){.output = cfg->starter->loses_output,
                                .fanout = cfg->fanout,
                                .grace_ms = cfg->grace_ms,
                                .starter = cfg->starter->name,
                                .program = cfg->program,
                                .words = cfg->words,
                                .nodes = nodes,
                                .n = n};
    return true;
}

static bool launcher_on_fetched(void *arg, int index)
{
    const struct launcher *l = arg;
    if (!node_tree_connect(l->tree, index))
        return false;
    output_forward_begin_relayed(l->output, index);
    return true;
}

static void launcher_on_message(void *arg, int index, const struct launch_msg *m)
{
    const struct launcher *l = arg;
    node_tree_receive(l->tree, index, m);
}

static int launcher_on_output(void *arg, int index, int which, const void *p, size_t n)
{
    const struct launcher *l = arg;
    return output_forward_relay(l->output, index, which, p, n);
}

static void launcher_on_gone(void *arg, int index)
{
    struct launcher *l = arg;
    output_forward_end_relayed(l->output, index);
    if (!launch_procs_is_running(l->procs, index))
        node_tree_gone(l->tree, index, launch_procs_code(l->procs, index));
    launcher_check_soon(l);
}

static int launcher_make_server(struct launcher *l, struct dd_err *err)
{
    const struct bootstrap_server_cfg cfg = {.id = l->cfg->id,
                                             .payload = &l->payload,
                                             .key = l->cfg->key,
                                             .key_in = l->cfg->key_in,
                                             .nnodes = l->nnodes,
                                             .task = launcher_give_task,
                                             .on_fetched = launcher_on_fetched,
                                             .on_message = launcher_on_message,
                                             .on_output = launcher_on_output,
                                             .on_gone = launcher_on_gone,
                                             .arg = l};
    return bootstrap_server_new(&l->server, l->base, &cfg, err);
}

/* ---- callbacks of the output ---- */

static void launcher_on_sent(void *arg, int index, int which, size_t n)
{
    const struct launcher *l = arg;
    bootstrap_server_send(l->server, index, LAUNCH_CREDIT, which, (uint32_t)n);
}

static int launcher_make_output(struct launcher *l, struct dd_err *err)
{
    const struct launcher_cfg *cfg = l->cfg;
    const struct output_forward_cfg output = {.base = l->base,
                                              .nnodes = l->nnodes,
                                              .log = cfg->log,
                                              .on_sent = launcher_on_sent,
                                              .on_change = launcher_check_soon,
                                              .arg = l};
    if (output_forward_new(&l->output, &output) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (cfg->parent == NULL)
        return output_forward_to_own(l->output, err);
    /* several processes of a relay write there, or all output goes to the parent */
    return cfg->task->output || cfg->task->n > 0
               ? output_forward_capture(l->output, cfg->here,
                                        cfg->task->output ? cfg->parent : NULL, err)
               : 0;
}

/* ---- orders of the parent ---- */

static void launcher_on_cancel(void *arg, int index)
{
    const struct launcher *l = arg;
    node_tree_cancel(l->tree, index);
}

static void launcher_on_order(void *arg, int index, int sig, bool at_once)
{
    struct launcher *l = arg;
    if (index != l->cfg->here) {
        const int to = bootstrap_server_is_connected(l->server, index)
                           ? index
                           : node_tree_parent(l->tree, index);
        launcher_send(l, to, LAUNCH_SIGNAL, index,
                      (uint32_t)sig | (at_once ? DD_SIGNAL_AT_ONCE : 0));
    } else if (dd_signal_ends_jobs(sig)) {
        launcher_set_asked(l);
        launcher_stop(l, sig, at_once);
        launcher_end_in_grace(l);
    } else if (dd_signal_announces(sig)) {
        launch_procs_tell_agent(l->procs, sig, false);
    }
}

static void launcher_on_lost(void *arg)
{
    struct launcher *l = arg;
    launcher_set_asked(l);
    if (!l->end.stopped)
        launcher_stop(l, SIGTERM, false);
    launcher_end_in_grace(l);
    launcher_check_soon(l);
}

static int launcher_obey_parent(struct launcher *l, struct dd_err *err)
{
    const struct relay_cb cb = {.on_cancel = launcher_on_cancel,
                                .on_signal = launcher_on_order,
                                .on_room = launcher_check_soon,
                                .on_lost = launcher_on_lost,
                                .arg = l};
    return relay_new(&l->relay, l->cfg->parent, l->cfg->stdin_fd, &cb, err);
}

/* ---- the start ---- */

static void launcher_on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    (void)fd;
    (void)what;
    if (!node_tree_tick(l->tree))
        event_del(l->tick);
}

static int launcher_make_events(struct launcher *l)
{
    static const struct timeval second = {.tv_sec = 1};
    l->tick = event_new(l->base, -1, EV_PERSIST, launcher_on_tick, l);
    l->check = event_new(l->base, -1, 0, launcher_on_check, l);
    l->end.timer = evtimer_new(l->base, launcher_on_end, l);
    l->end.fail_timer = evtimer_new(l->base, launcher_on_fail, l);
    if (l->tick == NULL || l->check == NULL || l->end.timer == NULL || l->end.fail_timer == NULL)
        return -ENOMEM;
    if (l->cfg->parent == NULL) /* the first launcher handles late nodes of the whole tree */
        (void)event_add(l->tick, &second);
    return launch_signals_new(&l->signals, l->base,
                              &(struct launch_signals_cb){.on_child = launcher_on_child,
                                                          .on_signal = launcher_on_signal,
                                                          .arg = l});
}

static int launcher_make_payload(struct launcher *l, struct dd_err *err)
{
    int rc = bootstrap_payload_encode(&l->payload, l->cfg->payload);
    return rc < 0
               ? dd_err_set(
                     err, rc,
                     "the environment is too large to forward to the other nodes: over %d MiB or %d "
                     "variables"
                     "\n  tip: choose variables with --launch-env",
                     BOOTSTRAP_MAX >> 20, BOOTSTRAP_STRINGS_MAX)
               : 0;
}

static int launcher_start_agent(struct launcher *l, struct dd_err *err)
{
    int rc = launch_procs_start_agent(l->procs);
    if (launch_procs_has_agent(l->procs))
        node_tree_agent_started(l->tree, l->cfg->here);
    return rc < 0 ? dd_err_set(err, rc, "cannot start ddrun: %s", strerror(-rc)) : 0;
}

/* Start this node's agent, then the other nodes: all, or those of this relay's task. */
static int launcher_start_all(struct launcher *l, struct dd_err *err)
{
    const struct launch_task *task = l->cfg->task;
    const int here = l->cfg->here;
    const int n = l->cfg->parent != NULL ? task->n : l->nnodes - (here >= 0);
    int rc = n > 0 ? launcher_make_payload(l, err) : 0;
    if (rc == 0 && here >= 0)
        rc = launcher_start_agent(l, err);
    if (rc < 0 || n == 0)
        return rc;
    rc = launcher_make_server(l, err);
    DD_AUTO(free) int *nodes = calloc((size_t)n, sizeof(*nodes));
    if (rc < 0 || nodes == NULL)
        return rc < 0 ? rc : dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < n; i++)
        nodes[i] = l->cfg->parent != NULL ? task->nodes[i] : i + (here >= 0 && i >= here);
    return node_tree_start(l->tree, nodes, n, err);
}

static int launcher_begin(struct launcher *l, struct dd_err *err)
{
    const struct launcher_cfg *cfg = l->cfg;
    l->base = cfg->parent != NULL ? parent_link_base(cfg->parent) : net_loop_new();
    if (l->base == NULL || launcher_make_events(l) < 0 || launcher_make_tree(l) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = launcher_make_output(l, err);
    if (rc == 0 && launcher_make_procs(l) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    if (rc == 0 && cfg->parent != NULL)
        rc = launcher_obey_parent(l, err);
    return rc < 0 ? rc : launcher_start_all(l, err);
}

static void launcher_done(struct launcher *l)
{
    struct event *events[] = {l->tick, l->check, l->end.timer, l->end.fail_timer};
    relay_free(l->relay);
    launch_procs_free(l->procs);
    output_forward_free(l->output);
    bootstrap_server_free(l->server);
    launch_signals_free(l->signals);
    node_tree_free(l->tree);
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    if (l->base != NULL && l->cfg->parent == NULL)
        event_base_free(l->base);
    dd_buf_done(&l->payload);
}

/* Kill the processes of a start that failed half-way. */
static void launcher_give_up(struct launcher *l)
{
    launcher_set_over(l);
    if (l->procs != NULL && launch_procs_left(l->procs) > 0)
        launcher_on_end(-1, 0, l);
}

int launcher_run(const struct launcher_cfg *cfg)
{
    struct launcher l = {.cfg = cfg,
                         .nnodes = (int)hostlist_count(cfg->payload->alloc->nodes),
                         .payload = DD_BUF_INIT(BOOTSTRAP_MAX),
                         .end = {.code = -1}};
    struct dd_err err = {0};
    dd_core_empty();
    int rc = launcher_begin(&l, &err);
    if (rc < 0) {
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
        l.end.code = rc == -EMSGSIZE ? TOO_LARGE : 1;
        launcher_give_up(&l);
    }
    if (l.procs != NULL && launch_procs_left(l.procs) > 0)
        event_base_dispatch(l.base);
    launcher_done(&l);
    const int code = l.end.code;
    if (l.end.sig != 0 &&
        (code < 0 ||
         code == 128 + SIGTERM)) /* SIGTERM is the reaction of a node that has lost its launcher */
        return 128 + l.end.sig;
    return code < 0 ? 1 : code;
}
