/* Reports the exit of one child on the event loop. Uses a pidfd, or SIGCHLD if there is none (Linux
 * before 5.3, or a seccomp filter of a container). SIGCHLD arrives for other children, too: the
 * callback must call waitpid(2) with WNOHANG. */
#ifndef DD_WORKER_CHILD_WATCH_H
#define DD_WORKER_CHILD_WATCH_H

#include <event2/event.h>
#include <stdbool.h>
#include <sys/types.h>

struct child_watch {
    struct event *ev; /* NULL: not watching */
    int pidfd;        /* -1: the watch uses SIGCHLD */
};

#define CHILD_WATCH_NONE (struct child_watch){.pidfd = -1}

/* Begin to watch. on_end may be called several times, and before the exit. Return 0 or -ENOMEM. */
int child_watch_begin(struct child_watch *w, struct event_base *base, pid_t pid,
                      event_callback_fn on_end, void *arg);
/* True if on_end is called only for this child, and repeatedly until the child is reaped. */
bool child_watch_is_exact(const struct child_watch *w);
void child_watch_end(struct child_watch *w);

/* Reap pid if it exits within limit_ms. */
void child_reap_within(pid_t pid, unsigned limit_ms);

#endif
