#include "daemon/report_collect.h"

#include "base/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct report_collect {
    struct journal_subscriber subscriber;
    struct report *report;
};

/* ---- clocks ---- */

/* Update the offset. A message cannot arrive before it is sent, so the fastest message gives the
 * best estimate; its error is the transit time. Both clocks are monotonic and are never set. */
void report_clock_update(struct report_clock *c, int64_t sent_ns, uint64_t here_ns)
{
    int64_t behind = (int64_t)here_ns - sent_ns;
    if (!c->known || behind < c->behind_ns)
        c->behind_ns = behind;
    c->known = 1;
}

uint64_t report_clock_time(const struct report_clock *c, int64_t there_ns, uint64_t here_ns)
{
    int64_t at;
    if (!c->known || __builtin_add_overflow(there_ns, c->behind_ns, &at) || at < 0 ||
        (uint64_t)at > here_ns)
        return here_ns;
    return (uint64_t)at;
}

/* ---- the report ---- */

static void report_collect_finish(const struct report_collect *c, const struct journal_event *e)
{
    if (e->verdict != NULL && e->verdict[0] != '\0')
        (void)report_verdict_set(c->report, e->verdict); /* -ENOMEM: the report omits the verdict */
    if (e->unfit != NULL)
        (void)report_unfit_set(c->report, e->unfit->node, e->unfit->check, e->unfit->why);
    report_finish(c->report, e->text, e->code, e->now_ns);
}

static void report_collect_exclude(const struct report_collect *c, const struct journal_event *e)
{
    char text[512];
    (void)snprintf(text, sizeof(text), "excluded from further rounds: %s", e->text);
    (void)report_warning_add(c->report, e->node, text);
}

static void report_collect_on_event(void *arg, const struct journal_event *e)
{
    const struct report_collect *c = arg;
    if (e->kind == JOURNAL_ROUND)
        report_round(c->report, e->round, e->workers, e->now_ns);
    else if (e->kind == JOURNAL_EXIT && e->exit != NULL)
        (void)report_exit_add(c->report, e->exit,
                              e->by_itself); /* -ENOMEM: the report omits this exit */
    else if (e->kind == JOURNAL_STACKS)
        report_stacks_take(c->report, e->stacks);
    else if (e->kind == JOURNAL_NODE_DONE)
        (void)report_ends_add(c->report, e->ends);
    else if (e->kind == JOURNAL_WARNING || e->kind == JOURNAL_MARK)
        (void)report_warning_add(c->report, e->node, e->text);
    else if (e->kind == JOURNAL_EXCLUDE)
        report_collect_exclude(c, e);
    else if (e->kind == JOURNAL_STRAGGLER)
        (void)report_straggler_add(c->report, e->node, e->rank, e->text, e->now_ns);
    else if (e->kind == JOURNAL_STRAGGLER_OVER)
        report_straggler_over(c->report, e->node, e->now_ns);
    else if (e->kind == JOURNAL_CHARGE)
        (void)report_charge_set(c->report, e->node, e->count, e->text);
    else if (e->kind == JOURNAL_FINISH)
        report_collect_finish(c, e);
}

int report_collect_new(struct report_collect **ret, struct journal *j,
                       const struct report_collect_cfg *cfg, struct dd_err *err)
{
    struct report_collect *c = calloc(1, sizeof(*c));
    const uint64_t now = dd_now_ns();
    const uint64_t start = cfg->start_ns == 0 || cfg->start_ns > now ? now : cfg->start_ns;
    const struct report_cfg rc = {.job_id = cfg->job_id,
                                  .nnodes = cfg->nnodes,
                                  .max_restarts = cfg->max_restarts,
                                  .start_ns = start,
                                  .start_real_ns = dd_now_real_ns() - (now - start)};
    if (c == NULL || report_new(&c->report, &rc) < 0) {
        free(c);
        return dd_err_set(err, -ENOMEM, "out of memory for the report");
    }
    c->subscriber = (struct journal_subscriber){.on_event = report_collect_on_event, .arg = c};
    journal_subscribe(j, &c->subscriber);
    *ret = c;
    return 0;
}

void report_collect_free(struct report_collect *c)
{
    if (c == NULL)
        return;
    report_free(c->report);
    free(c);
}

/* The machine reports the failure whose message arrived first; according to the clocks of
 * the agents, another failure may be earlier, and the first one may be a consequence of it. */
int report_collect_code(const struct report_collect *c, int machine_code)
{
    const struct report_exit *e = report_first_failure(c->report);
    return e != NULL && machine_code != 0 ? e->code : machine_code;
}

void report_collect_texts(const struct report_collect *c, struct dd_buf *text, struct dd_buf *json)
{
    (void)report_text(c->report, text);
    if (report_json(c->report, false, json) < 0) {
        dd_buf_clear(json);
        (void)report_json(c->report, true, json);
    }
}
