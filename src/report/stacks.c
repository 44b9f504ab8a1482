#include "report/stacks.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct stack_group *stacks_new_group(struct stacks *s, const struct stack *what)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap == 0 ? 8 : s->cap * 2;
        struct stack_group *v = realloc(s->v, cap * sizeof(*v));
        if (v == NULL)
            return NULL;
        s->v = v;
        s->cap = cap;
    }
    struct stack_group *g = &s->v[s->n];
    *g = (struct stack_group){0};
    if (stack_copy(&g->stack, &g->storage, what) < 0)
        return NULL;
    s->n++;
    return g;
}

int stacks_add(struct stacks *s, const struct stack *what, int first, int last)
{
    static const struct stack beyond = {.kind = STACK_UNREAD,
                                        .note = "omitted: too many different stacks"};
    const struct stack *use = s->n >= STACKS_GROUPS ? &beyond : what;
    for (size_t i = 0; i < s->n; i++)
        if (stack_is_equal(&s->v[i].stack, what) || stack_is_equal(&s->v[i].stack, use))
            return rank_set_add(&s->v[i].ranks, first, last);
    struct stack_group *g = stacks_new_group(s, use);
    return g != NULL ? rank_set_add(&g->ranks, first, last) : -ENOMEM;
}

int stacks_add_node(struct stacks *s, const char *name, int first_rank, int workers)
{
    struct stacks_node *v = realloc(s->nodes, (s->nnodes + 1) * sizeof(*v));
    if (v == NULL)
        return -ENOMEM;
    s->nodes = v;
    v = &v[s->nnodes++];
    *v = (struct stacks_node){.first_rank = first_rank, .workers = workers};
    (void)snprintf(v->name, sizeof(v->name), "%s", name);
    return 0;
}

int stacks_merge(struct stacks *to, const struct stacks *from)
{
    int rc = 0;
    for (size_t i = 0; i < from->n; i++) {
        const struct stack_group *g = &from->v[i];
        for (size_t k = 0; k < g->ranks.n && rc == 0; k++)
            rc = stacks_add(to, &g->stack, g->ranks.v[k].first, g->ranks.v[k].last);
    }
    if (rc == 0)
        rc = stack_children_merge(&to->children, &from->children);
    if (rc == 0)
        rc = flight_groups_merge(&to->collectives, &from->collectives);
    return rc == 0 ? nccl_ras_merge(&to->ras, &from->ras) : rc;
}

int stacks_resolve(struct stacks *s)
{
    int world_size = 0;
    for (size_t i = 0; i < s->nnodes; i++)
        if (s->nodes[i].first_rank + s->nodes[i].workers > world_size)
            world_size = s->nodes[i].first_rank + s->nodes[i].workers;
    return nccl_ras_resolve(&s->ras, world_size);
}

static int stack_compare(const void *x, const void *y)
{
    const struct stack_group *a = x;
    const struct stack_group *b = y;
    const bool late_a = a->stack.kind >= STACK_ENDED;
    const bool late_b = b->stack.kind >= STACK_ENDED;
    const size_t na = rank_set_count(&a->ranks);
    const size_t nb = rank_set_count(&b->ranks);
    if (late_a != late_b)
        return late_a ? 1 : -1;
    if (na != nb)
        return na < nb ? -1 : 1;
    if (a->ranks.n == 0 || b->ranks.n == 0)
        return 0;
    return a->ranks.v[0].first < b->ranks.v[0].first ? -1 : 1;
}

void stacks_sort(struct stacks *s)
{
    if (s->n > 1)
        qsort(s->v, s->n, sizeof(s->v[0]), stack_compare);
    stack_children_sort(&s->children);
}

const struct stacks_node *stacks_node_of(const struct stacks *s, int rank)
{
    for (size_t i = 0; i < s->nnodes; i++)
        if (rank >= s->nodes[i].first_rank && rank - s->nodes[i].first_rank < s->nodes[i].workers)
            return &s->nodes[i];
    return NULL;
}

bool stacks_has(const struct stacks *s, enum stack_kind kind)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].stack.kind == kind)
            return true;
    return false;
}

bool stacks_has_note(const struct stacks *s, const char *note)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].stack.note, note) == 0)
            return true;
    return false;
}

void stacks_done(struct stacks *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->v[i].storage);
        rank_set_done(&s->v[i].ranks);
    }
    free(s->v);
    free(s->nodes);
    stack_children_done(&s->children);
    flight_groups_done(&s->collectives);
    nccl_ras_done(&s->ras);
    *s = (struct stacks){0};
}

static bool is_inside_char(const char *s)
{
    return (*s & 0xc0) == 0x80;
}

/* Append at most STACKS_NAME bytes, without control characters; of a path, the last ones. */
static int put_name(struct dd_buf *out, const char *s, bool path)
{
    const size_t len = strlen(s);
    const char *at = path && len > STACKS_NAME ? s + len - STACKS_NAME : s;
    const char *end = at + (strlen(at) < STACKS_NAME ? strlen(at) : STACKS_NAME);
    int rc = 0;
    while (path && at > s && at < end && is_inside_char(at))
        at++;
    while (end > at && is_inside_char(end))
        end--;
    for (; at < end && rc == 0; at++)
        rc = dd_buf_append(out, (unsigned char)*at < ' ' ? "?" : at, 1);
    return rc;
}

int stack_put_frame(struct dd_buf *out, const char *function, const char *file, int line)
{
    int rc = put_name(out, function, false);
    if (rc == 0)
        rc = dd_buf_puts(out, "\t");
    if (rc == 0)
        rc = put_name(out, file, true);
    return rc < 0 ? rc : dd_buf_printf(out, "\t%d\n", line);
}
