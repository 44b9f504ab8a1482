#include "daemon/report_collect.h"

#include "base/auto.h"
#include "base/io.h"
#include "daemon/inner.h"
#include "report/report.h"

#include <errno.h>
#include <stdlib.h>

struct account {
    struct report *report;
    int round; /* that has been begun in the report; -1: none */
    bool finished;
    struct dd_buf why;
};

/* ---- clocks ---- */

/* No message arrives before it is sent: the quickest one shows the offset best, with an error of
 * what it was under way. Clocks are monotonic, so nobody sets them in between. */
void account_clock(struct account_clock *c, int64_t sent_ns, uint64_t here_ns)
{
    int64_t behind = (int64_t)here_ns - sent_ns;
    if (!c->known || behind < c->behind_ns)
        c->behind_ns = behind;
    c->known = 1;
}

uint64_t account_time(const struct account_clock *c, int64_t there_ns, uint64_t here_ns)
{
    int64_t at;
    if (!c->known || __builtin_add_overflow(there_ns, c->behind_ns, &at) || at < 0 ||
        (uint64_t)at > here_ns)
        return here_ns;
    return (uint64_t)at;
}

/* ---- the whole ---- */

int account_new(struct account **ret, const struct daemon *d, uint64_t start_ns, struct dd_err *err)
{
    struct account *a = calloc(1, sizeof(*a));
    uint64_t now = dd_now_ns();
    if (start_ns == 0 || start_ns > now)
        start_ns = now;
    const struct report_cfg cfg = {.job_id = d->cfg.job_id,
                                   .nnodes = d->cfg.rdzv.max_nodes,
                                   .max_restarts = d->cfg.rdzv.max_restarts,
                                   .start_ns = start_ns,
                                   .start_real_ns = dd_now_real_ns() - (now - start_ns)};
    if (a == NULL || report_new(&a->report, &cfg) < 0) {
        free(a);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    a->round = -1;
    a->why = DD_BUF_INIT(512);
    *ret = a;
    return 0;
}

void account_free(struct account *a)
{
    if (a == NULL)
        return;
    report_free(a->report);
    dd_buf_done(&a->why);
    free(a);
}

static void on_exit_msg(struct account *a, struct daemon *d, const struct guest *g,
                        const struct msg_exit *m)
{
    const struct report_exit e = {.rank = m->rank,
                                  .local_rank = m->local_rank,
                                  .pid = m->pid,
                                  .code = m->code,
                                  .signal = m->signal,
                                  .oom = m->oom,
                                  .at_ns = account_time(&g->clock, m->ended_ns, dd_now_ns()),
                                  .node = g->name,
                                  .error = m->error,
                                  .trace = m->trace,
                                  .tail = m->text,
                                  .log = m->log};
    dd_buf_clear(&a->why);
    if (m->round != a->round ||
        report_exit_add(a->report, &e, rdzv_state(d->machine) == RDZV_RUNNING) < 0)
        return;
    (void)report_why(&e, &a->why);
    events_add(d, &(struct happened){.kind = EVENT_EXIT,
                                     .node = g->name,
                                     .round = a->round,
                                     .rank = e.rank,
                                     .code = e.code,
                                     .signal = e.signal,
                                     .text = account_why(a)});
}

void account_msg(struct account *a, struct daemon *d, struct guest *g, const struct msg *m)
{
    if (m->type == MSG_JOIN) {
        account_clock(&g->clock, m->join.sent_ns, dd_now_ns());
    } else if (m->type == MSG_EXIT) {
        account_clock(&g->clock, m->exit.sent_ns, dd_now_ns());
        on_exit_msg(a, d, g, &m->exit);
    } else if (m->type == MSG_DONE) {
        account_clock(&g->clock, m->done.sent_ns, dd_now_ns());
        if (m->done.round == a->round)
            report_ends_add(a->report, &(struct report_ends){.left = m->done.left,
                                                             .stopped = m->done.stopped,
                                                             .killed = m->done.killed});
    }
}

/* Workers of all nodes, from the plan of anybody who is here. */
static int world_size(const struct daemon *d)
{
    for (int id = 0; id < d->capacity; id++) {
        DD_AUTO(plan) struct plan p = {0};
        if (d->by_id[id] != NULL && rdzv_plan(d->machine, id, &p) == 0)
            return p.world_size;
    }
    return 0;
}

void account_step(struct account *a, struct daemon *d)
{
    enum rdzv_state s = rdzv_state(d->machine);
    if ((s == RDZV_RUNNING || s == RDZV_STOPPING) && a->round != rdzv_round(d->machine)) {
        a->round = rdzv_round(d->machine);
        const int size = world_size(d);
        report_round(a->report, a->round, size, dd_now_ns());
        events_add(d, &(struct happened){.kind = EVENT_ROUND,
                                         .round = a->round,
                                         .nodes = rdzv_planned(d->machine)->n,
                                         .workers = size});
    }
    if (s == RDZV_FINISHED && !a->finished) {
        a->finished = true;
        report_finish(a->report, rdzv_text(d->machine), account_code(a, d), dd_now_ns());
        events_add(d, &(struct happened){.kind = EVENT_FINISH,
                                         .code = account_code(a, d),
                                         .text = rdzv_text(d->machine)});
    }
}

const char *account_why(const struct account *a)
{
    struct dd_buf *why = (struct dd_buf *)(uintptr_t)&a->why;
    const char *text = dd_buf_str(why);
    return text != NULL ? text : "";
}

/* The machine takes the failure that it hears of first; by their clocks another one may be the
 * first. */
int account_code(const struct account *a, const struct daemon *d)
{
    int code = rdzv_code(d->machine);
    const struct report_exit *e = report_cause(a->report);
    return e != NULL && code != 0 ? e->code : code;
}

void account_texts(const struct account *a, struct dd_buf *text, struct dd_buf *json)
{
    (void)report_text(a->report, text);
    if (report_json(a->report, false, json) < 0) {
        dd_buf_clear(json);
        (void)report_json(a->report, true, json);
    }
}
