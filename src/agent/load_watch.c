#include "agent/load_watch.h"

#include "agent/agent.h"
#include "agent/worker_gpus.h"
#include "base/io.h"
#include "node/gpu_facts.h"
#include "rdzv/msg.h"
#include "rdzv/rank_load.h"
#include "worker/activity.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

enum {
    NODE_MS = 10,   /* the interval is at least this times the number of nodes, so that the daemon
                       gets at most 100 messages a second */
    TEXT_EACH = 40, /* maximum number of bytes for each worker */
};

struct watched {
    uint64_t delay_ns; /* time that the worker had waited for a CPU at the last reading */
    struct load_window window;
    struct load_sent sent;
};

struct load_watch {
    const struct round *round;
    struct event *timer;
    uint64_t read_ns; /* time of the last reading; 0: none yet */
    struct worker_gpus gpus;
    struct gpu_usage usage[GPU_USAGE_MAX]; /* usage of the GPUs at the last reading */
    int nusage;
    uint64_t usage_readings;
    struct watched v[];
};

/* Return the percentage of the time since the last reading that the worker has waited for a CPU. */
static int load_read_wait(const struct load_watch *w, struct watched *k, int local_rank,
                          uint64_t now)
{
    const pid_t pid = w->round->group != NULL ? worker_group_pid(w->round->group, local_rank) : 0;
    const uint64_t was = k->delay_ns;
    k->delay_ns = pid > 0 ? activity_delay_ns(pid) : 0;
    if (w->read_ns == 0 || now <= w->read_ns || k->delay_ns <= was)
        return 0;
    const uint64_t percent = (k->delay_ns - was) / ((now - w->read_ns) / 100 + 1);
    return percent < 100 ? (int)percent : 100;
}

/* Take the usage of the GPUs. Return true if it was read anew since the last call. */
static bool load_read_gpus(struct load_watch *w)
{
    const struct round *r = w->round;
    const uint64_t was = w->usage_readings;
    if (r->cfg->health.gpus == 0 || r->port->gpus == NULL)
        return false;
    w->nusage = r->port->gpus(r->port_arg, w->usage, &w->usage_readings);
    return w->usage_readings != was;
}

static enum load_reason load_reason_of(uint64_t throttle)
{
    if (throttle & (NVML_CLOCKS_SW_THERMAL | NVML_CLOCKS_HW_THERMAL))
        return LOAD_HOT;
    if (throttle & NVML_CLOCKS_POWER_BRAKE)
        return LOAD_POWER_BRAKE;
    return throttle & NVML_CLOCKS_HW_SLOWDOWN ? LOAD_HARDWARE : LOAD_NO_REASON;
}

static struct rank_load load_clock_of(const struct load_watch *w, int local_rank)
{
    const struct gpu_usage *used[GPU_USAGE_MAX];
    const int n = worker_gpus_find(&w->gpus, w->usage, w->nusage, local_rank, used);
    const struct gpu_usage *u = gpu_usage_slowest(used, n);
    if (u == NULL || u->clock_mhz > LOAD_MHZ_MAX || u->clock_max_mhz > LOAD_MHZ_MAX ||
        u->index > LOAD_GPU_MAX)
        return (struct rank_load){0};
    return (struct rank_load){.mhz = (int)u->clock_mhz,
                              .max_mhz = (int)u->clock_max_mhz,
                              .gpu = u->index,
                              .reason = load_reason_of(u->throttle)};
}

/* Read the loads of all workers. */
static void load_watch_read(struct load_watch *w)
{
    const uint64_t now = dd_now_ns();
    const bool gpus = load_read_gpus(w);
    for (int i = 0; i < w->round->plan.local_size; i++) {
        struct watched *k = &w->v[i];
        const int wait = load_read_wait(w, k, i, now);
        const struct rank_load clock = gpus ? load_clock_of(w, i) : (struct rank_load){0};
        if (w->read_ns != 0)
            load_window_add_wait(&k->window, wait);
        if (gpus)
            load_window_add_clock(&k->window, &clock);
    }
    w->read_ns = now;
}

/* Send the loads that have changed. */
static void load_watch_send(struct load_watch *w)
{
    const struct round *r = w->round;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT((size_t)r->plan.local_size * TEXT_EACH + 1);
    for (int i = 0; i < r->plan.local_size; i++) {
        struct watched *k = &w->v[i];
        struct rank_load load;
        if (load_window_median(&k->window, &load) && load_is_due(&k->sent, &load))
            (void)load_put(&text, i, &load); /* -ENOMEM: a repetition follows */
    }
    if (text.len > 0 && dd_buf_str(&text) != NULL)
        round_send(r, MSG(LOAD, .round = r->plan.round, .text = dd_buf_str(&text)));
}

static void load_watch_wait(const struct load_watch *w)
{
    const struct round *r = w->round;
    const uint64_t nodes = (uint64_t)r->plan.nnodes * NODE_MS * DD_NS_PER_MS;
    const struct timeval t = dd_timeval(
        nodes > r->cfg->load_interval_ns ? nodes : r->cfg->load_interval_ns);
    (void)evtimer_add(w->timer, &t);
}

static void load_watch_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct load_watch *w = arg;
    (void)fd;
    (void)what;
    load_watch_read(w);
    load_watch_send(w);
    load_watch_wait(w);
}

/* ---- hooks ---- */

static int load_watch_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct load_watch *w = *state = calloc(1, sizeof(*w) +
                                                  (size_t)r->plan.local_size * sizeof(w->v[0]));
    if (w == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    w->round = r;
    return worker_gpus_init(&w->gpus, r->plan.local_size) < 0
               ? dd_err_set(err, -ENOMEM, "out of memory")
               : 0;
}

static int load_watch_env(void *state, const struct round *r, int local_rank,
                          struct worker_spec *spec)
{
    struct load_watch *w = state;
    return worker_gpus_take_env(&w->gpus, r, local_rank, spec);
}

static int load_watch_started(void *state, const struct round *r, struct dd_err *err)
{
    struct load_watch *w = state;
    if (r->cfg->load_interval_ns == 0)
        return 0;
    w->timer = evtimer_new(r->base, load_watch_on_timer, w);
    if (w->timer == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    load_watch_wait(w);
    return 0;
}

static void load_watch_end(void *state, const struct round *r)
{
    struct load_watch *w = state;
    (void)r;
    if (w->timer != NULL)
        event_free(w->timer);
    worker_gpus_done(&w->gpus);
    free(w);
}

const struct round_feature load_watch_feature = {
    .name = "load",
    .prepare = load_watch_prepare,
    .worker_env = load_watch_env,
    .started = load_watch_started,
    .end = load_watch_end,
};
