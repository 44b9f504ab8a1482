/* Selection of the Python processes that waiting workers of this node have started, and the frames
 * that the caller has read from these processes. */
#ifndef DD_AGENT_CHILD_STACKS_H
#define DD_AGENT_CHILD_STACKS_H

#include "agent/frame_helpers.h"
#include "report/stack_children.h"

struct child_stacks;

struct child_stacks *child_stacks_new(void);    /* NULL: out of memory */
void child_stacks_free(struct child_stacks *c); /* NULL is fine */
/* Find the children of the Python process of a rank, the oldest first: at most STACK_CHILDREN_READ.
 * Finds none once it has been called for 64 ranks. */
void child_stacks_find(struct child_stacks *c, int rank, pid_t python);
/* Return the processes to read, *n of them, lent until the next child_stacks_find(). */
const struct frame_process *child_stacks_processes(const struct child_stacks *c, size_t *n);
/* Take the result of frame_helpers_result_f for the process with this index. */
void child_stacks_take(struct child_stacks *c, size_t index, int rc, const char *text);
/* Add the processes that were read, at most STACK_CHILDREN_OF_RANK of a rank: the working ones, or
 * if there is none, the waiting ones. */
void child_stacks_add_to(const struct child_stacks *c, struct stack_children *to);

#endif
