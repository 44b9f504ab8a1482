#include "worker/children.h"

#include "base/auto.h"
#include "base/io.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROC_FILE_MAX = 1 << 20 };
#define CLEAN_UP_NS (5 * DD_NS_PER_S)

bool pid_list_has(const struct pid_list *l, pid_t pid)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i] == pid)
            return true;
    return false;
}

int pid_list_add(struct pid_list *l, pid_t pid)
{
    if (pid_list_has(l, pid))
        return 0;
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 16 : 2 * l->cap;
        pid_t *v = realloc(l->v, cap * sizeof(*v));
        if (v == NULL)
            return -ENOMEM;
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = pid;
    return 0;
}

void pid_list_remove(struct pid_list *l, pid_t pid)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i] == pid)
            l->v[i] = l->v[--l->n];
}

void pid_list_done(struct pid_list *l)
{
    free(l->v);
    *l = (struct pid_list){0};
}

struct proc_stat {
    char state;
    pid_t ppid;
    pid_t pgid;
};

/* Src: include/linux/sched.h of Linux: the process is exiting. */
static const unsigned pf_exiting = 0x4;

/* Src: proc(5): "PID (COMM) STATE PPID PGRP SESSION TTY TPGID FLAGS ..."; COMM may contain any
 * byte, so search for the last ')'. The file still shows R for a process that is exiting, until it
 * is a zombie. */
static int proc_stat_read(pid_t pid, struct proc_stat *ret)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(PROC_FILE_MAX);
    int rc = dd_read_file(path, &b, NULL);
    const char *text = rc < 0 ? NULL : dd_buf_str(&b);
    const char *rest = text == NULL ? NULL : strrchr(text, ')');
    int ppid, pgid;
    unsigned flags;
    char state;
    if (rest == NULL ||
        sscanf(rest, ") %c %d %d %*d %*d %*d %u", &state, &ppid, &pgid, &flags) != 4)
        return rc < 0 ? rc : -EINVAL;
    if (state == 'R' && (flags & pf_exiting) != 0)
        state = 'X';
    *ret = (struct proc_stat){.state = state, .ppid = ppid, .pgid = pgid};
    return 0;
}

/* Call fn for every process, until it returns < 0. Return what it returned last, or -errno. Slow:
 * for kernels without CONFIG_PROC_CHILDREN, and for rare uses. */
static int proc_each(int (*fn)(void *arg, pid_t pid, const struct proc_stat *st), void *arg)
{
    DIR *d = opendir("/proc");
    if (d == NULL)
        return -errno;
    int rc = 0;
    for (struct dirent *e = readdir(d); e != NULL && rc >= 0; e = readdir(d)) {
        struct proc_stat st;
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)strtol(e->d_name, NULL, 10) : 0;
        if (pid > 0 && proc_stat_read(pid, &st) == 0)
            rc = fn(arg, pid, &st);
    }
    closedir(d);
    return rc;
}

struct children_of {
    pid_t parent;
    struct pid_list *ret;
};

static int add_if_child(void *arg, pid_t pid, const struct proc_stat *st)
{
    const struct children_of *c = arg;
    return st->ppid == c->parent ? pid_list_add(c->ret, pid) : 0;
}

/* Add the children that a file of /proc lists. -ENOENT: the thread has exited, or the kernel has no
 * such file. */
static int add_children_in(const char *path, struct pid_list *l)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(PROC_FILE_MAX);
    if (dd_read_file(path, &b, NULL) < 0)
        return -ENOENT;
    const char *p = dd_buf_str(&b);
    if (p == NULL)
        return -ENOMEM;
    int rc = 0;
    for (char *end; rc == 0; p = end) {
        long pid = strtol(p, &end, 10);
        if (end == p)
            break;
        rc = pid_list_add(l, (pid_t)pid);
    }
    return rc;
}

static int list_children_of(pid_t parent, struct pid_list *l)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    const int rc = add_children_in(path, l);
    return rc == -ENOENT
               ? proc_each(add_if_child, &(struct children_of){.parent = parent, .ret = l})
               : rc;
}

int children_of_threads(pid_t pid, struct pid_list *l)
{
    char path[40];
    int rc = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    if (d == NULL)
        return 0;
    for (struct dirent *e = readdir(d); e != NULL && rc != -ENOMEM; e = readdir(d)) {
        char children[64];
        (void)snprintf(children, sizeof(children), "/proc/%d/task/%.10s/children", (int)pid,
                       e->d_name);
        if (isdigit((unsigned char)e->d_name[0]))
            rc = add_children_in(children, l);
    }
    closedir(d);
    return rc == -ENOMEM ? rc : 0;
}

/* Return 1 if a child has exited and is not reaped, 0 if none has, -1 if there is no child. */
static int children_look(void)
{
    siginfo_t si = {0};
    if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0)
        return errno == ECHILD ? -1 : 0;
    return si.si_pid != 0;
}

bool children_one_is_dead(void)
{
    return children_look() > 0;
}

int children_list(struct pid_list *l)
{
    if (children_look() < 0)
        return 0;
    return list_children_of(getpid(), l);
}

bool children_adopts_orphans(void)
{
    int on = 0;
    return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &on) == 0 && on != 0);
}

static int find_living(void *arg, pid_t pid, const struct proc_stat *st)
{
    const pid_t *pgid = arg;
    (void)pid;
    return st->pgid == *pgid && st->state != 'Z' && st->state != 'X' ? -EEXIST : 0;
}

bool children_group_lives(pid_t pgid)
{
    return proc_each(find_living, &pgid) < 0;
}

static bool proc_catches(pid_t pid, int sig)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(PROC_FILE_MAX);
    const char *text = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    const char *line = text == NULL ? NULL : strstr(text, "\nSigCgt:");
    if (line == NULL)
        return false;
    unsigned long long mask = strtoull(line + strlen("\nSigCgt:"), NULL, 16);
    return (mask >> (sig - 1) & 1) != 0;
}

bool children_is_called(pid_t pid, const char *name)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(PROC_FILE_MAX);
    const char *text = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    return text != NULL && strcspn(text, "\n") == strlen(name) &&
           strncmp(text, name, strlen(name)) == 0;
}

void children_kill(pid_t pid, uint64_t since_ns)
{
    DD_AUTO(pid_list) struct pid_list inside = {0};
    if (!children_is_called(pid, "conmon") || dd_now_ns() >= since_ns + CLEAN_UP_NS ||
        list_children_of(pid, &inside) < 0) {
        (void)kill(pid, SIGKILL);
        return;
    }
    for (size_t i = 0; i < inside.n; i++)
        if (!children_is_called(inside.v[i], "podman")) /* podman cleans up after the container */
            (void)kill(inside.v[i], SIGKILL);
}

char children_state_letter(pid_t pid)
{
    struct proc_stat st;
    return proc_stat_read(pid, &st) == 0 ? st.state : '?';
}

bool children_is_stopped(pid_t pid)
{
    const char state = children_state_letter(pid);
    return state == 'T' || state == 't';
}

/* Write the top functions of the kernel stack, which only root can read. */
static void kernel_stack(pid_t pid, char *out, size_t size)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/stack", (int)pid);
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(PROC_FILE_MAX);
    const char *p = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    size_t n = 0;
    for (int i = 0; p != NULL && i < 4 && n < size; i++) {
        const char *name = strchr(p, ']'); /* "[<0>] futex_wait_queue+0x5f/0x90" */
        if (name == NULL)
            break;
        name += strspn(name, "] ");
        int add = snprintf(out + n, size - n, "%s%.*s", i > 0 ? " < " : "",
                           (int)strcspn(name, "+\n"), name);
        n += add > 0 ? (size_t)add : 0;
        p = strchr(name, '\n');
    }
}

/* Write where in the kernel a process waits: its kernel stack, or if that is unreadable, one
 * function. */
static void kernel_wait(pid_t pid, char *out, size_t size)
{
    char path[40];
    kernel_stack(pid, out, size);
    (void)snprintf(path, sizeof(path), "/proc/%d/wchan", (int)pid);
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(PROC_FILE_MAX);
    const char *wchan = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    if (out[0] == '\0' && wchan != NULL && wchan[0] != '\0' && strcmp(wchan, "0") != 0)
        (void)snprintf(out, size, "%.80s", wchan);
}

const char *children_state(pid_t pid, char *out, size_t size)
{
    struct proc_stat st = {.state = '?'};
    char stack[200] = "";
    (void)proc_stat_read(pid, &st);
    if (st.state != 'R') /* the stack of a running process shows only an interrupt */
        kernel_wait(pid, stack, sizeof(stack));
    (void)snprintf(out, size, stack[0] != '\0' ? "%c, kernel function %s" : "%c%s", st.state,
                   stack);
    return out;
}

struct notify {
    const struct pid_list *pgids;
    int sig;
    int reached;
};

/* True if pid runs in a container of its group leader, which forwards signals that it catches. */
static bool is_told_by_leader(const struct proc_stat *st, pid_t pid, int sig)
{
    char path[40], outer[64], inner[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)st->pgid);
    ssize_t n = readlink(path, outer, sizeof(outer));
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    ssize_t m = readlink(path, inner, sizeof(inner));
    return n > 0 && m > 0 && (n != m || memcmp(outer, inner, (size_t)n) != 0) &&
           proc_catches(st->pgid, sig);
}

static int notify_member(void *arg, pid_t pid, const struct proc_stat *st)
{
    struct notify *n = arg;
    if (pid != st->pgid && pid_list_has(n->pgids, st->pgid) && proc_catches(pid, n->sig) &&
        !is_told_by_leader(st, pid, n->sig) && kill(pid, n->sig) == 0)
        n->reached++;
    return 0;
}

int children_notify(const struct pid_list *pgids, int sig)
{
    struct notify n = {.pgids = pgids, .sig = sig};
    for (size_t i = 0; i < pgids->n;
         i++) /* signal the leaders first, since reading all of /proc takes time */
        n.reached += proc_catches(pgids->v[i], sig) && kill(pgids->v[i], sig) == 0;
    int rc = proc_each(notify_member, &n);
    return rc < 0 ? rc : n.reached;
}
