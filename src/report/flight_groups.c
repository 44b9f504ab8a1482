#include "report/flight_groups.h"

#include "base/auto.h"
#include "report/report_lines_inner.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { FLIGHT_RANKS_TEXT = 32 << 10 /* bytes of a list of ranks */ };

/* ---- groups ---- */

static bool flight_is_equal(const struct flight_record *a, const struct flight_record *b)
{
    return a->waiting == b->waiting && a->number == b->number && a->bytes == b->bytes &&
           strcmp(a->group, b->group) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->place, b->place) == 0;
}

int flight_groups_add(struct flight_groups *g, const struct flight_record *r, int first, int last)
{
    for (size_t i = g->n; i-- > 0;)
        if (flight_is_equal(&g->v[i].record, r))
            return rank_set_add(&g->v[i].ranks, first, last);
    if (g->n == FLIGHT_GROUPS_MAX)
        return 0;
    struct flight_group *v = realloc(g->v, (g->n + 1) * sizeof(*v));
    if (v == NULL)
        return -ENOMEM;
    g->v = v;
    v[g->n++] = (struct flight_group){.record = *r};
    return rank_set_add(&v[g->n - 1].ranks, first, last);
}

int flight_groups_merge(struct flight_groups *to, const struct flight_groups *from)
{
    int rc = 0;
    for (size_t i = 0; i < from->n; i++) {
        const struct flight_group *g = &from->v[i];
        for (size_t k = 0; k < g->ranks.n && rc == 0; k++)
            rc = flight_groups_add(to, &g->record, g->ranks.v[k].first, g->ranks.v[k].last);
    }
    return rc;
}

void flight_groups_done(struct flight_groups *g)
{
    for (size_t i = 0; i < g->n; i++)
        rank_set_done(&g->v[i].ranks);
    free(g->v);
    *g = (struct flight_groups){0};
}

/* ---- JSON ---- */

static json_t *flight_group_json(const struct flight_group *g)
{
    DD_AUTO(buf) struct dd_buf ranks = DD_BUF_INIT(FLIGHT_RANKS_TEXT);
    (void)rank_set_text(&g->ranks, &ranks);
    const char *text = dd_buf_str(&ranks);
    if (text == NULL)
        return NULL;
    return json_pack("{s:s s:b s:I s:s s:s s:I s:s}", "ranks", text, "waiting", g->record.waiting,
                     "number", (json_int_t)g->record.number, "group", g->record.group, "name",
                     g->record.name, "bytes", (json_int_t)g->record.bytes, "place",
                     g->record.place);
}

json_t *flight_groups_json(const struct flight_groups *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < g->n; i++)
        (void)json_array_append_new(list, flight_group_json(&g->v[i]));
    return list;
}

static int flight_parse_record(struct flight_record *ret, const json_t *o)
{
    const char *group = json_string_value(json_object_get(o, "group"));
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *place = json_string_value(json_object_get(o, "place"));
    const json_int_t number = json_integer_value(json_object_get(o, "number"));
    const json_int_t bytes = json_integer_value(json_object_get(o, "bytes"));
    if (group == NULL || name == NULL || place == NULL || number < 0 || bytes < 0)
        return -EPROTO;
    *ret = (struct flight_record){.waiting = json_is_true(json_object_get(o, "waiting")),
                                  .number = number,
                                  .bytes = (uint64_t)bytes};
    flight_record_copy(ret->group, group);
    flight_record_copy(ret->name, name);
    flight_record_copy(ret->place, place);
    return 0;
}

static int flight_parse_group(struct flight_groups *ret, const json_t *o, int first, int workers)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    struct flight_record record;
    const char *text = json_string_value(json_object_get(o, "ranks"));
    int rc = flight_parse_record(&record, o);
    if (rc == 0)
        rc = text != NULL ? rank_set_parse(&ranks, text) : -EPROTO;
    for (size_t i = 0; i < ranks.n && rc == 0; i++) {
        const struct rank_range *r = &ranks.v[i];
        if (workers >= 0 && (r->first < first || r->last - first >= workers))
            rc = -EPERM;
        else
            rc = flight_groups_add(ret, &record, r->first, r->last);
    }
    return rc == -EINVAL ? -EPROTO : rc;
}

int flight_groups_parse(struct flight_groups *ret, const json_t *list, int first, int workers)
{
    int rc = json_array_size(list) > FLIGHT_GROUPS_MAX ? -EPROTO : 0;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = flight_parse_group(ret, json_array_get(list, i), first, workers);
    return rc;
}

/* ---- text ---- */

static int flight_by_rank(const void *x, const void *y)
{
    const struct flight_of_rank *a = x;
    const struct flight_of_rank *b = y;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* Return all ranks with their records, ordered by rank, which the caller frees; NULL: out of
 * memory, or there are no ranks. */
static struct flight_of_rank *flight_ranks(const struct flight_groups *g, size_t *ret_n)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < g->n; i++)
        n += rank_set_count(&g->v[i].ranks);
    n = n < FLIGHT_RANKS_MAX ? n : FLIGHT_RANKS_MAX;
    struct flight_of_rank *v = n > 0 ? calloc(n, sizeof(*v)) : NULL;
    for (size_t i = 0; v != NULL && i < g->n; i++)
        for (size_t k = 0; k < g->v[i].ranks.n; k++)
            for (int rank = g->v[i].ranks.v[k].first; rank <= g->v[i].ranks.v[k].last && at < n;
                 rank++)
                v[at++] = (struct flight_of_rank){rank, g->v[i].record};
    if (v != NULL)
        qsort(v, at, sizeof(*v), flight_by_rank);
    *ret_n = at;
    return v;
}

static int flight_put_group(const struct flight_group *g, const char *indent, struct dd_buf *out)
{
    int rc = dd_buf_puts(out, indent);
    if (rc == 0)
        rc = rank_set_name(&g->ranks, out);
    if (rc == 0)
        rc = dd_buf_puts(out, ": ");
    if (rc == 0)
        rc = flight_record_describe(out, &g->record);
    return rc == 0 ? dd_buf_puts(out, "\n") : rc;
}

static bool flight_is_waiting(const struct flight_groups *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->v[i].record.waiting)
            return true;
    return false;
}

int flight_groups_missing(const struct flight_groups *g, struct rank_set *ret, struct dd_buf *out)
{
    size_t n = 0;
    if (!flight_is_waiting(g))
        return 0;
    DD_AUTO(free) struct flight_of_rank *ranks = flight_ranks(g, &n);
    if (ranks == NULL)
        return -ENOMEM;
    const int rc = flight_record_compare(out, ranks, n);
    const int missing = rc > 0 ? flight_record_missing(ret, ranks, n) : 0;
    return missing < 0 ? missing : rc;
}

int flight_groups_text(const struct flight_groups *g, const char *indent, size_t lines,
                       struct dd_buf *out)
{
    size_t n = 0;
    if (!flight_is_waiting(g))
        return 0;
    DD_AUTO(free) struct flight_of_rank *ranks = flight_ranks(g, &n);
    const size_t before = out->len;
    int rc = ranks == NULL ? -ENOMEM : dd_buf_puts(out, indent);
    if (rc == 0)
        rc = flight_record_compare(out, ranks, n);
    if (rc == 0)
        out->len = before;
    else if (rc > 0)
        rc = dd_buf_puts(out, "\n");
    for (size_t i = 0; i < g->n && i < lines && rc == 0; i++)
        rc = flight_put_group(&g->v[i], indent, out);
    return rc == 0 ? report_clean(out, before) : rc;
}
