#include "report/stack_doing.h"

#include <string.h>

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* True for a function in which a rank waits for others, by its name at the start of the headline.
 * "backward" ends with the collectives of PyTorch's DistributedDataParallel. The functions of
 * Python's own modules wait for threads, processes and sockets. */
static bool function_waits(const struct stack *s, const char *headline)
{
    static const char *const names[] = {
        "all_reduce",        "all_gather",  "all_to_all", "barrier", "broadcast", "gather",
        "monitored_barrier", "reduce",      "scatter",    "recv,",   "send,",     "wait,",
        "backward,",         "synchronize,"};
    const char *start = headline[0] == '_' ? headline + 1 : headline;
    struct stack_frame called;
    struct stack_frame user;
    if (stack_frames_choose(s->frames, &called, &user) && stack_frame_is_python(&called))
        return false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (starts(start, names[i]))
            return true;
    return false;
}

enum stack_doing stack_doing_of(const struct stack *s, const char *headline)
{
    const char *state = s->state != NULL ? s->state : "";
    if (s->kind >= STACK_ENDED)
        return STACK_DOING_UNKNOWN;
    if (starts(state, "stopped") || starts(state, "state T") || starts(state, "state t"))
        return STACK_DOING_STOPPED;
    if (starts(state, "uninterruptible") || starts(state, "state D"))
        return STACK_DOING_BLOCKED;
    if (s->kind == STACK_KERNEL)
        return STACK_DOING_UNKNOWN;
    return function_waits(s, headline) ? STACK_DOING_WAITS : STACK_DOING_WORKS;
}

bool stack_loads(const struct stack *s, struct stack_frame *ret_user)
{
    bool loads = false;
    struct stack_frame f;
    if (s->kind != STACK_PYTHON || !stack_frames_choose(s->frames, &f, ret_user))
        return false;
    for (const char *at = s->frames; stack_frame_next(&at, &f);) {
        if (loads && !stack_frame_is_python(&f) && !stack_frame_is_in(&f, "-packages/") &&
            !stack_frame_is_in(&f, "/torch/utils/data/")) {
            *ret_user = f;
            break;
        }
        loads = loads || (stack_frame_is_function(&f, "_try_get_data") &&
                          stack_frame_is_in(&f, "dataloader.py"));
    }
    return loads;
}

/* Functions of the same names elsewhere may compute. Point-to-point operations are no collectives:
 * their peers do something else. */
bool stack_in_collective(const struct stack *s, struct stack_frame *ret)
{
    static const char *const names[] = {
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_reduce",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "monitored_barrier",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
        "scatter_object_list",
    };
    struct stack_frame user;
    if (s->kind != STACK_PYTHON || s->state[0] != '\0' ||
        !stack_frames_choose(s->frames, ret, &user) ||
        !stack_frame_is_in(ret, "/torch/distributed/"))
        return false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (stack_frame_is_function(ret, names[i]))
            return true;
    return false;
}
