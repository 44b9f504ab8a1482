#include "rdzv/stragglers.h"

#include "base/num.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_LEAST = 8,        /* complete steps before a rank is compared */
    STEPS_CONFIRM = 8,      /* minimum steps between the first and the last agreeing report */
    REPORTS_CONFIRM = 3,    /* agreeing reports in a row before `slow` changes */
    EXCESS_US_LEAST = 1000, /* microseconds above the median before a rank is slow */
};

struct straggler_rank {
    struct step_times t; /* count 0: none yet */
    int node;
    uint64_t judged; /* t.count at the last comparison */
    uint64_t since;  /* t.count at the first of `reports` */
    int reports;     /* consecutive reports that differ from `slow` */
    bool slow;       /* the rank is a straggler */
    struct rank_load load;
    uint64_t heard;      /* turn of the last load; 0: none yet */
    uint64_t differs;    /* turn since which a sign that is not in `signs` has held; 0: none */
    unsigned signs;      /* confirmed bits of enum load_sign */
    enum load_sign sign; /* last sign that held */
    /* Used in the first rank of each node: */
    int named;          /* rank returned as the straggler of the node; -1: none */
    bool named_by_load; /* `named` is a straggler by load, not by times */
};

struct stragglers {
    int n, next;
    bool marked;   /* a rank has sent times */
    int silent;    /* ranks that have sent no load */
    uint64_t turn; /* turn of loads, from 1; a rank sends at most one load in a turn */
    bool by_cpu;
    struct load_medians load_medians;
    int compared;
    int64_t step;
    uint64_t wall_us, median_us;
    uint64_t *sorted; /* [n] scratch of median(); owned */
    struct straggler_rank v[];
};

int stragglers_new(struct stragglers **ret, int ranks)
{
    struct stragglers *s = calloc(1, sizeof(*s) + (size_t)ranks * sizeof(struct straggler_rank));
    if (s == NULL)
        return -ENOMEM;
    s->sorted = calloc((size_t)ranks + 1, sizeof(*s->sorted));
    if (s->sorted == NULL) {
        free(s);
        return -ENOMEM;
    }
    s->n = s->next = s->silent = ranks;
    s->step = -1;
    s->turn = 1;
    for (int i = 0; i < ranks; i++)
        s->v[i].named = -1;
    *ret = s;
    return 0;
}

void stragglers_free(struct stragglers *s)
{
    if (s != NULL)
        free(s->sorted);
    free(s);
}

void stragglers_place(struct stragglers *s, int first, int workers, int node)
{
    for (int i = first; i < first + workers && i >= 0 && i < s->n; i++)
        s->v[i].node = node;
}

void stragglers_take(struct stragglers *s, int rank, const struct step_times *t)
{
    if (rank < 0 || rank >= s->n)
        return;
    s->v[rank].t = *t;
    if (t->step > s->step)
        s->step = t->step;
    if (!s->marked) /* stragglers by load cease: times are compared from now on */
        for (int i = 0; i < s->n; i++)
            s->v[i].slow = false;
    s->marked = true;
}

void stragglers_take_load(struct stragglers *s, int rank, const struct rank_load *l)
{
    if (rank < 0 || rank >= s->n)
        return;
    struct straggler_rank *r = &s->v[rank];
    s->silent -= r->heard == 0;
    s->turn += r->heard == s->turn;
    r->heard = s->turn;
    r->load = *l;
}

/* ---- comparison of times ---- */

static bool counts(const struct straggler_rank *r)
{
    return r->t.count >= STEPS_LEAST;
}

static uint64_t time_of(const struct stragglers *s, const struct straggler_rank *r)
{
    return s->by_cpu ? r->t.cpu_us : r->t.work_us;
}

static int stragglers_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(struct stragglers *s, bool wall)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (counts(&s->v[i]))
            s->sorted[n++] = wall ? s->v[i].t.wall_us : time_of(s, &s->v[i]);
    qsort(s->sorted, (size_t)n, sizeof(s->sorted[0]), stragglers_compare);
    return n > 0 ? s->sorted[(n - 1) / 2] : 0;
}

/* Return 1: slow; -1: as quick as the others; 0: between. No overflow: times are at most
 * STEP_US_MAX. */
static int verdict(const struct stragglers *s, const struct straggler_rank *r)
{
    const uint64_t us = time_of(s, r);
    const uint64_t excess = us > s->median_us ? us - s->median_us : 0;
    const bool busy = !s->by_cpu || us >= r->t.wall_us / 2;
    if (us >= 2 * s->median_us && excess >= s->wall_us / 4 && excess >= EXCESS_US_LEAST && busy)
        return 1;
    return 2 * us < 3 * s->median_us || excess < s->wall_us / 8 || excess < EXCESS_US_LEAST / 2 ? -1
                                                                                                : 0;
}

static void judge_rank(const struct stragglers *s, struct straggler_rank *r)
{
    const int v = s->compared > 1 ? verdict(s, r) : -1;
    if (!counts(r) || r->t.count == r->judged)
        return; /* no step since the last comparison */
    r->judged = r->t.count;
    if (v != (r->slow ? -1 : 1)) {
        r->reports = 0;
        return;
    }
    if (r->reports++ == 0)
        r->since = r->t.count;
    if (r->reports < REPORTS_CONFIRM || r->t.count - r->since < STEPS_CONFIRM)
        return;
    r->slow = !r->slow;
    r->reports = 0;
}

static void judge_times(struct stragglers *s)
{
    bool by_cpu = false;
    s->compared = 0;
    for (int i = 0; i < s->n; i++)
        if (counts(&s->v[i])) {
            s->compared++;
            by_cpu = by_cpu || s->v[i].t.work_us == 0;
        }
    if (by_cpu != s->by_cpu) /* reports based on the other kind of time do not count */
        for (int i = 0; i < s->n; i++)
            s->v[i].reports = 0;
    s->by_cpu = by_cpu;
    s->median_us = median(s, false);
    s->wall_us = median(s, true);
    for (int i = 0; i < s->n; i++)
        judge_rank(s, &s->v[i]);
}

/* ---- comparison of loads ---- */

static const struct rank_load *load_of(const void *arg, int i)
{
    const struct stragglers *s = arg;
    return &s->v[i].load;
}

/* A load that all ranks have in common does not reach the daemon from all nodes at once, so a sign
 * counts only after it has held for some turns. */
static unsigned confirmed_signs(const struct stragglers *s, struct straggler_rank *r)
{
    const unsigned found = load_judge(&r->load, &s->load_medians, r->signs);
    if ((found & ~r->signs) == 0)
        r->differs = 0;
    else if (r->differs == 0)
        r->differs = s->turn;
    if (r->differs == 0 || s->turn - r->differs < LOAD_REPEATS)
        return found & r->signs;
    r->differs = 0;
    return found;
}

static void judge_loads(struct stragglers *s)
{
    if (s->silent > 0) /* the median is not known */
        return;
    load_medians_find(&s->load_medians, s->n, load_of, s);
    for (int i = 0; i < s->n; i++) {
        struct straggler_rank *r = &s->v[i];
        r->signs = confirmed_signs(s, r);
        r->slow = r->signs != 0;
        if (r->slow)
            r->sign = r->signs & LOAD_WAITS ? LOAD_WAITS : LOAD_SLOW_CLOCK;
    }
}

void stragglers_judge(struct stragglers *s)
{
    if (s->marked)
        judge_times(s);
    else
        judge_loads(s);
    s->next = 0;
}

/* ---- results ---- */

static void describe(const struct stragglers *s, int rank, struct straggler *ret)
{
    const struct straggler_rank *r = &s->v[rank];
    *ret = (struct straggler){.rank = rank,
                              .node = r->node,
                              .slow = r->slow,
                              .by = !s->marked  ? STRAGGLER_BY_LOAD
                                    : s->by_cpu ? STRAGGLER_BY_CPU
                                                : STRAGGLER_BY_WORK,
                              .us = time_of(s, r),
                              .median_us = s->median_us,
                              .load = r->load,
                              .load_medians = s->load_medians,
                              .sign = r->sign != 0 ? r->sign : LOAD_WAITS};
}

/* True if rank r delays the job more than rank `than`. */
static bool is_worse(const struct stragglers *s, const struct straggler_rank *r,
                     const struct straggler_rank *than)
{
    if (r->slow != than->slow)
        return r->slow;
    if (s->marked)
        return time_of(s, r) > time_of(s, than);
    if (r->sign != than->sign) /* 0 (never a straggler) is the least */
        return r->sign == LOAD_WAITS || than->sign == 0;
    return r->sign == LOAD_SLOW_CLOCK ? load_clock(&r->load) < load_clock(&than->load)
                                      : r->load.wait > than->load.wait;
}

/* Examine the node whose ranks begin at `first`. Returns the first rank of the next node;
 * *ret_worst: the node's slowest straggler, or slowest rank if it has none. */
static int look_at_node(const struct stragglers *s, int first, int *ret_worst)
{
    int worst = first;
    int i = first;
    for (; i < s->n && s->v[i].node == s->v[first].node; i++)
        if (is_worse(s, &s->v[i], &s->v[worst]))
            worst = i;
    *ret_worst = worst;
    return i;
}

/* Describe the rank that was returned as the straggler of the node and has ceased to be one. */
static void describe_over(const struct stragglers *s, struct straggler_rank *first,
                          struct straggler *ret)
{
    describe(s, first->named, ret);
    if (first->named_by_load && s->marked)
        ret->by = STRAGGLER_BY_LOAD_BEFORE;
    first->named = -1;
}

bool stragglers_next(struct stragglers *s, struct straggler *ret)
{
    while (s->next < s->n) {
        struct straggler_rank *first = &s->v[s->next];
        int worst;
        s->next = look_at_node(s, s->next, &worst);
        if (s->v[worst].slow == (first->named >= 0))
            continue;
        if (first->named >= 0) {
            describe_over(s, first, ret);
        } else {
            describe(s, worst, ret);
            first->named = worst;
            first->named_by_load = !s->marked;
        }
        return true;
    }
    return false;
}

void stragglers_view(const struct stragglers *s, struct steps_view *ret)
{
    *ret = (struct steps_view){.marked = s->marked,
                               .step = s->step,
                               .ranks = s->compared,
                               .by_cpu = s->by_cpu,
                               .wall_us = s->wall_us,
                               .median_us = s->median_us};
}

bool stragglers_from(const struct stragglers *s, int rank, struct straggler *ret)
{
    while (rank < s->n && !s->v[rank].slow)
        rank++;
    if (rank >= s->n)
        return false;
    describe(s, rank, ret);
    return true;
}

bool stragglers_times(const struct stragglers *s, int *rank, struct step_times *ret)
{
    int i = *rank > 0 ? *rank : 0;
    while (i < s->n && s->v[i].t.count == 0)
        i++;
    if (i >= s->n)
        return false;
    *rank = i;
    *ret = s->v[i].t;
    return true;
}

/* ---- text ---- */

int straggler_text(const struct straggler *g, const char *node, struct dd_buf *out)
{
    const double ratio = (double)g->us / (double)(g->median_us > 0 ? g->median_us : 1);
    if (g->by == STRAGGLER_BY_LOAD_BEFORE)
        return dd_buf_printf(out, "rank %d on %.255s is judged by its steps from now on", g->rank,
                             node);
    if (g->by == STRAGGLER_BY_LOAD) {
        const int rc = dd_buf_printf(out, "rank %d on %.255s ", g->rank, node);
        return rc < 0 ? rc : load_text(&g->load, &g->load_medians, g->sign, out);
    }
    return dd_buf_printf(out,
                         g->by == STRAGGLER_BY_CPU
                             ? "rank %d on %.255s uses %.3gx the median processor time per "
                               "step (%.3g s, median %.3g s)"
                             : "rank %d on %.255s takes %.3gx the median time per step, "
                               "waits not counted (%.3g s, median %.3g s)",
                         g->rank, node, ratio, (double)g->us / 1e6, (double)g->median_us / 1e6);
}

int step_times_put(struct dd_buf *out, int local_rank, const struct step_times *t)
{
    return dd_buf_printf(out, "%d %" PRId64 " %" PRIu64 " %d %" PRIu64 " %" PRIu64 " %" PRIu64 ";",
                         local_rank, t->step, t->count, t->n, t->wall_us, t->cpu_us, t->work_us);
}

enum { STEP_FIELDS = 7 };

int step_times_take(const char **at, int workers, int *ret_local_rank, struct step_times *ret)
{
    static const uint64_t max[STEP_FIELDS] = {0,           INT64_MAX,   INT64_MAX,  STEP_WINDOW,
                                              STEP_US_MAX, STEP_US_MAX, STEP_US_MAX};
    uint64_t v[STEP_FIELDS] = {0};
    const char *p = *at;
    bool no_step = false;
    if (*p == '\0')
        return 0;
    for (int i = 0; i < STEP_FIELDS; i++) {
        const uint64_t most = i == 0 ? (uint64_t)(workers > 0 ? workers - 1 : 0) : max[i];
        if (i == 1 && strncmp(p, "-1 ", 3) == 0) {
            no_step = true;
            p += 3;
        } else if (dd_num_take(&p, i + 1 < STEP_FIELDS ? ' ' : ';', i == 2 || i == 3, most, &v[i]) <
                   0) {
            return -EPROTO;
        }
    }
    *at = p;
    *ret_local_rank = (int)v[0];
    *ret = (struct step_times){.step = no_step ? -1 : (int64_t)v[1],
                               .count = v[2],
                               .n = (int)v[3],
                               .wall_us = v[4],
                               .cpu_us = v[5],
                               .work_us = v[6]};
    return 1;
}
