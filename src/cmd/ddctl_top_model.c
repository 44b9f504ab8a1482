#include "cmd/ddctl_top_model.h"

#include "base/sig.h"
#include "base/step_page.h"
#include "cmd/ddctl_job.h"
#include "rdzv/plan.h"
#include "report/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int64_t long_number(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? (int64_t)json_integer_value(v) : -1;
}

/* Return a count from the status; 0 if it is out of range. */
static int count_number(const json_t *o, const char *name, int most)
{
    const int v = json_number(o, name, 0);
    return v >= 0 && v <= most ? v : 0;
}

static int first_rank_of(const json_t *node)
{
    const int first = json_number(node, "first_rank", -1);
    return first >= 0 && first <= PLAN_MAX_NODES * PLAN_MAX_SLOTS ? first : -1;
}

/* ---- rows ---- */

static size_t rows_of(const json_t *node)
{
    return first_rank_of(node) < 0 ? 1 : (size_t)count_number(node, "workers", PLAN_MAX_SLOTS);
}

static void read_node(struct top_job *j, const json_t *node)
{
    const struct top_row of_node = {.rank = -1,
                                    .local_rank = -1,
                                    .node = json_text(node, "name"),
                                    .state = json_text(node, "state"),
                                    .charges = count_number(node, "charges", 1 << 20),
                                    .failure = "",
                                    .line = "",
                                    .cpu_ms = -1,
                                    .memory = -1,
                                    .cpu_percent = -1,
                                    .step = -1,
                                    .step_us = -1,
                                    .gpu = {.percent = -1, .memory = -1, .clock_mhz = -1}};
    const int first = first_rank_of(node);
    const size_t n = rows_of(node);
    j->has_charges |= of_node.charges > 0;
    j->nodes += first >= 0;
    j->workers += first >= 0 ? (int)n : 0;
    j->running += first >= 0 && strcmp(of_node.state, "running") == 0 ? (int)n : 0;
    for (size_t k = 0; k < n && j->n < TOP_ROWS; k++) {
        j->rows[j->n] = of_node;
        if (first >= 0) {
            j->rows[j->n].rank = first + (int)k;
            j->rows[j->n].local_rank = (int)k;
        }
        j->n++;
    }
}

static int read_rows(struct top_job *j, const json_t *nodes)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(nodes) && n < TOP_ROWS; i++)
        n += rows_of(json_array_get(nodes, i));
    j->rows = calloc((n < TOP_ROWS ? n : TOP_ROWS) + 1, sizeof(*j->rows));
    for (size_t i = 0; j->rows != NULL && i < json_array_size(nodes) && i < PLAN_MAX_NODES; i++)
        read_node(j, json_array_get(nodes, i));
    return j->rows == NULL ? -ENOMEM : 0;
}

/* Return the row of a rank; NULL: none. Rows of ranks are in the order of ranks unless the answer
 * is invalid. */
static struct top_row *row_of(const struct top_job *j, int rank)
{
    size_t low = 0;
    size_t high = j->n;
    while (low < high && j->rows[high - 1].rank < 0)
        high--; /* nodes without workers are last */
    while (low < high) {
        const size_t at = low + (high - low) / 2;
        if (j->rows[at].rank == rank)
            return &j->rows[at];
        if (j->rows[at].rank < rank)
            low = at + 1;
        else
            high = at;
    }
    return NULL;
}

static void read_failures(struct top_job *j, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        const int rank = json_number(f, "rank", -1);
        struct top_row *row = rank >= 0 ? row_of(j, rank) : NULL;
        if (row == NULL || row->failure[0] != '\0')
            continue;
        row->failure = json_text(f, "text")[0] != '\0' ? json_text(f, "text") : "failed";
        j->running -= strcmp(row->state, "running") == 0;
        row->state = "failed";
        j->failed++;
    }
}

/* Read the elements [rank, step, microseconds of a step] of the list. */
static void read_steps(struct top_job *j, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t rank, step, us;
        if (json_unpack(json_array_get(list, i), "[I,I,I!]", &rank, &step, &us) < 0)
            continue;
        struct top_row *row = rank >= 0 && rank <= INT32_MAX ? row_of(j, (int)rank) : NULL;
        if (row == NULL)
            continue;
        row->step = step >= 0 ? (int64_t)step : -1;
        row->step_us = us >= 0 && us <= (json_int_t)STEP_US_MAX ? (int64_t)us : -1;
        j->has_steps = true;
    }
}

/* ---- resources of workers ---- */

enum { MHZ_MAX = 99999 };

int64_t top_gpu_number(const json_t *gpu, const char *name)
{
    return long_number(gpu, name);
}

/* Keep the clock of the GPU that is furthest below its highest clock. */
static void take_clock(struct top_gpu *g, int64_t mhz, int64_t most)
{
    if (mhz < 0 || mhz > MHZ_MAX || most < 1 || most > MHZ_MAX ||
        (g->clock_mhz >= 0 && mhz * g->clock_max_mhz >= g->clock_mhz * most))
        return;
    g->clock_mhz = mhz;
    g->clock_max_mhz = most;
}

static void read_gpus(struct top_job *j, struct top_row *row, const json_t *list)
{
    struct top_gpu *g = &row->gpu;
    int64_t sum = 0;
    int known = 0;
    for (size_t i = 0; i < json_array_size(list) && i < USAGE_GPUS; i++) {
        const json_t *gpu = json_array_get(list, i);
        const int64_t percent = long_number(gpu, "percent");
        const int64_t memory = long_number(gpu, "memory_bytes");
        g->n++;
        if (percent >= 0 && percent <= 100) {
            sum += percent;
            known++;
        }
        if (memory >= 0 && memory <= INT64_MAX / USAGE_GPUS)
            g->memory = (g->memory > 0 ? g->memory : 0) + memory;
        take_clock(g, long_number(gpu, "clock_mhz"), long_number(gpu, "clock_max_mhz"));
    }
    g->percent = known > 0 ? (int)((sum + known / 2) / known) : -1;
    row->gpus = list;
    j->has_gpus |= g->n > 0;
}

static void read_workers(struct top_job *j, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *w = json_array_get(list, i);
        const int rank = json_number(w, "rank", -1);
        struct top_row *row = rank >= 0 ? row_of(j, rank) : NULL;
        if (row == NULL)
            continue;
        row->line = json_text(w, "text");
        row->pid = json_number(w, "pid", 0);
        if (row->pid == 0 && strcmp(row->state, "running") == 0) {
            row->state = "ended";
            j->running--;
        }
        if (row->pid == 0 || row->memory >= 0)
            continue; /* ended, or a repeated entry */
        row->at_ms = long_number(w, "at_ms");
        row->cpu_ms = long_number(w, "cpu_ms");
        row->memory = long_number(w, "memory_bytes");
        read_gpus(j, row, json_object_get(w, "gpus"));
        j->has_memory |= row->memory >= 0;
        if (row->memory >= 0 && row->memory <= INT64_MAX - j->memory)
            j->memory += row->memory;
    }
}

void top_job_compare(struct top_job *j, const struct top_job *before)
{
    for (size_t i = 0; i < j->n; i++) {
        struct top_row *row = &j->rows[i];
        const struct top_row *was = row->rank >= 0 ? row_of(before, row->rank) : NULL;
        if (was == NULL || was->pid != row->pid || row->cpu_ms < was->cpu_ms || was->cpu_ms < 0 ||
            row->at_ms <= was->at_ms || was->at_ms < 0)
            continue;
        const double percent = 100.0 * (double)(row->cpu_ms - was->cpu_ms) /
                               (double)(row->at_ms - was->at_ms);
        row->cpu_percent = percent < 1e6 ? (int)(percent + 0.5) : 1000000;
        j->has_cpu = true;
        j->cpu_percent += j->cpu_percent < INT32_MAX / 2 ? row->cpu_percent : 0;
    }
}

/* ---- sample ---- */

int top_job_read(struct top_job *ret, const char *text, size_t n, struct dd_err *err)
{
    json_error_t je;
    *ret = (struct top_job){.sample = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je)};
    const json_t *status = json_object_get(ret->sample, "status");
    if (!json_is_object(status))
        return dd_err_set(err, -EPROTO, "malformed answer from the job's daemon");
    ret->id = json_text(status, "job");
    ret->state = json_text(status, "state");
    ret->missing = json_text(status, "missing");
    ret->round = json_number(status, "round", 0);
    ret->restarts = json_number(status, "restarts", 0);
    ret->max_restarts = json_number(status, "max_restarts", 0);
    ret->step = long_number(status, "step");
    ret->seconds = long_number(status, "seconds");
    if (read_rows(ret, json_object_get(status, "nodes")) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    read_failures(ret, json_object_get(status, "failed"));
    read_workers(ret, json_object_get(ret->sample, "workers"));
    read_steps(ret, json_object_get(json_object_get(status, "steps"), "each"));
    return 0;
}

void top_job_done(struct top_job *j)
{
    json_decref(j->sample);
    free(j->rows);
    *j = (struct top_job){0};
}

const json_t *top_job_stragglers(const struct top_job *j)
{
    const json_t *status = json_object_get(j->sample, "status");
    const json_t *marked = json_object_get(json_object_get(status, "steps"), "stragglers");
    return json_array_size(marked) > 0 ? marked : json_object_get(status, "stragglers");
}

int top_job_first_failure(const struct top_job *j, struct dd_buf *out)
{
    const json_t *status = json_object_get(j->sample, "status");
    const json_t *f = json_array_get(json_object_get(status, "failed"), 0);
    const int sig = json_number(f, "signal", 0);
    if (f == NULL)
        return dd_buf_printf(out, "No worker has failed in round %d.\n", j->round);
    int rc = dd_buf_printf(out, "rank %d on %s, round %d, %s\n", json_number(f, "rank", 0),
                           json_text(f, "node"), json_number(f, "round", 0), json_text(f, "time"));
    if (rc == 0)
        rc = sig > 0 ? dd_buf_printf(out, "ended by SIG%s\n", dd_signal_name(sig))
                     : dd_buf_printf(out, "exit code %d\n", json_number(f, "code", 0));
    return rc < 0 ? rc : dd_buf_printf(out, "\n%s\n", json_text(f, "text"));
}
