#include "worker/group_usage.h"

#include "base/auto.h"
#include "base/io.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_MAX = 4096 };

struct by_pid {
    pid_t pid;
    struct worker_usage *u;
};

static int compare_pids(const void *a, const void *b)
{
    const struct by_pid *x = a;
    const struct by_pid *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

struct process {
    char state;
    uint64_t ticks, pages;
};

/* Src: proc(5): "PID (COMM) STATE PPID PGRP ..."; COMM may contain any byte, so search for the last
 * ')'. */
static int read_process(pid_t pid, struct process *ret)
{
    char path[40];
    unsigned long long t[4];
    long long pages;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(STAT_MAX);
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    const char *text = dd_read_file(path, &b, NULL) < 0 ? NULL : dd_buf_str(&b);
    const char *rest = text == NULL ? NULL : strrchr(text, ')');
    if (rest == NULL || sscanf(rest,
                               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu "
                               "%*d %*d %*d %*d %*u %*u %lld",
                               &ret->state, &t[0], &t[1], &t[2], &t[3], &pages) != 6)
        return -ESRCH;
    ret->ticks = t[0] + t[1] + t[2] + t[3];
    ret->pages = pages > 0 ? (uint64_t)pages : 0;
    return 0;
}

/* Add the usage of a process to its worker, if any. getpgid(2) comes first: other users may have
 * many processes, and reading a file for each would take long. */
static void add_process(struct by_pid *v, size_t n, pid_t pid)
{
    struct process p;
    const struct by_pid wanted = {.pid = getpgid(pid)};
    const struct by_pid *found = bsearch(&wanted, v, n, sizeof(*v), compare_pids);
    if (found == NULL || read_process(pid, &p) < 0)
        return;
    const int64_t hertz = sysconf(_SC_CLK_TCK);
    found->u->cpu_ms += (int64_t)(p.ticks * 1000 / (uint64_t)(hertz > 0 ? hertz : 100));
    found->u->memory += (int64_t)(p.pages * (uint64_t)sysconf(_SC_PAGESIZE));
    if (pid == found->pid)
        found->u->state = p.state;
}

int worker_usage_read(struct worker_usage *v, int n)
{
    size_t known = 0;
    DD_AUTO(free) struct by_pid *sorted = calloc((size_t)n + 1, sizeof(*sorted));
    DIR *d = sorted != NULL ? opendir("/proc") : NULL;
    if (d == NULL)
        return sorted == NULL ? -ENOMEM : -errno;
    for (int i = 0; i < n; i++) {
        v[i] = (struct worker_usage){.pid = v[i].pid, .state = '-'};
        if (v[i].pid > 0)
            sorted[known++] = (struct by_pid){.pid = v[i].pid, .u = &v[i]};
    }
    qsort(sorted, known, sizeof(*sorted), compare_pids);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (isdigit((unsigned char)e->d_name[0]))
            add_process(sorted, known, (pid_t)strtol(e->d_name, NULL, 10));
    closedir(d);
    return 0;
}
