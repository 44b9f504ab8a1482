/* Processes around the workers: direct children of this process, members of a process group. */
#ifndef DD_WORKER_CHILDREN_H
#define DD_WORKER_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct pid_list {
    pid_t *v;
    size_t n;
    size_t cap;
};

int pid_list_add(struct pid_list *l, pid_t pid); /* 0 or -ENOMEM; adding twice is fine */
bool pid_list_has(const struct pid_list *l, pid_t pid);
void pid_list_remove(struct pid_list *l, pid_t pid);
void pid_list_done(struct pid_list *l);

/* Adds all direct children of this (single-threaded) process, zombies too. 0 or -errno. A child may
 * be missed while another ends: whoever needs to be sure reads twice. */
int children_list(struct pid_list *l);

/* True when this process is given the orphans of its descendants. */
bool children_adopts_orphans(void);

/* Whether this process runs a program of that name (its first 15 bytes). */
bool children_is_called(pid_t pid, const char *name);

/* SIGKILL, which was due at since_ns. Podman's monitor of a container is spared for some seconds,
 * and the container killed instead: nobody but the monitor puts away what the container has in
 * podman's storage. Src: conmon(8). */
void children_kill(pid_t pid, uint64_t since_ns);

/* SIGSTOP or a debugger holds it. */
bool children_is_stopped(pid_t pid);
/* "S, in the kernel at futex_wait_queue" into out; returns out. */
const char *children_state(pid_t pid, char *out, size_t size);

/* Sends sig to those processes of these groups that have a handler for it. Where a group's leader
 * has one and others are in a container of its (Apptainer), it alone gets it, and hands it on. The
 * number reached, or -errno. */
int children_notify(const struct pid_list *pgids, int sig);

static inline void dd_auto_pid_list(struct pid_list *l)
{
    pid_list_done(l);
}

#endif
