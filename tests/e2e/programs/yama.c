/* LD_PRELOAD: a kernel with Yama, whose kernel.yama.ptrace_scope is YAMA_SCOPE, for processes
 * without CAP_SYS_PTRACE. YAMA_PLACE: a directory for what processes have declared by
 * PR_SET_PTRACER. Src: security/yama/yama_lsm.c of Linux 6.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

static int number_in(const char *path, int otherwise)
{
    int n = otherwise;
    FILE *f = fopen(path, "re");
    if (f == NULL || fscanf(f, "%d", &n) != 1)
        n = otherwise;
    if (f != NULL)
        fclose(f);
    return n;
}

static int parent_of(int pid)
{
    char path[64], text[1024] = "";
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    const size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *end = strrchr(text, ')');
    return end != NULL && sscanf(end, ") %*c %d", &parent) == 1 ? parent : 0;
}

static int descends(int from, int pid)
{
    while (pid > 0 && pid != from)
        pid = parent_of(pid);
    return pid == from;
}

static int may_read(int pid)
{
    char path[PATH_MAX];
    if (pid == getpid())
        return 1;
    if (strcmp(getenv("YAMA_SCOPE"), "1") != 0)
        return 0;
    snprintf(path, sizeof(path), "%s/ptracer.%d", getenv("YAMA_PLACE"), pid);
    const int tracer = number_in(path, 0);
    return descends(getpid(), pid) || (tracer > 0 && descends(tracer, getpid()));
}

int prctl(int option, ...)
{
    int (*const real)(int, ...) = (int (*)(int, ...))dlsym(RTLD_NEXT, "prctl");
    unsigned long v[4];
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, option);
    for (int i = 0; i < 4; i++)
        v[i] = va_arg(ap, unsigned long);
    va_end(ap);
    if (option != PR_SET_PTRACER)
        return real(option, v[0], v[1], v[2], v[3]);
    snprintf(path, sizeof(path), "%s/ptracer.%d", getenv("YAMA_PLACE"), (int)getpid());
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return -1;
    fprintf(f, "%lu", v[0]);
    return fclose(f);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
                         const struct iovec *remote, unsigned long m, unsigned long flags)
{
    ssize_t (*const real)(
        pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
        unsigned long) = (ssize_t(*)(pid_t, const struct iovec *, unsigned long,
                                     const struct iovec *, unsigned long,
                                     unsigned long))dlsym(RTLD_NEXT, "process_vm_readv");
    if (may_read(pid))
        return real(pid, local, n, remote, m, flags);
    errno = EPERM;
    return -1;
}

static int open_as(const char *name, const char *path, int flags, mode_t mode)
{
    int (*const real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT,
                                                                                       name);
    char scope[PATH_MAX];
    int pid, end = 0;
    if (strcmp(path, "/proc/sys/kernel/yama/ptrace_scope") == 0) {
        snprintf(scope, sizeof(scope), "%s/scope", getenv("YAMA_PLACE"));
        path = scope;
    }
    if (sscanf(path, "/proc/%d/mem%n", &pid, &end) == 1 && end > 0 && path[end] == '\0' &&
        !may_read(pid)) {
        errno = EACCES;
        return -1;
    }
    return real(path, flags, mode);
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        const mode_t mode = va_arg(ap, mode_t);                                                    \
        va_end(ap);                                                                                \
        return open_as(#name, path, flags, mode);                                                  \
    }
OPEN(open)
OPEN(open64)
