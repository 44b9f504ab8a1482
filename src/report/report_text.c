/* The report for users: a few lines of at most 100 columns, more with output of workers. */
#include "report/report_inner.h"

#include "report/advice.h"
#include "report/error_file.h"
#include "report/report_lines_inner.h"

#include <stdarg.h>
#include <string.h>

enum { LINE_MAX_BYTES = 400, LATER_SHOWN = 3, LATER_MAX_BYTES = 160, TAIL_LINES_SHOWN = 20 };

/* A list of clauses, "3 had already exited with 0, 4 were stopped …", separated by commas. */
struct pieces {
    struct dd_buf *out;
    int n, rc;
};

__attribute__((format(printf, 3, 4))) static void piece(struct pieces *p, int count,
                                                        const char *fmt, ...)
{
    va_list ap;
    if (count <= 0 || p->rc < 0)
        return;
    p->rc = dd_buf_puts(p->out, p->n++ == 0 ? "  others: " : ", ");
    va_start(ap, fmt);
    if (p->rc == 0)
        p->rc = dd_buf_vprintf(p->out, fmt, ap);
    va_end(ap);
}

static const char *was(int n)
{
    return n == 1 ? "was" : "were";
}

/* Append the failures after the first, one per line. */
static int put_later(const struct report *r, struct dd_buf *out)
{
    int rc = 0;
    for (int i = 1; i < r->nkept && i <= LATER_SHOWN && rc == 0; i++) {
        const struct report_exit *e = &r->exits[i];
        DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(REPORT_TEXT_MAX);
        rc = dd_buf_printf(&line, "%.3f s later ", report_seconds(r->exits[0].at_ns, e->at_ns));
        if (rc == 0)
            rc = report_sentence(e, &line);
        if (rc == 0)
            rc = dd_buf_puts(out, "    ");
        if (rc == 0)
            rc = report_put_line(out, (const char *)line.data, line.len, LATER_MAX_BYTES);
        if (rc == 0)
            rc = dd_buf_puts(out, "\n");
    }
    return rc;
}

static int put_others(const struct report *r, struct dd_buf *out)
{
    const struct report_ends *n = &r->ends;
    struct pieces p = {.out = out};
    piece(&p, n->left, "%d had already exited with 0", n->left);
    piece(&p, n->stopped, "%d %s stopped", n->stopped, was(n->stopped));
    piece(&p, n->killed, "%d %s killed after the grace period", n->killed, was(n->killed));
    piece(&p, r->nfailed - 1, "%d failed later", r->nfailed - 1);
    const int shown = r->nkept - 1 < LATER_SHOWN ? r->nkept - 1 : LATER_SHOWN;
    if (p.rc == 0 && r->nfailed - 1 > shown)
        p.rc = dd_buf_printf(out, ", the first %d of them", shown);
    if (p.rc == 0 && p.n > 0)
        p.rc = dd_buf_puts(out, r->nfailed > 1 ? ":\n" : "\n");
    return p.rc < 0 ? p.rc : put_later(r, out);
}

static int put_when(const struct report *r, const struct report_exit *e, struct dd_buf *out)
{
    char at[REPORT_TIME];
    if (e->pid == 0)
        return 0;
    report_time(r, e->at_ns, at);
    int rc = dd_buf_printf(out,
                           "  local rank %d, pid %d, %.3f s after the start of the workers, %s",
                           e->local_rank, e->pid, report_seconds(r->round_ns, e->at_ns), at);
    if (rc == 0 && r->cfg.max_restarts > 0)
        rc = dd_buf_printf(out, ", attempt %d", r->round + 1);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
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
    bool said = (end == NULL || end[1] == '\0') &&
                report_is_exception(e->tail, len); /* the first sentence contains it */
    if (r->world_size == 1 && e->log[0] == '\0' && report_exception(e, &len) != NULL)
        said = true; /* no other worker's lines were printed between its output and this report */
    if (rc == 0 && e->tail[0] != '\0' && !said) {
        rc = dd_buf_puts(out, "  last lines of output:\n");
        return rc < 0 ? rc
                      : report_put_block(out, "    ", report_last_lines(e->tail, TAIL_LINES_SHOWN),
                                         LINE_MAX_BYTES);
    }
    return rc;
}

int report_tail(const char *text, struct dd_buf *out)
{
    return report_put_block(out, "", report_last_lines(text, TAIL_LINES_SHOWN), LINE_MAX_BYTES);
}

int report_text(const struct report *r, struct dd_buf *out)
{
    const struct report_exit *e = report_cause(r);
    if (e == NULL)
        return dd_buf_puts(out, r->cause != NULL ? r->cause : "");
    const char *advice = report_advice(e);
    int rc = report_sentence(e, out);
    if (rc == 0)
        rc = dd_buf_puts(out, "\n");
    if (rc == 0)
        rc = put_when(r, e, out);
    if (rc == 0)
        rc = put_said(r, e, out);
    if (rc == 0 && e->log[0] != '\0')
        rc = dd_buf_printf(out, "  complete stderr: %s on %s\n", e->log, e->node);
    if (rc == 0)
        rc = put_others(r, out);
    if (rc == 0 && advice != NULL)
        rc = dd_buf_printf(out, "  tip: %s\n", advice);
    return rc;
}
