#include "daemon/timeline.h"

#include "base/io.h"
#include "daemon/timeline_file.h"
#include "rdzv/msg.h"
#include "rdzv/plan.h"
#include "report/trace_events.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#pragma GCC diagnostic ignored "-Wimplicit-fallthrough" /* clang: in uthash's HASH_JEN */

enum {
    LINE_MAX_BYTES = 1 << 16,
    EARLY_MAX = 16 << 20, /* bytes kept before the first round */
};

struct timeline_node {
    char name[256];
    int pid;
    UT_hash_handle hh;
};

struct timeline {
    struct journal_subscriber subscriber;
    struct timeline_cfg cfg;
    struct timeline_file *file;
    struct timeline_node *nodes;
    struct dd_buf early; /* events until the first round */
    int64_t real_ns;     /* wall clock minus monotonic clock, at the start */
    bool started;        /* the array has been begun */
    int round;           /* -1: none yet */
    int workers;
    uint64_t round_ns; /* when the round began */
    bool first_store;  /* a worker of an unknown node has used the store in this round */
    bool warned;
};

/* ---- lines ---- */

static void timeline_write(struct timeline *t, const void *p, size_t n)
{
    const int rc = t->round < 0 ? dd_buf_append(&t->early, p, n) : timeline_file_put(t->file, p, n);
    if (rc < 0 && rc != -EPIPE && !t->warned) {
        t->warned = true;
        dd_log(t->cfg.log, DD_LOG_WARN, "--timeline: %s '%s'; some events will be missing",
               rc == -ENOMEM ? "out of memory for events that are waiting to be written to"
                             : "too many events are waiting to be written to",
               t->cfg.path);
    }
}

static void timeline_put(struct timeline *t, const struct trace_event *e)
{
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(LINE_MAX_BYTES);
    if (trace_event_put(&line, &t->started, e) == 0)
        timeline_write(t, line.data, line.len);
}

static void timeline_put_name(struct timeline *t, int pid, int tid, const char *name)
{
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(LINE_MAX_BYTES);
    if (trace_event_put_name(&line, &t->started, pid, tid, name) == 0)
        timeline_write(t, line.data, line.len);
}

static void timeline_put_phase(struct timeline *t, int pid, int round, const struct phase *p)
{
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(LINE_MAX_BYTES);
    if (trace_event_put_phase(&line, &t->started, pid, round, p) == 0)
        timeline_write(t, line.data, line.len);
}

static uint64_t timeline_real(const struct timeline *t, uint64_t ns)
{
    return (uint64_t)((int64_t)ns + t->real_ns);
}

/* ---- the job ---- */

static void timeline_end_round(struct timeline *t, uint64_t now)
{
    char name[32];
    if (t->round < 0)
        return;
    (void)snprintf(name, sizeof(name), "round %d", t->round);
    timeline_put(t, &(struct trace_event){
                        .type = TRACE_SPAN,
                        .name = name,
                        .begin_ns = timeline_real(t, t->round_ns),
                        .end_ns = timeline_real(t, now),
                        .args = json_pack("{s:i s:i}", "round", t->round, "workers", t->workers)});
}

static void timeline_begin_round(struct timeline *t, const struct journal_event *e)
{
    const bool first = t->round < 0;
    timeline_end_round(t, e->now_ns);
    t->round = e->round;
    t->workers = e->workers;
    t->round_ns = e->now_ns;
    t->first_store = false;
    if (first && t->early.len > 0)
        timeline_write(t, t->early.data, t->early.len);
    if (first)
        dd_buf_done(&t->early);
}

static void timeline_on_event(void *arg, const struct journal_event *e)
{
    struct timeline *t = arg;
    if (e->kind == JOURNAL_ROUND)
        timeline_begin_round(t, e);
    if (e->kind == JOURNAL_FINISH)
        timeline_end_round(t, e->now_ns);
    json_t *args = journal_json(e);
    if (args == NULL)
        return;
    const char *name = json_string_value(json_object_get(args, "event"));
    DD_AUTO(free) char *copy = name != NULL ? strdup(name) : NULL;
    (void)json_object_del(args, "event");
    (void)json_object_del(args, "time");
    timeline_put(t, &(struct trace_event){.type = TRACE_INSTANT,
                                          .name = copy != NULL ? copy : "event",
                                          .begin_ns = timeline_real(t, e->now_ns),
                                          .args = args});
}

/* ---- nodes ---- */

/* Return the node's pid in the file; a node that rejoins keeps it. 0: too many nodes, or out of
 * memory. */
static int timeline_pid(struct timeline *t, const char *name)
{
    struct timeline_node *n;
    HASH_FIND_STR(t->nodes, name, n);
    if (n != NULL)
        return n->pid;
    n = HASH_COUNT(t->nodes) < PLAN_MAX_NODES ? calloc(1, sizeof(*n)) : NULL;
    if (n == NULL)
        return 0;
    n->pid = (int)HASH_COUNT(t->nodes) + 1;
    (void)snprintf(n->name, sizeof(n->name), "%s", name);
    HASH_ADD_STR(t->nodes, name, n);
    if (n->hh.tbl == NULL) { /* HASH_ADD ran out of memory */
        free(n);
        return 0;
    }
    timeline_put_name(t, n->pid, -1, n->name);
    timeline_put_name(t, n->pid, TRACE_TID_NODE, "node");
    return n->pid;
}

static void timeline_renew(struct timeline_peer *p)
{
    p->left = phases_max(p->workers);
    p->first_store = false;
}

void timeline_add_peer(struct timeline *t, struct timeline_peer *p, const struct msg_join *m,
                       bool same_clock)
{
    *p = (struct timeline_peer){.pid = timeline_pid(t, m->name),
                                .asked_ns = dd_now_ns(),
                                .same_clock = same_clock,
                                .round = t->round,
                                .workers = m->slots};
    timeline_renew(p);
}

/* Both clocks are monotonic. When the agent sent its first answer, the daemon's clock was later
 * than asked_ns; and no message arrives before it is sent, so `quickest` is the other limit. Take
 * the middle, as NTP does. A later estimate would be better, but would move phases against each
 * other. */
static void timeline_set_clock(struct timeline *t, struct timeline_peer *p, int64_t sent_ns,
                               const struct report_clock *quickest)
{
    const int64_t least = (int64_t)p->asked_ns - sent_ns;
    const int64_t error = p->same_clock || quickest->behind_ns < least
                              ? 0
                              : (quickest->behind_ns - least) / 2;
    p->behind_ns = p->same_clock ? 0 : least + error;
    p->answered = true;
    timeline_put(t, &(struct trace_event){
                        .type = TRACE_INSTANT,
                        .name = "clock",
                        .pid = p->pid,
                        .begin_ns = timeline_real(t, dd_now_ns()),
                        .args = json_pack("{s:I}", "error_us", (json_int_t)(error / 1000))});
}

/* Convert a peer's time to wall-clock time. now: of the daemon's clock; later times become `now`.
 */
static int64_t timeline_here(const struct timeline *t, const struct timeline_peer *p,
                             int64_t there_ns, uint64_t now)
{
    int64_t here;
    if (__builtin_add_overflow(there_ns, p->behind_ns, &here) || here > (int64_t)now)
        here = (int64_t)now;
    return (int64_t)timeline_real(t, here < 0 ? 0 : (uint64_t)here);
}

static void timeline_take_phase(struct timeline *t, const struct timeline_peer *p, int round,
                                struct phase *ph)
{
    char name[32];
    const uint64_t now = dd_now_ns();
    ph->begin_ns = timeline_here(t, p, ph->begin_ns, now);
    ph->end_ns = timeline_here(t, p, ph->end_ns, now);
    (void)snprintf(name, sizeof(name), "rank %d", ph->rank);
    if (ph->kind == PHASE_SPAWNED)
        timeline_put_name(t, p->pid, trace_tid_of(ph->rank), name);
    timeline_put_phase(t, p->pid, round, ph);
}

void timeline_take(struct timeline *t, struct timeline_peer *p, const struct report_clock *quickest,
                   const struct msg_phases *m)
{
    if (p->pid == 0)
        return;
    if (!p->answered)
        timeline_set_clock(t, p, m->sent_ns, quickest);
    if (p->round != t->round)
        timeline_renew(p);
    p->round = t->round;
    for (size_t i = 0; i < m->phases->n && p->left > 0; i++, p->left--) {
        struct phase ph;
        if (phase_parse(&ph, m->phases->v[i]) == 0)
            timeline_take_phase(t, p, m->round, &ph);
    }
}

void timeline_store_used(struct timeline *t, struct timeline_peer *p)
{
    const int64_t now = (int64_t)timeline_real(t, dd_now_ns());
    if (p != NULL && p->round != t->round)
        timeline_renew(p);
    if (p != NULL)
        p->round = t->round;
    bool *first = p != NULL ? &p->first_store : &t->first_store;
    if (t->round >= 0 && !*first)
        timeline_put_phase(
            t, p != NULL ? p->pid : TRACE_PID_JOB, t->round,
            &(struct phase){.kind = PHASE_FIRST_STORE, .rank = -1, .begin_ns = now, .end_ns = now});
    *first = true;
}

/* ---- life ---- */

/* Write the first events: the names of the job's process and thread, and the start of ddrun. */
static void timeline_put_head(struct timeline *t, uint64_t start_ns)
{
    char name[300];
    (void)snprintf(name, sizeof(name), "job %.270s", t->cfg.job_id);
    timeline_put_name(t, TRACE_PID_JOB, -1, name);
    timeline_put_name(t, TRACE_PID_JOB, TRACE_TID_NODE, "rounds");
    timeline_put(t, &(struct trace_event){.type = TRACE_INSTANT,
                                          .name = "exec",
                                          .begin_ns = timeline_real(t, start_ns),
                                          .args = json_pack("{s:s}", "job", t->cfg.job_id)});
}

int timeline_new(struct timeline **ret, struct journal *j, const struct timeline_cfg *cfg,
                 struct dd_err *err)
{
    const uint64_t now = dd_now_ns();
    struct timeline *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return dd_err_set(err, -ENOMEM, "--timeline: out of memory");
    *t = (struct timeline){.cfg = *cfg,
                           .early = DD_BUF_INIT(EARLY_MAX),
                           .real_ns = (int64_t)dd_now_real_ns() - (int64_t)now,
                           .round = -1};
    const int rc = timeline_file_new(&t->file, cfg->base, cfg->path, cfg->log, err);
    if (rc < 0) {
        free(t);
        return rc;
    }
    timeline_put_head(t, cfg->start_ns == 0 || cfg->start_ns > now ? now : cfg->start_ns);
    t->subscriber = (struct journal_subscriber){.on_event = timeline_on_event, .arg = t};
    journal_subscribe(j, &t->subscriber);
    *ret = t;
    return 0;
}

void timeline_free(struct timeline *t)
{
    struct timeline_node *n;
    struct timeline_node *next;
    if (t == NULL)
        return;
    timeline_file_free(t->file);
    HASH_ITER(hh, t->nodes, n, next)
    {
        HASH_DEL(t->nodes, n);
        free(n);
    }
    dd_buf_done(&t->early);
    free(t);
}
