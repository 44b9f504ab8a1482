#include "report/stack_children.h"

#include "report/stack_frames.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- frames ---- */

bool stack_waits_for_child(const char *frames)
{
    static const char *const parts[] = {"/multiprocessing/", "/torch/utils/data/",
                                        "/concurrent/futures/process.py", "/subprocess.py"};
    struct stack_frame f;
    while (stack_frame_next(&frames, &f) && stack_frame_is_internal(&f))
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
            if (stack_frame_is_in(&f, parts[i]))
                return true;
    return false;
}

size_t stack_child_own(const char *frames)
{
    struct stack_frame f;
    const char *at = frames;
    while (stack_frame_next(&at, &f))
        if (stack_frame_is_function(&f, "_bootstrap") &&
            stack_frame_is_in(&f, "/multiprocessing/process.py"))
            break;
    return (size_t)(at - frames);
}

/* True for a program given by -c that still imports modules. Each process that multiprocessing
 * starts without a fork begins like this. */
static bool stack_child_imports(const char *own)
{
    struct stack_frame f;
    bool imports = false;
    while (stack_frame_next(&own, &f))
        if (stack_frame_is_in(&f, "<frozen importlib"))
            imports = true;
        else if (!stack_frame_is_internal(&f) && !stack_frame_is_in(&f, "<string>"))
            return false;
    return imports;
}

enum stack_child_kind stack_child_kind(const char *own)
{
    struct stack_frame f;
    const char *at = own;
    while (stack_frame_next(&at, &f))
        if (stack_frame_is_in(&f, "/multiprocessing/resource_tracker.py") ||
            stack_frame_is_in(&f, "/multiprocessing/forkserver.py"))
            return STACK_CHILD_HELPER;
        else if (!stack_frame_is_in(&f, "/selectors.py"))
            break;
    if (stack_child_imports(own))
        return STACK_CHILD_WAITS;
    for (at = own; stack_frame_next(&at, &f);)
        if (!stack_frame_is_internal(&f))
            return STACK_CHILD_WORKS;
    return STACK_CHILD_WAITS;
}

bool stack_child_is_loader(const char *own)
{
    struct stack_frame f;
    while (stack_frame_next(&own, &f))
        if (stack_frame_is_in(&f, "/torch/utils/data/_utils/worker.py"))
            return true;
    return false;
}

/* ---- groups ---- */

static struct stack_children_group *stack_children_new_group(struct stack_children *s,
                                                             const struct stack_child *what)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap == 0 ? 8 : s->cap * 2;
        struct stack_children_group *v = realloc(s->v, cap * sizeof(*v));
        if (v == NULL)
            return NULL;
        s->v = v;
        s->cap = cap;
    }
    struct stack_children_group *g = &s->v[s->n];
    *g = (struct stack_children_group){.child = *what};
    if (stack_copy(&g->child.stack, &g->storage, &what->stack) < 0)
        return NULL;
    s->n++;
    return g;
}

int stack_children_add(struct stack_children *s, const struct stack_child *what, int n,
                       const struct rank_set *ranks)
{
    struct stack_children_group *g = NULL;
    int rc = 0;
    for (size_t i = 0; i < s->n && g == NULL; i++)
        if (s->v[i].child.loader == what->loader &&
            stack_is_equal(&s->v[i].child.stack, &what->stack))
            g = &s->v[i];
    if (g == NULL && s->n == STACK_CHILDREN_GROUPS)
        return 0;
    if (g == NULL)
        g = stack_children_new_group(s, what);
    for (size_t i = 0; i < ranks->n && rc == 0 && g != NULL; i++)
        rc = rank_set_add(&g->ranks, ranks->v[i].first, ranks->v[i].last);
    if (g != NULL)
        g->processes = n < INT_MAX - g->processes ? g->processes + n : INT_MAX;
    return g == NULL ? -ENOMEM : rc;
}

int stack_children_merge(struct stack_children *to, const struct stack_children *from)
{
    int rc = 0;
    for (size_t i = 0; i < from->n && rc == 0; i++)
        rc = stack_children_add(to, &from->v[i].child, from->v[i].processes, &from->v[i].ranks);
    return rc;
}

static int stack_children_compare(const void *x, const void *y)
{
    const struct stack_children_group *a = x;
    const struct stack_children_group *b = y;
    if (a->processes != b->processes)
        return a->processes < b->processes ? -1 : 1;
    const int first_a = rank_set_nth(&a->ranks, 0);
    const int first_b = rank_set_nth(&b->ranks, 0);
    if (first_a != first_b)
        return first_a < first_b ? -1 : 1;
    return (a->child.pid > b->child.pid) - (a->child.pid < b->child.pid);
}

void stack_children_sort(struct stack_children *s)
{
    if (s->n > 1)
        qsort(s->v, s->n, sizeof(s->v[0]), stack_children_compare);
}

void stack_children_done(struct stack_children *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->v[i].storage);
        rank_set_done(&s->v[i].ranks);
    }
    free(s->v);
    *s = (struct stack_children){0};
}
