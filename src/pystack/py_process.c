#include "pystack/py_process.h"

#include "base/io.h"
#include "pystack/elf_symbols.h"
#include "pystack/py_stack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* A process whose memory is read. */
struct source {
    pid_t pid;
    int mem;   /* /proc/PID/mem; -1: not open */
    bool call; /* process_vm_readv() is used */
};

static int open_of(pid_t pid, const char *name)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int py_process_scope(void)
{
    char text[16] = "";
    DD_AUTO(fd) int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 ? (int)strtol(text, NULL, 10) : 0;
}

int py_process_open(pid_t pid)
{
    return open_of(pid, "mem");
}

static int py_process_open_error(int rc, struct dd_err *err)
{
    return rc == -ENOENT || rc == -ESRCH ? dd_err_set(err, -ESRCH, "the process has ended")
           : rc == -EACCES || rc == -EPERM
               ? dd_err_set(err, rc, "reading its memory is not permitted")
               : dd_err_set(err, rc, "cannot open its file auxv in /proc: %s", strerror(-rc));
}

static ssize_t read_by_call(const struct source *s, uint64_t addr, void *to, size_t n)
{
    const struct iovec local = {.iov_base = to, .iov_len = n};
    struct iovec remote = {.iov_len = n};
    const uintptr_t at = (uintptr_t)addr;
    memcpy(&remote.iov_base, &at, sizeof(at)); /* an address of the other process */
    return process_vm_readv(s->pid, &local, 1, &remote, 1, 0);
}

/* Prefer process_vm_readv(), which can be killed while it waits for a page, to /proc/PID/mem; but a
 * filter on system calls may forbid it. */
static int read_memory(void *arg, uint64_t addr, void *to, size_t n)
{
    struct source *s = arg;
    if (addr > INT64_MAX)
        return -EFAULT;
    ssize_t got = s->call ? read_by_call(s, addr, to, n) : pread(s->mem, to, n, (off_t)addr);
    if (got < 0 && s->call && (errno == EPERM || errno == ENOSYS)) {
        if (s->mem < 0)
            s->mem = open_of(s->pid, "mem");
        if (s->mem < 0)
            return s->mem;
        s->call = false;
        got = pread(s->mem, to, n, (off_t)addr);
    }
    if (got == (ssize_t)n)
        return 0;
    return got < 0 && errno != EIO ? -errno : got == 0 ? -ESRCH : -EFAULT;
}

/* Name Yama as the reason of a refusal if its scope is not 0: opening auxv, which Yama does not
 * limit, has succeeded. */
static int explain_refusal(int rc, struct dd_err *err)
{
    const int scope = rc == -EPERM || rc == -EACCES ? py_process_scope() : 0;
    return scope > 0
               ? dd_err_set(err, rc,
                            "reading its memory is not permitted: kernel.yama.ptrace_scope is %d",
                            scope)
               : rc;
}

int py_process_read(pid_t pid, int mem, struct dd_buf *out, struct dd_err *err)
{
    unsigned char auxv[ELF_AUXV_MAX];
    DD_AUTO(fd) int vector = open_of(pid, "auxv");
    struct source s = {.pid = pid, .mem = mem, .call = true};
    if (vector < 0)
        return py_process_open_error(vector, err);
    const ssize_t size = read(vector, auxv, sizeof(auxv));
    DD_AUTO(py_memory) struct py_memory *m = py_memory_new(read_memory, &s);
    if (m == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    const struct py_process p = {
        .auxv = auxv, .auxv_size = size > 0 ? (size_t)size : 0, .pid = (int)pid};
    const int rc = py_stack_read(m, &p, out, err);
    if (mem < 0 && s.mem >= 0)
        close(s.mem);
    return explain_refusal(rc, err);
}
