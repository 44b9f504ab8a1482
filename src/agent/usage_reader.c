#include "agent/usage_reader.h"

#include "agent/agent.h"
#include "agent/gpu_query.h"
#include "agent/worker_gpus.h"
#include "base/io.h"
#include "base/strv.h"
#include "base/utf8.h"
#include "rdzv/msg.h"
#include "report/rank_set.h"
#include "report/usage.h"
#include "worker/output.h"
#include "worker/group_usage.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { WAITING_MAX = 8 };

/* A request that waits for the GPUs. */
struct usage_waiting {
    int64_t id;
    struct rank_set ranks;
};

struct usage_reader {
    const struct round *round;
    struct gpu_query *gpus;
    struct worker_gpus workers;
    struct usage_waiting waiting[WAITING_MAX];
    int nwaiting;
};

/* Return the last `most` bytes of the text, from the beginning of a character on. */
static json_t *end_of_text(const char *text, size_t most)
{
    const size_t n = strlen(text);
    const char *from = n > most ? text + n - most : text;
    while (from > text && ((unsigned char)*from & 0xc0) == 0x80)
        from++;
    DD_AUTO(free) char *copy = strdup(from);
    return copy != NULL ? json_string(dd_utf8_clean(copy)) : NULL;
}

/* Return the first `most` bytes of the last line that is not empty. */
static json_t *last_line(const char *text, size_t most)
{
    size_t end = strlen(text);
    while (end > 0 && strchr("\n\r \t", text[end - 1]) != NULL)
        end--;
    size_t from = end;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    DD_AUTO(free) char *copy = strndup(text + from, end - from < most ? end - from : most);
    return copy != NULL ? json_string(dd_utf8_clean(copy)) : NULL;
}

/* ---- GPUs ---- */

static json_t *known_json(int64_t v)
{
    return v >= 0 ? json_integer((json_int_t)v) : json_null();
}

static json_t *gpus_json(const struct usage_reader *s, int local_rank)
{
    const struct gpu_usage *used[GPU_USAGE_MAX];
    int n;
    const struct gpu_usage *all = gpu_query_result(s->gpus, &n);
    n = worker_gpus_find(&s->workers, all, n, local_rank, used);
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(
            list, json_pack("[i,o,o,o,o,o]", used[i]->index, known_json(used[i]->percent),
                            known_json(used[i]->memory_used), known_json(used[i]->memory_total),
                            known_json(used[i]->clock_mhz), known_json(used[i]->clock_max_mhz)));
    return list;
}

/* ---- the answer ---- */

static json_t *worker_json(const struct usage_reader *s, const struct worker_usage *u,
                           int local_rank, bool all_lines, size_t most)
{
    const struct round *r = s->round;
    const char *text = r->output == NULL ? ""
                                         : worker_output_recent(r->output, local_rank, all_lines);
    const char state[] = {u->state, '\0'};
    json_t *o = json_pack("[i,i,s,I,I,o]", r->plan.first_rank + local_rank, (int)u->pid, state,
                          (json_int_t)u->cpu_ms, (json_int_t)u->memory,
                          all_lines ? end_of_text(text, most) : last_line(text, most));
    json_t *gpus = most > 0 && !all_lines && u->pid > 0 ? gpus_json(s, local_rank) : NULL;
    if (json_array_size(gpus) > 0)
        (void)json_array_append(o, gpus);
    json_decref(gpus);
    return o;
}

/* Return the answer with at most `most` bytes of text for each worker; most 0: also without GPUs.
 * Returns NULL if out of memory. */
static char *usage_text(const struct usage_reader *s, const struct worker_usage *v,
                        const struct rank_set *ranks, bool all_lines, size_t most)
{
    const struct round *r = s->round;
    json_t *list = json_array();
    for (int i = 0; i < r->plan.local_size; i++)
        if (ranks->n == 0 || rank_set_has(ranks, r->plan.first_rank + i))
            (void)json_array_append_new(list, worker_json(s, &v[i], i, all_lines, most));
    json_t *o = json_pack("{s:I,s:o}", "at_ms", (json_int_t)(dd_now_ns() / DD_NS_PER_MS), "workers",
                          list);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

static void usage_answer(const struct usage_reader *s, int64_t id, const struct rank_set *ranks,
                         bool all_lines)
{
    const struct round *r = s->round;
    static const size_t limits[] = {16384, 400, 120, 30, 0};
    DD_AUTO(free) struct worker_usage *v = calloc((size_t)r->plan.local_size + 1, sizeof(*v));
    for (int i = 0; v != NULL && i < r->plan.local_size; i++)
        v[i].pid = r->group != NULL ? worker_group_pid(r->group, i) : 0;
    const bool read = v != NULL && worker_usage_read(v, r->plan.local_size) == 0;
    /* a request for all lines names one worker, whose text may be longer */
    for (size_t i = all_lines ? 0 : 1; read && i < sizeof(limits) / sizeof(limits[0]); i++) {
        DD_AUTO(free) char *text = usage_text(s, v, ranks, all_lines, limits[i]);
        if (text != NULL && strlen(text) < USAGE_MESSAGE) {
            round_send(r, MSG(USAGE, .id = id, .text = text));
            return;
        }
    }
    round_send(r, MSG(USAGE, .id = id, .text = USAGE_NONE));
}

/* Answer all requests that wait. */
static void usage_answer_waiting(void *arg)
{
    struct usage_reader *s = arg;
    for (int i = 0; i < s->nwaiting; i++) {
        usage_answer(s, s->waiting[i].id, &s->waiting[i].ranks, false);
        rank_set_done(&s->waiting[i].ranks);
    }
    s->nwaiting = 0;
}

/* ---- hooks ---- */

static void usage_reader_free(struct usage_reader *s)
{
    worker_gpus_done(&s->workers);
    gpu_query_free(s->gpus);
    free(s);
}

static int usage_reader_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct usage_reader *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->round = r;
    s->gpus = gpu_query_new(r, usage_answer_waiting, s);
    if (worker_gpus_init(&s->workers, r->plan.local_size) == 0 && s->gpus != NULL) {
        *state = s;
        return 0;
    }
    usage_reader_free(s);
    return dd_err_set(err, -ENOMEM, "out of memory");
}

static int usage_reader_env(void *state, const struct round *r, int local_rank,
                            struct worker_spec *spec)
{
    struct usage_reader *s = state;
    return worker_gpus_take_env(&s->workers, r, local_rank, spec);
}

static void usage_reader_message(void *state, const struct round *r, const struct round_message *m)
{
    struct usage_reader *s = state;
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    if (m->type != ROUND_USAGE)
        return;
    const struct msg_usage_request *q = m->usage;
    if (q->round != r->plan.round ||
        (q->ranks[0] != '\0' && rank_set_parse(&ranks, q->ranks) < 0) ||
        (q->all_lines && rank_set_count(&ranks) != 1)) {
        round_send(r, MSG(USAGE, .id = q->id, .text = USAGE_NONE));
    } else if (!q->all_lines && s->nwaiting < WAITING_MAX && gpu_query_start(s->gpus)) {
        s->waiting[s->nwaiting++] = (struct usage_waiting){.id = q->id, .ranks = ranks};
        ranks = (struct rank_set){0};
    } else {
        usage_answer(s, q->id, &ranks, q->all_lines);
    }
}

static void usage_reader_stopping(void *state, const struct round *r)
{
    (void)r;
    usage_answer_waiting(state);
}

static void usage_reader_end(void *state, const struct round *r)
{
    (void)r;
    usage_answer_waiting(state);
    usage_reader_free(state);
}

const struct round_feature usage_reader_feature = {
    .name = "usage-reader",
    .prepare = usage_reader_prepare,
    .worker_env = usage_reader_env,
    .message = usage_reader_message,
    .stopping = usage_reader_stopping,
    .end = usage_reader_end,
};
