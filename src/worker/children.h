/* Finds processes around the workers: children of this process, and members of process groups. */
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

int pid_list_add(struct pid_list *l,
                 pid_t pid); /* 0 or -ENOMEM; ignores pids that are in the list */
bool pid_list_has(const struct pid_list *l, pid_t pid);
void pid_list_remove(struct pid_list *l, pid_t pid);
void pid_list_done(struct pid_list *l);

/* Add all direct children of this single-threaded process, including zombies. Return 0 or -errno. A
 * concurrent exit may hide a child: call twice to be sure. */
int children_list(struct pid_list *l);

/* True if a child has exited and is not reaped. */
bool children_one_is_dead(void);

/* Add the children that any thread of a process has started, as far as the kernel lists them. 0 or
 * -ENOMEM. */
int children_of_threads(pid_t pid, struct pid_list *l);

/* True if orphaned descendants are reparented to this process. */
bool children_adopts_orphans(void);

/* True if /proc/PID/comm is `name`. The kernel cuts that file's text to 15 bytes, so a longer name
 * never matches. */
bool children_is_called(pid_t pid, const char *name);

/* True if a process of this group has not exited. A zombie remains in its group until its parent
 * reaps it. Reads all of /proc. */
bool children_group_lives(pid_t pgid);

/* Send SIGKILL to pid. since_ns: when the signal was due, as dd_now_ns(). In the 5 s after that, if
 * pid is the monitor of a podman container, send it to the container instead: only the monitor
 * removes the container from podman's storage. Src: conmon(8). */
void children_kill(pid_t pid, uint64_t since_ns);

/* Return the state as in proc(5), with 'X' also for a process that is exiting; '?': /proc shows no
 * such process. */
char children_state_letter(pid_t pid);
/* True if SIGSTOP or a debugger has stopped the process. */
bool children_is_stopped(pid_t pid);
/* Write the state, such as "S, kernel function futex_wait_queue", to out; return out. For a running
 * process, write only "R". */
const char *children_state(pid_t pid, char *out, size_t size);

/* Send sig to those processes of these groups that have a handler for it. If the group leader has
 * one and other members run in its container (Apptainer), signal the leader alone, which forwards
 * it. Return the number of signalled processes, or -errno. */
int children_notify(const struct pid_list *pgids, int sig);

static inline void dd_auto_pid_list(struct pid_list *l)
{
    pid_list_done(l);
}

#endif
