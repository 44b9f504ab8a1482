#include "report/advice.h"

#include "report/report.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

/* The first row whose text occurs in the worker's error or in ddrun's message about it applies.
 * Src: messages of CPython 3.11, PyTorch 2.13 (c10d, DataLoader, CUDA), NCCL 2.2x, glibc. */
static const struct {
    const char *text, *advice;
} by_text[] = {
    {"hung: no ",
     "one rank is probably stuck and the others waiting for it; compare stacks with py-spy or PYTHONFAULTHANDLER=1"},
    {"BdbQuit",
     "breakpoint() needs a terminal: add --pty=RANK; torch.distributed.breakpoint() stops one rank only"},
    {"CUDA out of memory", "GPU memory is full; reduce the batch size or checkpoint activations"},
    {"torch.OutOfMemoryError",
     "GPU memory is full; reduce the batch size or checkpoint activations"},
    {"DefaultCPUAllocator: can't allocate",
     "the node's memory is full; reduce the batch size or request more memory (Slurm: --mem)"},
    {"insufficient shared memory",
     "/dev/shm is too small for the data loaders; enlarge it, or set num_workers=0"},
    {"No module named",
     "the workers' Python environment lacks this module; activate the right environment, or set PYTHON_EXEC"},
    {"cannot open shared object file",
     "a shared library is missing on this node; load its environment module, or set LD_LIBRARY_PATH"},
    {"ImportError",
     "the workers' Python environment differs from the expected one; compare 'pip list' with one that works"},
    {"uncorrectable ECC", "the GPU is faulty; exclude its node and report it to the administrator"},
    {"GPU has fallen off the bus",
     "the GPU is lost; exclude its node and report it to the administrator"},
    {"no CUDA-capable device",
     "the workers see no GPU; request GPUs from the scheduler, and check CUDA_VISIBLE_DEVICES"},
    {"invalid device ordinal", "this node has fewer GPUs than workers; reduce --nproc-per-node"},
    {"collective operation timeout",
     "a rank did not join a collective operation; look for the rank that is stuck"},
    {"Timed out waiting",
     "a rank did not join a collective operation; look for the rank that is stuck"},
    {"Connection closed by peer", "a peer exited first; look for its error"},
    {"Connection reset by peer", "a peer exited first; look for its error"},
    {"NCCL error", "rerun with -x NCCL_DEBUG=WARN for NCCL's own error"},
    {"No space left on device",
     "a file system is full; 'df -h' shows which one, and TMPDIR sets where temporary files go"},
    {"Too many open files",
     "the limit of open files is reached; raise 'ulimit -n', or use fewer data loaders"},
    {"Disk quota exceeded", "your disk quota is used up"},
    {"Permission denied", "check owner and mode of the file named above"},
    {"Address already in use",
     "a port of the program is in use; bind port 0, or use the store at MASTER_ADDR:MASTER_PORT"},
};

static const struct {
    int signal;
    const char *advice;
} by_signal[] = {
    {SIGKILL,
     "SIGKILL often comes from the OOM killer or a scheduler limit; check 'dmesg -T' on the node"},
    {SIGSEGV,
     "native code crashed; rerun with -x PYTHONFAULTHANDLER=1, or 'ulimit -c unlimited' for a core dump"},
    {SIGABRT,
     "native code aborted; its last lines may show why, and 'ulimit -c unlimited' keeps a core dump"},
    {SIGBUS, "often a full /dev/shm or file system under a mapped file; check 'df -h /dev/shm'"},
    {SIGILL, "the program was built for a CPU with other instructions than this node's"},
    {SIGXCPU, "the limit of CPU time is used up; see 'ulimit -t'"},
};

static int advice_has(const char *text, const char *part)
{
    return text != NULL && strstr(text, part) != NULL;
}

const char *report_advice(const struct report_exit *e)
{
    if (e->oom)
        return "request more memory (Slurm: --mem), or reduce the batch size or the number of data loaders";
    for (size_t i = 0; i < sizeof(by_text) / sizeof(by_text[0]); i++)
        if (advice_has(e->error, by_text[i].text) || advice_has(e->tail, by_text[i].text))
            return by_text[i].advice;
    for (size_t i = 0; i < sizeof(by_signal) / sizeof(by_signal[0]); i++)
        if (e->signal == by_signal[i].signal)
            return by_signal[i].advice;
    return NULL;
}
