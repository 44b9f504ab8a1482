#include "rdzv/rank_load.h"

#include "base/num.h"

#include <errno.h>
#include <stdlib.h>

enum {
    READINGS_LEAST = LOAD_WINDOW / 2 + 1,
    NEWS = 5,        /* percentage points by which a load must change to be sent */
    WAIT_SLOW = 40,  /* points above the median: a step takes 1.7 times as long */
    WAIT_OVER = 20,  /* points above the median; below these, the wait is normal again */
    CLOCK_SLOW = 50, /* percent of the median */
    CLOCK_SLOW_WITH_REASON = 85,
    CLOCK_OVER = 10, /* percentage points above these limits: the clock is normal again */
};

int load_clock(const struct rank_load *l)
{
    return l->max_mhz > 0 ? (int)((int64_t)l->mhz * 100 / l->max_mhz) : 0;
}

/* ---- the window of a rank ---- */

static int compare_waits(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int compare_clocks(const void *a, const void *b)
{
    return load_clock(a) - load_clock(b);
}

static size_t readings_in(unsigned n)
{
    return n < LOAD_WINDOW ? n : LOAD_WINDOW;
}

void load_window_add_wait(struct load_window *w, int percent)
{
    w->wait[w->nwait++ % LOAD_WINDOW] = percent;
}

void load_window_add_clock(struct load_window *w, const struct rank_load *reading)
{
    w->clock[w->nclock++ % LOAD_WINDOW] = *reading;
}

/* With an even number of readings, the median is the one nearer to normal of the middle two. */
bool load_window_median(const struct load_window *w, struct rank_load *ret)
{
    struct rank_load clocks[LOAD_WINDOW];
    int waits[LOAD_WINDOW];
    const size_t n = readings_in(w->nwait);
    size_t known = 0;
    *ret = (struct rank_load){0};
    if (n < READINGS_LEAST)
        return false;
    for (size_t i = 0; i < readings_in(w->nclock); i++)
        if (load_clock(&w->clock[i]) > 0)
            clocks[known++] = w->clock[i];
    if (known >= READINGS_LEAST) {
        qsort(clocks, known, sizeof(clocks[0]), compare_clocks);
        *ret = clocks[known / 2];
    }
    for (size_t i = 0; i < n; i++)
        waits[i] = w->wait[i];
    qsort(waits, n, sizeof(waits[0]), compare_waits);
    ret->wait = waits[(n - 1) / 2];
    return true;
}

static bool differ(int a, int b)
{
    return abs(a - b) >= NEWS;
}

static bool is_news(const struct rank_load *sent, const struct rank_load *now)
{
    const int clock = load_clock(now);
    return differ(sent->wait, now->wait) ||
           (clock > 0 && (differ(load_clock(sent), clock) || sent->reason != now->reason));
}

bool load_is_due(struct load_sent *sent, const struct rank_load *now)
{
    if (!sent->any || is_news(&sent->load, now))
        sent->again = LOAD_REPEATS;
    else if (sent->again == 0)
        return false;
    else
        sent->again--;
    sent->any = true;
    sent->load = *now;
    return true;
}

/* ---- comparison ---- */

enum { PERCENTS = 101 };

static int percent_of(int v)
{
    return v < 0 ? 0 : v < PERCENTS ? v : PERCENTS - 1;
}

/* Return the value at this position of the sorted values. */
static int value_at(const int counts[PERCENTS], int position)
{
    int v = 0;
    for (int seen = counts[0]; seen <= position && v < PERCENTS - 1; seen += counts[v])
        v++;
    return v;
}

/* With an even number of ranks, the median is the one nearer to normal of the middle two. */
void load_medians_find(struct load_medians *ret, int n,
                       const struct rank_load *(*each)(const void *arg, int i), const void *arg)
{
    int waits[PERCENTS] = {0};
    int clocks[PERCENTS] = {0};
    int known = 0;
    for (int i = 0; i < n; i++) {
        const struct rank_load *l = each(arg, i);
        const int clock = percent_of(load_clock(l));
        waits[percent_of(l->wait)]++;
        clocks[clock] += clock > 0;
        known += clock > 0;
    }
    ret->wait = value_at(waits, (n - 1) / 2);
    ret->clock = known > 1 ? value_at(clocks, known / 2) : 0;
}

/* Return `sign` or 0: a sign begins if `bad`; one that holds ends only if `good`. */
static unsigned keep(unsigned signs, enum load_sign sign, bool bad, bool good)
{
    return bad || (!good && (signs & sign)) ? sign : 0;
}

unsigned load_judge(const struct rank_load *l, const struct load_medians *m, unsigned signs)
{
    const int excess = l->wait - m->wait;
    const int clock = load_clock(l) * 100;
    const int limit = l->reason != LOAD_NO_REASON ? CLOCK_SLOW_WITH_REASON : CLOCK_SLOW;
    const bool known = clock > 0 && m->clock > 0;
    return keep(signs, LOAD_WAITS, excess >= WAIT_SLOW, excess < WAIT_OVER) |
           keep(signs, LOAD_SLOW_CLOCK, known && clock <= limit * m->clock,
                !known || clock >= (limit + CLOCK_OVER) * m->clock);
}

/* ---- text ---- */

int load_text(const struct rank_load *l, const struct load_medians *m, enum load_sign sign,
              struct dd_buf *out)
{
    static const char *const reasons[LOAD_REASONS] = {
        [LOAD_NO_REASON] = "",
        [LOAD_HOT] = "; the GPU is too hot",
        [LOAD_POWER_BRAKE] = "; the node's power supply slows it down",
        [LOAD_HARDWARE] = "; its hardware slows it down",
    };
    if (sign == LOAD_SLOW_CLOCK && load_clock(l) == 0)
        return dd_buf_puts(out, "uses no busy GPU with a known clock");
    if (sign == LOAD_SLOW_CLOCK)
        return dd_buf_printf(out,
                             "uses GPU %d, which runs at %d of %d MHz (%d %%; median of all ranks "
                             "%d %%%s)",
                             l->gpu, l->mhz, l->max_mhz, load_clock(l), m->clock,
                             reasons[l->reason]);
    return dd_buf_printf(out,
                         m->wait < NEWS ? "waits for a processor %d %% of the time (median of all "
                                          "ranks below %d %%)"
                                        : "waits for a processor %d %% of the time (median of all "
                                          "ranks %d %%)",
                         l->wait, m->wait < NEWS ? NEWS : m->wait);
}

int load_put(struct dd_buf *out, int local_rank, const struct rank_load *l)
{
    return dd_buf_printf(out, "%d %d %d %d %d %d;", local_rank, l->wait, l->mhz, l->max_mhz, l->gpu,
                         (int)l->reason);
}

int load_take(const char **at, int workers, int *ret_local_rank, struct rank_load *ret)
{
    const uint64_t max[] = {(uint64_t)(workers > 0 ? workers - 1 : 0),
                            100,
                            LOAD_MHZ_MAX,
                            LOAD_MHZ_MAX,
                            LOAD_GPU_MAX,
                            LOAD_REASONS - 1};
    enum { FIELDS = sizeof(max) / sizeof(max[0]) };
    uint64_t v[FIELDS];
    const char *p = *at;
    if (*p == '\0')
        return 0;
    for (int i = 0; i < FIELDS; i++)
        if (dd_num_take(&p, i + 1 < FIELDS ? ' ' : ';', 0, max[i], &v[i]) < 0)
            return -EPROTO;
    *at = p;
    *ret_local_rank = (int)v[0];
    *ret = (struct rank_load){.wait = (int)v[1],
                              .mhz = (int)v[2],
                              .max_mhz = (int)v[3],
                              .gpu = (int)v[4],
                              .reason = (enum load_reason)v[5]};
    return 1;
}
