#include "agent/progress_watch.h"

#include "agent/agent.h"
#include "agent/features.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"
#include "rdzv/msg.h"
#include "worker/aside.h"
#include "worker/output.h"
#include "worker/step_lines.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INTERVAL_S = 5,  /* minimum time between two messages */
    FILE_BYTES = 64, /* bytes read of the file that contains the step */
};

struct progress_watch {
    const struct round *round;
    struct step_lines *lines; /* NULL: no regular expression */
    struct event *timer;
    int64_t sent; /* last step sent in this round; -1: none */
    uint64_t sent_ns;
};

static void report(struct progress_watch *p, int64_t step)
{
    if (step <= p->sent)
        return;
    p->sent = step;
    p->sent_ns = dd_now_ns();
    round_send(p->round, MSG(PROGRESS, .round = p->round->plan.round, .step = step));
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct progress_watch *p = arg;
    (void)fd;
    (void)what;
    report(p, step_lines_highest(p->lines));
}

/* Report the first step at once, later ones every few seconds. */
static void on_step(void *arg)
{
    struct progress_watch *p = arg;
    const uint64_t due = p->sent < 0 ? 0 : p->sent_ns + INTERVAL_S * DD_NS_PER_S;
    const uint64_t now = dd_now_ns();
    const struct timeval t = dd_timeval(due > now ? due - now : 0);
    if (!evtimer_pending(p->timer, NULL))
        (void)evtimer_add(p->timer, &t);
}

/* Return the number in the file; -1: none. */
static int64_t read_step(const char *path)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 20);
    char word[FILE_BYTES + 1];
    uint64_t v;
    const char *text = aside_read_end(path, FILE_BYTES, &b) == 0 ? dd_buf_str(&b) : NULL;
    if (text == NULL)
        return -1;
    text += strspn(text, " \t\r\n");
    (void)snprintf(word, sizeof(word), "%.*s", (int)strcspn(text, " \t\r\n"), text);
    return dd_num_u64(word, 0, INT64_MAX, &v) == 0 ? (int64_t)v : -1;
}

/* ---- hooks ---- */

static void progress_watch_destroy(void *state)
{
    struct progress_watch *p = state;
    if (p->round->output != NULL)
        worker_output_watch_steps(p->round->output, NULL);
    if (p->timer != NULL)
        event_free(p->timer);
    step_lines_free(p->lines);
    free(p);
}

static int progress_watch_create(void **state, const struct round *r, struct dd_err *err)
{
    const struct progress_watch_cfg *c = &r->cfg->progress;
    int rc = 0;
    if (c->file == NULL && c->regex == NULL)
        return 0;
    struct progress_watch *p = *state = calloc(1, sizeof(*p));
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    p->round = r;
    p->sent = -1;
    p->timer = evtimer_new(r->base, on_timer, p);
    if (p->timer == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (c->regex != NULL)
        rc = step_lines_new(&p->lines, c->regex, err);
    if (rc == 0 && p->lines != NULL && r->output != NULL) {
        step_lines_on_step(p->lines, on_step, p);
        worker_output_watch_steps(r->output, p->lines);
    }
    return rc;
}

static int progress_watch_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct progress_watch *p = *state;
    (void)r;
    (void)err;
    if (p == NULL)
        return 0;
    p->sent = -1;
    if (p->lines != NULL)
        step_lines_begin(p->lines);
    return 0;
}

/* Report the last step of this round before DONE. Only one node reads the file, which all nodes may
 * share. */
static void progress_watch_end(void *state, const struct round *r)
{
    struct progress_watch *p = state;
    int64_t step = -1;
    (void)evtimer_del(p->timer);
    if (p->lines != NULL) {
        step_lines_end(p->lines);
        (void)evtimer_del(p->timer);
        step = step_lines_highest(p->lines);
    }
    if (r->cfg->progress.file != NULL && r->plan.node_rank == 0) {
        const int64_t in_file = read_step(r->cfg->progress.file);
        step = in_file > step ? in_file : step;
    }
    report(p, step);
}

const struct round_feature progress_watch_feature = {
    .name = "progress",
    .create = progress_watch_create,
    .prepare = progress_watch_prepare,
    .end = progress_watch_end,
    .destroy = progress_watch_destroy,
};
