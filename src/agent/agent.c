#include "agent/agent.h"

#include "agent/error_files.h"
#include "agent/agent_parts.h"
#include "base/auto.h"
#include "base/io.h"

#include <errno.h>

static void on_link_change(void *arg)
{
    struct agent *a = arg;
    const struct link *l = uplink_link(a->uplink);
    control_lost(a->control);
    status_line_link_changed(a->status_line);
    rounds_link_lost(a);
    if (l == NULL)
        return;
    /* another node leads, and handles --timeout, the signal before the end, --watch-nodes and
     * etcd */
    if (link_peer(l)->len > 0) {
        timeout_stop(a->limits.timeout);
        signal_before_end_stop(a->limits.before_end);
        node_watch_stop(a->limits.node_watch);
        locate_etcd_following(a->locators.etcd);
    }
    locate_leader_stop(a->locators.leader);
}

/* ---- start and end ---- */

static void agent_begin(void *arg)
{
    struct agent *a = arg;
    struct dd_err err = {0};
    if (timeout_start(a->limits.timeout, &err) < 0)
        agent_fail(&a->loop, err.text);
    agent_step(&a->loop,
               (struct am_event){.kind = a->loop.cfg->alloc->index == 0 ? AM_LEAD : AM_SEEK});
}

/* Called after the first health check. */
static void agent_load(void *arg)
{
    struct agent *a = arg;
    charges_file_load(a->charges_file, agent_begin, a);
}

static int agent_make_loop(struct agent *a, const struct agent_cfg *c, struct dd_err *err)
{
    const struct am_cfg machine = {.rdzv = &c->rdzv,
                                   .asks_peers = locate_peers_possible(c),
                                   .etcd = c->etcd.url != NULL && c->alloc->index != 0,
                                   .seek_ms = c->rdzv_timeout_ns / DD_NS_PER_MS,
                                   .rejoin_ms = c->rdzv.rejoin_ns / DD_NS_PER_MS,
                                   .grace_ms = c->grace_ms};
    int rc = agent_loop_init(&a->loop, c, &machine, &a->history.last, err);
    agent_loop_set_act(&a->loop, agent_act, a);
    return rc;
}

/* Parts that serve the leader alone. */
static int agent_make_leading(struct agent *a, const struct agent_cfg *c)
{
    const struct timeout_parts timeout = {
        .loop = &a->loop, .uplink = a->uplink, .history = &a->history, .signals = a->signals};
    const struct signal_before_end_parts before_end = {
        .loop = &a->loop, .uplink = a->uplink, .round = a->round, .signals = a->signals};
    const struct node_watch_parts watch = {
        .loop = &a->loop, .uplink = a->uplink, .round = a->round};
    const struct metrics_file_parts metrics = {
        .loop = &a->loop, .uplink = a->uplink, .round = a->round};
    const struct charges_file_parts charges = {
        .loop = &a->loop, .uplink = a->uplink, .history = &a->history, .round = a->round};
    int rc = timeout_new(&a->limits.timeout, &timeout, c->timeout_ns);
    if (rc == 0)
        rc = signal_before_end_new(&a->limits.before_end, &before_end, &c->before_end);
    if (rc == 0)
        rc = node_watch_new(&a->limits.node_watch, &watch, c->watch_nodes_ns);
    if (rc == 0)
        rc = requeue_new(&a->limits.requeue, &a->loop, c->requeue_on);
    if (rc == 0)
        rc = charges_file_new(&a->charges_file, &charges);
    return rc == 0 ? metrics_file_new(&a->metrics_file, &metrics, c->metrics) : rc;
}

static int agent_make_links(struct agent *a)
{
    const struct uplink_cb cb = {.on_frame = agent_receive,
                                 .on_change = on_link_change,
                                 .send_join = agent_send_join,
                                 .arg = a};
    int rc = uplink_new(&a->uplink, &a->loop, &cb);
    if (rc == 0)
        a->control = control_new(&a->loop, a->uplink);
    return rc == 0 ? status_line_new(&a->status_line, &a->loop, a->uplink) : rc;
}

static int agent_make_parts(struct agent *a, const struct agent_cfg *c, struct dd_err *err)
{
    if (agent_make_links(a) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = warm_interpreter_new(&a->rounds.warm, &a->loop, err);
    if (rc == 0) {
        warm_interpreter_start(a->rounds.warm,
                               NULL); /* first: imports take longer than the other steps */
        rc = rounds_new(a, err);
    }
    if (rc == 0)
        rc = locators_init(&a->locators, &a->loop, a->uplink, &a->history, a->round, err);
    if (rc < 0)
        return rc;
    if (leader_new(&a->leader, &a->loop, a->uplink, &a->locators) < 0 ||
        agent_make_leading(a, c) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    const struct signals_parts signals = {
        .loop = &a->loop, .uplink = a->uplink, .round = a->round, .leader = a->leader};
    rc = signals_watch(a->signals, &signals, err);
    return rc == 0 ? health_new(&a->health, &c->health, a->round, err) : rc;
}

static void agent_done(struct agent *a)
{
    locators_stop(&a->locators);
    uplink_close(a->uplink); /* control_free() ends pending ddctl requests */
    health_free(a->health);
    timeout_free(a->limits.timeout);
    signal_before_end_free(a->limits.before_end);
    node_watch_free(a->limits.node_watch);
    requeue_free(a->limits.requeue);
    metrics_file_free(a->metrics_file);
    charges_file_free(a->charges_file);
    round_end(a->round);
    warm_interpreter_free(a->rounds.warm);
    leader_free(a->leader);
    locators_done(&a->locators);
    signals_free(a->signals);
    control_free(a->control);
    status_line_free(DD_TAKE(a->status_line)); /* round_free() still reports progress */
    uplink_free(a->uplink);
    round_free(a->round);
    rounds_done(a);
    round_history_done(&a->history);
    agent_loop_done(&a->loop);
}

int agent_run(const struct agent_cfg *cfg)
{
    struct agent a = {.history = ROUND_HISTORY_NONE};
    struct dd_err err = {0};
    int code = 2;
    int rc = agent_make_loop(&a, cfg, &err);
    if (rc == 0)
        rc = signals_new(&a.signals, &err);
    if (rc == 0)
        rc = agent_make_parts(&a, cfg, &err);
    if (rc < 0) {
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
    } else {
        health_check(a.health, agent_load, &a);
        code = agent_loop_run(&a.loop);
    }
    if (code != 0 && a.round != NULL)
        error_files_copy(a.round, dd_env_get_nonempty(cfg->env, "TORCHELASTIC_ERROR_FILE"));
    agent_done(&a);
    return code;
}
