/* Stacks of Python processes that a rank has started, such as those of a DataLoader, and for which
 * it waits. Equal stacks are folded, over all ranks. Pure. */
#ifndef DD_REPORT_STACK_CHILDREN_H
#define DD_REPORT_STACK_CHILDREN_H

#include "base/buf.h"
#include "report/rank_set.h"
#include "report/stack.h"

#include <stdbool.h>
#include <stddef.h>

struct json_t;

enum {
    STACK_CHILDREN_GROUPS = 64, /* further stacks are omitted */
    STACK_CHILDREN_OF_RANK = 4, /* children of a rank that are shown, busy ones first */
    STACK_CHILDREN_READ = 16,   /* children of a rank that are read */
};

enum stack_child_kind {
    STACK_CHILD_WORKS,
    STACK_CHILD_WAITS,  /* only library code: a DataLoader's process without a task, or one that
                           begins */
    STACK_CHILD_HELPER, /* a process that multiprocessing needs; no rank waits for it */
};

struct stack_child {
    bool loader; /* the process belongs to PyTorch's DataLoader */
    int pid;
    struct stack stack; /* the child's own frames, without those of its parent */
};

struct stack_children_group {
    struct stack_child child; /* the first process of the group; its texts are in storage */
    char *storage;
    struct rank_set ranks;
    int processes;
};

struct stack_children {
    struct stack_children_group *v;
    size_t n, cap;
};

/* True if a rank with these frames waits for a process that it has started. */
bool stack_waits_for_child(const char *frames);
/* Return how many bytes of the frames are those of the process itself: a forked process also has
 * the frames of its parent at the time of the fork. */
size_t stack_child_own(const char *frames);
/* Classify a child. own: the frames of the process itself. */
enum stack_child_kind stack_child_kind(const char *own);
bool stack_child_is_loader(const char *own);

/* Add n processes with equal stacks, of these ranks. 0, also if there are too many different
 * stacks, or -ENOMEM. */
int stack_children_add(struct stack_children *s, const struct stack_child *what, int n,
                       const struct rank_set *ranks);
int stack_children_merge(struct stack_children *to, const struct stack_children *from);
void stack_children_sort(struct stack_children *s); /* the rarest first */
void stack_children_done(struct stack_children *s);

/* Return an array. depth: number of frames of each stack. NULL: out of memory. The caller owns the
 * reference. */
struct json_t *stack_children_json(const struct stack_children *s, int depth);
/* Parse the array of a peer; NULL: none. With workers >= 0, ranks first to first + workers - 1 are
 * permitted. 0, -EPROTO, -EPERM: another rank, or -ENOMEM. The caller frees *ret, also on failure.
 */
int stack_children_parse(struct stack_children *ret, const struct json_t *list, int first,
                         int workers);

#endif
