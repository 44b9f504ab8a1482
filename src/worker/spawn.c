#include "worker/spawn.h"

#include "base/auto.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
/* Src: close_range(2), Linux 5.9; the same number on all architectures */
#define SYS_close_range 436
#endif

enum { NSIGNALS = 65 };

void spawn_begin(struct spawn_mask *m)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &m->saved);
}

void spawn_end(const struct spawn_mask *m)
{
    sigprocmask(SIG_SETMASK, &m->saved, NULL);
}

void spawn_parent_read(struct spawn_parent *p)
{
    struct sigaction sa;
    *p = (struct spawn_parent){.agent = getpid(), .core = dd_core_of(getppid())};
    sigemptyset(&p->caught);
    for (int sig = 1; sig < NSIGNALS; sig++)
        if (sigaction(sig, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
            sigaddset(&p->caught, sig);
}

static void child_report(int fd, int index, int stage)
{
    struct spawn_report r = {.index = index, .stage = stage, .error = errno};
    ssize_t n = write(fd, &r, sizeof(r)); /* atomic, since it is shorter than PIPE_BUF */
    (void)n;
}

/* Reset all signals: those that the agent handles, that a TM task starts with (SIGHUP ignored), or
 * that a shell ignores for a background job (SIGINT, SIGQUIT). A worker that ignores them cannot be
 * stopped gracefully. Src: OpenPBS 23.06 measured 2026-11-21; torchrun's workers ignore none
 * either. */
static void child_reset_signals(const sigset_t *caught)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    for (int sig = 1; sig < NSIGNALS; sig++)
        if (sigismember(caught, sig) > 0)
            (void)sigaction(sig, &dfl, NULL);
}

/* Close the descriptors from first to last, both included. */
static void close_between(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0U) == 0)
        return;
    DIR *d = opendir("/proc/self/fd");
    if (d == NULL) {
        for (long fd = first, max = sysconf(_SC_OPEN_MAX); fd <= last && fd < max && fd < 65536;
             fd++)
            close((int)fd);
        return;
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char *end;
        unsigned long fd = strtoul(e->d_name, &end, 10);
        if (*end == '\0' && fd >= first && fd <= last && fd != (unsigned long)dirfd(d))
            close((int)fd);
    }
    closedir(d);
}

void spawn_close_from(unsigned first)
{
    close_between(first, UINT_MAX);
}

/* Return the lowest of these descriptors from `first` on, or -1. */
static int lowest_from(const int *fds, size_t n, int first)
{
    int lowest = -1;
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= first && (lowest < 0 || fds[i] < lowest))
            lowest = fds[i];
    return lowest;
}

void spawn_close_except(const int *keep, size_t n)
{
    unsigned first = STDERR_FILENO + 1;
    for (int kept; (kept = lowest_from(keep, n, (int)first)) >= 0; first = (unsigned)kept + 1)
        close_between(first, (unsigned)kept - 1);
    close_between(first, UINT_MAX);
}

void spawn_drop_handlers(void)
{
    struct sigaction sa;
    const struct sigaction dfl = {.sa_handler = SIG_DFL};
    for (int sig = 1; sig < NSIGNALS; sig++)
        if (sigaction(sig, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL && sa.sa_handler != SIG_IGN)
            (void)sigaction(sig, &dfl, NULL);
}

static int child_stdio(const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0 && dup2(fds[i], i) < 0)
            return -1;
    return 0;
}

int worker_spec_fd(struct worker_spec *spec, int fd)
{
    assert(spec->nfds < WORKER_MAX_FDS);
    spec->fds[spec->nfds] = fd;
    return WORKER_FIRST_FD + spec->nfds++;
}

int worker_spec_via(struct worker_spec *ret, const struct worker_spec *spec)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    *ret = *spec;
    ret->argv = (struct dd_strv){0};
    int rc = dd_strv_push(&argv, spec->via);
    rc = rc == 0 ? dd_strv_push(&argv, "enter") : rc;
    rc = rc == 0 ? dd_strv_pushf(&argv, "%d", worker_spec_fd(ret, spec->via_fd)) : rc;
    rc = rc == 0 ? dd_strv_copy(&argv, spec->argv.v) : rc;
    if (rc < 0)
        return rc;
    ret->argv = argv;
    argv = (struct dd_strv){0};
    return 0;
}

/* Move the worker's descriptors to their numbers, followed by that of the report, and close all
 * others. Duplicate all of them to high numbers first, so that none is overwritten. Return the
 * descriptor of the report, or -1. */
static int child_fds(const struct worker_spec *spec, int report)
{
    const int last = WORKER_FIRST_FD + spec->nfds;
    int away[WORKER_MAX_FDS + 1];
    for (int i = 0; i <= spec->nfds; i++) {
        away[i] = fcntl(i < spec->nfds ? spec->fds[i] : report, F_DUPFD_CLOEXEC, last + 1);
        if (away[i] < 0)
            return -1;
    }
    for (int i = 0; i < spec->nfds; i++)
        if (dup2(away[i], WORKER_FIRST_FD + i) < 0)
            return -1;
    if (dup3(away[spec->nfds], last, O_CLOEXEC) < 0)
        return -1;
    spawn_close_from((unsigned)last + 1);
    return last;
}

/* Prefer the memory of the worker's NUMA nodes. If the kernel does not support that, memory still
 * comes from the node that first uses it. Src: set_mempolicy(2); MPOL_PREFERRED_MANY exists since
 * Linux 5.15. */
static void child_memory(const struct worker_spec *spec)
{
    enum { PREFERRED = 1, PREFERRED_MANY = 5 };
    int nodes = 0;
    for (size_t i = 0; i < spec->memory_bits / (8 * sizeof(*spec->memory)); i++)
        nodes += __builtin_popcountl(spec->memory[i]);
    (void)syscall(SYS_set_mempolicy, nodes > 1 ? PREFERRED_MANY : PREFERRED, spec->memory,
                  spec->memory_bits + 1);
}

/* Opening a terminal as leader of a new session makes it the controlling terminal. */
static int child_tty(const char *path)
{
    int fd = open(path, O_RDWR);
    if (fd < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (fd != i && dup2(fd, i) < 0)
            return -1;
    return 0; /* fd itself is closed with all other descriptors */
}

static _Noreturn void child_run(const struct spawn_request *r)
{
    int report = r->report_fd;
    setsid();
    /* if the agent exited before prctl(), no signal comes, but the parent has changed */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != r->parent->agent)
        _exit(127);
    child_reset_signals(&r->parent->caught);
    dd_core_apply(&r->parent->core); /* core dumps of the agent contain no memory */
    if (r->spec->tracer > 0) /* -EINVAL: the kernel has no Yama, so nothing needs to be allowed */
        (void)prctl(PR_SET_PTRACER, (unsigned long)r->spec->tracer, 0, 0, 0);
    if (r->spec->cpus != NULL && sched_setaffinity(0, r->spec->cpus_size, r->spec->cpus) < 0)
        child_report(report, r->index, SPAWN_AFFINITY);
    if (r->spec->memory != NULL)
        child_memory(r->spec);
    int moved = (r->spec->tty != NULL ? child_tty(r->spec->tty) : child_stdio(r->fds)) < 0
                    ? -1
                    : child_fds(r->spec, report);
    if (moved < 0) {
        child_report(report, r->index, SPAWN_STDIO);
        _exit(127);
    }
    report = moved;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (r->spec->directory != NULL && chdir(r->spec->directory) < 0) {
        child_report(report, r->index, SPAWN_DIRECTORY);
        _exit(126);
    }
    execve(r->path, r->spec->argv.v, r->spec->env.v);
    int code = errno == ENOENT ? 127 : 126;
    child_report(report, r->index, SPAWN_EXEC);
    _exit(code);
}

pid_t spawn_child(const struct spawn_request *r, struct dd_err *err)
{
    pid_t pid = fork();
    if (pid == 0)
        child_run(r);
    if (pid < 0)
        return dd_err_set(
            err, -errno, "cannot create a process for '%s': %m%s", r->path,
            errno == EAGAIN ? " (limits: 'ulimit -u', and pids.max of the job's cgroup)" : "");
    return pid;
}

static bool is_program(const char *path, int *error)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return false;
    if (S_ISREG(st.st_mode) && access(path, X_OK) == 0)
        return true;
    *error = EACCES;
    return false;
}

int spawn_lookup(char **ret, const char *name, char *const *env)
{
    int error = ENOENT;
    if (*name == '\0')
        return -ENOENT;
    if (strchr(name, '/') != NULL) {
        if (!is_program(name, &error))
            return -error;
        *ret = strdup(name);
        return *ret == NULL ? -ENOMEM : 0;
    }
    const char *dirs = dd_env_get(env, "PATH");
    if (dirs == NULL)
        dirs = "/usr/local/bin:/usr/bin:/bin";
    for (;;) {
        DD_AUTO(free) char *path = NULL;
        int len = (int)strcspn(dirs, ":");
        /* an empty entry means the current directory */
        if (asprintf(&path, "%.*s%s%s", len, dirs, len > 0 ? "/" : "./", name) < 0)
            return -ENOMEM;
        if (is_program(path, &error)) {
            *ret = DD_TAKE(path);
            return 0;
        }
        if (dirs[len] == '\0')
            return -error;
        dirs += len + 1;
    }
}

/* Explain why the kernel does not execute a file that exists and is executable. */
static int explain_format(const char *path, struct dd_err *err)
{
    char magic[4] = "";
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, magic, sizeof(magic)) == 4 && memcmp(magic, "\177ELF", 4) == 0)
        return dd_err_set(err, -ENOEXEC,
                          "cannot run '%s': built for another machine architecture, or damaged",
                          path);
    return dd_err_set(err, -ENOEXEC,
                      "cannot run '%s': neither a binary nor a script with a first line such as "
                      "'#!/bin/bash'\n  tip: add such a line, or run 'bash %s'",
                      path, path);
}

/* Name the interpreter that the first line of a script asks for. */
static int explain_interpreter(const char *path, struct dd_err *err)
{
    char line[256] = "";
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t n = fd >= 0 ? read(fd, line, sizeof(line) - 1) : 0;
    line[n > 0 ? n : 0] = '\0';
    const bool windows = strchr(line, '\n') != NULL && line[strcspn(line, "\r\n")] == '\r';
    char *name = line + 2 + strspn(line + 2, " \t");
    name[strcspn(name, " \t\r\n")] = '\0';
    if (strncmp(line, "#!", 2) == 0 && windows)
        return dd_err_tip(err,
                          dd_err_set(err, -ENOENT,
                                     "cannot run '%s': its first line, which names the "
                                     "interpreter, ends with a carriage return",
                                     path),
                          "convert the line ends of Windows: sed -i 's/\\r$//' '%s'", path);
    if (strncmp(line, "#!", 2) == 0 && access(name, F_OK) < 0)
        return dd_err_set(err, -ENOENT,
                          "cannot run '%s': its interpreter '%s' does not exist on this node", path,
                          name);
    return dd_err_set(err, -ENOENT,
                      "cannot run '%s': its ELF loader, or that of its interpreter, does not exist "
                      "on this node",
                      path);
}

int spawn_explain(const struct spawn_report *r, const char *path, const char *directory,
                  struct dd_err *err)
{
    errno = r->error;
    if (r->stage == SPAWN_STDIO)
        return dd_err_set(err, -r->error, "cannot set up stdin, stdout and stderr of '%s': %m",
                          path);
    if (r->stage == SPAWN_DIRECTORY)
        return dd_err_set(err, -r->error,
                          "cannot run '%s': cannot change to the directory '%s' of --chdir: %m",
                          path, directory);
    switch (r->error) {
    case ENOENT:
        if (access(path, F_OK) == 0)
            return explain_interpreter(path, err);
        return dd_err_set(err, -ENOENT, "cannot run '%s': no such file", path);
    case EACCES:
    case EPERM:
        return dd_err_set(
            err, -r->error,
            "cannot run '%s': %m"
            "\n  tip: check 'chmod +x' and that the file system is not mounted noexec",
            path);
    case ENOEXEC:
        return explain_format(path, err);
    case E2BIG:
        return dd_err_set(
            err, -E2BIG,
            "cannot run '%s': arguments and environment are too long together, or one of them "
            "exceeds 128 KiB",
            path);
    default:
        errno = r->error;
        return dd_err_set(err, -r->error, "cannot run '%s': %m", path);
    }
}
