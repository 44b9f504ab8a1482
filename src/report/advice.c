#include "report/advice.h"

#include "report/report.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

/* The first row whose text is in what the worker said, or ddrun of it. Srcs: messages of CPython 3.11, PyTorch 2.13
 * (c10d, DataLoader, CUDA), NCCL 2.2x, glibc. */
static const struct {
    const char *text, *advice;
} by_text[] = {
    {"it gave no sign of life", "find the rank that stands elsewhere than the others, which may only wait for it: py-spy in PATH, or PYTHONFAULTHANDLER=1, shows the Python lines"},
    {"BdbQuit", "breakpoint() needs a terminal: torch.distributed.breakpoint() stops one rank, --pty=RANK gives a rank a terminal"},
    {"CUDA out of memory", "the GPU's memory is full: smaller batches, or checkpointed activations"},
    {"torch.OutOfMemoryError", "the GPU's memory is full: smaller batches, or checkpointed activations"},
    {"DefaultCPUAllocator: can't allocate", "the node's memory is full: smaller batches, or ask for more (Slurm: --mem)"},
    {"insufficient shared memory", "/dev/shm is too small for the data loaders: enlarge it, or use num_workers=0"},
    {"No module named", "the module is not in the Python environment of the workers: activate the right one, or set PYTHON_EXEC"},
    {"cannot open shared object file", "a library is missing on this node: load the module that brings it, or set LD_LIBRARY_PATH"},
    {"ImportError", "the Python environment of the workers does not fit: compare it with where the program works"},
    {"uncorrectable ECC", "the GPU is faulty: leave its node out and tell the administrator"},
    {"GPU has fallen off the bus", "the GPU is lost: leave its node out and tell the administrator"},
    {"no CUDA-capable device", "the workers see no GPU: ask the scheduler for some, and see CUDA_VISIBLE_DEVICES"},
    {"invalid device ordinal", "there are fewer GPUs than workers on this node: see --nproc-per-node"},
    {"collective operation timeout", "a rank did not take part in a collective operation: look for the one that stood still"},
    {"Timed out waiting", "a rank did not take part in a collective operation: look for the one that stood still"},
    {"Connection closed by peer", "another rank ended first, perhaps on its own: look at the output of the others"},
    {"Connection reset by peer", "another rank ended first, perhaps on its own: look at the output of the others"},
    {"NCCL error", "run again with NCCL_DEBUG=WARN: NCCL then says what has failed"},
    {"No space left on device", "a disk is full: df -h shows which, TMPDIR says where temporary files go"},
    {"Too many open files", "more files than allowed: ulimit -n, or fewer data loaders"},
    {"Disk quota exceeded", "your quota of disk space is used up"},
    {"Permission denied", "see who may read and write the file that is named"},
    {"Address already in use", "a port of the program is taken: let it use port 0, or MASTER_PORT's store"},
};

static const struct {
    int signal;
    const char *advice;
} by_signal[] = {
    {SIGKILL, "something sent SIGKILL: a limit of the site or the memory of the node; dmesg may tell"},
    {SIGSEGV, "a crash in compiled code: PYTHONFAULTHANDLER=1 shows the Python lines, ulimit -c unlimited keeps a core"},
    {SIGABRT, "compiled code gave up: its last lines say why, ulimit -c unlimited keeps a core"},
    {SIGBUS, "often a full /dev/shm or disk under a mapped file: df -h /dev/shm"},
    {SIGILL, "the program was built for another kind of CPU than this node has"},
    {SIGXCPU, "the limit of CPU time is used up: ulimit -t"},
};

static int has(const char *text, const char *part)
{
    return text != NULL && strstr(text, part) != NULL;
}

const char *report_advice(const struct report_exit *e)
{
    if (e->oom)
        return "ask for more memory (Slurm: --mem), or use smaller batches or fewer data loaders";
    for (size_t i = 0; i < sizeof(by_text) / sizeof(by_text[0]); i++)
        if (has(e->error, by_text[i].text) || has(e->tail, by_text[i].text))
            return by_text[i].advice;
    for (size_t i = 0; i < sizeof(by_signal) / sizeof(by_signal[0]); i++)
        if (e->signal == by_signal[i].signal)
            return by_signal[i].advice;
    return NULL;
}
