/* Determines from a stack whether a rank waits, and for what. Pure. */
#ifndef DD_REPORT_STACK_DOING_H
#define DD_REPORT_STACK_DOING_H

#include "report/stack_frames.h"
#include "report/stacks.h"

#include <stdbool.h>

/* Activities of a rank; a later one explains better why other ranks wait. */
enum stack_doing {
    STACK_DOING_UNKNOWN, /* the rank had ended or failed, or could not be read */
    STACK_DOING_WAITS, /* for other ranks: in communication, or in an operation that ends with it */
    STACK_DOING_WORKS,
    STACK_DOING_BLOCKED, /* in an uninterruptible system call: state D */
    STACK_DOING_STOPPED, /* stopped by a signal or a debugger */
};

/* headline: from stack_headline(), or "". */
enum stack_doing stack_doing_of(const struct stack *s, const char *headline);
/* True if the rank waits for a batch of a process of its DataLoader. *ret_user becomes the frame
 * that wants the batch, one of the program's if there is one. */
bool stack_loads(const struct stack *s, struct stack_frame *ret_user);
/* Find the frame of the collective that the rank is in: of PyTorch, or of MPI by its native frames.
 * False if the rank is in no collective. */
bool stack_in_collective(const struct stack *s, struct stack_frame *ret);

#endif
