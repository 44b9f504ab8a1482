/* Reports heartbeats and steps to ddrun, and receives events from it. */
#include "lib/lib_inner.h"

#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int ddrun_heartbeat(struct ddrun *d)
{
    if (d->heartbeat == NULL)
        return 0;
    if (utimensat(AT_FDCWD, d->heartbeat, NULL, 0) == 0)
        return 0;
    int rc = -errno;
    if (d->heartbeat_fd < 0 ||
        futimens(d->heartbeat_fd, NULL) < 0) /* in a container, the path may not exist */
        return lib_fail_as(rc, "cannot touch the heartbeat file '%.200s': %s", d->heartbeat,
                           strerror(-rc));
    return 0;
}

/* ---- steps ---- */

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t = {0};
    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* A forked child shares the memory with its parent, and must not write to the memory. */
static int steps_check(const struct ddrun *d, const char *call)
{
    return d->pid == getpid() ? 0 : lib_fail(-EPERM, "%s", call);
}

int ddrun_step(struct ddrun *d, int64_t step)
{
    const int rc = steps_check(d, "ddrun_step");
    if (rc < 0)
        return rc;
    if (step < 0)
        return lib_fail_as(-EINVAL, "ddrun_step: invalid step %lld: expected 0 or more",
                           (long long)step);
    if (d->steps != NULL)
        step_page_begin(d->steps, &d->clock, step, clock_ns(CLOCK_MONOTONIC),
                        clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}

int ddrun_step_wait(struct ddrun *d)
{
    const int rc = steps_check(d, "ddrun_step_wait");
    if (rc == 0 && d->steps != NULL)
        step_clock_wait(&d->clock, clock_ns(CLOCK_MONOTONIC));
    return rc;
}

int ddrun_step_resume(struct ddrun *d)
{
    const int rc = steps_check(d, "ddrun_step_resume");
    if (rc == 0 && d->steps != NULL)
        step_clock_resume(&d->clock, clock_ns(CLOCK_MONOTONIC));
    return rc;
}

/* ---- events ---- */

/* Parse "stop 15" or "signal 10". Returns 1, 0 for an unknown kind (of a later version), or -EPROTO
 * for an invalid signal number. Src: docs/protocol/store-c10d.md. */
static int event_parse(const char *text, struct ddrun_event *ret)
{
    static const struct {
        const char *word;
        enum ddrun_event_kind kind;
    } kinds[] = {{"stop ", DDRUN_EVENT_STOP}, {"signal ", DDRUN_EVENT_SIGNAL}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t n = strlen(kinds[i].word);
        if (strncmp(text, kinds[i].word, n) != 0)
            continue;
        ret->kind = kinds[i].kind;
        return dd_num_int(text + n, 0, 1000, &ret->signal) < 0 ? -EPROTO : 1;
    }
    return 0;
}

/* Fetch event number n. 1: stored in *ret; 0: its kind is unknown. */
static int fetch(struct ddrun *d, int n, struct ddrun_event *ret, uint64_t deadline)
{
    struct wire w;
    char name[32];
    const char *names[] = {name};
    (void)snprintf(name, sizeof(name), "event/%d", n);
    wire_init(&w, 0);
    wire_wait(&w, d->prefix, names, 1);
    int rc = lib_call(d, &w, deadline);
    wire_done_with(&w);
    if (rc < 0)
        return rc;
    wire_init(&w, 1000);
    wire_get(&w, (struct wire_key){d->prefix, name});
    rc = lib_call(d, &w, deadline_in(ANSWER_MS));
    const char *text = rc == 0 ? dd_buf_str(&w.in) : NULL;
    if (rc == 0)
        rc = text == NULL ? -ENOMEM : event_parse(text, ret);
    wire_done_with(&w);
    return rc;
}

/* Return true in only one of several threads that have waited for the same event. */
static bool is_mine(struct ddrun *d, int n)
{
    (void)pthread_mutex_lock(&d->lock);
    bool mine = d->next_event == n;
    d->next_event += mine;
    (void)pthread_mutex_unlock(&d->lock);
    return mine;
}

int ddrun_next_event(struct ddrun *d, struct ddrun_event *ret, int timeout_ms)
{
    uint64_t deadline = deadline_in(timeout_ms == 0 ? 1 : timeout_ms);
    int rc = lib_check(d);
    if (rc == 0 && d->local != NULL) {
        deadline_sleep(deadline);
        rc = -ETIMEDOUT;
    }
    while (rc == 0) {
        struct ddrun_event e = {0};
        int n = __atomic_load_n(&d->next_event, __ATOMIC_RELAXED);
        rc = fetch(d, n, &e, deadline);
        if (rc >= 0 && !is_mine(d, n))
            rc = 0;
        if (rc == 1)
            *ret = e;
    }
    return rc < 0 ? lib_fail(rc, "next event") : 0;
}
