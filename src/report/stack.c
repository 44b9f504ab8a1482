#include "report/stack.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *stack_remarkable_state(char letter)
{
    return letter == 'T' || letter == 't' ? "stopped by a signal or a debugger"
           : letter == 'D'                ? "uninterruptible, state D"
                                          : "";
}

bool stack_is_equal(const struct stack *a, const struct stack *b)
{
    return a->kind == b->kind && strcmp(stack_text(a->frames), stack_text(b->frames)) == 0 &&
           strcmp(stack_text(a->state), stack_text(b->state)) == 0 &&
           strcmp(stack_text(a->note), stack_text(b->note)) == 0;
}

int stack_copy(struct stack *to, char **storage, const struct stack *from)
{
    const char *texts[] = {stack_text(from->frames), stack_text(from->state),
                           stack_text(from->note)};
    const char **const to_texts[] = {&to->frames, &to->state, &to->note};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++)
        n += strlen(texts[i]) + 1;
    char *at = *storage = malloc(n);
    if (at == NULL)
        return -ENOMEM;
    to->kind = from->kind;
    for (size_t i = 0; i < 3; i++) {
        *to_texts[i] = at;
        at = stpcpy(at, texts[i]) + 1;
    }
    return 0;
}
