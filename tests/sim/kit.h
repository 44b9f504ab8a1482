/* Common parts of the simulators: random numbers from a seed, a trace that is printed when a
 * promise is broken, a queue in virtual time. */
#ifndef DD_SIM_KIT_H
#define DD_SIM_KIT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { KIT_TRACE_LINES = 120, KIT_ITEMS = 20000 };

struct kit_when {
    long at, order; /* order: first in, first out at equal times */
    int slot;
};

struct kit {
    /* Runs a seed again, with a trace: formatting it would double the time of all the others. Set
     * before the first seed. */
    void (*again)(void *arg, unsigned seed);
    void *arg;
    bool traces;
    uint64_t random;
    unsigned seed;
    long now; /* virtual milliseconds */
    char trace[KIT_TRACE_LINES][140];
    unsigned traced;
    long order;
    int n;             /* of the heap */
    int nslots, nfree; /* slots that were ever used, and those of them that are free */
    struct kit_when heap[KIT_ITEMS];
    int free_slots[KIT_ITEMS];
};

static inline void kit_begin(struct kit *k, unsigned seed)
{
    k->seed = seed;
    k->random = seed * UINT64_C(0x9e3779b97f4a7c15);
    k->now = k->order = 0;
    k->traced = 0;
    k->n = 0;
    k->nslots = k->nfree = 0;
}

/* A linear congruential generator. Src: multiplier and increment of Knuth's MMIX. */
static inline unsigned kit_rnd(struct kit *k, unsigned below)
{
    k->random = k->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(k->random >> 33) % below;
}

__attribute__((format(printf, 2, 3))) static inline void kit_trace(struct kit *k, const char *fmt,
                                                                   ...)
{
    if (!k->traces)
        return;
    char *line = k->trace[k->traced++ % KIT_TRACE_LINES];
    int n = snprintf(line, sizeof(k->trace[0]), "%9ld ", k->now);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line + n, sizeof(k->trace[0]) - (size_t)n, fmt, ap);
    va_end(ap);
}

static inline void kit_must(struct kit *k, bool holds, const char *promise)
{
    if (holds)
        return;
    if (!k->traces) {
        k->traces = true;
        k->again(k->arg, k->seed); /* comes here again, and exits */
    }
    (void)fprintf(stderr, "seed %u: broken: %s\n", k->seed, promise);
    unsigned first = k->traced > KIT_TRACE_LINES ? k->traced - KIT_TRACE_LINES : 0;
    for (unsigned i = first; i < k->traced; i++)
        (void)fprintf(stderr, "%s\n", k->trace[i % KIT_TRACE_LINES]);
    exit(1);
}

/* ---- scheduled items: a heap by time. The caller stores the items in an array of KIT_ITEMS, by
 * slot. */

static inline bool kit_before(const struct kit_when *a, const struct kit_when *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static inline void kit_swap(struct kit_when *a, struct kit_when *b)
{
    struct kit_when t = *a;
    *a = *b;
    *b = t;
}

static inline int kit_later(struct kit *k, long at)
{
    kit_must(k, k->n < KIT_ITEMS, "the number of messages is bounded");
    int slot = k->nfree > 0 ? k->free_slots[--k->nfree] : k->nslots++;
    int i = k->n++;
    k->heap[i] = (struct kit_when){at > k->now ? at : k->now, k->order++, slot};
    for (; i > 0 && kit_before(&k->heap[i], &k->heap[(i - 1) / 2]); i = (i - 1) / 2)
        kit_swap(&k->heap[i], &k->heap[(i - 1) / 2]);
    return slot;
}

/* Advance the time to the next item and return its slot; the caller must read the slot before the
 * next kit_later(). -1: no item is left. */
static inline int kit_next(struct kit *k)
{
    if (k->n == 0)
        return -1;
    struct kit_when first = k->heap[0];
    k->heap[0] = k->heap[--k->n];
    for (int i = 0;;) {
        int small = i;
        for (int c = 2 * i + 1; c <= 2 * i + 2 && c < k->n; c++)
            if (kit_before(&k->heap[c], &k->heap[small]))
                small = c;
        if (small == i)
            break;
        kit_swap(&k->heap[i], &k->heap[small]);
        i = small;
    }
    k->now = first.at;
    k->free_slots[k->nfree++] = first.slot;
    return first.slot;
}

#endif
