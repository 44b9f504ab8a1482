/* The end of one child of this process, as an event.
 *
 * By a pidfd; where there is none (Linux before 5.3, or a seccomp filter of a container), by
 * SIGCHLD, which also comes for other children: the callback asks waitpid(2) with WNOHANG whose end
 * it was. */
#ifndef DD_WORKER_CHILD_WATCH_H
#define DD_WORKER_CHILD_WATCH_H

#include <event2/event.h>
#include <stdbool.h>
#include <sys/types.h>

struct child_watch {
    struct event *ev; /* NULL: nothing is watched */
    int pidfd;        /* -1: by SIGCHLD */
};

#define CHILD_WATCH_NONE (struct child_watch){.pidfd = -1}

/* on_end may come more often than once, and without an end. 0 or -ENOMEM. */
int child_watch_begin(struct child_watch *w, struct event_base *base, pid_t pid,
                      event_callback_fn on_end, void *arg);
/* on_end comes for this child alone, and goes on coming until it is reaped. */
bool child_watch_is_exact(const struct child_watch *w);
void child_watch_end(struct child_watch *w);

/* Reaps pid if it ends within that time. */
void child_reap_within(pid_t pid, unsigned limit_ms);

#endif
