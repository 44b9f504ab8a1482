#include "worker/hang.h"

#include "base/io.h"

#include <errno.h>
#include <stdlib.h>

#define INTERVAL_MIN (50 * DD_NS_PER_MS)
#define INTERVAL_MAX (5 * DD_NS_PER_S)
#define LATE_NS (1 * DD_NS_PER_S) /* normal delay on a busy machine */
enum { LOOKS = 10 };              /* number of checks per timeout */

struct hang {
    uint64_t timeout_ns, interval_ns, tick_at;
    int n;
    struct {
        uint64_t alive_at, sign;
    } v[];
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

void hang_tick(struct hang *h, uint64_t now)
{
    uint64_t late = now > h->tick_at ? now - h->tick_at : 0;
    for (int i = 0; i < h->n && late > LATE_NS; i++) {
        h->v[i].alive_at += late;
        if (h->v[i].alive_at > now)
            h->v[i].alive_at = now;
    }
    h->tick_at = now + h->interval_ns;
}

bool hang_look(struct hang *h, int i, uint64_t sign, uint64_t now)
{
    if (sign != h->v[i].sign) {
        h->v[i].sign = sign;
        h->v[i].alive_at = now;
    }
    return now - h->v[i].alive_at >= h->timeout_ns;
}

void hang_alive(struct hang *h, int i, uint64_t now)
{
    h->v[i].alive_at = now;
}

uint64_t hang_silent(const struct hang *h, int i, uint64_t now)
{
    return now - h->v[i].alive_at;
}
