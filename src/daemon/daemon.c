#include "daemon/daemon.h"

#include "base/io.h"
#include "daemon/inner.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>

enum {
    LATECOMER_S = 3, /* after an end before the start: nodes that are about to come are told */
    HAND_OVER_S =
        2, /* for the words to those who go to another daemon, and to those who still come */
    GOODBYE_S = 5, /* agents that have been told FINISH leave by themselves within this time */
    /* A scheduler signals agents and daemon alike. An agent's word says more (which signal, which
     * node), so it may come first. */
    STOP_MS = 300,
};

void daemon_over(struct daemon *d, int code)
{
    if (d->over)
        return;
    d->over = true;
    d->cfg.on_over(d->cfg.arg, code);
}

static void over(struct daemon *d)
{
    daemon_over(d, d->machine != NULL ? rdzv_code(d->machine) : 0);
}

static void on_end(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    if (!notify_waits(arg))
        over(arg);
}

/* Finished, and everybody has left: then the store is needed no longer either. At the deadline
 * nobody else is waited for. */
static void check_over(struct daemon *d)
{
    if (d->machine == NULL || rdzv_state(d->machine) != RDZV_FINISHED || d->over)
        return;
    const bool left = rdzv_members(d->machine) == 0;
    const bool now = left && (rdzv_all_told(d->machine) || d->started);
    const struct timeval t = {.tv_sec = now ? 0 : left ? LATECOMER_S : GOODBYE_S};
    if (now || (left && !d->left) || !evtimer_pending(d->end, NULL))
        evtimer_add(d->end, &t);
    d->left |= left;
}

/* The machine has no clock: it says when it wants to be asked again. */
static void set_timer(struct daemon *d)
{
    uint64_t at = rdzv_timer(d->machine);
    uint64_t now = dd_now_ns();
    struct timeval t = dd_timeval(at > now ? at - now : 0);
    if (at == RDZV_NEVER)
        evtimer_del(d->timer);
    else
        evtimer_add(d->timer, &t);
}

void daemon_step(struct daemon *d, const struct rdzv_event *e)
{
    enum rdzv_state before = rdzv_state(d->machine);
    int rc = rdzv_step(d->machine, e, dd_now_ns());
    if (rc == -ENOMEM) { /* half of a step: nobody can say what would follow */
        dd_log(d->cfg.log, DD_LOG_ERR, "ddrund is out of memory and ends");
        daemon_over(d, 1);
        return;
    }
    if (rc < 0)
        dd_log(d->cfg.log, DD_LOG_WARN, "event %d of member %d refused in state %s", (int)e->kind,
               e->id, rdzv_state_name(before));
    enum rdzv_state after = rdzv_state(d->machine);
    if (after != before)
        dd_log(d->cfg.log, DD_LOG_DEBUG, "event=transition from=%s to=%s round=%d members=%d",
               rdzv_state_name(before), rdzv_state_name(after), rdzv_round(d->machine),
               rdzv_members(d->machine));
    if (after == RDZV_RUNNING)
        d->started = true;
    if (after != RDZV_GATHERING)
        evtimer_del(d->progress);
    account_step(d->account, d);
    guests_run_actions(d);
    set_timer(d);
    check_over(d);
}

void daemon_handed_over(struct daemon *d)
{
    const struct timeval t = {.tv_sec = HAND_OVER_S};
    struct event *timers[] = {d->progress, d->timer, d->stop};
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        evtimer_del(timers[i]);
    evtimer_add(d->end, &t);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    daemon_step(arg, &(struct rdzv_event){.kind = RDZV_TIME, .id = -1});
    struct daemon *d = arg;
    if (rdzv_state(d->machine) == RDZV_FINISHED)
        d->started = true;
}

/* "waiting for node3 (3 of 4 nodes ready)", first after 5 s, then at growing intervals. */
static void on_progress(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct daemon *d = arg;
    uint64_t waited = (dd_now_ns() - d->start_ns) / DD_NS_PER_S;
    struct timeval t = {.tv_sec = (time_t)(waited < 60 ? waited : 60)};
    DD_AUTO(buf) struct dd_buf missing = DD_BUF_INIT(1 << 20);
    char text[1024];
    if (rdzv_missing(d->machine, &missing) == 0) {
        const char *names = dd_buf_str(&missing);
        (void)snprintf(text, sizeof(text), "waiting for %.800s (%d of %d nodes ready)",
                       names == NULL ? "?" : names, rdzv_members(d->machine),
                       rdzv_wanted(d->machine));
        struct guest *g;
        LIST_FOREACH (g, &d->guests, entry)
            if (g->is_host)
                guest_send(g, MSG(STATUS, .text = text));
    }
    evtimer_add(d->progress, &t);
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    daemon_step(arg, &(struct rdzv_event){.kind = RDZV_STOP_REQUEST,
                                          .id = -1,
                                          .signal = SIGTERM,
                                          .text = "stopped by a signal to ddrund"});
}

static int start_job(struct daemon *d, struct dd_err *err)
{
    struct rdzv_cfg *rc = &d->cfg.rdzv;
    rc->master_port = d->cfg.port;
    d->capacity = rc->capacity;
    d->by_id = calloc((size_t)d->capacity, sizeof(struct guest *));
    d->free_ids = calloc((size_t)d->capacity, sizeof(*d->free_ids));
    if (d->by_id == NULL || d->free_ids == NULL || rdzv_new(&d->machine, rc, dd_now_ns()) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory for %d nodes", d->capacity);
    if (account_new(&d->account, d, d->cfg.start_ns, err) < 0)
        return -ENOMEM;
    for (int id = d->capacity - 1; id >= 0; id--)
        d->free_ids[d->nfree++] = id;
    uint64_t random[2];
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return dd_err_set(err, -EIO, "no random numbers");
    (void)snprintf(d->token, sizeof(d->token), "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    /* before the filter: OpenSSL may load a provider from a file, as in FIPS mode */
    if (d->capacity > 1 && d->cfg.key.method != NET_KEY_NONE &&
        link_shared_prepare(&d->shared, err) < 0)
        return -EIO;
    struct timeval first = {.tv_sec = 5};
    d->timer = evtimer_new(d->base, on_time, d);
    d->progress = evtimer_new(d->base, on_progress, d);
    d->stop = evtimer_new(d->base, on_stop, d);
    if (d->timer == NULL || d->progress == NULL || d->stop == NULL ||
        evtimer_add(d->progress, &first) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory for timers");
    set_timer(d);
    int fd = d->cfg.host_fd;
    d->cfg.host_fd = -1;
    return guests_add_host(d, fd, err);
}

int daemon_new(struct daemon **ret, struct event_base *base, const struct daemon_cfg *cfg,
               struct dd_err *err)
{
    struct daemon *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    d->cfg = *cfg;
    d->base = base;
    d->start_ns = dd_now_ns();
    d->texts_round = -1;
    LIST_INIT(&d->guests);
    TAILQ_INIT(&d->accepting);
    unproven_set_init(&d->unproven);
    d->end = evtimer_new(base, on_end, d);
    int rc = d->end == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    if (rc == 0)
        rc = store_server_new(&d->store, base, cfg->log, &cfg->limits, cfg->old, err);
    if (rc == 0)
        rc = admission_new(&d->admission, d, err);
    if (rc == 0)
        rc = door_new(&d->door, d, cfg->listen_fd, err);
    if (rc == 0 && cfg->job_id != NULL)
        rc = start_job(d, err);
    if (rc < 0) {
        daemon_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void daemon_stop(struct daemon *d)
{
    struct timeval t = {.tv_usec = STOP_MS * 1000};
    if (d->machine == NULL || rdzv_state(d->machine) == RDZV_FINISHED)
        over(d);
    else if (!evtimer_pending(d->stop, NULL))
        evtimer_add(d->stop, &t);
}

void daemon_free(struct daemon *d)
{
    if (d == NULL)
        return;
    door_free(d->door);
    guests_free(d);
    store_server_free(d->store);
    admission_free(d->admission);
    account_free(d->account);
    events_free(d);
    notify_free(d);
    rdzv_free(d->machine);
    guests_free_exchange(d);
    struct event *timers[] = {d->progress, d->timer, d->stop, d->end};
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        if (timers[i] != NULL)
            event_free(timers[i]);
    free(d->sizes_text);
    free(d->members_text);
    free(d->ports_text);
    free(d->by_id);
    free(d->free_ids);
    if (d->cfg.job_id != NULL) /* the host's agent does so too, but may have been killed */
        net_key_cleanup(&d->cfg.key, &d->cfg.key_in);
    free(d);
}
