#include "worker/child_watch.h"

#include "base/auto.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int open_pidfd(pid_t pid)
{
#ifdef SYS_pidfd_open
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
#else
    (void)pid;
    return -1;
#endif
}

/* The parent of this process may have blocked SIGCHLD. */
static void unblock_sigchld(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int child_watch_begin(struct child_watch *w, struct event_base *base, pid_t pid,
                      event_callback_fn on_end, void *arg)
{
    w->pidfd = open_pidfd(pid);
    w->ev = w->pidfd >= 0 ? event_new(base, w->pidfd, EV_READ | EV_PERSIST, on_end, arg)
                          : evsignal_new(base, SIGCHLD, on_end, arg);
    if (w->ev == NULL || event_add(w->ev, NULL) < 0) {
        child_watch_end(w);
        return -ENOMEM;
    }
    if (w->pidfd < 0) {
        unblock_sigchld();
        event_active(w->ev, EV_SIGNAL, 1); /* the child may have exited before the watch began */
    }
    return 0;
}

bool child_watch_is_exact(const struct child_watch *w)
{
    return w->pidfd >= 0;
}

void child_watch_end(struct child_watch *w)
{
    if (w->ev != NULL)
        event_free(DD_TAKE(w->ev));
    if (w->pidfd >= 0)
        close(w->pidfd);
    w->pidfd = -1;
}

void child_reap_within(pid_t pid, unsigned limit_ms)
{
    const struct timespec pause = {.tv_nsec = (long)DD_NS_PER_MS};
    const uint64_t end = dd_now_ns() + limit_ms * DD_NS_PER_MS;
    while (waitpid(pid, NULL, WNOHANG) == 0 && dd_now_ns() < end)
        (void)nanosleep(&pause, NULL);
}
