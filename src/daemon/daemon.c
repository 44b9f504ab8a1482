/* Creates the parts of the daemon and connects them. */
#include "daemon/daemon.h"

#include "daemon/charges_follow.h"
#include "daemon/demux.h"
#include "daemon/dispatch.h"
#include "daemon/notify.h"
#include "daemon/store_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Sessions beyond the number of nodes: agents that replace lost ones, and agents to be refused. */
enum { EXTRA_SESSIONS = 256 };

struct daemon {
    struct daemon_cfg cfg;
    struct event_base *base;
    struct journal journal;
    struct store_server *store;
    struct admission *admission;
    struct demux *demux;
    /* For a job; unused if standing. */
    struct session_set sessions;
    struct report_collect *report;
    struct event_log *events;
    struct notify *notify; /* NULL: no web hook */
    struct job_metrics *metrics;
    struct charges_follow charges;
    struct step_collect *steps;
    struct remaining_ranks *remaining;
    struct timeline *timeline; /* NULL: no --timeline */
    struct worker_events worker_events;
    struct store_memory store_memory;
    struct plan_cache plans;
    struct job *job;
    struct dispatch dispatch;
};

/* ---- callbacks ---- */

static struct admission_node *daemon_find_node(void *arg, const struct net_addr *addr)
{
    const struct daemon *d = arg;
    struct session *s = session_of_addr(&d->sessions, addr);
    return s != NULL ? &s->admission : NULL;
}

static void daemon_ask_node(void *arg, struct admission_node *n, int64_t id, const char *local,
                            const char *remote)
{
    (void)arg;
    session_send(session_of_admission(n), MSG(WHOIS, .id = id, .local = local, .remote = remote));
}

static void daemon_on_refused(void *arg, uint64_t count, const struct net_addr *from,
                              const uid_t *uid, const char *why)
{
    struct daemon *d = arg;
    if (d->metrics != NULL)
        job_metrics_note_refused(d->metrics);
    journal_refused(&d->journal, count, from, uid, why);
}

static bool daemon_may_connect(void *arg)
{
    const struct daemon *d = arg;
    return d->sessions.n < d->sessions.cfg.capacity + EXTRA_SESSIONS;
}

/* Find the node of the worker; not by a loopback address, which several simulated nodes share. */
static void daemon_on_worker(void *arg, const struct net_addr *from)
{
    const struct daemon *d = arg;
    const bool known = from->len > 0 && !net_addr_is_loopback(from);
    struct session *s = known ? session_of_addr(&d->sessions, from) : NULL;
    if (s == NULL && d->sessions.n == 1)
        s = d->sessions.leader;
    timeline_store_used(d->timeline, s != NULL ? &s->timeline : NULL);
}

static void daemon_on_link(void *arg, struct link *l)
{
    struct daemon *d = arg;
    (void)session_new(&d->sessions, l, false);
}

static void daemon_on_round_over(void *arg)
{
    const struct daemon *d = arg;
    demux_drop_workers(d->demux);
    store_server_reset(d->store);
}

static bool daemon_waits(void *arg, uint64_t *wait_ns)
{
    const struct daemon *d = arg;
    return d->notify != NULL && notify_waits(d->notify, wait_ns);
}

static void daemon_on_drained(void *arg)
{
    const struct daemon *d = arg;
    job_end_now(d->job);
}

static void daemon_on_over(void *arg, int code)
{
    const struct daemon *d = arg;
    d->cfg.on_over(d->cfg.arg, code);
}

/* ---- parts ---- */

static int daemon_start_port(struct daemon *d, struct dd_err *err)
{
    const bool has_job = d->cfg.job_id != NULL;
    const struct admission_cfg admission = {.base = d->base,
                                            .log = d->cfg.log,
                                            .find_node = daemon_find_node,
                                            .ask = daemon_ask_node,
                                            .refused = daemon_on_refused,
                                            .arg = d};
    int rc = store_server_new(&d->store, d->base, d->cfg.log, &d->cfg.limits, d->cfg.old, err);
    if (rc == 0 && d->cfg.profile && store_server_measure(d->store) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory for the profile of the store");
    if (rc == 0)
        rc = admission_new(&d->admission, &admission, err);
    if (rc < 0) {
        close(d->cfg.listen_fd);
        return rc;
    }
    const struct demux_cfg demux = {.base = d->base,
                                    .listen_fd = d->cfg.listen_fd,
                                    .nodes = d->cfg.rdzv.capacity,
                                    .open_store = d->cfg.open_store,
                                    .store = d->store,
                                    .admission = d->admission,
                                    .accept = {.job_id = d->cfg.job_id,
                                               .key = &d->cfg.key,
                                               .key_in = &d->cfg.key_in,
                                               .log = d->cfg.log},
                                    .may_connect = has_job ? daemon_may_connect : NULL,
                                    .on_worker = d->cfg.timeline != NULL ? daemon_on_worker : NULL,
                                    .on_link = daemon_on_link,
                                    .on_refused = daemon_on_refused,
                                    .arg = d};
    return demux_new(&d->demux, &demux, err);
}

/* The report subscribes first, because FINISH carries the report's exit code and other subscribers
 * may end links while they handle an event. */
static int daemon_start_subscribers(struct daemon *d, struct dd_err *err)
{
    const struct report_collect_cfg report = {.job_id = d->cfg.job_id,
                                              .nnodes = d->cfg.rdzv.max_nodes,
                                              .max_restarts = d->cfg.rdzv.max_restarts,
                                              .start_ns = d->cfg.start_ns};
    const struct notify_cfg notify = {.base = d->base,
                                      .url = d->cfg.notify,
                                      .job_id = d->cfg.job_id,
                                      .web_helper = d->cfg.web_helper,
                                      .env = d->cfg.key_in.env,
                                      .log = d->cfg.log,
                                      .on_drained = daemon_on_drained,
                                      .arg = d};
    const struct timeline_cfg timeline = {.base = d->base,
                                          .path = d->cfg.timeline,
                                          .job_id = d->cfg.job_id,
                                          .start_ns = d->cfg.start_ns,
                                          .log = d->cfg.log};
    int rc = report_collect_new(&d->report, &d->journal, &report, err);
    if (rc == 0 && event_log_new(&d->events, &d->journal, session_answer) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory for the event log");
    if (rc == 0 && d->cfg.share_memory)
        store_memory_follow(&d->store_memory, &d->journal, d->store);
    if (rc == 0 && d->cfg.notify != NULL)
        rc = notify_new(&d->notify, &d->journal, &notify, err);
    if (rc == 0 && d->cfg.timeline != NULL)
        rc = timeline_new(&d->timeline, &d->journal, &timeline, err);
    return rc;
}

static int daemon_start_metrics(struct daemon *d, struct dd_err *err)
{
    const struct job_metrics_cfg cfg = {.base = d->base,
                                        .job_id = d->cfg.job_id,
                                        .rdzv = &d->cfg.rdzv,
                                        .sessions = &d->sessions,
                                        .store = d->store,
                                        .notify = d->notify,
                                        .start_ns = d->cfg.start_ns};
    return job_metrics_new(&d->metrics, &d->journal, &cfg, err);
}

static int daemon_start_sessions(struct daemon *d, struct dd_err *err)
{
    const struct session_cfg cfg = {.capacity = d->cfg.rdzv.capacity,
                                    .epoch = d->cfg.rdzv.epoch,
                                    .heartbeat_ns = d->cfg.heartbeat_ns,
                                    .log = d->cfg.log,
                                    .ops = dispatch_session_ops(&d->dispatch)};
    return session_set_init(&d->sessions, &cfg) == 0
               ? 0
               : dd_err_set(err, -ENOMEM, "out of memory for %d node%s", cfg.capacity,
                            cfg.capacity == 1 ? "" : "s");
}

static void daemon_wire_dispatch(struct daemon *d)
{
    d->dispatch = (struct dispatch){
        .job = d->job,
        .sessions = &d->sessions,
        .admission = d->admission,
        .store = d->store,
        .events = d->events,
        .metrics = d->metrics,
        .charges = &d->charges,
        .steps = d->steps,
        .remaining = d->remaining,
        .timeline = d->timeline,
        .ctl = {.job_id = d->cfg.job_id,
                .cfg = &d->cfg.rdzv,
                .machine = job_machine(d->job),
                .store = d->store,
                .events = d->events,
                .metrics = d->metrics,
                .charges = &d->charges,
                .steps = d->steps,
                .start_ns = job_start_ns(d->job),
                .ops = &dispatch_ctl_ops,
                .arg = &d->dispatch},
        .broadcast = {.job = d->job, .log = d->cfg.log},
        .exchange = {.send = dispatch_send_exchange, .arg = &d->dispatch},
    };
}

/* Make the session of the leader's agent, which is connected from the start. */
static int daemon_add_leader(struct daemon *d, struct dd_err *err)
{
    const struct link_cb none = {0};
    struct link *link;
    int fd = d->cfg.leader_fd;
    d->cfg.leader_fd = -1;
    int rc = link_new_trusted(&link, d->base, fd, &none, err);
    if (rc == 0 && session_new(&d->sessions, link, true) == NULL)
        rc = dd_err_set(err, -ENOMEM, "out of memory for the leader's agent");
    return rc;
}

static int daemon_start_steps(struct daemon *d, struct dd_err *err)
{
    const struct step_collect_cfg cfg = {.sessions = &d->sessions,
                                         .machine = job_machine(d->job),
                                         .journal = &d->journal,
                                         .log = d->cfg.log};
    return step_collect_new(&d->steps, &cfg) == 0
               ? 0
               : dd_err_set(err, -ENOMEM, "out of memory for the step times");
}

static int daemon_start_remaining(struct daemon *d, struct dd_err *err)
{
    const struct remaining_ranks_cfg cfg = {
        .base = d->base, .sessions = &d->sessions, .machine = job_machine(d->job)};
    return remaining_ranks_new(&d->remaining, &cfg) == 0
               ? 0
               : dd_err_set(err, -ENOMEM, "out of memory for the remaining ranks");
}

static int daemon_start_job(struct daemon *d, struct dd_err *err)
{
    d->cfg.rdzv.master_port = d->cfg.port;
    d->worker_events = (struct worker_events){.store = d->store, .log = d->cfg.log};
    struct job_cfg job = {.base = d->base,
                          .log = d->cfg.log,
                          .rdzv = d->cfg.rdzv,
                          .stacks = d->cfg.stacks,
                          .sessions = &d->sessions,
                          .journal = &d->journal,
                          .plans = &d->plans,
                          .worker_events = &d->worker_events,
                          .round_over = daemon_on_round_over,
                          .waits = daemon_waits,
                          .over = daemon_on_over,
                          .arg = d};
    int rc = daemon_start_sessions(d, err);
    if (rc == 0)
        rc = daemon_start_subscribers(d, err);
    if (rc == 0)
        rc = daemon_start_metrics(d, err);
    if (rc == 0)
        rc = plan_cache_init(&d->plans, err);
    job.report = d->report;
    if (rc == 0)
        rc = job_new(&d->job, &job, err);
    if (rc == 0)
        rc = daemon_start_steps(d, err);
    if (rc == 0)
        rc = daemon_start_remaining(d, err);
    if (rc < 0)
        return rc;
    charges_follow_init(&d->charges, &d->journal, job_machine(d->job));
    job_metrics_attach(d->metrics, job_machine(d->job), d->steps);
    daemon_wire_dispatch(d);
    /* must precede the system call filter */
    if (d->cfg.rdzv.capacity > 1 && d->cfg.key.method != NET_KEY_NONE)
        rc = demux_prepare(d->demux, err);
    return rc < 0 ? rc : daemon_add_leader(d, err);
}

int daemon_new(struct daemon **ret, struct event_base *base, const struct daemon_cfg *cfg,
               struct dd_err *err)
{
    struct daemon *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for the daemon");
    d->cfg = *cfg;
    d->base = base;
    journal_init(&d->journal);
    int rc = daemon_start_port(d, err);
    if (rc == 0 && cfg->job_id != NULL)
        rc = daemon_start_job(d, err);
    if (rc < 0) {
        daemon_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void daemon_stop(struct daemon *d)
{
    if (d->job != NULL)
        job_stop_soon(d->job);
    else
        d->cfg.on_over(d->cfg.arg, 0);
}

void daemon_free(struct daemon *d)
{
    if (d == NULL)
        return;
    demux_free(d->demux);
    session_set_done(&d->sessions);
    store_server_free(d->store);
    admission_free(d->admission);
    remaining_ranks_free(d->remaining);
    step_collect_free(d->steps);
    job_free(d->job);
    notify_free(d->notify);
    job_metrics_free(d->metrics);
    timeline_free(d->timeline);
    event_log_free(d->events);
    report_collect_free(d->report);
    plan_cache_done(&d->plans);
    exchange_relay_done(&d->dispatch.exchange);
    if (d->cfg.job_id !=
        NULL) /* the leader's agent removes the key too, but may have been killed */
        net_key_cleanup(&d->cfg.key, &d->cfg.key_in);
    free(d);
}
