#include "report/timeline_summary.h"

#include "base/log.h"
#include "base/utf8.h"
#include "report/causes.h"
#include "report/phases.h"
#include "report/trace_events.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_SHOWN = 4, ROUNDS_IN_JSON = 100, ROUND_MAX = 1 << 24, SHORT_US = 1000 };

struct span {
    const char *name; /* name of the phase */
    int pid, tid, round;
    int64_t ts, dur; /* µs */
};

struct summary {
    const json_t *events;
    struct span *spans; /* the phases among the events */
    size_t n;
    const struct span **starts; /* spans from whose beginning instants are measured; sorted */
    size_t nstarts;
    int64_t exec; /* start of ddrun, µs */
    int first_round, last_round;
};

/* ---- the file ---- */

/* Parse the array, or as much of it as was written. */
static json_t *summary_parse(const char *text, size_t n)
{
    json_t *all = json_loadb(text, n, 0, NULL);
    for (int cut = 0; all == NULL && n > 0 && cut < 2; cut++) {
        DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(n + 2);
        if (cut > 0) { /* the last line is incomplete */
            const char *nl = memrchr(text, '\n', n);
            n = nl != NULL ? (size_t)(nl - text) : 0;
        }
        while (n > 0 && strchr(", \n", text[n - 1]) != NULL)
            n--;
        if (dd_buf_append(&b, text, n) == 0 && dd_buf_puts(&b, "]") == 0)
            all = json_loadb((char *)b.data, b.len, 0, NULL);
    }
    return all;
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s != NULL ? s : "";
}

static int number_of(const json_t *o, const char *name, int missing)
{
    const json_t *v = json_object_get(o, name);
    const json_int_t n = json_integer_value(v);
    return json_is_integer(v) && n >= 0 && n <= INT_MAX ? (int)n : missing;
}

static int64_t time_of(const json_t *e, const char *name)
{
    const json_int_t us = json_integer_value(json_object_get(e, name));
    return us < 0 || us > INT64_MAX / 4 ? 0 : us;
}

/* Return the name of a node from the metadata; "?": unknown. */
static const char *name_of(const struct summary *s, int pid)
{
    const json_t *e;
    size_t i;
    json_array_foreach (s->events, i, e) {
        if (number_of(e, "pid", -1) == pid && strcmp(text_of(e, "name"), "process_name") == 0)
            return text_of(json_object_get(e, "args"), "name");
    }
    return "?";
}

/* Return the first event of the job with this name, in this round unless it is -1; NULL: none. */
static const json_t *event_of(const struct summary *s, const char *name, int round)
{
    const json_t *e;
    size_t i;
    json_array_foreach (s->events, i, e) {
        const int of = number_of(json_object_get(e, "args"), "round", -1);
        if (number_of(e, "pid", -1) == TRACE_PID_JOB && strcmp(text_of(e, "name"), name) == 0 &&
            (round < 0 || of == round))
            return e;
    }
    return NULL;
}

/* ---- phases ---- */

static bool is_named(const struct span *p, enum phase_kind kind)
{
    return strcmp(p->name, phase_rows[kind].name) == 0;
}

/* Return the phase from whose beginning this instant is measured; PHASE_KIND_MAX: none. */
static enum phase_kind start_of(const struct span *p)
{
    return is_named(p, PHASE_FIRST_OUTPUT)  ? PHASE_SPAWNED
           : is_named(p, PHASE_FIRST_STORE) ? PHASE_SPAWN
                                            : PHASE_KIND_MAX;
}

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Compare by node, thread and round: a phase of a node and one of a worker have different threads.
 */
static int by_place(const void *a, const void *b)
{
    const struct span *x = *(const struct span *const *)a;
    const struct span *y = *(const struct span *const *)b;
    int rc = compare(x->pid, y->pid);
    if (rc == 0)
        rc = compare(x->tid, y->tid);
    return rc == 0 ? compare(x->round, y->round) : rc;
}

/* Fill s->starts, for begin_of(). */
static int summary_sort_starts(struct summary *s)
{
    s->starts = calloc(s->n + 1, sizeof(*s->starts));
    for (size_t i = 0; s->starts != NULL && i < s->n; i++)
        if (is_named(&s->spans[i], PHASE_SPAWNED) || is_named(&s->spans[i], PHASE_SPAWN))
            s->starts[s->nstarts++] = &s->spans[i];
    if (s->nstarts > 1)
        qsort(s->starts, s->nstarts, sizeof(*s->starts), by_place);
    return s->starts != NULL ? 0 : -ENOMEM;
}

/* Return the beginning of the phase `kind` in the round of `like`, on the same node, or of the same
 * rank if the phase belongs to ranks; -1: unknown. */
static int64_t begin_of(const struct summary *s, enum phase_kind kind, const struct span *like)
{
    const struct span key = {.pid = like->pid,
                             .tid = phase_rows[kind].of_rank ? like->tid : TRACE_TID_NODE,
                             .round = like->round};
    const struct span *wanted = &key;
    const struct span *const *found = bsearch(&wanted, s->starts, s->nstarts, sizeof(*s->starts),
                                              by_place);
    return found != NULL && is_named(*found, kind) ? (*found)->ts : -1;
}

/* Set the duration of first-output and first-store: the time since the fork of the workers. */
static int summary_measure(struct summary *s)
{
    const int rc = summary_sort_starts(s);
    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        struct span *p = &s->spans[i];
        const enum phase_kind kind = start_of(p);
        const int64_t from = kind < PHASE_KIND_MAX ? begin_of(s, kind, p) : -1;
        if (from >= 0)
            p->dur = p->ts > from ? p->ts - from : 0;
    }
    return rc;
}

static int summary_collect(struct summary *s)
{
    const json_t *e;
    size_t i;
    s->spans = calloc(json_array_size(s->events) + 1, sizeof(*s->spans));
    if (s->spans == NULL)
        return -ENOMEM;
    s->first_round = INT_MAX;
    s->last_round = -1;
    json_array_foreach (s->events, i, e) {
        const int pid = number_of(e, "pid", -1);
        const int round = number_of(json_object_get(e, "args"), "round", -1);
        if (pid == TRACE_PID_JOB && round >= 0 && round < ROUND_MAX) {
            s->first_round = round < s->first_round ? round : s->first_round;
            s->last_round = round > s->last_round ? round : s->last_round;
        }
        if (pid <= TRACE_PID_JOB || strcmp(text_of(e, "ph"), "M") == 0)
            continue;
        s->spans[s->n++] = (struct span){.name = text_of(e, "name"),
                                         .pid = pid,
                                         .tid = number_of(e, "tid", 0),
                                         .round = round,
                                         .ts = time_of(e, "ts"),
                                         .dur = time_of(e, "dur")};
    }
    return summary_measure(s);
}

static int by_duration(const void *a, const void *b)
{
    const struct span *const *x = a;
    const struct span *const *y = b;
    return ((*x)->dur > (*y)->dur) - ((*x)->dur < (*y)->dur);
}

/* Return the spans of a phase in `round` or in no round, ordered by duration; NULL: out of memory.
 * The caller frees the array. */
static const struct span **spans_of(const struct summary *s, const char *name, int round,
                                    size_t *ret_n)
{
    const struct span **v = calloc(s->n + 1, sizeof(*v));
    size_t n = 0;
    for (size_t i = 0; v != NULL && i < s->n; i++)
        if (strcmp(s->spans[i].name, name) == 0 &&
            (s->spans[i].round < 0 || s->spans[i].round == round))
            v[n++] = &s->spans[i];
    if (n > 1)
        qsort(v, n, sizeof(*v), by_duration);
    *ret_n = n;
    return v;
}

/* ---- text ---- */

static double seconds(int64_t us)
{
    return (double)us / 1e6;
}

/* Append a text of the file, which may be another user's, so that it cannot control the terminal.
 */
static void put_text(struct dd_buf *out, const char *text)
{
    char shown[300];
    (void)dd_buf_puts(out, dd_log_escape(shown, sizeof(shown), text, strlen(text)));
}

/* Append "rank 3 on node2" or "node2". */
static void put_place(const struct summary *s, struct dd_buf *out, const struct span *p)
{
    const int rank = trace_rank_of(p->tid);
    if (rank >= 0)
        (void)dd_buf_printf(out, "rank %d on ", rank);
    put_text(out, name_of(s, p->pid));
}

/* Append a phase to the table, or its name to `brief` if it was short on all nodes. */
static void put_phase(const struct summary *s, struct dd_buf *out, struct dd_buf *brief,
                      const char *name)
{
    size_t n;
    DD_AUTO(free) const struct span **v = spans_of(s, name, s->first_round, &n);
    if (n == 0)
        return;
    if (v[n - 1]->dur < SHORT_US) {
        (void)dd_buf_printf(brief, "%s%s", brief->len > 0 ? ", " : "", name);
        return;
    }
    (void)dd_buf_printf(out, "  %-13s %9.3f s %9.3f s  ", name, seconds(v[(n - 1) / 2]->dur),
                        seconds(v[n - 1]->dur));
    put_place(s, out, v[n - 1]);
    (void)dd_buf_puts(out, "\n");
}

/* True for phases of a start; the lines of the rounds show the phases of an end. */
static bool is_of_start(int kind)
{
    return kind != PHASE_STOP && kind != PHASE_RESTART && kind != PHASE_SPAWNED &&
           kind != PHASE_WORKER;
}

static void put_phases(const struct summary *s, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf brief = DD_BUF_INIT(1024);
    DD_AUTO(buf) struct dd_buf table = DD_BUF_INIT(1 << 16);
    for (int kind = 0; kind < PHASE_KIND_MAX; kind++)
        if (is_of_start(kind))
            put_phase(s, &table, &brief, phase_rows[kind].name);
    const char *rows = dd_buf_str(&table);
    const char *names = dd_buf_str(&brief);
    if (table.len > 0 && rows != NULL)
        (void)dd_buf_printf(out, "  %-13s %11s %11s\n%s", "phase", "median", "slowest", rows);
    if (brief.len > 0 && names != NULL)
        (void)dd_buf_printf(out, "  below 1 ms on all nodes: %s\n", names);
    if (table.len + brief.len == 0)
        (void)dd_buf_puts(out, "no node has sent its phases\n");
}

/* Find the times of the first and the last fork of the first round. False: there is none. */
static bool find_workers(const struct summary *s, int64_t *ret_first, int64_t *ret_last)
{
    *ret_first = INT64_MAX;
    *ret_last = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct span *p = &s->spans[i];
        if (!is_named(p, PHASE_SPAWNED) || p->round != s->first_round)
            continue;
        *ret_first = p->ts < *ret_first ? p->ts : *ret_first;
        *ret_last = p->ts > *ret_last ? p->ts : *ret_last;
    }
    return *ret_last > 0;
}

/* Append the times of the first and the last worker of the first round, and of the last node. */
static void put_start(const struct summary *s, struct dd_buf *out)
{
    int64_t first;
    int64_t last;
    const struct span *latest = NULL;
    int nodes = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct span *p = &s->spans[i];
        const bool joins = is_named(p, PHASE_JOIN) && p->round == s->first_round;
        nodes += joins;
        if (joins && (latest == NULL || p->ts > latest->ts))
            latest = p;
    }
    if (find_workers(s, &first, &last))
        (void)dd_buf_printf(out, "from exec to the first worker: %.3f s; to the last: %.3f s\n",
                            seconds(first - s->exec), seconds(last - s->exec));
    if (latest == NULL || nodes < 2)
        return;
    (void)dd_buf_puts(out, "last node: ");
    put_text(out, name_of(s, latest->pid));
    (void)dd_buf_printf(out, ", ready %.3f s after exec\n", seconds(latest->ts - s->exec));
}

static void put_slowest(const struct summary *s, struct dd_buf *out, const char *what,
                        enum phase_kind kind, int round)
{
    size_t n;
    DD_AUTO(free) const struct span **v = spans_of(s, phase_rows[kind].name, round, &n);
    if (n == 0)
        return;
    (void)dd_buf_printf(out, "; %s %.3f s (slowest: ", what, seconds(v[n - 1]->dur));
    put_place(s, out, v[n - 1]);
    (void)dd_buf_puts(out, ")");
}

/* Append the time from the first failure of a round to the last fork of the next round. */
static void put_recovery(const struct summary *s, struct dd_buf *out, const json_t *exit_event,
                         int round)
{
    int64_t last = 0;
    for (size_t i = 0; i < s->n; i++)
        if (is_named(&s->spans[i], PHASE_SPAWNED) && s->spans[i].round == round + 1 &&
            s->spans[i].ts > last)
            last = s->spans[i].ts;
    if (last > 0 && exit_event != NULL)
        (void)dd_buf_printf(out, "; workers again after %.3f s",
                            seconds(last - time_of(exit_event, "ts")));
}

/* Return the arguments of `failed`, the first failure of a round; NULL: there is none, or no rank
 * is to blame. */
static const json_t *failure_of_rank(const json_t *failed)
{
    const json_t *why = json_object_get(failed, "args");
    return failed != NULL && !failure_is_job_hung(text_of(why, "text")) ? why : NULL;
}

static void put_failure(struct dd_buf *out, const json_t *failed)
{
    const json_t *why = failure_of_rank(failed);
    if (failed == NULL)
        return;
    if (why == NULL) {
        (void)dd_buf_puts(out, ", the job hung");
        return;
    }
    (void)dd_buf_printf(out, ", rank %d on ", number_of(why, "rank", -1));
    put_text(out, text_of(why, "node"));
    (void)dd_buf_puts(out, " failed");
}

static void put_round(const struct summary *s, struct dd_buf *out, int round)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "round %d", round);
    const json_t *span = event_of(s, name, round);
    const json_t *failed = event_of(s, "exit", round);
    (void)dd_buf_puts(out, name);
    if (span != NULL)
        (void)dd_buf_printf(out, ": %.3f s, workers: %d", seconds(time_of(span, "dur")),
                            number_of(json_object_get(span, "args"), "workers", 0));
    else
        (void)dd_buf_puts(out, ": its end is not in the file");
    put_failure(out, failed);
    put_slowest(s, out, "stop", PHASE_STOP, round);
    put_slowest(s, out, "wait for the next plan", PHASE_RESTART, round + 1);
    put_recovery(s, out, failed, round);
    (void)dd_buf_puts(out, "\n");
}

static void put_rounds(const struct summary *s, struct dd_buf *out)
{
    for (int r = s->first_round; r <= s->last_round; r++) {
        if (r == s->first_round + ROUNDS_SHOWN - 1 && r < s->last_round - 1) {
            (void)dd_buf_printf(out, "(%d further rounds)\n", s->last_round - r);
            r = s->last_round;
        }
        put_round(s, out, r);
    }
}

/* ---- JSON ---- */

static json_t *summary_clean(const char *text)
{
    DD_AUTO(free) char *clean = strdup(text);
    return clean != NULL ? json_string(dd_utf8_clean(clean)) : NULL;
}

/* Return a phase as JSON. v: its n spans, sorted by duration; n > 0. */
static json_t *summary_phase(const struct summary *s, const struct span *const *v, size_t n)
{
    const struct span *slowest = v[n - 1];
    const int rank = trace_rank_of(slowest->tid);
    return json_pack("{s:s,s:i,s:f,s:f,s:o,s:o}", "phase", slowest->name, "count", (int)n, "median",
                     seconds(v[(n - 1) / 2]->dur), "slowest", seconds(slowest->dur), "node",
                     summary_clean(name_of(s, slowest->pid)), "rank",
                     rank >= 0 ? json_integer(rank) : json_null());
}

/* Append the phase to the list if there is one in that round. */
static void summary_add_phase(const struct summary *s, json_t *list, enum phase_kind kind,
                              int round)
{
    size_t n;
    DD_AUTO(free) const struct span **v = spans_of(s, phase_rows[kind].name, round, &n);
    if (n > 0)
        (void)json_array_append_new(list, summary_phase(s, v, n));
}

static json_t *summary_round(const struct summary *s, int round)
{
    char name[32];
    json_t *phases = json_array();
    (void)snprintf(name, sizeof(name), "round %d", round);
    const json_t *span = event_of(s, name, round);
    const json_t *why = failure_of_rank(event_of(s, "exit", round));
    summary_add_phase(s, phases, PHASE_STOP, round);
    summary_add_phase(s, phases, PHASE_RESTART, round + 1);
    return json_pack(
        "{s:i,s:o,s:o,s:o,s:o,s:o}", "round", round, "seconds",
        span != NULL ? json_real(seconds(time_of(span, "dur"))) : json_null(), "workers",
        span != NULL ? json_integer(number_of(json_object_get(span, "args"), "workers", 0))
                     : json_null(),
        "failed_rank", why != NULL ? json_integer(number_of(why, "rank", -1)) : json_null(),
        "failed_node", why != NULL ? summary_clean(text_of(why, "node")) : json_null(), "phases",
        phases);
}

static json_t *summary_since_exec(const struct summary *s, bool known, int64_t time)
{
    return known ? json_real(seconds(time - s->exec)) : json_null();
}

static json_t *summary_object(const struct summary *s, const json_t *exec, const json_t *end)
{
    int64_t first;
    int64_t last;
    const bool started = find_workers(s, &first, &last);
    json_t *phases = json_array();
    json_t *rounds = json_array();
    const int rounds_n = s->last_round - s->first_round + 1;
    const int shown = rounds_n < ROUNDS_IN_JSON ? rounds_n : ROUNDS_IN_JSON;
    for (int kind = 0; kind < PHASE_KIND_MAX; kind++)
        if (is_of_start(kind))
            summary_add_phase(s, phases, (enum phase_kind)kind, s->first_round);
    for (int r = 0; s->last_round >= 0 && r < shown; r++)
        (void)json_array_append_new(rounds, summary_round(s, s->first_round + r));
    return json_pack("{s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:i}", "version", 1, "job",
                     summary_clean(text_of(json_object_get(exec, "args"), "job")), "seconds",
                     summary_since_exec(s, end != NULL, time_of(end, "ts")), "code",
                     end != NULL ? json_integer(number_of(json_object_get(end, "args"), "code", 0))
                                 : json_null(),
                     "first_worker", summary_since_exec(s, started, first), "last_worker",
                     summary_since_exec(s, started, last), "phases", phases, "rounds", rounds,
                     "rounds_left_out", s->last_round >= 0 ? rounds_n - shown : 0);
}

/* ---- both ---- */

static void summary_put_text(const struct summary *s, struct dd_buf *out, const json_t *exec,
                             const json_t *end)
{
    (void)dd_buf_puts(out, "job ");
    put_text(out, text_of(json_object_get(exec, "args"), "job"));
    if (end != NULL)
        (void)dd_buf_printf(out, ": %.3f s, exit code %d", seconds(time_of(end, "ts") - s->exec),
                            number_of(json_object_get(end, "args"), "code", 0));
    (void)dd_buf_puts(out, "\n");
    put_start(s, out);
    put_phases(s, out);
    put_rounds(s, out);
}

static int summary_put_json(const struct summary *s, struct dd_buf *out, const json_t *exec,
                            const json_t *end)
{
    json_t *o = summary_object(s, exec, end);
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9))
                                         : NULL;
    json_decref(o);
    return text == NULL ? -ENOMEM : dd_buf_printf(out, "%s\n", text);
}

static int summarize(struct dd_buf *out, const char *text, size_t n, bool as_json,
                     struct dd_err *err)
{
    json_t *all = summary_parse(text, n);
    struct summary s = {.events = all};
    const json_t *exec = json_is_array(all) ? event_of(&s, "exec", -1) : NULL;
    const json_t *end = json_is_array(all) ? event_of(&s, "finish", -1) : NULL;
    int rc = 0;
    if (exec == NULL)
        rc = dd_err_set(err, -EINVAL, "not a timeline of ddrun: %s",
                        json_is_array(all) ? "no event 'exec'" : "not a JSON array");
    else if (summary_collect(&s) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    if (rc == 0) {
        s.exec = time_of(exec, "ts");
        if (!as_json)
            summary_put_text(&s, out, exec, end);
        else if (summary_put_json(&s, out, exec, end) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    free(s.starts);
    free(s.spans);
    json_decref(all);
    return rc;
}

int timeline_summary(struct dd_buf *out, const char *text, size_t n, struct dd_err *err)
{
    return summarize(out, text, n, false, err);
}

int timeline_summary_json(struct dd_buf *out, const char *text, size_t n, struct dd_err *err)
{
    return summarize(out, text, n, true, err);
}
