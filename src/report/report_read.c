#include "report/report_read.h"

#include "report/report_inner.h"
#include "report/report_lines_inner.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LINE_MAX_BYTES = 400,
    NAME_MAX_BYTES = 2 * LINE_MAX_BYTES, /* of a node or path; sanitizing may lengthen it */
    TEXT_MAX_BYTES = 10000, /* of a message, traceback or output: the most that an agent sends */
    TEXT_LINES = 100,
    LONGEST_S = 1000000000,
    COLLECTIVE_RANKS_MAX = 1 << 17, /* comparing more ranks takes too long */
};
#define NS_PER_S INT64_C(1000000000)
#define LATEST_S INT64_C(8000000000) /* in the year 2223 */
/* Start of the job on the clock of the other times, in ns. It is not 0, which means unknown. */
#define READ_START UINT64_C(1000000000)

/* State of reading a file: the first error. */
struct reader {
    struct dd_err *err;
    int rc;
};

static void reader_fail(struct reader *rd, const char *name)
{
    if (rd->rc == 0)
        rd->rc = dd_err_set(rd->err, -EINVAL, "not a report of ddrun: '%s' is missing or invalid",
                            name);
}

static void reader_no_memory(struct reader *rd)
{
    rd->rc = dd_err_set(rd->err, -ENOMEM, "out of memory");
}

/* Return an integer from least to INT_MAX; 0: invalid, or optional and absent. Fields that older
 * reports lack are optional. */
static int read_int(struct reader *rd, const json_t *o, const char *name, int least, bool optional)
{
    const json_t *v = json_object_get(o, name);
    const json_int_t n = json_integer_value(v);
    if (v == NULL && optional)
        return 0;
    if (!json_is_integer(v) || n < least || n > INT_MAX) {
        reader_fail(rd, name);
        return 0;
    }
    return (int)n;
}

/* Convert a time from seconds after the start to nanoseconds on the clock of the report; return
 * `missing` if it is null or absent. */
static uint64_t read_time(struct reader *rd, const json_t *o, const char *name, uint64_t missing)
{
    const json_t *v = json_object_get(o, name);
    const double s = json_number_value(v);
    if (v == NULL || json_is_null(v))
        return missing;
    if (!json_is_number(v) || !(s >= 0 && s <= LONGEST_S)) {
        reader_fail(rd, name);
        return 0;
    }
    return READ_START + (uint64_t)(s * 1e9 + 0.5);
}

/* Return the start of the job in nanoseconds since 1970. Older reports have it in seconds, as text.
 */
static uint64_t read_start(struct reader *rd, const json_t *o)
{
    const json_t *v = json_object_get(o, "start_ns");
    const char *text = json_string_value(json_object_get(o, "start"));
    struct tm tm = {0};
    const json_int_t n = json_integer_value(v);
    json_int_t s = n / NS_PER_S;
    if (v == NULL && text != NULL && strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm) != NULL)
        s = (json_int_t)timegm(&tm);
    if ((v != NULL && !json_is_integer(v)) || n < 0 || s < 0 || s >= LATEST_S) {
        reader_fail(rd, "start");
        return 0;
    }
    return v != NULL ? (uint64_t)n : (uint64_t)(s * NS_PER_S);
}

/* Append a text of one line without what controls a terminal, and return the content of out; "":
 * the text is null, absent or invalid. */
static const char *read_line(struct reader *rd, const json_t *o, const char *name,
                             struct dd_buf *out)
{
    const json_t *v = json_object_get(o, name);
    if (v == NULL || json_is_null(v))
        return "";
    if (!json_is_string(v)) {
        reader_fail(rd, name);
        return "";
    }
    const int rc = report_put_line(out, json_string_value(v), json_string_length(v),
                                   LINE_MAX_BYTES);
    const char *text = rc == 0 ? dd_buf_str(out) : NULL;
    if (text == NULL)
        reader_no_memory(rd);
    return text != NULL ? text : "";
}

/* As read_line(), for a text of several lines or an array of lines. */
static const char *read_text(struct reader *rd, const json_t *o, const char *name,
                             struct dd_buf *out)
{
    const json_t *v = json_object_get(o, name);
    const size_t lines = json_is_array(v) ? json_array_size(v) : 1;
    int rc = 0;
    if (v == NULL || json_is_null(v))
        return "";
    for (size_t i = 0; i < lines && i < TEXT_LINES && rc == 0; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        const char *s = json_string_value(one);
        if (s == NULL) {
            reader_fail(rd, name);
            return "";
        }
        rc = report_put_block(out, "", s[0] != '\0' ? s : "\n", LINE_MAX_BYTES);
    }
    if (rc == 0 && out->len > 0)
        out->len--; /* the newline of the last line */
    const char *text = rc == 0 || rc == -EMSGSIZE ? dd_buf_str(out) : NULL;
    if (text == NULL)
        reader_no_memory(rd);
    return text != NULL ? text : "";
}

/* The texts of a failure while it is read. */
struct read_texts {
    struct dd_buf node, error, trace, tail, log;
};

static void dd_auto_read_texts(struct read_texts *t)
{
    dd_buf_done(&t->node);
    dd_buf_done(&t->error);
    dd_buf_done(&t->trace);
    dd_buf_done(&t->tail);
    dd_buf_done(&t->log);
}

static void read_failure(struct reader *rd, struct report *r, const json_t *o)
{
    DD_AUTO(read_texts) struct read_texts t = {.node = DD_BUF_INIT(NAME_MAX_BYTES),
                                               .error = DD_BUF_INIT(TEXT_MAX_BYTES),
                                               .trace = DD_BUF_INIT(TEXT_MAX_BYTES),
                                               .tail = DD_BUF_INIT(TEXT_MAX_BYTES),
                                               .log = DD_BUF_INIT(NAME_MAX_BYTES)};
    const char *signal = json_string_value(json_object_get(o, "signal"));
    struct report_exit e = {.rank = read_int(rd, o, "rank", 0, false),
                            .local_rank = read_int(rd, o, "local_rank", 0, false),
                            .pid = read_int(rd, o, "pid", 0, false),
                            .code = read_int(rd, o, "code", 0, false),
                            .oom = json_is_true(json_object_get(o, "out_of_memory")),
                            .at_ns = read_time(rd, o, "at", READ_START),
                            .node = read_line(rd, o, "node", &t.node),
                            .error = read_text(rd, o, "message", &t.error),
                            .trace = read_text(rd, o, "traceback", &t.trace),
                            .tail = read_text(rd, o, "stderr", &t.tail),
                            .log = read_line(rd, o, "log", &t.log)};
    if (signal != NULL && e.code > 128 && e.code <= 128 + 64)
        e.signal = e.code - 128;
    if (rd->rc == 0 && report_exit_add(r, &e, true) < 0)
        reader_no_memory(rd);
}

static void read_rounds(struct reader *rd, struct report *r, const json_t *a)
{
    for (size_t i = 0; i < json_array_size(a) && i < REPORT_ROUNDS && rd->rc == 0; i++) {
        DD_AUTO(buf) struct dd_buf cause = DD_BUF_INIT(REPORT_TEXT_MAX);
        const json_t *o = json_array_get(a, i);
        struct report_round *k = &r->rounds[r->nrounds++];
        *k = (struct report_round){.round = read_int(rd, o, "round", 0, false),
                                   .start_ns = read_time(rd, o, "started", READ_START),
                                   .end_ns = read_time(rd, o, "ended", READ_START)};
        const char *text = read_text(rd, o, "cause", &cause);
        if (text[0] != '\0' && (k->cause = strdup(text)) == NULL)
            reader_no_memory(rd);
    }
    if (r->nrounds > 0)
        r->round_ns = r->rounds[r->nrounds - 1].start_ns;
}

/* Read the warnings; older reports have none. */
static void read_warnings(struct reader *rd, struct report *r, const json_t *a)
{
    for (size_t i = 0; i < json_array_size(a) && i < REPORT_WARNINGS && rd->rc == 0; i++) {
        DD_AUTO(buf) struct dd_buf node = DD_BUF_INIT(NAME_MAX_BYTES);
        DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(REPORT_TEXT_MAX);
        const json_t *o = json_array_get(a, i);
        const char *name = read_line(rd, o, "node", &node);
        const char *what = read_line(rd, o, "text", &text);
        if (rd->rc == 0 && report_warning_add(r, name, what) < 0)
            reader_no_memory(rd);
    }
}

static void read_stragglers(struct reader *rd, struct report *r, const json_t *a)
{
    for (size_t i = 0; i < json_array_size(a) && i < REPORT_STRAGGLERS && rd->rc == 0; i++) {
        DD_AUTO(buf) struct dd_buf node = DD_BUF_INIT(NAME_MAX_BYTES);
        DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(REPORT_TEXT_MAX);
        const json_t *o = json_array_get(a, i);
        const char *name = read_line(rd, o, "node", &node);
        const char *what = read_line(rd, o, "text", &text);
        const int rank = read_int(rd, o, "rank", 0, false);
        const uint64_t from = read_time(rd, o, "from", READ_START);
        if (rd->rc == 0 && report_straggler_add(r, name, rank, what, from) < 0)
            reader_no_memory(rd);
        if (rd->rc != 0)
            return;
        r->stragglers[i].round = read_int(rd, o, "round", 0, false);
        r->stragglers[i].to_ns = read_time(rd, o, "to", 0);
    }
}

static void read_charges(struct reader *rd, struct report *r, const json_t *a)
{
    for (size_t i = 0; i < json_array_size(a) && i < REPORT_CHARGES && rd->rc == 0; i++) {
        DD_AUTO(buf) struct dd_buf node = DD_BUF_INIT(NAME_MAX_BYTES);
        DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(REPORT_TEXT_MAX);
        const json_t *o = json_array_get(a, i);
        const char *name = read_line(rd, o, "node", &node);
        const char *why = read_line(rd, o, "text", &text);
        const int n = read_int(rd, o, "charges", 1, false);
        if (rd->rc == 0 && report_charge_set(r, name, n, why) < 0)
            reader_no_memory(rd);
    }
}

static size_t read_count(const struct flight_groups *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        n += rank_set_count(&g->v[i].ranks);
    return n;
}

/* Read the stacks, in the form in which nodes send them; null if none were read, and absent in
 * older reports. */
static void read_stacks(struct reader *rd, struct report *r, const json_t *o)
{
    DD_AUTO(stacks) struct stacks found = {0};
    struct dd_err err = {0};
    if (o == NULL || json_is_null(o) || rd->rc < 0)
        return;
    DD_AUTO(free) char *text = json_is_object(o) ? json_dumps(o, JSON_COMPACT) : NULL;
    const int rc = text != NULL ? stacks_parse(&found, text, 0, -1, &err) : -EPROTO;
    if (rc == -ENOMEM)
        reader_no_memory(rd);
    else if (rc < 0)
        reader_fail(rd, "stacks");
    if (read_count(&found.collectives) > COLLECTIVE_RANKS_MAX)
        flight_groups_done(&found.collectives);
    stacks_sort(&found);
    report_stacks_take(r, &found);
}

/* True if a worker's failure ended the job. In older reports, which lack the culprit, the cause is
 * then the sentence about that failure. */
static bool read_by_itself(const json_t *o, const struct report *r)
{
    DD_AUTO(buf) struct dd_buf sentence = DD_BUF_INIT(REPORT_TEXT_MAX);
    const json_t *culprit = json_object_get(o, "culprit");
    if (culprit != NULL) /* an unfit node as the culprit has no index of a failure */
        return json_is_integer(json_object_get(culprit, "failure"));
    return r->nkept > 0 && report_sentence(&r->exits[0], &sentence) == 0 && sentence.len > 0 &&
           strcmp(dd_buf_str(&sentence), r->cause) == 0;
}

static void read_others(struct reader *rd, struct report *r, const json_t *o)
{
    DD_AUTO(buf) struct dd_buf node = DD_BUF_INIT(REPORT_TEXT_MAX);
    const json_t *first = json_object_get(o, "first_ended_with_0"); /* older reports lack it */
    struct report_ends ends = {.left = read_int(rd, o, "ended_with_0", 0, false),
                               .stopped = read_int(rd, o, "stopped", 0, false),
                               .killed = read_int(rd, o, "killed", 0, false)};
    if (json_is_object(first)) {
        ends.first_node = read_line(rd, first, "node", &node);
        ends.first_rank = read_int(rd, first, "rank", 0, false);
        ends.first_ns = read_time(rd, first, "at", READ_START);
    }
    if (rd->rc == 0 && report_ends_add(r, &ends) < 0)
        reader_no_memory(rd);
}

static void read_verdict(struct reader *rd, struct report *r, const json_t *o)
{
    DD_AUTO(buf) struct dd_buf verdict = DD_BUF_INIT(REPORT_TEXT_MAX);
    const char *text = read_line(rd, o, "verdict", &verdict);
    if (rd->rc == 0 && text[0] != '\0' && report_verdict_set(r, text) < 0)
        reader_no_memory(rd);
}

static void read_report(struct reader *rd, struct report *r, const json_t *o)
{
    DD_AUTO(buf) struct dd_buf cause = DD_BUF_INIT(REPORT_TEXT_MAX);
    const json_t *failures = json_object_get(o, "failures");
    const int version = read_int(rd, o, "version", 1, false);
    if (version > 1 && rd->rc == 0)
        rd->rc = dd_err_set(rd->err, -EINVAL,
                            "unsupported version %d of a report of ddrun: expected 1", version);
    r->cfg = (struct report_cfg){.nnodes = read_int(rd, o, "nodes", 0, false),
                                 .max_restarts = read_int(rd, o, "max_restarts", 0, true),
                                 .start_ns = READ_START,
                                 .start_real_ns = read_start(rd, o)};
    r->round = read_int(rd, o, "restarts", 0, false);
    r->world_size = read_int(rd, o, "world_size", 0, false);
    if (!json_is_array(failures) || !json_is_array(json_object_get(o, "rounds")))
        reader_fail(rd, "failures' or 'rounds");
    for (size_t i = 0; i < json_array_size(failures) && rd->rc == 0; i++)
        read_failure(rd, r, json_array_get(failures, i));
    const int failed = read_int(rd, o, "failed", 0, false);
    r->nfailed = failed > r->nkept ? failed : r->nkept;
    read_others(rd, r, json_object_get(o, "others"));
    read_warnings(rd, r, json_object_get(o, "warnings"));
    read_stragglers(rd, r, json_object_get(o, "stragglers"));
    read_charges(rd, r, json_object_get(o, "charges"));
    read_stacks(rd, r, json_object_get(o, "stacks"));
    const char *why = read_text(rd, o, "cause", &cause);
    read_verdict(rd, r, o);
    if (rd->rc == 0)
        read_rounds(rd, r, json_object_get(o, "rounds"));
    report_finish(r, why, read_int(rd, o, "code", 0, false), read_time(rd, o, "ended", READ_START));
    const uint64_t started = read_time(rd, o, "round_started", 0);
    r->round_ns = started != 0 ? started : r->round_ns;
    if (r->cause == NULL)
        reader_no_memory(rd);
    else
        r->by_itself = read_by_itself(o, r);
}

/* ---- text ---- */

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static int put_job(const struct report *r, const char *job, struct dd_buf *out)
{
    char start[REPORT_TIME];
    report_time(r, r->cfg.start_ns, start);
    int rc = dd_buf_printf(out, "job %s: %d node%s, %d worker%s", job[0] != '\0' ? job : "unknown",
                           r->cfg.nnodes, plural(r->cfg.nnodes), r->world_size,
                           plural(r->world_size));
    if (rc == 0)
        rc = dd_buf_printf(out, ", started %s, %s after %.3f s", start,
                           r->code == 0 ? "succeeded" : "failed",
                           report_seconds(r->cfg.start_ns, r->end_ns));
    if (rc == 0 && r->round > 0)
        rc = dd_buf_printf(out, ", %d restart%s", r->round, plural(r->round));
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

static int put_restarts(const struct report *r, struct dd_buf *out)
{
    int rc = 0;
    for (int i = 0; i < r->nrounds && rc == 0; i++) {
        const struct report_round *k = &r->rounds[i];
        if (k->round >= r->round)
            continue;
        rc = dd_buf_printf(out, "round %d ended after %.3f s: %s\n", k->round,
                           report_seconds(k->start_ns, k->end_ns),
                           k->cause != NULL ? k->cause : "unknown cause");
    }
    return rc;
}

static int put_report(const struct report *r, const char *job, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(REPORT_TEXT_MAX);
    int rc = put_job(r, job, out);
    if (rc == 0)
        rc = put_restarts(r, out);
    if (rc == 0)
        rc = report_text(r, &text);
    if (rc == -EMSGSIZE) /* print what fits, as ddrun does */
        rc = 0;
    if (rc == 0 && text.len > 0)
        rc = dd_buf_puts(out, "error: ");
    if (rc == 0)
        rc = dd_buf_append(out, text.data, text.len);
    return rc == 0 && text.len > 0 && text.data[text.len - 1] != '\n' ? dd_buf_puts(out, "\n") : rc;
}

int report_read(const char *text, size_t n, struct dd_buf *out, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf job = DD_BUF_INIT(NAME_MAX_BYTES);
    struct reader rd = {.err = err};
    struct report *r = NULL;
    json_error_t where;
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(o)) {
        json_decref(o);
        return dd_err_set(err, -EINVAL, "not a report of ddrun: not a JSON object");
    }
    if (report_new(&r, &(struct report_cfg){0}) < 0)
        reader_no_memory(&rd);
    if (rd.rc == 0)
        read_report(&rd, r, o);
    const char *name = read_line(&rd, o, "job", &job);
    if (rd.rc == 0 && put_report(r, name, out) < 0)
        reader_no_memory(&rd);
    report_free(r);
    json_decref(o);
    return rd.rc;
}
