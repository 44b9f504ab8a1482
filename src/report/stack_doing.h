/* What a rank does, by its stack: whether it waits, and for what. Pure. */
#ifndef DD_REPORT_STACK_DOING_H
#define DD_REPORT_STACK_DOING_H

#include "report/stack_frames.h"
#include "report/stacks.h"

#include <stdbool.h>

/* In the order in which they explain that others wait. */
enum stack_doing {
    STACK_DOING_UNKNOWN, /* it had ended or failed, or could not be read */
    STACK_DOING_WAITS,   /* in a collective operation, or in one that ends with a collective */
    STACK_DOING_WORKS,
    STACK_DOING_BLOCKED, /* in an uninterruptible system call: state D */
    STACK_DOING_STOPPED, /* by a signal or a debugger */
};

/* headline: that of the stack. */
enum stack_doing stack_doing_of(const struct stack *s, const char *headline);
/* True if the rank waits for a batch of a process of its DataLoader. *ret_user is the line of the
 * program that wants the batch, if there is one outside of libraries. */
bool stack_loads(const struct stack *s, struct stack_frame *ret_user);
/* Find the frame of the collective that the rank is in: of PyTorch, or of MPI by its native frames.
 * False: it is in none. */
bool stack_in_collective(const struct stack *s, struct stack_frame *ret);

#endif
