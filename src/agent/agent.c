#include "agent/agent.h"

#include "agent/error_files.h"
#include "agent/health_check.h"
#include "agent/inner.h"
#include "agent/metrics_file.h"
#include "base/io.h"

#include <errno.h>

static void on_link_change(void *arg)
{
    struct agent *a = arg;
    const struct link *l = uplink_link(a->uplink);
    control_lost(a);
    if (l == NULL)
        return;
    /* another node leads, and handles --timeout, the signal before the end and etcd */
    if (link_peer(l)->len > 0) {
        timeout_free(a);
        endtime_free(a);
        locate_etcd_following(a->locators.etcd);
    }
    locate_leader_stop(a->locators.leader);
}

/* ---- start and end ---- */

/* Called after the first health check. */
static void agent_begin(void *arg)
{
    struct agent *a = arg;
    struct dd_err err = {0};
    if (timeout_start(a, &err) < 0)
        agent_fail(&a->loop, err.text);
    agent_step(&a->loop,
               (struct am_event){.kind = a->loop.cfg->alloc->index == 0 ? AM_LEAD : AM_SEEK});
}

static int agent_make_loop(struct agent *a, const struct agent_cfg *c, struct dd_err *err)
{
    const struct am_cfg machine = {.rdzv = &c->rdzv,
                                   .asks_peers = locate_peers_possible(c),
                                   .etcd = c->etcd != NULL && c->alloc->index != 0,
                                   .seek_ms = c->rdzv_timeout_ns / DD_NS_PER_MS,
                                   .rejoin_ms = c->rdzv.rejoin_ns / DD_NS_PER_MS,
                                   .grace_ms = c->grace_ms};
    int rc = agent_loop_init(&a->loop, c, &machine, &a->history.last, err);
    agent_loop_set_act(&a->loop, agent_act, a);
    return rc;
}

static int agent_start(struct agent *a, struct dd_err *err)
{
    const struct uplink_cb cb = {.on_frame = agent_receive,
                                 .on_change = on_link_change,
                                 .send_join = agent_send_join,
                                 .arg = a};
    if (uplink_new(&a->uplink, &a->loop, &cb) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = signals_new(a, err);
    if (rc == 0 && net_peer_new(&a->peer) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    control_start(a);
    if (rc == 0)
        rc = rounds_new(a, err);
    if (rc == 0)
        rc = locators_init(&a->locators, &a->loop, a->uplink, &a->history, a->round, err);
    if (rc < 0)
        return rc;
    rc = health_new(&a->health, a->round, err);
    if (rc == 0)
        health_check(a->health, agent_begin, a);
    return rc;
}

static void agent_done(struct agent *a)
{
    locators_stop(&a->locators);
    uplink_close(a->uplink); /* control_free() answers pending ddctl requests */
    health_free(a->health);
    timeout_free(a);
    endtime_free(a);
    requeue_free(a);
    metrics_file_free(a);
    round_end(a->round);
    leader_stop(a);
    locators_done(&a->locators);
    signals_free(a);
    control_free(a);
    uplink_free(a->uplink);
    net_peer_free(a->peer);
    round_free(a->round);
    round_history_done(&a->history);
    agent_loop_done(&a->loop);
}

int agent_run(const struct agent_cfg *cfg)
{
    struct agent a = {
        .leader = {.end = CHILD_WATCH_NONE}, .signals = {.fd = -1}, .history = ROUND_HISTORY_NONE};
    struct dd_err err = {0};
    int code = 2;
    int rc = agent_make_loop(&a, cfg, &err);
    if (rc == 0)
        rc = agent_start(&a, &err);
    if (rc < 0)
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
    else
        code = agent_loop_run(&a.loop);
    if (code != 0 && a.round != NULL)
        error_files_copy(a.round, dd_env_get_nonempty(cfg->env, "TORCHELASTIC_ERROR_FILE"));
    agent_done(&a);
    return code;
}
