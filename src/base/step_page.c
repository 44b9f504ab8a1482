#include "base/step_page.h"

#include <stdlib.h>
#include <string.h>

#define STEP_MAGIC UINT64_C(0x3170657473726464) /* "ddrstep1" */

/* ---- the worker ---- */

/* Stores are atomic, since the reader may read at any time. */
static void store(uint64_t *at, uint64_t v)
{
    __atomic_store_n(at, v, __ATOMIC_RELEASE);
}

static uint64_t since(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

static void complete(struct step_page *p, struct step_clock *c, uint64_t now_ns, uint64_t cpu_ns)
{
    struct step_entry *e = &p->v[p->count % STEP_WINDOW];
    const uint64_t wall = since(c->begin_ns, now_ns);
    const uint64_t work = since(c->waited_ns, wall);
    store(&e->wall_ns, wall);
    store(&e->work_ns, !c->waited ? 0 : work > 0 ? work : 1);
    store(&e->cpu_ns, since(c->cpu_ns, cpu_ns));
    store(&p->count, p->count + 1);
}

void step_page_begin(struct step_page *p, struct step_clock *c, int64_t step, uint64_t now_ns,
                     uint64_t cpu_ns)
{
    step_clock_resume(c, now_ns);
    store(&p->magic, STEP_MAGIC);
    if (c->running)
        complete(p, c, now_ns, cpu_ns);
    __atomic_store_n(&p->step, step, __ATOMIC_RELEASE);
    *c = (struct step_clock){.running = true, .begin_ns = now_ns, .cpu_ns = cpu_ns};
}

void step_clock_wait(struct step_clock *c, uint64_t now_ns)
{
    if (c->waits)
        return;
    c->waits = c->waited = true;
    c->wait_ns = now_ns;
}

void step_clock_resume(struct step_clock *c, uint64_t now_ns)
{
    if (c->waits)
        c->waited_ns += since(c->wait_ns, now_ns);
    c->waits = false;
}

/* ---- the agent ---- */

static int step_page_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Return the median of the times at that offset of n entries, in microseconds, rounded up: 0 only
 * for 0. */
static uint64_t median_us(const struct step_page *p, int n, size_t offset)
{
    uint64_t v[STEP_WINDOW];
    for (int i = 0; i < n; i++)
        memcpy(&v[i], (const char *)&p->v[i] + offset, sizeof(v[i]));
    qsort(v, (size_t)n, sizeof(v[0]), step_page_compare);
    const uint64_t us = v[(n - 1) / 2] / 1000 + (v[(n - 1) / 2] % 1000 != 0);
    return us < STEP_US_MAX ? us : STEP_US_MAX;
}

bool step_page_read(const void *page, size_t n, struct step_times *ret)
{
    struct step_page p;
    if (n < sizeof(p))
        return false;
    memcpy(&p, page, sizeof(p));
    if (p.magic != STEP_MAGIC || p.count == 0)
        return false;
    const int kept = p.count < STEP_WINDOW ? (int)p.count : STEP_WINDOW;
    *ret = (struct step_times){
        .step = p.step >= 0 ? p.step : -1,
        .count = p.count < INT64_MAX ? p.count : INT64_MAX,
        .n = kept,
        .wall_us = median_us(&p, kept, offsetof(struct step_entry, wall_ns)),
        .cpu_us = median_us(&p, kept, offsetof(struct step_entry, cpu_ns)),
        .work_us = median_us(&p, kept, offsetof(struct step_entry, work_ns))};
    return true;
}
