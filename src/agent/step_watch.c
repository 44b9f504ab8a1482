#include "agent/step_watch.h"

#include "agent/agent.h"

#include "base/io.h"
#include "base/step_page.h"
#include "rdzv/msg.h"
#include "rdzv/stragglers.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    INTERVAL_MS = 2000, /* minimum time between two messages */
    NODE_MS = 10,       /* the interval is at least this times the number of nodes, so that the
                           daemon gets at most 100 messages a second */
    TEXT_EACH = 100,    /* maximum number of bytes for each worker */
};

struct step_watch {
    const struct round *round;
    struct event *timer;
    int fd; /* a page for each worker; the file has no name */
    int n;
    uint64_t sent[]; /* the number of steps of each worker in the last message */
};

/* Read the file instead of mapping it: no change that a worker makes to it can stop the agent. */
static bool step_watch_read(const struct step_watch *w, int local_rank, struct step_times *ret)
{
    struct step_page page;
    const ssize_t n = pread(w->fd, &page, sizeof(page), (off_t)local_rank * STEP_PAGE_BYTES);
    return n > 0 && step_page_read(&page, (size_t)n, ret);
}

static void step_watch_send(struct step_watch *w)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT((size_t)w->n * TEXT_EACH + 1);
    struct step_times t;
    for (int i = 0; i < w->n; i++)
        if (step_watch_read(w, i, &t) && t.count != w->sent[i] && step_times_put(&text, i, &t) == 0)
            w->sent[i] = t.count;
    if (text.len > 0 && dd_buf_str(&text) != NULL)
        round_send(w->round, MSG(STEPS, .round = w->round->plan.round, .text = dd_buf_str(&text)));
}

static void step_watch_wait(const struct step_watch *w)
{
    const uint64_t nodes = (uint64_t)w->round->plan.nnodes * NODE_MS;
    const struct timeval t = dd_timeval((nodes > INTERVAL_MS ? nodes : INTERVAL_MS) * DD_NS_PER_MS);
    (void)evtimer_add(w->timer, &t);
}

static void step_watch_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct step_watch *w = arg;
    (void)fd;
    (void)what;
    step_watch_send(w);
    step_watch_wait(w);
}

/* ---- hooks ---- */

static void step_watch_free(struct step_watch *w)
{
    if (w->timer != NULL)
        event_free(w->timer);
    if (w->fd >= 0)
        close(w->fd);
    free(w);
}

/* Seal the size of the file: a worker that shrinks it would kill those that have mapped it. */
static int step_watch_file(struct step_watch *w, struct dd_err *err)
{
    w->fd = memfd_create("ddrun-steps", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (w->fd < 0 || ftruncate(w->fd, (off_t)w->n * STEP_PAGE_BYTES) < 0 ||
        fcntl(w->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return dd_err_set(err, -errno, "cannot create the file for the times of steps: %m");
    return 0;
}

static int step_watch_prepare(void **state, const struct round *r, struct dd_err *err)
{
    const int n = r->plan.local_size;
    struct step_watch *w = *state = calloc(1, sizeof(*w) + (size_t)n * sizeof(w->sent[0]));
    if (w == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    w->round = r;
    w->n = n;
    w->fd = -1;
    return step_watch_file(w, err);
}

static int step_watch_env(void *state, const struct round *r, int local_rank,
                          struct worker_spec *spec)
{
    const struct step_watch *w = state;
    (void)r;
    return dd_env_setf(&spec->env, "DDRUN_STEPS", "%d:/proc/%d/fd/%d", local_rank, (int)getpid(),
                       w->fd);
}

static int step_watch_started(void *state, const struct round *r, struct dd_err *err)
{
    struct step_watch *w = state;
    w->timer = evtimer_new(r->base, step_watch_on_timer, w);
    if (w->timer == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    step_watch_wait(w);
    return 0;
}

/* Send the last steps before DONE. */
static void step_watch_end(void *state, const struct round *r)
{
    struct step_watch *w = state;
    (void)r;
    if (w->timer != NULL)
        step_watch_send(w);
    step_watch_free(w);
}

const struct round_feature step_watch_feature = {
    .name = "steps",
    .prepare = step_watch_prepare,
    .worker_env = step_watch_env,
    .started = step_watch_started,
    .end = step_watch_end,
};
