/* Writes the report as JSON; docs/json.md describes the members. */
#include "report/report_inner.h"

#include "base/auto.h"
#include "base/sig.h"
#include "base/utf8.h"
#include "report/causes.h"
#include "report/culprit.h"
#include "report/error_file.h"
#include "report/report_lines_inner.h"
#include "report/suspects.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { STACKS_MOST = 40000, STACKS_BRIEF = 15000 };

enum { WITH_OUTPUT = 8 }; /* number of failures that include output of the worker */

/* Return a text as JSON; null if it is NULL or "", which mean unknown. */
static json_t *report_json_text(const char *s)
{
    if (s == NULL || s[0] == '\0')
        return json_null();
    DD_AUTO(free) char *clean = strdup(s);
    return clean != NULL ? json_string(dd_utf8_clean(clean)) : NULL;
}

static json_t *lines(const char *s)
{
    json_t *a = json_array();
    const char *line;
    size_t len;
    while ((line = report_next_line(&s, &len)) != NULL) {
        DD_AUTO(free) char *one = strndup(line, len);
        if (one == NULL || json_array_append_new(a, json_string(dd_utf8_clean(one))) < 0)
            break;
    }
    return a;
}

static json_t *seconds(const struct report *r, uint64_t ns)
{
    return ns == 0 ? json_null() : json_real(report_seconds(r->cfg.start_ns, ns));
}

/* Return the class of the exception with which the message starts; null: there is none. */
static json_t *class_of(const char *error)
{
    size_t n = error != NULL ? strcspn(error, ":\n") : 0;
    return n > 0 && report_is_exception(error, n) ? json_stringn(error, n) : json_null();
}

/* Return the part of the sentence about a failure that follows the colon; null: there is none. */
static json_t *why_of(const struct report_exit *e)
{
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(REPORT_TEXT_MAX);
    return report_why(e, &why) < 0 ? NULL : report_json_text(dd_buf_str(&why));
}

static json_t *failure(const struct report *r, const struct report_exit *e, bool message,
                       bool output)
{
    char at[REPORT_TIME];
    const struct failure_cause *known = failure_cause_find(e);
    report_time(r, e->at_ns, at);
    return json_pack("{s:i s:i s:o s:i s:i s:o s:b s:s s:o s:o s:o s:o s:o s:o s:o s:o s:b}",
                     "rank", e->rank, "local_rank", e->local_rank, "node",
                     report_json_text(e->node), "pid", e->pid, "code", e->code, "signal",
                     e->signal > 0 ? json_sprintf("SIG%s", dd_signal_name(e->signal)) : json_null(),
                     "out_of_memory", e->oom, "time", at, "at", seconds(r, e->at_ns), "exception",
                     class_of(e->error), "message", report_json_text(message ? e->error : ""),
                     "why", message ? why_of(e) : json_null(), "traceback",
                     lines(output ? e->trace : ""), "stderr", lines(output ? e->tail : ""), "log",
                     report_json_text(e->log), "known_cause",
                     report_json_text(known != NULL ? known->id : ""), "cascade",
                     known != NULL && (known->flags & CAUSE_CASCADE) != 0);
}

/* Return the node whose health check has ended the job, as a culprit; null: none has. */
static json_t *unfit_culprit(const struct report_unfit *u)
{
    return u->node == NULL ? json_null()
                           : json_pack("{s:n s:n s:n s:o s:s s:o s:o}", "failure", "rank", "ranks",
                                       "node", report_json_text(u->node), "blame", "node", "check",
                                       report_json_text(u->check), "why", report_json_text(u->why));
}

/* Return the culprit of the last round: null if neither a worker's failure nor a health check has
 * ended it. */
static json_t *culprit(const struct report *r, const struct report_exit *e)
{
    static const char *const blames[] = {"worker", "sender", "unknown"};
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(REPORT_TEXT_MAX);
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(STACKS_RANKS_TEXT);
    enum report_blame blame;
    if (e == NULL)
        return unfit_culprit(&r->unfit);
    if (report_culprit_why(r, e, &ranks, &blame, &why) < 0)
        return NULL;
    const bool others = ranks.n > 0; /* the ranks for which the others waited are to blame */
    const bool known = others || blame != REPORT_BLAME_UNKNOWN || !report_is_of_job(e);
    if (!others && known && rank_set_add(&ranks, e->rank, e->rank) < 0)
        return NULL;
    (void)rank_set_text(&ranks, &list);
    const int rank = known ? ranks.v[0].first : -1;
    return json_pack("{s:i s:o s:o s:o s:s s:n s:o}", "failure", (int)(e - r->exits), "rank",
                     known ? json_integer(rank) : json_null(), "ranks",
                     report_json_text(dd_buf_str(&list)), "node",
                     report_json_text(others  ? report_node_of(r, rank)
                                      : known ? e->node
                                              : ""),
                     "blame", blames[blame], "check", "why", report_json_text(dd_buf_str(&why)));
}

static json_t *first_to_end(const struct report *r)
{
    const struct report_ends *n = &r->ends;
    if (n->first_node == NULL)
        return json_null();
    return json_pack("{s:i s:o s:o}", "rank", n->first_rank, "node",
                     report_json_text(n->first_node), "at", seconds(r, n->first_ns));
}

/* Add the members that `ddctl report` needs to print the report again, and the counts of the other
 * workers. */
static int add_rest(json_t *o, const struct report *r, const struct report_exit *e)
{
    const struct failure_cause *known = e != NULL ? report_cause(r, e) : NULL;
    const int earlier = e != NULL ? (int)(e - r->exits) : 0;
    return json_object_update_new(
        o, json_pack("{s:o s:o s:o s:i s:I s:o s:{s:i s:o s:i s:i s:i s:i}}", "known_cause",
                     report_json_text(known != NULL ? known->id : ""), "known_cause_text",
                     report_json_text(known != NULL ? known->cause : ""), "culprit", culprit(r, e),
                     "max_restarts", r->cfg.max_restarts, "start_ns",
                     (json_int_t)r->cfg.start_real_ns, "round_started", seconds(r, r->round_ns),
                     "others", "ended_with_0", r->ends.left, "first_ended_with_0", first_to_end(r),
                     "stopped", r->ends.stopped, "killed", r->ends.killed, "failed_earlier",
                     earlier, "failed_later", e != NULL ? r->nfailed - 1 - earlier : 0));
}

static json_t *failures(const struct report *r, bool brief)
{
    json_t *a = json_array();
    for (int i = 0; i < r->nkept; i++)
        (void)json_array_append_new(
            a, failure(r, &r->exits[i], i < WITH_OUTPUT || !brief, i < WITH_OUTPUT && !brief));
    return a;
}

static json_t *rounds(const struct report *r)
{
    json_t *a = json_array();
    for (int i = 0; i < r->nrounds; i++) {
        const struct report_round *k = &r->rounds[i];
        (void)json_array_append_new(
            a, json_pack("{s:i s:o s:o s:o}", "round", k->round, "started", seconds(r, k->start_ns),
                         "ended", seconds(r, k->end_ns), "cause", report_json_text(k->cause)));
    }
    return a;
}

/* Return the stacks; null: none were read, or they are too long. */
static json_t *stacks(const struct report *r, bool brief)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(STACKS_MOST);
    if ((r->stacks.n == 0 && !r->stacks.ras.answered) ||
        stacks_write(&r->stacks, brief ? STACKS_BRIEF : STACKS_MOST - 1, &text) < 0)
        return json_null();
    return json_loadb((const char *)text.data, text.len, 0, NULL);
}

static json_t *warnings(const struct report *r)
{
    json_t *a = json_array();
    for (int i = 0; i < r->nwarnings; i++)
        (void)json_array_append_new(a, json_pack("{s:o s:o}", "node",
                                                 report_json_text(r->warnings[i].node), "text",
                                                 report_json_text(r->warnings[i].text)));
    return a;
}

static json_t *stragglers(const struct report *r)
{
    json_t *a = json_array();
    for (int i = 0; i < r->nstragglers; i++) {
        const struct report_straggler *g = &r->stragglers[i];
        (void)json_array_append_new(
            a, json_pack("{s:i s:i s:o s:o s:o s:o}", "round", g->round, "rank", g->rank, "node",
                         report_json_text(g->node), "text", report_json_text(g->text), "from",
                         seconds(r, g->from_ns), "to", seconds(r, g->to_ns)));
    }
    return a;
}

static json_t *charges(const struct report *r)
{
    json_t *a = json_array();
    for (int i = 0; i < r->ncharges; i++)
        (void)json_array_append_new(
            a, json_pack("{s:o s:i s:o}", "node", report_json_text(r->charges[i].node), "charges",
                         r->charges[i].n, "text", report_json_text(r->charges[i].why)));
    return a;
}

int report_json(const struct report *r, bool brief, struct dd_buf *out)
{
    const struct report_exit *e = report_first_failure(r);
    const char *tip = e != NULL ? report_tip(r, e) : NULL;
    DD_AUTO(buf) struct dd_buf sentence = DD_BUF_INIT(REPORT_TEXT_MAX);
    if (e != NULL && report_sentence(e, &sentence) < 0)
        return -ENOMEM;
    char start[REPORT_TIME];
    report_time(r, r->cfg.start_ns, start);
    json_t *o = json_pack("{s:i s:o s:b s:i s:o s:o s:i s:i s:i s:s s:o s:o s:o s:i s:o}",
                          "version", 1, "job", report_json_text(r->cfg.job_id), "ok", r->code == 0,
                          "code", r->code, "cause",
                          report_json_text(e != NULL ? dd_buf_str(&sentence) : r->cause),
                          "what_to_do", report_json_text(tip != NULL ? tip : ""), "nodes",
                          r->cfg.nnodes, "world_size", r->world_size, "restarts", r->round, "start",
                          start, "ended", seconds(r, r->end_ns), "rounds", rounds(r), "failures",
                          failures(r, brief), "failed", r->nfailed, "warnings", warnings(r));
    if (o != NULL &&
        (add_rest(o, r, e) < 0 || json_object_set_new(o, "stragglers", stragglers(r)) < 0 ||
         json_object_set_new(o, "charges", charges(r)) < 0 ||
         json_object_set_new(o, "verdict", report_json_text(r->verdict)) < 0 ||
         json_object_set_new(o, "stacks", stacks(r, brief)) < 0)) {
        json_decref(o);
        return -ENOMEM;
    }
    DD_AUTO(free) char *dumped = o != NULL ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15))
                                           : NULL;
    json_decref(o);
    if (dumped == NULL)
        return -ENOMEM;
    int rc = dd_buf_puts(out, dumped);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}
