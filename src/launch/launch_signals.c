#include "launch/launch_signals.h"

#include "base/io.h"
#include "base/sig.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct launch_signals {
    struct launch_signals_cb cb;
    sigset_t old_mask;
    int fd;
    struct event *event;
    uint64_t first_ns; /* time of the first signal that ends jobs; 0: none */
};

static bool launch_signals_is_again(struct launch_signals *s)
{
    const uint64_t now = dd_now_ns();
    if (s->first_ns == 0)
        s->first_ns = now;
    return now - s->first_ns > DD_SIGNAL_SAME_MS * DD_NS_PER_MS;
}

static void launch_signals_on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct launch_signals *s = arg;
    struct signalfd_siginfo si;
    (void)what;
    if (read(fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return;
    const int sig = (int)si.ssi_signo;
    if (sig == SIGCHLD)
        s->cb.on_child(s->cb.arg);
    else
        s->cb.on_signal(s->cb.arg, sig, si.ssi_code == SI_KERNEL,
                        dd_signal_ends_jobs(sig) && launch_signals_is_again(s));
}

int launch_signals_new(struct launch_signals **ret, struct event_base *base,
                       const struct launch_signals_cb *cb)
{
    struct launch_signals *s = calloc(1, sizeof(*s));
    sigset_t set;
    if (s == NULL)
        return -ENOMEM;
    s->cb = *cb;
    dd_signals_of_jobs(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, &s->old_mask);
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd >= 0)
        s->event = event_new(base, s->fd, EV_READ | EV_PERSIST, launch_signals_on_readable, s);
    if (s->event == NULL || event_add(s->event, NULL) < 0) {
        launch_signals_free(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

void launch_signals_restore_mask(const struct launch_signals *s)
{
    (void)sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
}

void launch_signals_close(const struct launch_signals *s)
{
    close(s->fd);
}

void launch_signals_free(struct launch_signals *s)
{
    if (s == NULL)
        return;
    if (s->event != NULL)
        event_free(s->event);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}
