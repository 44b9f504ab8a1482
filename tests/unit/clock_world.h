/* A monotonic clock that a test moves forward instead of waiting for a time limit. It is the clock
 * of this program and of its libraries, libevent included: this definition of clock_gettime()
 * replaces that of libc. Sleeping and polling processes do not notice it: move the clock once
 * everything that must happen before the limit has happened. Include it in one file of a test. */
#ifndef DD_TESTS_CLOCK_WORLD_H
#define DD_TESTS_CLOCK_WORLD_H

#include <event2/event.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CLOCK_STEP_MS = 100 };

static _Atomic int64_t clock_ahead_ms;

int clock_gettime(clockid_t id, struct timespec *t)
{
    const int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE)) {
        const int64_t ms = atomic_load(&clock_ahead_ms);
        t->tv_sec += (time_t)(ms / 1000);
        t->tv_nsec += (long)(ms % 1000) * 1000000;
        t->tv_sec += t->tv_nsec / 1000000000;
        t->tv_nsec %= 1000000000;
    }
    return rc;
}

static inline void clock_skip(unsigned ms)
{
    (void)atomic_fetch_add(&clock_ahead_ms, (int64_t)ms);
}

/* State of clock_hurry(): one at a time. */
static struct {
    struct event_base *base;
    int left_ms;
} clock_hurrying;

static inline void clock_hurry_on(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval pause = {.tv_usec = 5000};
    (void)fd;
    (void)what;
    (void)arg;
    if (clock_hurrying.left_ms <= 0)
        return;
    clock_hurrying.left_ms -= CLOCK_STEP_MS;
    clock_skip(CLOCK_STEP_MS);
    (void)event_base_once(clock_hurrying.base, -1, EV_TIMEOUT, clock_hurry_on, NULL, &pause);
}

/* Move the clock by ms in small steps while the loop runs, for limits that follow each other. */
static inline void clock_hurry(struct event_base *base, unsigned ms)
{
    clock_hurrying.base = base;
    clock_hurrying.left_ms = (int)ms;
    clock_hurry_on(-1, 0, NULL);
}

#endif
