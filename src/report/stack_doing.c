#include "report/stack_doing.h"

#include "report/traceback.h"

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

/* Return the name of a function of MPI without the P of its profiling interface, and the length of
 * the name; NULL: the function is not MPI's. */
static const char *mpi_name(const struct stack_frame *f, int *ret_n)
{
    const int p = f->nfunction > 0 && f->function[0] == 'P';
    *ret_n = f->nfunction - p;
    return *ret_n > 4 && strncmp(f->function + p, "MPI_", 4) == 0 ? f->function + p : NULL;
}

/* True if a native frame of the rank is a function of MPI. Almost all functions of MPI wait for
 * other ranks; one that only tests for completion is called until another rank has done its part.
 * The functions of MPI_File wait for a file system. */
static bool waits_in_mpi(const struct stack *s)
{
    struct stack_frame f;
    bool waits = false;
    for (const char *at = stack_text(s->frames); !waits && stack_frame_next(&at, &f);) {
        int n = 0;
        const char *name = mpi_name(&f, &n);
        waits = name != NULL && (n < 9 || strncmp(name, "MPI_File_", 9) != 0);
    }
    return waits;
}

/* True if an exception has just ended the rank's operation: PyTorch logs the exception as it leaves
 * a collective, or Python prints the exception. */
static bool fails(const struct stack *s)
{
    struct stack_frame f;
    for (const char *at = s->frames; stack_frame_next(&at, &f);)
        if (!stack_frame_is_python(&f))
            return stack_frame_is_in(&f, "/torch/distributed/c10d_logger.py") ||
                   traceback_is_printed(s->frames);
    return traceback_is_printed(s->frames);
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
    if (s->kind == STACK_KERNEL && stack_text(s->frames)[0] == '\0')
        return STACK_DOING_UNKNOWN;
    if (s->kind == STACK_PYTHON && fails(s))
        return STACK_DOING_UNKNOWN;
    const bool waits = waits_in_mpi(s) || (s->kind == STACK_PYTHON && function_waits(s, headline));
    return waits ? STACK_DOING_WAITS : STACK_DOING_WORKS;
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

static bool is_one_of(const char *const *names, size_t n, const char *name, int len)
{
    for (size_t i = 0; i < n; i++)
        if ((size_t)len == strlen(names[i]) && memcmp(name, names[i], (size_t)len) == 0)
            return true;
    return false;
}

/* True if the outermost function of MPI is a collective in `names`: MPI_Comm_split(), which is not,
 * may call MPI_Allgather(). *ret becomes the frame of the outermost function of MPI. */
static bool in_collective_of_mpi(const struct stack *s, struct stack_frame *ret)
{
    static const char *const names[] = {
        "MPI_Allgather", "MPI_Allgatherv",     "MPI_Allreduce",
        "MPI_Alltoall",  "MPI_Alltoallv",      "MPI_Alltoallw",
        "MPI_Barrier",   "MPI_Bcast",          "MPI_Exscan",
        "MPI_Finalize",  "MPI_Gather",         "MPI_Gatherv",
        "MPI_Reduce",    "MPI_Reduce_scatter", "MPI_Reduce_scatter_block",
        "MPI_Scan",      "MPI_Scatter",        "MPI_Scatterv",
    };
    struct stack_frame f;
    const char *found = NULL;
    int len = 0;
    for (const char *at = stack_text(s->frames); stack_frame_next(&at, &f);) {
        int n = 0;
        const char *name = mpi_name(&f, &n);
        if (name == NULL)
            continue;
        found = name;
        len = n;
        *ret = f;
    }
    return found != NULL && is_one_of(names, sizeof(names) / sizeof(names[0]), found, len);
}

/* Check the file, too: functions of the same names outside of torch.distributed may compute. Omit
 * point-to-point operations, whose peers do something else. */
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
    if (stack_doing_of(s, "") == STACK_DOING_WAITS && in_collective_of_mpi(s, ret))
        return true;
    return s->kind == STACK_PYTHON && s->state[0] == '\0' &&
           stack_frames_choose(s->frames, ret, &user) &&
           stack_frame_is_in(ret, "/torch/distributed/") &&
           is_one_of(names, sizeof(names) / sizeof(names[0]), ret->function, ret->nfunction);
}
