#include "daemon/job_metrics.h"

#include "base/io.h"
#include <config.h>
#include "daemon/job_times.h"
#include "daemon/node_state.h"
#include "daemon/step_collect.h"
#include "report/metrics_text.h"
#include "store/c10d_ops.h"
#include "store/profile_json.h"

#include <ctype.h>
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { INTERVAL_S = 10, TEXT_MAX = 128 * 1024, NAME_MAX_LEN = 24 };

struct job_metrics {
    struct journal_subscriber subscriber;
    struct job_metrics_cfg cfg;
    const struct rdzv *machine;
    const struct step_collect *steps;
    struct job_times times;
    uint64_t start_real_ns, refused;
    struct session *follower; /* NULL: none */
    int64_t id;               /* of the follower's request */
    struct session *profile_follower;
    int64_t profile_id;
    struct event *timer;
};

/* ---- values ---- */

/* Return the resident memory of this process in bytes; 0: unknown. */
static uint64_t job_metrics_memory(void)
{
    DD_AUTO(buf) struct dd_buf statm = DD_BUF_INIT(256);
    const char *text = dd_read_file("/proc/self/statm", &statm, NULL) == 0 ? dd_buf_str(&statm)
                                                                           : NULL;
    const char *second = text != NULL ? strchr(text, ' ') : NULL;
    return second != NULL ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t job_metrics_cpu_ns(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) < 0)
        return 0;
    const uint64_t s = (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec);
    return s * DD_NS_PER_S + (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static void job_metrics_put_job(const struct job_metrics *m, struct metrics *v)
{
    const struct job_times *t = &m->times;
    metrics_set(v, METRIC_START_TIME, m->start_real_ns);
    if (t->finished)
        metrics_set(v, METRIC_EXIT_CODE, (uint64_t)t->code);
    metrics_set(v, METRIC_MAX_RESTARTS, (uint64_t)m->cfg.rdzv->max_restarts);
    /* a later daemon gets the numbers of earlier rounds with its first round */
    const bool begun = rdzv_has_begun(m->machine);
    if (begun || m->cfg.rdzv->epoch == 0) {
        metrics_set(v, METRIC_ROUNDS, begun ? (uint64_t)rdzv_round(m->machine) + 1 : 0);
        metrics_set(v, METRIC_RESTARTS, (uint64_t)rdzv_restarts(m->machine));
    }
    metrics_set(v, METRIC_LOST_NODES, t->lost_nodes);
    metrics_set(v, METRIC_FAILED_WORKERS, t->failed_workers);
    metrics_set(v, METRIC_REFUSED_CONNECTIONS, m->refused);
    if (t->startup_ns != 0)
        metrics_set(v, METRIC_STARTUP, t->startup_ns);
    if (t->recovery_ns != 0)
        metrics_set(v, METRIC_RECOVERY, t->recovery_ns);
    metrics_set(v, METRIC_RUNNING, job_times_running(t, dd_now_ns()));
    const int64_t step = step_collect_reached(m->steps);
    if (step >= 0)
        metrics_set(v, METRIC_STEP, (uint64_t)step);
}

static void job_metrics_put_daemon(const struct job_metrics *m, struct metrics *v)
{
    struct store_stats st;
    const uint64_t memory = job_metrics_memory();
    store_server_stats(m->cfg.store, &st);
    metrics_set(v, METRIC_STORE_KEYS, st.keys);
    metrics_set(v, METRIC_STORE_MEMORY, st.bytes);
    metrics_set(v, METRIC_STORE_MEMORY_LIMIT, st.max_bytes);
    metrics_set(v, METRIC_STORE_WAITING, st.waiters);
    metrics_set(v, METRIC_STORE_CONNECTIONS, st.conns);
    metrics_set(v, METRIC_STORE_OPENED, st.conns_total);
    if (memory != 0)
        metrics_set(v, METRIC_DAEMON_MEMORY, memory);
    metrics_set(v, METRIC_DAEMON_CPU, job_metrics_cpu_ns());
    if (m->cfg.notify == NULL)
        return;
    metrics_set(v, METRIC_NOTIFY_QUEUED, notify_queued(m->cfg.notify));
    metrics_set(v, METRIC_NOTIFY_DROPPED, notify_dropped(m->cfg.notify));
}

/* The labels that the text borrows. */
struct job_metrics_labels {
    struct metrics_count states[RDZV_STATE_MAX], nodes[NODE_STATES], workers[NODE_STATES],
        operations[C10D_OPS];
    char names[C10D_OPS][NAME_MAX_LEN];
};

static void job_metrics_put_states(const struct job_metrics *m, struct job_metrics_labels *l,
                                   struct metrics *v)
{
    struct rdzv_view view;
    for (int s = 0; s < RDZV_STATE_MAX; s++)
        l->states[s] = (struct metrics_count){rdzv_state_name((enum rdzv_state)s),
                                              rdzv_state(m->machine) == (enum rdzv_state)s};
    for (int s = 0; s < NODE_STATES; s++)
        l->nodes[s].name = l->workers[s].name = node_state_name((enum node_state)s);
    for (int id = 0; id < m->cfg.rdzv->capacity; id++)
        if (rdzv_view(m->machine, id, &view)) {
            const enum node_state s = node_state(m->machine, &view);
            l->nodes[s].n++;
            l->workers[s].n += (uint64_t)view.slots;
        }
    v->states = (struct metrics_counts){l->states, RDZV_STATE_MAX};
    v->nodes = (struct metrics_counts){l->nodes, NODE_STATES};
    v->workers = (struct metrics_counts){l->workers, NODE_STATES};
}

/* Leave out VALIDATE, which only begins a connection. */
static void job_metrics_put_operations(const struct job_metrics *m, struct job_metrics_labels *l,
                                       struct metrics *v)
{
    const struct store_profile *p = store_server_profile(m->cfg.store);
    size_t n = 0;
    for (int op = C10D_VALIDATE + 1; op < C10D_OPS; op++, n++) {
        for (size_t k = 0; k < NAME_MAX_LEN - 1 && c10d_ops[op].name[k] != '\0'; k++)
            l->names[n][k] = (char)tolower((unsigned char)c10d_ops[op].name[k]);
        l->operations[n] = (struct metrics_count){l->names[n], p->ops[op].n};
    }
    v->operations = (struct metrics_counts){l->operations, n};
}

int job_metrics_text(const struct job_metrics *m, struct dd_buf *out)
{
    const struct session *leader = m->cfg.sessions->leader;
    struct job_metrics_labels labels = {0};
    struct metrics v = {.job_id = m->cfg.job_id,
                        .version = PACKAGE_VERSION,
                        .node = leader != NULL ? leader->name : ""};
    job_metrics_put_states(m, &labels, &v);
    job_metrics_put_operations(m, &labels, &v);
    job_metrics_put_job(m, &v);
    job_metrics_put_daemon(m, &v);
    return metrics_text(&v, out);
}

/* ---- the follower ---- */

static void job_metrics_send(struct job_metrics *m)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    const struct timeval t = {.tv_sec = INTERVAL_S};
    if (m->follower == NULL || m->machine == NULL)
        return;
    /* if too much is queued on the link, skip this update; the timer sends the next */
    if (job_metrics_text(m, &text) == 0)
        (void)session_answer(m->follower, m->id, (char *)text.data, text.len, false);
    if (!m->times.finished)
        (void)evtimer_add(m->timer, &t);
}

static void job_metrics_on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    job_metrics_send(arg);
}

static void job_metrics_send_profile(struct job_metrics *m)
{
    json_t *o = m->profile_follower != NULL ? job_metrics_profile(m) : NULL;
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(o);
    if (text != NULL)
        (void)session_answer(m->profile_follower, m->profile_id, text, strlen(text), true);
    m->profile_follower = NULL;
}

static void job_metrics_on_event(void *arg, const struct journal_event *e)
{
    struct job_metrics *m = arg;
    job_times_event(&m->times, e);
    if (e->kind == JOURNAL_ROUND || e->kind == JOURNAL_STARTED || e->kind == JOURNAL_STOPPING ||
        e->kind == JOURNAL_FINISH)
        job_metrics_send(m);
    if (e->kind == JOURNAL_FINISH)
        job_metrics_send_profile(m);
}

json_t *job_metrics_profile(const struct job_metrics *m)
{
    struct store_stats st;
    store_server_stats(m->cfg.store, &st);
    return store_profile_json(store_server_profile(m->cfg.store), &st);
}

void job_metrics_follow_profile(struct job_metrics *m, struct session *s, int64_t id)
{
    m->profile_follower = s;
    m->profile_id = id;
}

void job_metrics_follow(struct job_metrics *m, struct session *s, int64_t id)
{
    m->follower = s;
    m->id = id;
    job_metrics_send(m);
}

void job_metrics_forget(struct job_metrics *m, const struct session *s)
{
    if (m->follower == s)
        m->follower = NULL;
    if (m->profile_follower == s)
        m->profile_follower = NULL;
}

void job_metrics_note_refused(struct job_metrics *m)
{
    m->refused++;
}

/* ---- life ---- */

int job_metrics_new(struct job_metrics **ret, struct journal *j, const struct job_metrics_cfg *cfg,
                    struct dd_err *err)
{
    const uint64_t now = dd_now_ns();
    const uint64_t start = cfg->start_ns == 0 || cfg->start_ns > now ? now : cfg->start_ns;
    const bool first = cfg->rdzv->epoch == 0;
    struct job_metrics *m = calloc(1, sizeof(*m));
    if (m == NULL || (m->timer = evtimer_new(cfg->base, job_metrics_on_timer, m)) == NULL) {
        free(m);
        return dd_err_set(err, -ENOMEM, "out of memory for the metrics");
    }
    m->cfg = *cfg;
    m->start_real_ns = dd_now_real_ns() - (now - start);
    job_times_init(&m->times, first ? start : 0, first ? 0 : now);
    m->subscriber = (struct journal_subscriber){.on_event = job_metrics_on_event, .arg = m};
    journal_subscribe(j, &m->subscriber);
    *ret = m;
    return 0;
}

void job_metrics_attach(struct job_metrics *m, const struct rdzv *machine,
                        const struct step_collect *steps)
{
    m->machine = machine;
    m->steps = steps;
}

void job_metrics_free(struct job_metrics *m)
{
    if (m == NULL)
        return;
    event_free(m->timer);
    free(m);
}
