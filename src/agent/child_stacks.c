#include "agent/child_stacks.h"

#include "report/stacks.h"
#include "worker/children.h"
#include "worker/python_process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHILD_STACKS_RANKS = 64 /* maximum number of ranks whose children are read */ };

struct child_process {
    int rank;
    bool known;
    enum stack_child_kind kind;
    struct stack_child found;
    char *storage;
};

struct child_stacks {
    int ranks;
    size_t n;
    struct frame_process processes[CHILD_STACKS_RANKS * STACK_CHILDREN_READ];
    struct child_process v[CHILD_STACKS_RANKS * STACK_CHILDREN_READ];
};

struct child_stacks *child_stacks_new(void)
{
    return calloc(1, sizeof(struct child_stacks));
}

void child_stacks_free(struct child_stacks *c)
{
    for (size_t i = 0; c != NULL && i < c->n; i++)
        free(c->v[i].storage);
    free(c);
}

void child_stacks_find(struct child_stacks *c, int rank, pid_t python)
{
    pid_t pids[STACK_CHILDREN_READ];
    if (c->ranks == CHILD_STACKS_RANKS)
        return;
    c->ranks++;
    const size_t n = python_process_children(python, pids, STACK_CHILDREN_READ);
    for (size_t i = 0; i < n; i++, c->n++) {
        c->processes[c->n] = (struct frame_process){.pid = pids[i]};
        c->v[c->n] = (struct child_process){.rank = rank};
    }
}

const struct frame_process *child_stacks_processes(const struct child_stacks *c, size_t *n)
{
    *n = c->n;
    return c->processes;
}

/* Omit a process whose frames cannot be read, except with -EIO, when reading its memory blocked or
 * the reader failed: others may wait for such a process. */
void child_stacks_take(struct child_stacks *c, size_t index, int rc, const char *text)
{
    struct child_process *p = &c->v[index];
    const pid_t pid = c->processes[index].pid;
    char state[STACKS_NAME];
    char kernel[STACKS_NAME + 16];
    if (rc != 0 && rc != -EIO)
        return;
    DD_AUTO(free) char *own = rc == 0 ? strndup(text, stack_child_own(text)) : NULL;
    (void)snprintf(kernel, sizeof(kernel), "state %.150s",
                   children_state(pid, state, sizeof(state)));
    p->found = (struct stack_child){
        .loader = own != NULL && stack_child_is_loader(own),
        .pid = pid,
        .stack = {.kind = rc == 0 ? STACK_PYTHON : STACK_KERNEL,
                  .frames = own,
                  .state = rc != 0 ? kernel : stack_remarkable_state(state[0]),
                  .note = rc != 0 ? text : ""},
    };
    const struct stack lent = p->found.stack;
    p->kind = own != NULL ? stack_child_kind(own) : STACK_CHILD_WORKS;
    p->known = (rc != 0 || own != NULL) && stack_copy(&p->found.stack, &p->storage, &lent) == 0;
}

/* Add the processes of this kind of a rank, whose first process has index `first`. Return their
 * number. */
static int add_kind(const struct child_stacks *c, size_t first, enum stack_child_kind kind,
                    struct stack_children *to)
{
    struct rank_range range = {c->v[first].rank, c->v[first].rank};
    const struct rank_set rank = {.v = &range, .n = 1};
    int added = 0;
    for (size_t i = first; i < c->n && c->v[i].rank == c->v[first].rank; i++) {
        const struct child_process *p = &c->v[i];
        if (!p->known || p->kind != kind || added == STACK_CHILDREN_OF_RANK)
            continue;
        (void)stack_children_add(to, &p->found, 1, &rank); /* -ENOMEM: the answer omits it */
        added++;
    }
    return added;
}

void child_stacks_add_to(const struct child_stacks *c, struct stack_children *to)
{
    for (size_t i = 0; i < c->n; i++)
        if ((i == 0 || c->v[i].rank != c->v[i - 1].rank) &&
            add_kind(c, i, STACK_CHILD_WORKS, to) == 0)
            (void)add_kind(c, i, STACK_CHILD_WAITS, to);
}
