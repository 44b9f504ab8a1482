/* Writes the report for users: a few lines, and more with output and stacks of workers. */
#include "report/report_inner.h"

#include "base/auto.h"
#include "report/causes.h"
#include "report/culprit.h"
#include "report/error_file.h"
#include "report/report_lines_inner.h"

#include <stdarg.h>
#include <string.h>

enum {
    LINE_MAX_BYTES = 400,
    LATER_SHOWN = 3,
    LATER_MAX_BYTES = 160,
    TAIL_LINES_SHOWN = 20,
    COLLECTIVES_SHOWN = 4,
    STACKS_TERMINAL_BYTES = 8000,
    WARNINGS_SHOWN = 4,
    STRAGGLERS_SHOWN = 4,
    CHARGES_SHOWN = 8
};

/* A list of clauses, "3 had already exited with 0, 4 were stopped …", separated by commas. */
struct pieces {
    struct dd_buf *out;
    const char *name; /* "others" or "workers" */
    int n, rc;
};

__attribute__((format(printf, 3, 4))) static void piece(struct pieces *p, int count,
                                                        const char *fmt, ...)
{
    va_list ap;
    if (count <= 0 || p->rc < 0)
        return;
    p->rc = p->n++ == 0 ? dd_buf_printf(p->out, "  %s: ", p->name) : dd_buf_puts(p->out, ", ");
    va_start(ap, fmt);
    if (p->rc == 0)
        p->rc = dd_buf_vprintf(p->out, fmt, ap);
    va_end(ap);
}

static const char *was(int n)
{
    return n == 1 ? "was" : "were";
}

/* True for a worker that ddrun ended together with e, since the whole job hung. */
static bool is_ended_with(const struct report_exit *o, const struct report_exit *e)
{
    return report_is_of_job(e) && report_is_of_job(o);
}

/* Append the failures other than e, one per line. */
static int put_later(const struct report *r, const struct report_exit *e, struct dd_buf *out)
{
    int rc = 0;
    for (int i = 0, shown = 0; i < r->nkept && shown < LATER_SHOWN && rc == 0; i++) {
        const struct report_exit *o = &r->exits[i];
        DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(REPORT_TEXT_MAX);
        if (o == e || is_ended_with(o, e))
            continue;
        shown++;
        rc = o < e ? dd_buf_printf(&line, "%.3f s earlier ", report_seconds(o->at_ns, e->at_ns))
                   : dd_buf_printf(&line, "%.3f s later ", report_seconds(e->at_ns, o->at_ns));
        if (rc == 0)
            rc = report_sentence(o, &line);
        if (rc == 0)
            rc = dd_buf_puts(out, "    ");
        if (rc == 0)
            rc = report_put_line(out, (const char *)line.data, line.len, LATER_MAX_BYTES);
        if (rc == 0)
            rc = dd_buf_puts(out, "\n");
    }
    return rc;
}

/* Return how many workers ddrun ended together with e, including those that are not kept. */
static int count_ended_with(const struct report *r, const struct report_exit *e)
{
    int n = r->nfailed - r->nkept;
    for (int i = 0; i < r->nkept; i++)
        n += &r->exits[i] != e && is_ended_with(&r->exits[i], e);
    return report_is_of_job(e) ? n : 0;
}

/* Return how many of the workers that ddrun stopped had lost a peer before, as their tracebacks
 * show. */
static int count_failing(const struct report *r)
{
    int n = 0;
    for (size_t i = 0; i < r->stacks.n; i++) {
        const struct stack_group *g = &r->stacks.v[i];
        if (g->stack.kind != STACK_ENDED || stack_text(g->stack.frames)[0] == '\0')
            continue;
        n += (int)rank_set_count(&g->ranks);
        for (int k = 0; k < r->nkept; k++)
            n -= rank_set_has(&g->ranks, r->exits[k].rank);
    }
    return n;
}

static int put_others(const struct report *r, const struct report_exit *e, struct dd_buf *out)
{
    const struct report_ends *n = &r->ends;
    const bool hung = report_is_of_job(e);
    const int earlier = (int)(e - r->exits);
    const int others = r->nfailed - 1 - count_ended_with(r, e);
    const int kept = others < r->nkept - 1 ? others : r->nkept - 1;
    const int shown = kept < LATER_SHOWN ? kept : LATER_SHOWN;
    const int failing = count_failing(r);
    struct pieces p = {.out = out, .name = hung ? "workers" : "others"};
    piece(&p, n->left, "%d had already exited with 0", n->left);
    piece(&p, hung ? r->nfailed - others : 0, "%d hung", r->nfailed - others);
    piece(&p, n->stopped, "%d %s stopped", n->stopped, was(n->stopped));
    if (p.rc == 0 && n->stopped > 0 && failing > 0 && failing <= n->stopped)
        p.rc = dd_buf_printf(out, " (%d after the loss of a peer)", failing);
    piece(&p, n->killed, "%d %s killed after the grace period", n->killed, was(n->killed));
    piece(&p, earlier, "%d failed earlier", earlier);
    piece(&p, others - earlier, "%d failed later", others - earlier);
    if (p.rc == 0 && others > shown)
        p.rc = dd_buf_printf(out, ", the first %d of them", shown);
    if (p.rc == 0 && p.n > 0)
        p.rc = dd_buf_puts(out, others > 0 ? ":\n" : "\n");
    return p.rc < 0 ? p.rc : put_later(r, e, out);
}

/* Append the line 'culprit:': the rank to blame and the reason, or why it is unknown. */
static int put_culprit(const struct report *r, const struct report_exit *e, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(REPORT_TEXT_MAX);
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    enum report_blame blame;
    if (r->world_size <= 1)
        return 0;
    int rc = report_culprit_why(r, e, &ranks, &blame, &why);
    if (rc == 0)
        rc = dd_buf_puts(out, "  culprit: ");
    if (rc == 0)
        rc = dd_buf_append(out, why.data, why.len);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

static int put_when(const struct report *r, const struct report_exit *e, struct dd_buf *out)
{
    char at[REPORT_TIME];
    if (e->pid == 0)
        return 0;
    report_time(r, e->at_ns, at);
    int rc = dd_buf_puts(out, "  ");
    if (rc == 0 && !report_is_of_job(e))
        rc = dd_buf_printf(out, "local rank %d, pid %d, ", e->local_rank, e->pid);
    if (rc == 0)
        rc = dd_buf_printf(out, "%.3f s after the start of the round, %s",
                           report_seconds(r->round_ns, e->at_ns), at);
    if (rc == 0 && r->cfg.max_restarts > 0)
        rc = dd_buf_printf(out, ", round %d", r->round);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

static int put_tail_title(const struct report_exit *e, struct dd_buf *out)
{
    if (!report_is_of_job(e))
        return dd_buf_puts(out, "  last lines of output:\n");
    return dd_buf_printf(out, "  last lines of output of rank %d on %s:\n", e->rank, e->node);
}

static int put_said(const struct report *r, const struct report_exit *e, struct dd_buf *out)
{
    const char *lf = strchr(e->error, '\n');
    int rc = 0;
    if (lf != NULL) /* the rest of a multi-line message */
        rc = report_put_block(out, "  ", report_last_lines(lf + 1, 8), LINE_MAX_BYTES);
    if (rc == 0 && e->trace[0] != '\0') {
        rc = dd_buf_puts(out, "  last lines of the traceback:\n");
        return rc < 0 ? rc : report_put_block(out, "  ", e->trace, LINE_MAX_BYTES);
    }
    const char *end = strchr(e->tail, '\n');
    size_t len = strcspn(e->tail, "\n");
    /* the only line of output is an exception: report_sentence() shows it, unless the error file, a
     * hang or an OOM kill takes precedence */
    bool said = (end == NULL || end[1] == '\0') && report_is_exception(e->tail, len);
    if (r->world_size == 1 && e->log[0] == '\0' && report_exception(e, &len) != NULL)
        said = true; /* no other worker's lines were printed between its output and this report */
    if (rc == 0 && e->tail[0] != '\0' && !said) {
        rc = put_tail_title(e, out);
        return rc < 0 ? rc
                      : report_put_block(out, "    ", report_last_lines(e->tail, TAIL_LINES_SHOWN),
                                         LINE_MAX_BYTES);
    }
    return rc;
}

/* Append the collectives that the ranks were in, and the rank that held the others up. */
static int put_collectives(const struct report *r, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(STACKS_TERMINAL_BYTES);
    if (flight_groups_text(&r->stacks.collectives, "    ", COLLECTIVES_SHOWN, &text) < 0 ||
        text.len == 0)
        return 0;
    int rc = dd_buf_puts(out, "  collectives at that time:\n");
    return rc < 0 ? rc : dd_buf_append(out, text.data, text.len);
}

/* Append what NCCL reports about its communicators. */
static int put_nccl_ras(const struct report *r, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(STACKS_TERMINAL_BYTES);
    if (nccl_ras_text(&r->stacks.ras, "    ", COLLECTIVES_SHOWN, &text) < 0 || text.len == 0)
        return 0;
    int rc = dd_buf_puts(out, "  NCCL's communicators at that time:\n");
    return rc < 0 ? rc : dd_buf_append(out, text.data, text.len);
}

/* Append what the workers were executing; omit the worker of e, which is known to have ended. */
static int put_stacks(const struct report *r, const struct report_exit *e, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(STACKS_TERMINAL_BYTES);
    struct stacks shown = r->stacks; /* the groups are borrowed */
    const struct stack_group *last = shown.n > 0 ? &shown.v[shown.n - 1] : NULL;
    if (last != NULL && last->stack.kind == STACK_ENDED && rank_set_count(&last->ranks) == 1 &&
        rank_set_has(&last->ranks, e->rank))
        shown.n--;
    if (!stacks_has(&r->stacks, STACK_PYTHON) && !stacks_has(&r->stacks, STACK_KERNEL) &&
        !stacks_has_note(&r->stacks, STACK_IN_PODMAN))
        return 0;
    if (stacks_text(&shown, "    ", STACKS_TERMINAL_LINES - 1, &text) < 0)
        return 0; /* the report is more important than its details */
    int rc = dd_buf_puts(out, "  stacks at that time, the rarest first:\n");
    return rc < 0 ? rc : dd_buf_append(out, text.data, text.len);
}

/* True for "frame #3: c10d::ProcessGroupNCCL::Watchdog::run() + 0xd8 (0x7f…)". PyTorch prints about
 * fifty such lines when a process group fails, after the lines that name the cause. */
static bool is_native_frame(const char *line)
{
    static const char frame[] = "frame #";
    return strncmp(line, frame, sizeof(frame) - 1) == 0;
}

static int without_native_frames(const char *text, struct dd_buf *out)
{
    int rc = 0;
    while (*text != '\0' && rc == 0) {
        size_t n = strcspn(text, "\n");
        n += text[n] == '\n';
        if (!is_native_frame(text))
            rc = dd_buf_append(out, text, n);
        text += n;
    }
    return rc;
}

int report_tail(const char *text, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf kept = DD_BUF_INIT(strlen(text) + 1);
    if (without_native_frames(text, &kept) == 0 && kept.len > 0)
        text = dd_buf_str(&kept) != NULL ? dd_buf_str(&kept) : text;
    return report_put_block(out, "", report_last_lines(text, TAIL_LINES_SHOWN), LINE_MAX_BYTES);
}

/* Append the warnings: of health checks, --collect and CUDA core dumps, and about nodes that were
 * excluded or that the scheduler has marked. A warning may explain the failure. */
static int put_warnings(const struct report *r, struct dd_buf *out)
{
    int rc = 0;
    for (int i = 0; i < r->nwarnings && i < WARNINGS_SHOWN && rc == 0; i++) {
        DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(REPORT_TEXT_MAX);
        const struct report_warning *w = &r->warnings[i];
        rc = dd_buf_printf(&line, "%s: %s", w->node, w->text);
        if (rc == 0)
            rc = dd_buf_puts(out, "  warning: ");
        if (rc == 0)
            rc = report_put_line(out, (const char *)line.data, line.len, LINE_MAX_BYTES);
        if (rc == 0)
            rc = dd_buf_puts(out, "\n");
    }
    if (rc == 0 && r->nwarnings > WARNINGS_SHOWN)
        rc = dd_buf_printf(out, "  %d more warning%s; --report=FILE writes up to %d\n",
                           r->nwarnings - WARNINGS_SHOWN,
                           r->nwarnings - WARNINGS_SHOWN == 1 ? "" : "s", REPORT_WARNINGS);
    return rc;
}

/* Append the ranks that held up the others until the end of the last round. */
static int put_stragglers(const struct report *r, struct dd_buf *out)
{
    int rc = 0;
    for (int i = 0, shown = 0; i < r->nstragglers && shown < STRAGGLERS_SHOWN && rc == 0; i++) {
        const struct report_straggler *g = &r->stragglers[i];
        if (g->round != r->round || g->to_ns != 0)
            continue;
        shown++;
        rc = dd_buf_puts(out, "  straggler: ");
        if (rc == 0)
            rc = report_put_line(out, g->text, strlen(g->text), LINE_MAX_BYTES);
        if (rc == 0)
            rc = dd_buf_puts(out, "\n");
    }
    return rc;
}

/* Append the number of failures charged to each node, if more than one failure was charged. */
static int put_charges(const struct report *r, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(REPORT_TEXT_MAX);
    int64_t total = 0;
    int rc = dd_buf_puts(&line, "failures charged: ");
    for (int i = 0; i < r->ncharges; i++)
        total += r->charges[i].n;
    if (r->cfg.nnodes <= 1 || total <= 1)
        return 0;
    for (int i = 0; i < r->ncharges && i < CHARGES_SHOWN && rc == 0; i++)
        rc = dd_buf_printf(&line, "%s%d to %s", i > 0 ? ", " : "", r->charges[i].n,
                           r->charges[i].node);
    if (rc == 0 && r->ncharges > CHARGES_SHOWN)
        rc = dd_buf_printf(&line, ", and %d more node%s", r->ncharges - CHARGES_SHOWN,
                           r->ncharges - CHARGES_SHOWN == 1 ? "" : "s");
    if (rc == 0)
        rc = dd_buf_puts(out, "  ");
    if (rc == 0)
        rc = report_put_line(out, (const char *)line.data, line.len, REPORT_TEXT_MAX);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

/* Append the cause of an end that is not due to a worker's failure; after a failure of the job,
 * also the charges. */
static int put_cause(const struct report *r, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf charges = DD_BUF_INIT(REPORT_TEXT_MAX);
    int rc = dd_buf_puts(out, r->cause != NULL ? r->cause : "");
    if (r->code == 0 || put_charges(r, &charges) < 0 || charges.len == 0)
        return rc;
    if (rc == 0)
        rc = dd_buf_puts(out, "\n");
    return rc < 0 ? rc : dd_buf_append(out, charges.data, charges.len);
}

int report_text(const struct report *r, struct dd_buf *out)
{
    const struct report_exit *e = report_first_failure(r);
    int rc = r->verdict != NULL ? dd_buf_printf(out, "%s\n  last failure: ", r->verdict) : 0;
    if (rc < 0 || e == NULL)
        return rc < 0 ? rc : put_cause(r, out);
    const struct failure_cause *known = report_cause(r, e);
    const char *tip = report_tip(r, e);
    rc = report_sentence(e, out);
    if (rc == 0)
        rc = dd_buf_puts(out, "\n");
    if (rc == 0)
        rc = put_culprit(r, e, out);
    if (rc == 0 && known != NULL)
        rc = dd_buf_printf(out, "  cause: %s\n", known->cause);
    if (rc == 0)
        rc = put_when(r, e, out);
    if (rc == 0)
        rc = put_said(r, e, out);
    if (rc == 0 && e->log[0] != '\0')
        rc = dd_buf_printf(out, "  complete stderr: %s on %s\n", e->log, e->node);
    if (rc == 0)
        rc = put_others(r, e, out);
    if (rc == 0)
        rc = put_charges(r, out);
    if (rc == 0)
        rc = put_warnings(r, out);
    if (rc == 0)
        rc = put_stragglers(r, out);
    if (rc == 0)
        rc = put_collectives(r, out);
    if (rc == 0)
        rc = put_nccl_ras(r, out);
    if (rc == 0)
        rc = put_stacks(r, e, out);
    if (rc == 0 && tip != NULL)
        rc = dd_buf_printf(out, "  tip: %s\n", tip);
    if (rc == 0 && stacks_tip(&r->stacks) != NULL)
        rc = dd_buf_printf(out, "  tip: %s\n", stacks_tip(&r->stacks));
    return rc;
}
