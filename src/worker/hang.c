#include "worker/hang.h"

#include "base/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define INTERVAL_MIN (50 * DD_NS_PER_MS)
#define INTERVAL_MAX (5 * DD_NS_PER_S)
#define LATE_NS (1 * DD_NS_PER_S) /* normal delay on a busy machine */
enum { LOOKS = 10 };              /* number of checks per timeout */

/* What a program uses while it waits: threads that wake up now and then, libraries that report
 * their state, keep-alive messages. Measured 2026-11-23: 0.3 % of a CPU and 20 bytes per second for
 * gloo in PyTorch 2.13. */
#define WAITING_CPU_PERCENT UINT64_C(2)
#define WAITING_CPU_LEAST (30 * DD_NS_PER_MS) /* the kernel counts in units of 10 ms */
#define WAITING_IO UINT64_C(4096)             /* bytes per second */
#define WAITING_NETWORK UINT64_C(1024)        /* bytes per second */
#define WAITING_BYTES_LEAST UINT64_C(1024)    /* bytes */

struct hang_worker {
    uint64_t alive_at, sign;
    uint64_t read_at; /* time of the last reading of the counters; 0: none since the last sign */
    struct hang_counters last;  /* counters at read_at */
    struct hang_counters alive; /* counters when the worker was last active */
};

struct hang {
    uint64_t timeout_ns, interval_ns, tick_at;
    uint64_t own_ns; /* own_ns of the last hang_tick() */
    int n;
    struct hang_worker v[];
};

int hang_new(struct hang **ret, int n, uint64_t timeout_ns, uint64_t now)
{
    struct hang *h = calloc(1, sizeof(*h) + (size_t)n * sizeof(h->v[0]));
    if (h == NULL)
        return -ENOMEM;
    h->timeout_ns = timeout_ns;
    h->interval_ns = timeout_ns / LOOKS;
    if (h->interval_ns < INTERVAL_MIN)
        h->interval_ns = INTERVAL_MIN;
    if (h->interval_ns > INTERVAL_MAX)
        h->interval_ns = INTERVAL_MAX;
    h->tick_at = now + h->interval_ns;
    h->own_ns = UINT64_MAX; /* before the first tick: unknown */
    h->n = n;
    for (int i = 0; i < n; i++)
        h->v[i].alive_at = now;
    *ret = h;
    return 0;
}

void hang_free(struct hang *h)
{
    free(h);
}

uint64_t hang_interval(const struct hang *h)
{
    return h->interval_ns;
}

/* Time in which this process waited for a processor counts as silence of the workers: the counters
 * of a worker that waits for a processor, too, show it as active. */
bool hang_tick(struct hang *h, uint64_t now, uint64_t own_ns)
{
    const uint64_t own = own_ns > h->own_ns ? own_ns - h->own_ns : 0;
    uint64_t late = now > h->tick_at ? now - h->tick_at : 0;
    const bool is_late = late > LATE_NS;
    late -= own < late ? own : late;
    h->own_ns = own_ns;
    for (int i = 0; i < h->n && late > LATE_NS; i++) {
        h->v[i].alive_at += late;
        if (h->v[i].alive_at > now)
            h->v[i].alive_at = now;
        h->v[i].read_at = 0;
    }
    h->tick_at = now + h->interval_ns;
    return is_late;
}

bool hang_look(struct hang *h, int i, uint64_t sign, uint64_t now)
{
    if (sign != h->v[i].sign) {
        h->v[i].sign = sign;
        hang_alive(h, i, now);
    }
    return now - h->v[i].alive_at >= h->timeout_ns;
}

void hang_alive(struct hang *h, int i, uint64_t now)
{
    h->v[i].alive_at = now;
    h->v[i].read_at = 0;
}

uint64_t hang_silent(const struct hang *h, int i, uint64_t now)
{
    return now - h->v[i].alive_at;
}

/* ---- counters ---- */

bool hang_wants_counters(const struct hang *h, int i, uint64_t now)
{
    const struct hang_worker *w = &h->v[i];
    if (w->read_at == 0)
        return now > w->alive_at;
    /* a worker that may be declared hung: read its usage at every tick */
    const bool silent = now - w->alive_at >= h->timeout_ns;
    const uint64_t pause = silent ? h->interval_ns : h->timeout_ns / LOOKS;
    return now - w->read_at >= (pause > h->interval_ns ? pause : h->interval_ns);
}

/* If a sum shrinks, a process has ended, which is a sign of activity. */
static uint64_t hang_difference(uint64_t before, uint64_t after)
{
    return after > before ? after - before : before - after;
}

static bool hang_uses_bytes(uint64_t before, uint64_t after, uint64_t rate, uint64_t spent_ns)
{
    const uint64_t waiting = rate * (spent_ns / DD_NS_PER_MS) / 1000;
    return hang_difference(before, after) >
           (waiting > WAITING_BYTES_LEAST ? waiting : WAITING_BYTES_LEAST);
}

static bool hang_uses_cpu(uint64_t before, uint64_t after, uint64_t spent_ns)
{
    const uint64_t waiting = spent_ns / 100 * WAITING_CPU_PERCENT;
    return hang_difference(before, after) >
           (waiting > WAITING_CPU_LEAST ? waiting : WAITING_CPU_LEAST);
}

void hang_count(struct hang *h, int i, int signs, const struct hang_counters *c, uint64_t now)
{
    struct hang_worker *w = &h->v[i];
    const struct hang_counters *b = &w->last;
    const uint64_t spent = now - w->read_at;
    const bool active = w->read_at == 0 ||
                        ((signs & HANG_SIGN_CPU) != 0 &&
                         hang_uses_cpu(b->cpu_ns, c->cpu_ns, spent)) ||
                        ((signs & HANG_SIGN_IO) != 0 &&
                         hang_uses_bytes(b->io_bytes, c->io_bytes, WAITING_IO, spent)) ||
                        ((signs & HANG_SIGN_NETWORK) != 0 &&
                         hang_uses_bytes(b->net_bytes, c->net_bytes, WAITING_NETWORK, spent));
    if (active) {
        w->alive_at = now;
        w->alive = *c;
    }
    w->last = *c;
    w->read_at = now;
}

struct hang_counters hang_used(const struct hang *h, int i)
{
    const struct hang_worker *w = &h->v[i];
    return (struct hang_counters){
        .cpu_ns = hang_difference(w->alive.cpu_ns, w->last.cpu_ns),
        .io_bytes = hang_difference(w->alive.io_bytes, w->last.io_bytes),
        .net_bytes = hang_difference(w->alive.net_bytes, w->last.net_bytes)};
}

int hang_signs(int signs, bool busy_waits)
{
    const int suit = busy_waits ? HANG_SIGNS_ALL & ~HANG_SIGN_CPU : HANG_SIGNS_ALL;
    return (signs & HANG_SIGNS_ALL) | ((signs & HANG_SIGNS_ACTIVITY) != 0 ? suit : 0);
}

const char *hang_missing(int signs, char *out, size_t size)
{
    static const struct {
        int sign;
        const char *name;
    } names[] = {{HANG_SIGN_OUTPUT, "output"},
                 {HANG_SIGN_FILE, "heartbeat"},
                 {HANG_SIGN_CPU, "processor time"},
                 {HANG_SIGN_IO, "I/O"},
                 {HANG_SIGN_NETWORK, "network traffic"}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && n < size; i++) {
        const bool last = (signs >> (i + 1)) == 0;
        if ((signs & names[i].sign) == 0)
            continue;
        const int add = snprintf(out + n, size - n, "%s%s",
                                 n == 0 ? "no "
                                 : last ? " or "
                                        : ", ",
                                 names[i].name);
        n += add > 0 ? (size_t)add : 0;
    }
    return out;
}
