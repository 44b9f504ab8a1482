/* Writes and parses stacks as JSON: in the message of a node, in the report, and for ddctl. */
#include "report/stacks_json_inner.h"

#include "base/auto.h"
#include "base/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[STACK_KIND_MAX] = {
    [STACK_PYTHON] = "python",
    [STACK_KERNEL] = "kernel",
    [STACK_ENDED] = "ended",
    [STACK_UNREAD] = "unread",
};

/* ---- write ---- */

static json_t *clean_text(const char *s, size_t n)
{
    DD_AUTO(free) char *copy = strndup(s, n);
    return copy != NULL ? json_string(dd_utf8_clean(copy)) : NULL;
}

static json_t *frames_json(const char *frames, int depth)
{
    json_t *list = json_array();
    for (const char *p = frames; *p != '\0' && depth > 0; depth--) {
        const size_t len = strcspn(p, "\n");
        const size_t function = strcspn(p, "\t\n");
        const char *file = p + function + (p[function] == '\t');
        const size_t nfile = strcspn(file, "\t\n");
        const char *line = file + nfile + (file[nfile] == '\t');
        json_t *f = json_pack("{s:o s:o s:i}", "function", clean_text(p, function), "file",
                              clean_text(file, nfile), "line", atoi(line));
        if (f == NULL || json_array_append_new(list, f) < 0)
            break;
        p += len + (p[len] == '\n');
    }
    return list;
}

json_t *stacks_one_json(const struct stack *s, const struct rank_set *ranks, int depth)
{
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(STACKS_RANKS_TEXT);
    DD_AUTO(buf) struct dd_buf headline = DD_BUF_INIT(STACKS_TEXT);
    (void)rank_set_text(ranks, &list);
    const char *text = dd_buf_str(&list);
    const char *line = stack_headline(s, &headline) == 0 ? dd_buf_str(&headline) : "";
    if (text == NULL || line == NULL)
        return NULL;
    return json_pack("{s:s s:s s:o s:o s:o s:o}", "ranks", text, "kind", kind_names[s->kind],
                     "headline", clean_text(line, strlen(line)), "state",
                     clean_text(s->state, strlen(s->state)), "note",
                     clean_text(s->note, strlen(s->note)), "frames", frames_json(s->frames, depth));
}

static json_t *all_json(const struct stacks *s, int depth, bool children)
{
    json_t *groups = json_array();
    json_t *nodes = json_array();
    for (size_t i = 0; i < s->n; i++)
        (void)json_array_append_new(groups, stacks_one_json(&s->v[i].stack, &s->v[i].ranks, depth));
    for (size_t i = 0; i < s->nnodes; i++)
        (void)json_array_append_new(
            nodes, json_pack("{s:o s:i s:i}", "name",
                             clean_text(s->nodes[i].name, strlen(s->nodes[i].name)), "first_rank",
                             s->nodes[i].first_rank, "workers", s->nodes[i].workers));
    return json_pack(
        "{s:f s:o s:o s:o s:o s:o}", "seconds", s->seconds, "nodes", nodes, "groups", groups,
        "children", children ? stack_children_json(&s->children, depth) : json_array(),
        "collectives", flight_groups_json(&s->collectives), "nccl_ras", nccl_ras_json(&s->ras));
}

json_t *stacks_json(const struct stacks *s, int depth)
{
    return all_json(s, depth, true);
}

int stacks_write(const struct stacks *s, size_t most, struct dd_buf *out)
{
    static const int depths[] = {STACKS_FRAMES, 40, 16, 6, 2, 1, 0, 0};
    const size_t n = sizeof(depths) / sizeof(depths[0]);
    for (size_t i = 0; i < n; i++) {
        json_t *o = all_json(s, depths[i], i + 1 < n);
        DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(6))
                                             : NULL;
        json_decref(o);
        if (text == NULL)
            return -ENOMEM;
        if (strlen(text) <= most)
            return dd_buf_puts(out, text);
    }
    return -EMSGSIZE;
}

/* ---- parse ---- */

/* Append a peer's text without control characters. */
static int put_name(struct dd_buf *out, const char *s)
{
    int rc = 0;
    const size_t n = strnlen(s, STACKS_NAME);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = dd_buf_append(out, (unsigned char)s[i] < ' ' || s[i] == 127 ? "?" : &s[i], 1);
    return rc;
}

static int parse_frames(const json_t *list, struct dd_buf *out)
{
    if (!json_is_array(list) || json_array_size(list) > STACKS_FRAMES)
        return -EPROTO;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        const char *function = json_string_value(json_object_get(f, "function"));
        const char *file = json_string_value(json_object_get(f, "file"));
        const json_int_t line = json_integer_value(json_object_get(f, "line"));
        if (function == NULL || file == NULL || line < 0 || line > INT32_MAX)
            return -EPROTO;
        int rc = put_name(out, function);
        if (rc == 0)
            rc = dd_buf_puts(out, "\t");
        if (rc == 0)
            rc = put_name(out, file);
        if (rc == 0)
            rc = dd_buf_printf(out, "\t%d\n", (int)line);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int parse_kind(const char *name)
{
    for (int i = 0; name != NULL && i < STACK_KIND_MAX; i++)
        if (strcmp(name, kind_names[i]) == 0)
            return i;
    return -EPROTO;
}

int stacks_parse_one(struct stack *ret, char **storage, const json_t *o)
{
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(2 * STACKS_FRAMES * (STACKS_NAME + 8));
    DD_AUTO(buf) struct dd_buf state = DD_BUF_INIT(STACKS_NAME + 1);
    DD_AUTO(buf) struct dd_buf note = DD_BUF_INIT(STACKS_NAME + 1);
    const char *s = json_string_value(json_object_get(o, "state"));
    const char *n = json_string_value(json_object_get(o, "note"));
    const int kind = parse_kind(json_string_value(json_object_get(o, "kind")));
    if (kind < 0 || s == NULL || n == NULL)
        return -EPROTO;
    int rc = parse_frames(json_object_get(o, "frames"), &frames);
    if (rc == 0)
        rc = put_name(&state, s);
    if (rc == 0)
        rc = put_name(&note, n);
    const struct stack what = {.kind = (enum stack_kind)kind,
                               .frames = dd_buf_str(&frames),
                               .state = dd_buf_str(&state),
                               .note = dd_buf_str(&note)};
    return rc == 0 ? stack_copy(ret, storage, &what) : rc;
}

int stacks_parse_ranks(struct rank_set *ret, const json_t *o, int first, int workers)
{
    const char *text = json_string_value(json_object_get(o, "ranks"));
    if (text == NULL || strlen(text) > STACKS_RANKS_TEXT)
        return -EPROTO;
    const int rc = rank_set_parse(ret, text);
    if (rc < 0)
        return rc == -EINVAL ? -EPROTO : rc;
    for (size_t i = 0; i < ret->n; i++)
        if (workers >= 0 && (ret->v[i].first < first || ret->v[i].last - first >= workers))
            return -EPERM;
    return 0;
}

/* Parse a group. seen: ranks of the groups so far; a rank may occur only once. */
static int parse_group(struct stacks *ret, const json_t *o, struct rank_set *seen, int first,
                       int workers)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    DD_AUTO(free) char *storage = NULL;
    struct stack what;
    const size_t before = rank_set_count(seen);
    int rc = stacks_parse_ranks(&ranks, o, first, workers);
    for (size_t i = 0; i < ranks.n && rc == 0; i++)
        rc = rank_set_add(seen, ranks.v[i].first, ranks.v[i].last);
    if (rc == 0 && rank_set_count(seen) != before + rank_set_count(&ranks))
        rc = -EPERM;
    if (rc == 0)
        rc = stacks_parse_one(&what, &storage, o);
    for (size_t i = 0; i < ranks.n && rc == 0; i++)
        rc = stacks_add(ret, &what, ranks.v[i].first, ranks.v[i].last);
    return rc;
}

static int parse_node(struct stacks *ret, const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const json_int_t first = json_integer_value(json_object_get(o, "first_rank"));
    const json_int_t workers = json_integer_value(json_object_get(o, "workers"));
    if (name == NULL || first < 0 || first >= RANK_SET_MAX || workers < 0 || workers > RANK_SET_MAX)
        return -EPROTO;
    return stacks_add_node(ret, name, (int)first, (int)workers);
}

static int parse_all(struct stacks *ret, const json_t *o, int first, int workers)
{
    const json_t *groups = json_object_get(o, "groups");
    const json_t *nodes = json_object_get(o, "nodes");
    DD_AUTO(rank_set) struct rank_set seen = {0};
    int rc = 0;
    if (!json_is_array(groups) || json_array_size(groups) > STACKS_GROUPS + 1)
        return -EPROTO;
    for (size_t i = 0; i < json_array_size(groups) && rc == 0; i++)
        rc = parse_group(ret, json_array_get(groups, i), &seen, first, workers);
    for (size_t i = 0; workers < 0 && i < json_array_size(nodes) && rc == 0; i++)
        rc = parse_node(ret, json_array_get(nodes, i));
    if (rc == 0)
        rc = stack_children_parse(&ret->children, json_object_get(o, "children"), first, workers);
    if (rc == 0)
        rc = flight_groups_parse(&ret->collectives, json_object_get(o, "collectives"), first,
                                 workers);
    if (rc == 0)
        rc = nccl_ras_parse(&ret->ras, json_object_get(o, "nccl_ras"), first, workers);
    ret->seconds = json_number_value(json_object_get(o, "seconds"));
    return rc;
}

int stacks_parse(struct stacks *ret, const char *text, int first_rank, int workers,
                 struct dd_err *err)
{
    json_error_t je;
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &je);
    if (o == NULL)
        return dd_err_set(err, -EPROTO, "stacks are not JSON (line %d)", je.line);
    const int rc = parse_all(ret, o, first_rank, workers);
    json_decref(o);
    if (rc == -EPERM)
        return dd_err_set(
            err, rc, "stacks of a rank that does not belong to the node, or that occurs twice");
    return rc < 0 ? dd_err_set(err, rc, "%s", rc == -ENOMEM ? "out of memory" : "invalid stacks")
                  : 0;
}
