/* Stack and state of one process at one moment. Pure. */
#ifndef DD_REPORT_STACK_H
#define DD_REPORT_STACK_H

#include <stdbool.h>
#include <stddef.h>

enum stack_kind {
    STACK_PYTHON, /* the Python frames */
    STACK_KERNEL, /* the kernel's state of the process, and its native frames where asked for */
    STACK_ENDED, /* the process had ended, or was about to; frames: of the traceback that it printed
                  */
    STACK_UNREAD, /* nothing is known; note: the reason */
    STACK_KIND_MAX,
};

/* Note of a STACK_UNREAD that the report shows even if it has nothing else to show. */
#define STACK_IN_PODMAN "not read: the worker runs in a container of Podman"

/* What is known about one process. Texts are borrowed as arguments; NULL means "". */
struct stack {
    enum stack_kind kind;
    const char *frames; /* of STACK_PYTHON and STACK_ENDED; native frames of STACK_KERNEL */
    const char *state;  /* state of the process; "" with Python frames if it is unremarkable */
    const char *note;   /* why no more is known */
};

/* Return s; "" in place of NULL. */
static inline const char *stack_text(const char *s)
{
    return s != NULL ? s : "";
}

/* Describe the state of a process, a letter of proc(5); "": not worth showing beside frames. */
const char *stack_remarkable_state(char letter);
bool stack_is_equal(const struct stack *a, const struct stack *b);
/* Copy a stack; *storage holds its texts and is freed by the caller. 0 or -ENOMEM. */
int stack_copy(struct stack *to, char **storage, const struct stack *from);

#endif
