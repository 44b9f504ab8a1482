/* Writes and parses children of ranks as JSON, for the message of a node, the report and ddctl. */
#include "base/auto.h"
#include "report/stacks_json_inner.h"

#include <errno.h>

enum { PID_MAX = 1 << 22 }; /* Src: proc(5), pid_max */

static json_t *child_json(const struct stack_children_group *g, int depth)
{
    json_t *o = stacks_one_json(&g->child.stack, &g->ranks, depth);
    json_t *more = json_pack("{s:b s:i s:i}", "dataloader", g->child.loader, "processes",
                             g->processes, "pid", g->child.pid);
    if (o != NULL && json_object_update(o, more) < 0)
        json_decref(DD_TAKE(o));
    json_decref(more);
    return o;
}

json_t *stack_children_json(const struct stack_children *s, int depth)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n; i++)
        (void)json_array_append_new(list, child_json(&s->v[i], depth));
    return list;
}

static int most_processes(const struct rank_set *ranks)
{
    return STACK_CHILDREN_OF_RANK * (int)rank_set_count(ranks);
}

static int parse_child(struct stack_children *ret, const json_t *o, int first, int workers)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    DD_AUTO(free) char *storage = NULL;
    const json_int_t n = json_integer_value(json_object_get(o, "processes"));
    const json_int_t pid = json_integer_value(json_object_get(o, "pid"));
    struct stack_child child = {.loader = json_is_true(json_object_get(o, "dataloader")),
                                .pid = (int)pid};
    int rc = stacks_parse_ranks(&ranks, o, first, workers);
    if (rc == 0 && (n < 1 || n > most_processes(&ranks) || pid < 1 || pid > PID_MAX))
        rc = -EPROTO;
    if (rc == 0)
        rc = stacks_parse_one(&child.stack, &storage, o);
    return rc == 0 ? stack_children_add(ret, &child, (int)n, &ranks) : rc;
}

int stack_children_parse(struct stack_children *ret, const json_t *list, int first, int workers)
{
    int rc = 0;
    if (json_array_size(list) > STACK_CHILDREN_GROUPS)
        return -EPROTO;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = parse_child(ret, json_array_get(list, i), first, workers);
    for (size_t i = 0; i < ret->n && rc == 0; i++)
        if (ret->v[i].processes > most_processes(&ret->v[i].ranks))
            rc = -EPROTO; /* more processes than the ranks can have: some were counted twice */
    return rc;
}
