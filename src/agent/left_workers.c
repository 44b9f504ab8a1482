#include "agent/left_workers.h"

#include "agent/agent.h"

#include "base/io.h"
#include "rdzv/msg.h"
#include "report/rank_set.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

enum {
    /* Most workers of a node exit within this time: then DONE follows, and no message is needed. */
    DELAY_MS = 1000,
    TEXT_MAX = 16384,
};

struct left_workers {
    const struct round *round;
    struct event *timer; /* NULL: no worker has left */
    struct rank_set left;
};

static void left_workers_send(evutil_socket_t fd, short what, void *arg)
{
    const struct left_workers *w = arg;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    (void)fd;
    (void)what;
    if (rank_set_text(&w->left, &text) == 0 && dd_buf_str(&text) != NULL)
        round_send(w->round, MSG(LEFT, .round = w->round->plan.round, .ranks = dd_buf_str(&text)));
}

/* ---- hooks ---- */

static int left_workers_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct left_workers *w = *state = calloc(1, sizeof(*w));
    if (w == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    w->round = r;
    return 0;
}

static void left_workers_verdict(void *state, const struct round *r, const struct worker_end *end)
{
    struct left_workers *w = state;
    const int rank = r->plan.first_rank + end->exit.local_rank;
    const struct timeval t = dd_timeval(DELAY_MS * DD_NS_PER_MS);
    if (end->exit.code != 0 || rank_set_add(&w->left, rank, rank) < 0)
        return;
    if (w->timer == NULL)
        w->timer = evtimer_new(r->base, left_workers_send, w);
    if (w->timer != NULL && !evtimer_pending(w->timer, NULL))
        (void)evtimer_add(w->timer, &t);
}

static void left_workers_stopping(void *state, const struct round *r)
{
    struct left_workers *w = state;
    (void)r;
    if (w->timer != NULL)
        (void)evtimer_del(w->timer);
}

static void left_workers_end(void *state, const struct round *r)
{
    struct left_workers *w = state;
    (void)r;
    if (w->timer != NULL)
        event_free(w->timer);
    rank_set_done(&w->left);
    free(w);
}

const struct round_feature left_workers_feature = {
    .name = "left-workers",
    .prepare = left_workers_prepare,
    .stopping = left_workers_stopping,
    .verdict = left_workers_verdict,
    .end = left_workers_end,
};
