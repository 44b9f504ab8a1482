#include "report/report_inner.h"

#include "base/auto.h"
#include "base/sig.h"
#include "report/causes.h"
#include "report/error_file.h"
#include "report/report_lines_inner.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SENTENCE_ERROR_MAX = 200, WHY_MAX = 400 };

int report_new(struct report **ret, const struct report_cfg *cfg)
{
    struct report *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    r->cfg = *cfg;
    *ret = r;
    return 0;
}

static void exit_done(struct report_exit *e)
{
    free(e->storage);
    *e = (struct report_exit){0};
}

/* Copy e; all texts are in one allocation, and NULL becomes "". */
static int exit_copy(struct report_exit *ret, const struct report_exit *e)
{
    struct report_exit c = *e;
    const char **const texts[] = {&c.node, &c.error, &c.trace, &c.tail, &c.log};
    enum { TEXTS = sizeof(texts) / sizeof(texts[0]) };
    size_t n = 0;
    for (int i = 0; i < TEXTS; i++)
        n += *texts[i] != NULL ? strlen(*texts[i]) + 1 : 1;
    char *to = c.storage = malloc(n);
    if (to == NULL)
        return -ENOMEM;
    for (int i = 0; i < TEXTS; i++) {
        const char *from = *texts[i] != NULL ? *texts[i] : "";
        *texts[i] = to;
        to = stpcpy(to, from) + 1;
    }
    *ret = c;
    return 0;
}

static void forget_exits(struct report *r)
{
    for (int i = 0; i < r->nkept; i++)
        exit_done(&r->exits[i]);
    r->nkept = r->nfailed = 0;
    r->by_itself = false;
    r->ends = (struct report_ends){0};
    free(DD_TAKE(r->first_node));
    stacks_done(&r->stacks);
}

static void unfit_done(struct report_unfit *u)
{
    free(u->node);
    free(u->check);
    free(u->why);
    *u = (struct report_unfit){0};
}

void report_free(struct report *r)
{
    if (r == NULL)
        return;
    forget_exits(r);
    for (int i = 0; i < r->nrounds; i++)
        free(r->rounds[i].cause);
    for (int i = 0; i < r->nwarnings; i++) {
        free(r->warnings[i].node);
        free(r->warnings[i].text);
    }
    for (int i = 0; i < r->nstragglers; i++) {
        free(r->stragglers[i].node);
        free(r->stragglers[i].text);
    }
    for (int i = 0; i < r->ncharges; i++) {
        free(r->charges[i].node);
        free(r->charges[i].why);
    }
    unfit_done(&r->unfit);
    free(r->cause);
    free(r->verdict);
    free(r);
}

static void end_round(struct report *r, uint64_t now_ns)
{
    struct report_round *last = r->nrounds > 0 ? &r->rounds[r->nrounds - 1] : NULL;
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(REPORT_TEXT_MAX);
    const struct report_exit *e = report_first_failure(r);
    if (last == NULL || last->round != r->round || last->end_ns != 0)
        return;
    last->end_ns = now_ns;
    if (e != NULL && report_sentence(e, &why) == 0)
        last->cause = dd_buf_steal(&why);
}

void report_round(struct report *r, int round, int world_size, uint64_t now_ns)
{
    end_round(r, now_ns);
    forget_exits(r);
    r->round = round;
    r->world_size = world_size;
    r->round_ns = now_ns;
    if (r->nrounds < REPORT_ROUNDS)
        r->rounds[r->nrounds++] = (struct report_round){.round = round, .start_ns = now_ns};
}

int report_exit_add(struct report *r, const struct report_exit *e, bool by_itself)
{
    struct report_exit mine;
    r->by_itself = r->by_itself || (by_itself && r->nfailed == 0);
    r->nfailed++;
    int at = r->nkept;
    while (at > 0 && r->exits[at - 1].at_ns > e->at_ns)
        at--;
    if (at == REPORT_EXITS)
        return 0;
    int rc = exit_copy(&mine, e);
    if (rc < 0)
        return rc;
    if (r->nkept == REPORT_EXITS)
        exit_done(&r->exits[--r->nkept]);
    memmove(&r->exits[at + 1], &r->exits[at], (size_t)(r->nkept - at) * sizeof(mine));
    r->exits[at] = mine;
    r->nkept++;
    return 0;
}

void report_stacks_take(struct report *r, struct stacks *s)
{
    stacks_done(&r->stacks);
    r->stacks = *s;
    *s = (struct stacks){0};
}

int report_ends_add(struct report *r, const struct report_ends *e)
{
    r->ends.left += e->left;
    r->ends.stopped += e->stopped;
    r->ends.killed += e->killed;
    if (e->first_node == NULL || (r->first_node != NULL && r->ends.first_ns <= e->first_ns))
        return 0;
    char *node = strdup(e->first_node);
    if (node == NULL)
        return -ENOMEM;
    free(r->first_node);
    r->ends.first_node = r->first_node = node;
    r->ends.first_rank = e->first_rank;
    r->ends.first_ns = e->first_ns;
    return 0;
}

int report_warning_add(struct report *r, const char *node, const char *text)
{
    for (int i = 0; i < r->nwarnings; i++)
        if (strcmp(r->warnings[i].node, node) == 0 && strcmp(r->warnings[i].text, text) == 0)
            return 0;
    if (r->nwarnings == REPORT_WARNINGS)
        return 0;
    struct report_warning w = {.node = strdup(node), .text = strdup(text)};
    if (w.node == NULL || w.text == NULL) {
        free(w.node);
        free(w.text);
        return -ENOMEM;
    }
    r->warnings[r->nwarnings++] = w;
    return 0;
}

int report_straggler_add(struct report *r, const char *node, int rank, const char *text,
                         uint64_t now_ns)
{
    if (r->nstragglers == REPORT_STRAGGLERS)
        return 0;
    struct report_straggler g = {.node = strdup(node),
                                 .text = strdup(text),
                                 .rank = rank,
                                 .round = r->round,
                                 .from_ns = now_ns};
    if (g.node == NULL || g.text == NULL) {
        free(g.node);
        free(g.text);
        return -ENOMEM;
    }
    r->stragglers[r->nstragglers++] = g;
    return 0;
}

void report_straggler_over(struct report *r, const char *node, uint64_t now_ns)
{
    for (int i = 0; i < r->nstragglers; i++) {
        struct report_straggler *g = &r->stragglers[i];
        if (g->to_ns == 0 && g->round == r->round && strcmp(g->node, node) == 0)
            g->to_ns = now_ns;
    }
}

/* Return the entry of the node, or a free one; NULL: there are too many nodes. */
static struct report_charge *place_charge(struct report *r, const char *node)
{
    for (int i = 0; i < r->ncharges; i++)
        if (strcmp(r->charges[i].node, node) == 0)
            return &r->charges[i];
    return r->ncharges < REPORT_CHARGES ? &r->charges[r->ncharges] : NULL;
}

int report_charge_set(struct report *r, const char *node, int n, const char *why)
{
    struct report_charge *to = place_charge(r, node);
    struct report_charge c = {.node = strdup(node), .why = strdup(why), .n = n};
    if (to == NULL || c.node == NULL || c.why == NULL) {
        free(c.node);
        free(c.why);
        return to == NULL ? 0 : -ENOMEM;
    }
    free(to->node);
    free(to->why);
    *to = c;
    r->ncharges += to == &r->charges[r->ncharges];
    return 0;
}

int report_unfit_set(struct report *r, const char *node, const char *check, const char *why)
{
    struct report_unfit u = {.node = strdup(node), .check = strdup(check), .why = strdup(why)};
    if (u.node == NULL || u.check == NULL || u.why == NULL) {
        unfit_done(&u);
        return -ENOMEM;
    }
    unfit_done(&r->unfit);
    r->unfit = u;
    return 0;
}

int report_verdict_set(struct report *r, const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL)
        return -ENOMEM;
    free(r->verdict);
    r->verdict = copy;
    return 0;
}

void report_finish(struct report *r, const char *cause, int code, uint64_t now_ns)
{
    end_round(r, now_ns);
    free(r->cause);
    r->cause = strdup(cause);
    r->code = code;
    r->end_ns = now_ns;
}

/* True if e, reported after cascade failures, is their cause. Without a known cause and an
 * exception, e may be a reaction to the stop of the round; so may an exception that a signal has
 * raised, such as KeyboardInterrupt (CAUSE_SENDER without a fatal signal). */
static bool explains(const struct report_exit *e)
{
    size_t len;
    const struct failure_cause *c = failure_cause_find(e);
    if (c == NULL)
        return report_exception(e, &len) != NULL;
    return (c->flags & (e->signal > 0 ? CAUSE_CASCADE : CAUSE_CASCADE | CAUSE_SENDER)) == 0;
}

const struct report_exit *report_first_failure(const struct report *r)
{
    if (!r->by_itself || r->nkept == 0)
        return NULL;
    for (int i = 1; i < r->nkept && failure_is_cascade(&r->exits[0]); i++)
        if (explains(&r->exits[i]))
            return &r->exits[i];
    return &r->exits[0];
}

/* ---- messages ---- */

bool report_has_crashed(const struct report_exit *e)
{
    const int sig = e->code > 128 && e->code < 256 ? e->code - 128 : e->signal;
    return sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE;
}

/* Only an exception that is the last output explains a crash: earlier exceptions were handled and
 * logged. */
const char *report_exception(const struct report_exit *e, size_t *ret_len)
{
    const bool crashed = report_has_crashed(e);
    const char *found = NULL;
    const char *line;
    size_t len;
    if (e->error != NULL && e->error[0] != '\0') {
        *ret_len = strcspn(e->error, "\n");
        return e->error;
    }
    for (const char *at = e->tail; (line = report_next_line(&at, &len)) != NULL;) {
        line = report_skip_rank(line, &len);
        if (report_is_exception(line, len)) {
            found = line;
            *ret_len = len;
        } else if (crashed && len > 0) {
            found = NULL;
        }
    }
    return found;
}

/* Return the last line of output if it is an error message of a command line, as Python's argparse
 * writes it, or Python itself for a missing script; NULL: it is something else. */
static const char *usage_error(const struct report_exit *e, size_t *ret_len)
{
    static const char *const parts[] = {": error: ", ": No module named ", ": can't open file "};
    const char *last = NULL;
    const char *line;
    size_t len;
    for (const char *at = e->tail; (line = report_next_line(&at, &len)) != NULL;)
        if (len > 0) {
            last = line;
            *ret_len = len;
        }
    for (size_t i = 0; last != NULL && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (memmem(last, *ret_len, parts[i], strlen(parts[i])) != NULL)
            return last;
    return NULL;
}

int report_why(const struct report_exit *e, struct dd_buf *out)
{
    size_t len;
    const char *text = report_exception(e, &len);
    if (text == NULL && (e->code == 1 || e->code == 2))
        text = usage_error(e, &len);
    if (e->oom && e->signal == SIGKILL)
        return dd_buf_puts(out, "killed by the kernel, out of memory");
    int rc = text == NULL ? 0 : report_put_line(out, text, len, SENTENCE_ERROR_MAX);
    if (rc == 0 && e->oom && !failure_is_cascade(e))
        rc = dd_buf_printf(
            out, "%sthe kernel's OOM killer killed a process in the job's cgroup on this node",
            text != NULL ? "; " : "");
    return rc;
}

bool report_is_of_job(const struct report_exit *e)
{
    return failure_is_job_hung(e->error) && !e->oom;
}

int report_sentence(const struct report_exit *e, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(WHY_MAX);
    if (report_is_of_job(e))
        return report_why(e, out);
    int rc = dd_buf_printf(out, "rank %d on %s ", e->rank, e->node);
    if (rc == 0 && e->pid == 0)
        rc = dd_buf_puts(out, "could not be started");
    else if (rc == 0 && e->signal > 0)
        rc = dd_buf_printf(out, "was killed by signal %d (SIG%s)", e->signal,
                           dd_signal_name(e->signal));
    else if (rc == 0)
        rc = dd_buf_puts(out, "failed");
    if (rc == 0)
        rc = report_why(e, &why);
    if (rc == 0 && why.len > 0)
        rc = dd_buf_puts(out, ": ");
    if (rc == 0)
        rc = dd_buf_append(out, why.data, why.len);
    bool exited = e->pid != 0 && e->signal <= 0;
    return rc == 0 && exited ? dd_buf_printf(out, " (exit code %d)", e->code) : rc;
}

/* ---- times ---- */

double report_seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

void report_time(const struct report *r, uint64_t ns, char out[REPORT_TIME])
{
    uint64_t real = r->cfg.start_real_ns +
                    (ns - r->cfg.start_ns); /* correct also for times before the start */
    time_t s = (time_t)(real / 1000000000U);
    struct tm tm = {0};
    (void)gmtime_r(&s, &tm);
    (void)snprintf(out, REPORT_TIME, "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}
