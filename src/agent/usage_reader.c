#include "agent/usage_reader.h"

#include "base/io.h"
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

static json_t *worker_json(const struct round *r, const struct worker_usage *u, int local_rank,
                           bool all_lines, size_t most)
{
    const char *text = r->output == NULL ? ""
                                         : worker_output_recent(r->output, local_rank, all_lines);
    const char state[] = {u->state, '\0'};
    return json_pack("[i,i,s,I,I,o]", r->plan.first_rank + local_rank, (int)u->pid, state,
                     (json_int_t)u->cpu_ms, (json_int_t)u->memory,
                     all_lines ? end_of_text(text, most) : last_line(text, most));
}

/* Return the answer with at most `most` bytes of text for each worker; NULL: out of memory. */
static char *usage_text(const struct round *r, const struct worker_usage *v,
                        const struct rank_set *ranks, bool all_lines, size_t most)
{
    json_t *list = json_array();
    for (int i = 0; i < r->plan.local_size; i++)
        if (ranks->n == 0 || rank_set_has(ranks, r->plan.first_rank + i))
            (void)json_array_append_new(list, worker_json(r, &v[i], i, all_lines, most));
    json_t *o = json_pack("{s:I,s:o}", "at_ms", (json_int_t)(dd_now_ns() / DD_NS_PER_MS), "workers",
                          list);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

static void usage_answer(const struct round *r, const struct msg_usage_request *m,
                         const struct rank_set *ranks)
{
    static const size_t limits[] = {16384, 400, 120, 30, 0};
    DD_AUTO(free) struct worker_usage *v = calloc((size_t)r->plan.local_size + 1, sizeof(*v));
    for (int i = 0; v != NULL && i < r->plan.local_size; i++)
        v[i].pid = r->group != NULL ? worker_group_pid(r->group, i) : 0;
    const bool read = v != NULL && worker_usage_read(v, r->plan.local_size) == 0;
    /* all lines are of one worker */
    for (size_t i = m->all_lines ? 0 : 1; read && i < sizeof(limits) / sizeof(limits[0]); i++) {
        DD_AUTO(free) char *text = usage_text(r, v, ranks, m->all_lines, limits[i]);
        if (text != NULL && strlen(text) < USAGE_MESSAGE) {
            round_send(r, MSG(USAGE, .id = m->id, .text = text));
            return;
        }
    }
    round_send(r, MSG(USAGE, .id = m->id, .text = USAGE_NONE));
}

static int usage_reader_prepare(void **state, const struct round *r, struct dd_err *err)
{
    (void)r;
    (void)err;
    *state = calloc(1, 1); /* takes part, without a state */
    return *state == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

static void usage_reader_message(void *state, const struct round *r, const struct round_message *m)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    (void)state;
    if (m->type != ROUND_USAGE)
        return;
    if (m->usage->round != r->plan.round ||
        (m->usage->ranks[0] != '\0' && rank_set_parse(&ranks, m->usage->ranks) < 0) ||
        (m->usage->all_lines && rank_set_count(&ranks) != 1))
        round_send(r, MSG(USAGE, .id = m->usage->id, .text = USAGE_NONE));
    else
        usage_answer(r, m->usage, &ranks);
}

static void usage_reader_end(void *state, const struct round *r)
{
    (void)r;
    free(state);
}

const struct round_feature usage_reader_feature = {
    .name = "usage-reader",
    .prepare = usage_reader_prepare,
    .message = usage_reader_message,
    .end = usage_reader_end,
};
