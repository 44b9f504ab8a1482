#include "launch/launcher.h"

#include "base/core.h"
#include "base/io.h"
#include "base/sig.h"
#include "launch/bootstrap_server.h"
#include "launch/launch_end.h"
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

enum { TOO_LARGE = 2 }; /* exit code of a usage error, before any node starts */

struct launcher {
    const struct launcher_cfg *cfg;
    struct launch_parts parts;
    struct launch_end end;
    struct dd_buf payload;
    struct launch_signals *signals;
    struct relay *relay; /* NULL: a user or a scheduler has started this process */
    struct event *tick;
};

static void launcher_check_soon(void *arg)
{
    const struct launcher *l = arg;
    launch_end_check_soon(&l->end);
}

/* ---- callbacks of the tree ---- */

static int launcher_start_node(void *arg, int index)
{
    const struct launcher *l = arg;
    const struct launcher_cfg *cfg = l->cfg;
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(free) char *ticket = bootstrap_server_argument(l->parts.server, index, cfg->ticket);
    const char *command[] = {cfg->ddrun, ticket, NULL};
    const struct start s = {.program = cfg->program,
                            .words = cfg->words,
                            .host = node_tree_name(l->parts.tree, index),
                            .nnodes = l->parts.nnodes,
                            .command = command};
    if (ticket == NULL || starter_command(&argv, cfg->starter, &s) < 0)
        return -ENOMEM;
    return launch_procs_start_starter(l->parts.procs, index, argv.v);
}

static bool launcher_is_starting(void *arg, int index)
{
    const struct launcher *l = arg;
    return launch_procs_is_running(l->parts.procs, index);
}

static void launcher_kill_starter(void *arg, int index, int sig)
{
    const struct launcher *l = arg;
    launch_procs_kill(l->parts.procs, index, sig);
}

static void launcher_send(void *arg, int to, enum launch_msg_type type, int node, uint32_t value)
{
    const struct launcher *l = arg;
    if (to >= 0)
        bootstrap_server_send(l->parts.server, to, type, node, value);
}

static void launcher_report(void *arg, enum launch_msg_type type, int node, int value)
{
    const struct launcher *l = arg;
    parent_link_send(l->cfg->parent, type, node, (uint32_t)value);
}

static void launcher_on_exited(void *arg, int index, int code)
{
    struct launcher *l = arg;
    launch_end_on_exited(&l->end, index, code);
}

static void launcher_on_failed(void *arg)
{
    struct launcher *l = arg;
    launch_end_on_failed(&l->end);
}

static void launcher_on_none_left(void *arg)
{
    struct launcher *l = arg;
    launch_end_on_none_left(&l->end);
}

static void launcher_on_connected(void *arg)
{
    struct launcher *l = arg;
    launch_end_on_connected(&l->end);
}

static int launcher_make_tree(struct launcher *l)
{
    const struct launcher_cfg *cfg = l->cfg;
    const char *starter = cfg->words != NULL     ? "--launch-command"
                          : cfg->starter != NULL ? cfg->starter->name
                                                 : NULL;
    return node_tree_new(&l->parts.tree,
                         &(struct node_tree_cfg){.nodes = cfg->payload->alloc->nodes,
                                                 .fanout = cfg->fanout,
                                                 .min_nodes = cfg->min_nodes,
                                                 .limit_s = cfg->limit_s,
                                                 .relay = cfg->parent != NULL,
                                                 .starter = starter,
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

/* If a starter exits before its node has connected, kill its process group, so that no process of
 * the group starts ddrun any more. */
static void launcher_on_exiting(void *arg, int index)
{
    const struct launcher *l = arg;
    if (index != l->cfg->here && !node_tree_is_connected(l->parts.tree, index))
        launch_procs_kill(l->parts.procs, index, SIGKILL);
}

static void launcher_on_exit(void *arg, int index, int code)
{
    struct launcher *l = arg;
    if (index == l->cfg->here)
        node_tree_agent_exited(l->parts.tree, index, code);
    else
        node_tree_starter_exited(l->parts.tree, index, code,
                                 bootstrap_server_is_connected(l->parts.server, index));
    launch_end_check_soon(&l->end);
}

static int launcher_make_procs(struct launcher *l)
{
    const struct launcher_cfg *cfg = l->cfg;
    return launch_procs_new(&l->parts.procs,
                            &(struct launch_procs_cfg){.nnodes = l->parts.nnodes,
                                                       .here = cfg->here,
                                                       .relay = cfg->parent != NULL,
                                                       .starter = cfg->starter,
                                                       .key_for_stdin = cfg->key_for_stdin,
                                                       .signals = l->signals,
                                                       .output = l->parts.output,
                                                       .agent = launcher_run_agent,
                                                       .on_exiting = launcher_on_exiting,
                                                       .on_exit = launcher_on_exit,
                                                       .arg = l});
}

/* ---- signals ---- */

/* Without an agent on this node, let one other node forward the signal to all. */
static void launcher_announce(const struct launcher *l, int sig)
{
    for (int i = 0; i < l->parts.nnodes; i++)
        if (node_tree_is_connected(l->parts.tree, i) &&
            bootstrap_server_is_connected(l->parts.server, i)) {
            bootstrap_server_send(l->parts.server, i, LAUNCH_SIGNAL, i, (uint32_t)sig);
            return;
        }
}

/* The agents of other nodes learn of the first signal from the daemon, not by a signal. On a
 * repeated request, send them two different signals: an agent takes the second one for a repeated
 * request. */
static void launcher_on_signal(void *arg, int sig, bool terminal, bool again)
{
    struct launcher *l = arg;
    const bool agent = launch_procs_has_agent(l->parts.procs);
    const bool ends = dd_signal_ends_jobs(sig);
    if (again) {
        launch_end_stop(&l->end, sig, 0);
        launch_end_stop(&l->end, sig == SIGTERM ? SIGINT : SIGTERM, 0);
    }
    if (ends)
        launch_end_request(&l->end);
    if (agent && !terminal)
        launch_procs_tell_agent(l->parts.procs, sig, 0);
    else if (!agent && ends)
        launch_end_stop(&l->end, sig, 0);
    else if (!agent)
        launcher_announce(l, sig);
    if (!agent && ends)
        launch_end_request_without_agent(&l->end, sig, again);
    launch_end_check_soon(&l->end);
}

static void launcher_on_child(void *arg)
{
    const struct launcher *l = arg;
    launch_procs_reap(l->parts.procs);
}

/* ---- callbacks of the bootstrap server ---- */

static bool launcher_give_task(void *arg, int index, struct launch_task *ret)
{
    const struct launcher *l = arg;
    const struct launcher_cfg *cfg = l->cfg;
    const int *nodes;
    int n;
    if (!node_tree_take_task(l->parts.tree, index, &nodes, &n))
        return false;
    *ret = (struct launch_task){.output = cfg->starter->loses_output,
                                .by_relay = cfg->parent != NULL,
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
    if (!node_tree_connect(l->parts.tree, index))
        return false;
    output_forward_begin_relayed(l->parts.output, index);
    return true;
}

static void launcher_on_message(void *arg, int index, const struct launch_msg *m)
{
    const struct launcher *l = arg;
    node_tree_receive(l->parts.tree, index, m);
}

static int launcher_on_output(void *arg, int index, int which, const void *p, size_t n)
{
    const struct launcher *l = arg;
    return output_forward_relay(l->parts.output, index, which, p, n);
}

static void launcher_on_gone(void *arg, int index)
{
    struct launcher *l = arg;
    output_forward_end_relayed(l->parts.output, index);
    if (!launch_procs_is_running(l->parts.procs, index))
        node_tree_gone(l->parts.tree, index, launch_procs_code(l->parts.procs, index));
    launch_end_check_soon(&l->end);
}

static int launcher_make_server(struct launcher *l, struct dd_err *err)
{
    const struct bootstrap_server_cfg cfg = {.id = l->cfg->id,
                                             .payload = &l->payload,
                                             .key = l->cfg->key,
                                             .key_in = l->cfg->key_in,
                                             .nnodes = l->parts.nnodes,
                                             .task = launcher_give_task,
                                             .on_fetched = launcher_on_fetched,
                                             .on_message = launcher_on_message,
                                             .on_output = launcher_on_output,
                                             .on_gone = launcher_on_gone,
                                             .arg = l};
    return bootstrap_server_new(&l->parts.server, l->parts.base, &cfg, err);
}

/* ---- callbacks of the output ---- */

static void launcher_on_sent(void *arg, int index, int which, size_t n)
{
    const struct launcher *l = arg;
    bootstrap_server_send(l->parts.server, index, LAUNCH_CREDIT, which, (uint32_t)n);
}

static int launcher_make_output(struct launcher *l, struct dd_err *err)
{
    const struct launcher_cfg *cfg = l->cfg;
    const struct output_forward_cfg output = {.base = l->parts.base,
                                              .nnodes = l->parts.nnodes,
                                              .log = cfg->log,
                                              .on_sent = launcher_on_sent,
                                              .on_change = launcher_check_soon,
                                              .arg = l};
    if (output_forward_new(&l->parts.output, &output) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (cfg->parent == NULL)
        return output_forward_to_own(l->parts.output, err);
    /* capture the output if several processes of this relay write it, or if it goes to the
     * parent */
    return cfg->task->output || cfg->task->n > 0
               ? output_forward_capture(l->parts.output, cfg->here,
                                        cfg->task->output ? cfg->parent : NULL, err)
               : 0;
}

/* ---- orders of the parent ---- */

static void launcher_on_cancel(void *arg, int index)
{
    const struct launcher *l = arg;
    node_tree_cancel(l->parts.tree, index);
}

static void launcher_on_order(void *arg, int index, int sig, int how)
{
    struct launcher *l = arg;
    if (index != l->cfg->here) {
        const int to = bootstrap_server_is_connected(l->parts.server, index)
                           ? index
                           : node_tree_parent(l->parts.tree, index);
        launcher_send(l, to, LAUNCH_SIGNAL, index, (uint32_t)(sig | how));
    } else if (dd_signal_ends_jobs(sig)) {
        launch_end_obey(&l->end, sig, how);
    } else if (dd_signal_announces(sig)) {
        launch_procs_tell_agent(l->parts.procs, sig, 0);
    }
}

static void launcher_on_lost(void *arg)
{
    struct launcher *l = arg;
    launch_end_on_parent_lost(&l->end);
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
    if (!node_tree_tick(l->parts.tree))
        event_del(l->tick);
}

static int launcher_make_events(struct launcher *l)
{
    static const struct timeval second = {.tv_sec = 1};
    l->tick = event_new(l->parts.base, -1, EV_PERSIST, launcher_on_tick, l);
    if (l->tick == NULL || launch_end_init(&l->end) < 0)
        return -ENOMEM;
    if (l->cfg->parent == NULL) /* the first launcher handles late nodes of the whole tree */
        (void)event_add(l->tick, &second);
    return launch_signals_new(&l->signals, l->parts.base,
                              &(struct launch_signals_cb){.on_child = launcher_on_child,
                                                          .on_signal = launcher_on_signal,
                                                          .arg = l});
}

static int launcher_make_payload(struct launcher *l, struct dd_err *err)
{
    int rc = bootstrap_payload_encode(&l->payload, l->cfg->payload);
    if (rc == -ENOMEM)
        return dd_err_set(err, rc, "out of memory for the command and its environment");
    return rc < 0 ? dd_err_set(err, rc,
                               "cannot forward the command and its environment to the other "
                               "nodes (limits: %d MiB, %d variables): %s"
                               "\n  tip: choose variables with --launch-env",
                               BOOTSTRAP_MAX >> 20, BOOTSTRAP_STRINGS_MAX, strerror(-rc))
                  : 0;
}

static int launcher_start_agent(struct launcher *l, struct dd_err *err)
{
    int rc = launch_procs_start_agent(l->parts.procs);
    if (launch_procs_has_agent(l->parts.procs))
        node_tree_agent_started(l->parts.tree, l->cfg->here);
    return rc < 0 ? dd_err_set(err, rc, "cannot start ddrun on this node: %s", strerror(-rc)) : 0;
}

/* Start this node's agent, then the other nodes: all, or those of this relay's task. */
static int launcher_start_all(struct launcher *l, struct dd_err *err)
{
    const struct launch_task *task = l->cfg->task;
    const int here = l->cfg->here;
    const int n = l->cfg->parent != NULL ? task->n : l->parts.nnodes - (here >= 0);
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
    return node_tree_start(l->parts.tree, nodes, n, err);
}

static int launcher_begin(struct launcher *l, struct dd_err *err)
{
    const struct launcher_cfg *cfg = l->cfg;
    l->parts.base = cfg->parent != NULL ? parent_link_base(cfg->parent) : net_loop_new();
    if (l->parts.base == NULL || launcher_make_events(l) < 0 || launcher_make_tree(l) < 0)
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
    relay_free(l->relay);
    launch_procs_free(l->parts.procs);
    output_forward_free(l->parts.output);
    bootstrap_server_free(l->parts.server);
    launch_signals_free(l->signals);
    node_tree_free(l->parts.tree);
    launch_end_done(&l->end);
    if (l->tick != NULL)
        event_free(l->tick);
    if (l->parts.base != NULL && l->cfg->parent == NULL)
        event_base_free(l->parts.base);
    dd_buf_done(&l->payload);
}

int launcher_run(const struct launcher_cfg *cfg)
{
    struct launcher l = {.cfg = cfg,
                         .parts.nnodes = (int)hostlist_count(cfg->payload->alloc->nodes),
                         .payload = DD_BUF_INIT(BOOTSTRAP_MAX),
                         .end = {.cfg = cfg, .parts = &l.parts, .code = -1}};
    struct dd_err err = {0};
    dd_core_empty();
    int rc = launcher_begin(&l, &err);
    if (rc < 0) {
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
        launch_end_give_up(&l.end, rc == -EMSGSIZE ? TOO_LARGE : 1);
    }
    if (l.parts.procs != NULL && launch_procs_left(l.parts.procs) > 0)
        event_base_dispatch(l.parts.base);
    launcher_done(&l);
    return launch_end_code(&l.end);
}
