/* Signals to the agent end the job everywhere, through the daemon. */
#include "agent/inner.h"

#include "base/io.h"
#include "base/sig.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* One Ctrl-C or one scancel reaches both the guardian and us: the second of two is the same. */
enum { SAME_SIGNAL_MS = 250, ANSWER_S = 2 };

static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/* The daemon has not answered: end what is ours. */
static void on_alone(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    if (a->state == AGENT_LEAVING)
        return;
    a->code = 128 + a->last_signal;
    if (a->group == NULL) {
        agent_leave(a, a->code);
        return;
    }
    a->state = AGENT_ALONE;
    round_stop(a, a->last_signal, a->cfg->grace_ms);
}

/* While the daemon is still sought, it is told when it is found: the other nodes must not wait for
 * one that will not come. */
static void ask_to_stop(struct agent *a, int sig)
{
    char text[400];
    struct timeval t = {.tv_sec = ANSWER_S};
    (void)snprintf(text, sizeof(text), "stopped by SIG%s (to ddrun on %.255s)", dd_signal_name(sig),
                   a->cfg->node_name);
    agent_send(a, &(struct msg){.type = MSG_STOP_REQUEST, .signal = sig, .text = text});
    evtimer_add(a->alone, &t);
}

static void on_stop_signal(struct agent *a, int sig)
{
    uint64_t now = dd_now_ns();
    bool same = sig == a->last_signal && now - a->last_signal_ns < SAME_SIGNAL_MS * DD_NS_PER_MS;
    bool again = a->last_signal != 0 && !same;
    if (same)
        return;
    a->last_signal = sig;
    a->last_signal_ns = now;
    if (again && a->state == AGENT_SEEKING)
        agent_leave(a, 128 + sig);
    else if (again)
        round_stop(a, SIGKILL, 0); /* somebody is in a hurry */
    else if (a->state == AGENT_SEEKING || (a->link != NULL && a->state != AGENT_LEAVING))
        ask_to_stop(a, sig);
}

void signals_joined(struct agent *a)
{
    if (a->last_signal != 0)
        ask_to_stop(a, a->last_signal);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct agent *a = arg;
    struct signalfd_siginfo si;
    while (read(fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        int sig = (int)si.ssi_signo;
        dd_log(a->cfg->log, DD_LOG_DEBUG, "event=signal signal=%d from=%u", sig, si.ssi_pid);
        if (sig != SIGUSR1 && sig != SIGUSR2) /* those never end a job */
            on_stop_signal(a, sig);
    }
}

int signals_new(struct agent *a, struct dd_err *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
        sigaddset(&set, handled[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signal_fd < 0)
        return dd_err_set(err, -errno, "cannot watch signals: %m");
    a->signal_ev = event_new(a->base, a->signal_fd, EV_READ | EV_PERSIST, on_signal, a);
    a->alone = evtimer_new(a->base, on_alone, a);
    if (a->signal_ev == NULL || a->alone == NULL || event_add(a->signal_ev, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "cannot watch signals");
    return 0;
}

void signals_free(struct agent *a)
{
    if (a->signal_ev != NULL)
        event_free(a->signal_ev);
    if (a->alone != NULL)
        event_free(a->alone);
    if (a->signal_fd >= 0)
        close(a->signal_fd);
}
