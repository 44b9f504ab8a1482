#include "agent/round.h"

#include "agent/exit_report.h"
#include "agent/features.h"
#include "agent/agent.h"
#include "agent/rank_options.h"
#include "agent/round_specs.h"
#include "base/io.h"
#include "net/addr.h"
#include "net/peer_uid.h"
#include "rdzv/msg.h"
#include "rdzv/ports.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    IFACE_MS = 1500, /* limit of a connection through --iface; less than the usual --heartbeat */
};

/* ---- the plan ---- */

static int plan_of_msg(struct plan *ret, const struct msg_plan *m, bool workers, struct dd_err *err)
{
    DD_AUTO(plan) struct plan p = {.round = m->round,
                                   .node_rank = m->node_rank,
                                   .restart_count = m->restart_count,
                                   .max_restarts = m->max_restarts,
                                   .master_port = (uint16_t)m->master_port,
                                   .master_addr = strdup(m->addr),
                                   .token = strdup(m->token),
                                   .nodes = strdup(m->nodes)};
    int rc = plan_sizes_parse(&p.sizes, &p.nnodes, m->sizes, err);
    if (rc < 0)
        return rc;
    if (p.master_addr == NULL || p.nodes == NULL || p.token == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (p.node_rank >= p.nnodes)
        return dd_err_set(err, -EPROTO, "malformed plan: node rank %d, but %d node%s", p.node_rank,
                          p.nnodes, p.nnodes == 1 ? "" : "s");
    for (int i = 0; i < p.nnodes; i++)
        p.world_size += p.sizes[i];
    p.local_size = p.sizes[p.node_rank];
    p.first_rank = plan_first_rank(p.sizes, p.node_rank);
    rc = ports_coordinator(&p.coordinator, m->ports, p.master_addr, err);
    if (rc == 0 && workers)
        rc = ports_workers(&p.endpoints, m->ports, p.master_addr, &p, err);
    if (rc < 0)
        return rc;
    *ret = p;
    p = (struct plan){0};
    return 0;
}

/* With --iface the leader names the address of the store, and the link may use another network:
 * test in rounds before the first restart whether this node reaches that address. */
static int check_iface(const struct round *r, const struct round_link *link, struct dd_err *err)
{
    const struct plan *p = &r->plan;
    struct net_addr to;
    if (r->cfg->iface == NULL || p->restart_count > 0 || link->of_first_node)
        return 0;
    int rc = net_addr_parse(&to, p->master_addr, p->master_port);
    if (rc == 0 && net_addr_is_loopback(&to) && !net_addr_is_loopback(link->peer))
        return dd_err_set(
            err, -EINVAL,
            "--iface=%s was set on this node, but the first node has no --iface, or one with a "
            "loopback address",
            r->cfg->iface);
    if (rc == 0)
        rc = net_iface_reaches(r->cfg->iface, &to, IFACE_MS);
    return rc == 0 ? 0
                   : dd_err_set(err, rc, "--iface=%s: %s cannot reach the first node at %s: %s",
                                r->cfg->iface, r->cfg->node_name, p->master_addr, strerror(-rc));
}

int round_plan(struct round *r, const struct msg_plan *m, const struct round_link *link,
               struct dd_err *err)
{
    plan_clear(&r->plan);
    r->ended_well = false;
    r->addr[0] = '\0';
    if (link->local->len > 0)
        (void)net_addr_host(link->local, r->addr);
    int rc = plan_of_msg(&r->plan, m, framework_wants_ports(r->cfg->frameworks), err);
    return rc == 0 ? check_iface(r, link, err) : rc;
}

/* ---- the end of the round ---- */

/* The order matters: features first interpret the exit; then pending signals are handled, since
 * they may explain the exit; only then does the exit count as a failure. */
static void on_worker_exit(void *arg, const struct worker_exit *e)
{
    struct round *r = arg;
    struct worker_end end = {.exit = *e, .error_file = ""};
    dd_log(r->cfg->log, DD_LOG_DEBUG, "event=exit rank=%d pid=%d code=%d signal=%d",
           r->plan.first_rank + e->local_rank, (int)e->pid, e->code, e->signal);
    features_worker_exit(r->features, r, &end);
    end.settling = end.exit.code != 0 && r->port->settling(r->port_arg);
    features_verdict(r->features, r, &end);
    r->ended_well &= end.exit.code == 0;
    /* ask again: a signal may have arrived while a feature read a file */
    end.settling |= end.exit.code != 0 && r->port->settling(r->port_arg);
    exit_report_worker(r, &end);
}

void round_end(struct round *r)
{
    if (r == NULL || r->features == NULL)
        return;
    worker_group_free(DD_TAKE(r->group));
    event_del(r->left);
    r->leaving = r->prepared = false;
    features_end(r->features, r);
}

static void on_left(evutil_socket_t fd, short what, void *arg)
{
    struct round *r = arg;
    (void)fd;
    (void)what;
    round_end(r);
    r->port->gone(r->port_arg);
}

void round_leave(const struct round *r)
{
    event_active(r->left, 0, 0);
}

static void on_workers_gone(void *arg)
{
    struct round *r = arg;
    worker_group_free(DD_TAKE(r->group));
    r->leaving = features_leave(r->features, r);
    if (!r->leaving)
        on_left(-1, 0, r);
}

/* ---- the start ---- */

static int begin_output(const struct round *r, struct dd_err *err)
{
    if (r->output == NULL)
        return 0;
    DD_AUTO(free) int *ranks = calloc((size_t)r->plan.local_size, sizeof(*ranks));
    if (ranks == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < r->plan.local_size; i++)
        ranks[i] = r->plan.first_rank + i;
    return worker_output_begin(r->output, r->plan.round, ranks, r->plan.local_size,
                               r->plan.world_size == 1, err);
}

static int prepare(struct round *r, struct dd_err *err)
{
    int rc = rank_options_check(r->cfg, &r->plan, err);
    if (rc == 0)
        rc = begin_output(r, err);
    if (rc == 0)
        exit_report_begin(r);
    r->prepared = true;
    return rc == 0 ? features_prepare(r->features, r, err) : rc;
}

int round_prepare(struct round *r, struct dd_err *err)
{
    const int rc = prepare(r, err);
    if (rc < 0)
        round_end(r);
    return rc;
}

static void on_warm_failed(void *arg, const char *why)
{
    const struct round *r = arg;
    r->port->warm_failed(r->port_arg, why);
}

static int start_workers(struct round *r, const struct round_link *link, struct dd_err *err)
{
    const struct worker_group_cfg cfg = {.log = r->cfg->log,
                                         .out = r->output,
                                         .on_exit = on_worker_exit,
                                         .on_empty = on_workers_gone,
                                         .warm = r->port->warm != NULL ? r->port->warm(r->port_arg)
                                                                       : NULL,
                                         .on_warm_failed = on_warm_failed,
                                         .arg = r};
    struct round_specs specs = {0};
    int rc = round_specs_make(&specs, r, link, err);
    if (rc == 0)
        rc = worker_group_start(&r->group, r->base, specs.v, specs.n, &cfg, err);
    round_specs_done(&specs);
    return rc;
}

static void say_started(const struct round *r)
{
    const int n = r->plan.local_size;
    char ranks[32];
    if (n == 1)
        (void)snprintf(ranks, sizeof(ranks), "rank %d", r->plan.first_rank);
    else
        (void)snprintf(ranks, sizeof(ranks), "ranks %d-%d", r->plan.first_rank,
                       r->plan.first_rank + n - 1);
    dd_log(r->cfg->log, DD_LOG_INFO, "started %d worker%s (%s of %d) %.1f ms after ddrun started",
           n, n == 1 ? "" : "s", ranks, r->plan.world_size,
           (double)(dd_now_ns() - r->cfg->start_ns) / 1e6);
    round_send(r, MSG(STARTED, .round = r->plan.round));
}

int round_launch(struct round *r, const struct round_link *link, struct dd_err *err)
{
    int rc = r->prepared ? 0 : prepare(r, err);
    if (rc == 0)
        rc = start_workers(r, link, err);
    if (rc == 0)
        say_started(r);
    if (rc == 0)
        rc = features_started(r->features, r, err);
    r->ended_well = rc == 0;
    if (rc < 0) {
        round_end(r);
        return rc;
    }
    return 0;
}

/* ---- a running round ---- */

bool round_is_running(const struct round *r)
{
    return r->group != NULL;
}

void round_stop(struct round *r, int sig, unsigned grace_ms)
{
    if (r->group != NULL || r->leaving) {
        r->ended_well &= r->leaving; /* while leaving, no worker is left to stop */
        r->stop_sig = sig;
    }
    features_stopping(r->features, r);
    if (r->group != NULL)
        worker_group_stop(r->group, sig, grace_ms);
}

int round_signal(const struct round *r, int sig)
{
    return r->group != NULL ? worker_group_signal(r->group, sig) : 0;
}

void round_has_signal(const struct round *r, int sig)
{
    if (r->group != NULL)
        worker_group_has_signal(r->group, sig);
}

void round_message(const struct round *r, const struct round_message *m)
{
    features_message(r->features, r, m);
}

/* ---- start and end ---- */

int round_new(struct round **ret, const struct round_env *env, struct dd_err *err)
{
    struct output_spec out = env->cfg->output;
    out.run_id = env->cfg->alloc->run_id;
    struct round *r = *ret = calloc(1, sizeof(*r));
    if (r == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *r = (struct round){
        .cfg = env->cfg, .base = env->base, .port = env->port, .port_arg = env->port_arg};
    if (net_peer_new(&r->peer) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    r->left = event_new(r->base, -1, 0, on_left, r);
    if (r->left == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = worker_output_new(&r->output, env->base, &out, err);
    return rc == 0 ? features_new(&r->features, env->features, r, err) : rc;
}

void round_free(struct round *r)
{
    if (r == NULL)
        return;
    round_end(r);
    features_free(r->features);
    if (r->left != NULL)
        event_free(r->left);
    worker_output_free(r->output);
    net_peer_free(r->peer);
    plan_clear(&r->plan);
    free(r);
}
