/* Signals to the agent. Those that end the job, and those for the workers (USR1, USR2), reach all
 * nodes through the daemon. */
#include "agent/inner.h"

#include "agent/guardian.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/sig.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    STILL_S = 1, /* no notice if the workers exit at once */
    /* Time for the scheduler to signal all processes of the step on this node: less than 1 ms on an
       idle machine. */
    SETTLE_MS = 100,
    LAST_SIGNAL = 64,
};

/* Path of a signal. One Ctrl-C or qdel reaches the agent, the guardian, and the process that has
 * started this node. */
enum signal_path { PATH_SELF, PATH_GUARDIAN, PATH_STARTER, PATHS };

struct signal_state {
    struct agent *agent;
    int sig;
    uint64_t taken_ns;
    uint64_t heard_ns[PATHS];
    struct event *settled; /* timer after a signal of the scheduler; NULL: never sent */
    bool everywhere;       /* the scheduler has signalled the agent too, and so the workers */
};

struct signal_states {
    struct signal_state v[LAST_SIGNAL + 1];
};

/* True if sig ends the job. --signals-to-handle may add SIGUSR1 and SIGUSR2. */
static bool ends_this_job(const struct agent *a, int sig)
{
    const bool named = a->loop.cfg->ending_signals != NULL &&
                       sigismember(a->loop.cfg->ending_signals, sig) == 1;
    return dd_signal_ends_jobs(sig) || (named && dd_signal_announces(sig));
}

/* Without a link the request is dropped. The machine sends another one when a daemon is found, so
 * that other nodes do not wait for this one. */
void signals_request_stop(struct agent *a, int sig)
{
    char text[400];
    if (a->signals.why[0] != '\0')
        (void)snprintf(text, sizeof(text), "stopped by SIG%s: %s", dd_signal_name(sig),
                       a->signals.why);
    else
        (void)snprintf(text, sizeof(text), "stopped by SIG%s (to ddrun on %.255s)",
                       dd_signal_name(sig), a->loop.cfg->node_name);
    a->signals.why[0] = '\0';
    uplink_send(a->uplink,
                MSG(STOP_REQUEST, .signal = sig, .code = a->loop.machine.stop_code, .text = text));
}

/* Tell a user who pressed Ctrl-C why ddrun still runs. The leader writes the message, and any agent
 * with a terminal. */
static void on_still_stopping(evutil_socket_t fd, short what, void *arg)
{
    struct agent *a = arg;
    (void)fd;
    (void)what;
    if (!round_is_running(a->round) || a->loop.machine.state == AM_LEAVING ||
        (a->leader.daemon <= 0 && isatty(a->loop.cfg->log->fd) != 1))
        return;
    dd_log(a->loop.cfg->log, DD_LOG_NOTICE,
           "stopping %d worker%s, for up to %.0f s; Ctrl-C again to kill",
           a->round->plan.world_size, a->round->plan.world_size == 1 ? "" : "s",
           (double)a->loop.cfg->grace_ms / 1e3);
}

/* by_scheduler: repeated signals of the scheduler do not shorten the grace period. */
static void on_stop_signal(struct agent *a, int sig, bool by_scheduler)
{
    const bool again = a->loop.machine.sig != 0;
    if (again && by_scheduler)
        return;
    a->signals.scheduler_ends = by_scheduler;
    agent_step(&a->loop, (struct am_event){.kind = AM_SIGNAL, .sig = sig});
    if (!again && sig == SIGINT && !by_scheduler && a->signals.stopping != NULL) {
        const struct timeval t = {.tv_sec = STILL_S};
        evtimer_add(a->signals.stopping, &t);
    }
}

void signals_stop(struct agent *a, int sig, int code, const char *why)
{
    if (a->loop.machine.sig != 0 || !uplink_is_up(a->uplink) || a->loop.machine.state == AM_LEAVING)
        return;
    a->signals.states->v[sig].taken_ns = dd_now_ns();
    a->signals.end_stop = code == 0;
    (void)snprintf(a->signals.why, sizeof(a->signals.why), "%s", why);
    agent_step(&a->loop, (struct am_event){.kind = AM_SIGNAL, .sig = sig, .code = code});
}

void signals_announce(struct agent *a, int sig)
{
    if (a->loop.machine.state == AM_RUNNING && dd_signal_announces(sig))
        round_signal(a->round, sig);
}

/* The scheduler has signalled every node: either all processes of the step, or (Slurm with cgroups)
 * only its own child, the guardian. */
static void on_settled(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct signal_state *n = arg;
    struct agent *a = n->agent;
    dd_log(a->loop.cfg->log, DD_LOG_DEBUG, "event=scheduler-signal signal=%d everywhere=%d", n->sig,
           n->everywhere);
    if (!ends_this_job(a, n->sig)) {
        if (!n->everywhere)
            signals_announce(a, n->sig);
        if (uplink_is_up(a->uplink))
            uplink_send(a->uplink, MSG(SIGNAL_REQUEST, .signal = n->sig, .heard = 1));
        return;
    }
    if (n->everywhere)
        round_has_signal(a->round, n->sig);
    if (a->loop.machine.sig == 0)
        n->taken_ns = dd_now_ns();
    on_stop_signal(a, n->sig, true);
    if (!signals_settling(a))
        agent_step(&a->loop, (struct am_event){.kind = AM_SETTLED});
}

static void by_scheduler(struct signal_state *n, bool to_agent)
{
    const struct timeval t = {.tv_usec = SETTLE_MS * 1000};
    if (n->settled == NULL)
        n->settled = evtimer_new(n->agent->loop.base, on_settled, n);
    if (n->settled == NULL)
        return;
    bool first = !evtimer_pending(n->settled, NULL);
    n->everywhere = to_agent || (!first && n->everywhere);
    if (first)
        evtimer_add(n->settled, &t);
}

static void by_user(struct signal_state *n, enum signal_path path)
{
    struct agent *a = n->agent;
    if (dd_signal_is_copy(&n->taken_ns, &n->heard_ns[path], dd_now_ns()))
        return;
    if (ends_this_job(a, n->sig))
        on_stop_signal(a, n->sig, false);
    else if (uplink_is_up(a->uplink))
        uplink_send(a->uplink, MSG(SIGNAL_REQUEST, .signal = n->sig));
    else
        signals_announce(a, n->sig);
}

/* The guardian has died: the kernel has sent SIGTERM (PR_SET_PDEATHSIG). */
static void on_guardian_lost(struct agent *a)
{
    if (a->loop.machine.sig == 0)
        dd_log(a->loop.cfg->log, DD_LOG_ERR,
               "the parent process of the agent on %s was killed; stopping this node's workers",
               a->loop.cfg->node_name);
    agent_step(&a->loop, (struct am_event){.kind = AM_GUARDIAN_LOST, .sig = SIGTERM});
}

static void take_signal(struct agent *a, const struct signalfd_siginfo *si)
{
    int sig = (int)si->ssi_signo;
    bool scheduler = false;
    bool at_once = false;
    bool to_agent = sig != GUARDIAN_SIGNAL;
    enum signal_path path = PATH_SELF;
    if (!to_agent) {
        sig = si->ssi_int & ~(GUARDIAN_BY_SCHEDULER | GUARDIAN_BY_STARTER | DD_SIGNAL_AT_ONCE);
        path = (si->ssi_int & GUARDIAN_BY_STARTER) != 0 ? PATH_STARTER : PATH_GUARDIAN;
        at_once = (si->ssi_int & DD_SIGNAL_AT_ONCE) != 0 && !round_is_running(a->round);
        scheduler = (si->ssi_int & GUARDIAN_BY_SCHEDULER) != 0;
    } else {
        scheduler = guardian_is_scheduler((pid_t)si->ssi_pid);
    }
    dd_log(a->loop.cfg->log, DD_LOG_DEBUG, "event=signal signal=%d from=%u scheduler=%d", sig,
           si->ssi_pid, scheduler);
    if (!dd_signal_ends_jobs(sig) && !dd_signal_announces(sig))
        return;
    if (to_agent && sig == SIGTERM && getppid() != a->loop.cfg->guardian)
        on_guardian_lost(a);
    else if (at_once)
        agent_step(&a->loop, (struct am_event){.kind = AM_STOP_AT_ONCE, .sig = sig});
    else if (scheduler)
        by_scheduler(&a->signals.states->v[sig], to_agent);
    else
        by_user(&a->signals.states->v[sig], path);
}

static void signals_on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct signalfd_siginfo si;
    while (read(fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
        take_signal(arg, &si);
}

void signals_drain(struct agent *a)
{
    signals_on_signal(a->signals.fd, EV_READ, a);
}

bool signals_settling(const struct agent *a)
{
    bool settling = false;
    for (int sig = 1; sig <= LAST_SIGNAL; sig++)
        settling = settling ||
                   (ends_this_job(a, sig) && a->signals.states->v[sig].settled != NULL &&
                    evtimer_pending(a->signals.states->v[sig].settled, NULL));
    return settling;
}

int signals_new(struct agent *a, struct dd_err *err)
{
    sigset_t set;
    dd_signals_of_jobs(&set);
    sigaddset(&set, GUARDIAN_SIGNAL);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    a->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signals.fd < 0)
        return dd_err_set(err, -errno, "cannot watch signals: %m");
    a->signals.states = calloc(1, sizeof(*a->signals.states));
    a->signals.ev = event_new(a->loop.base, a->signals.fd, EV_READ | EV_PERSIST, signals_on_signal,
                              a);
    a->signals.stopping = evtimer_new(a->loop.base, on_still_stopping, a);
    if (a->signals.states == NULL || a->signals.ev == NULL || a->signals.stopping == NULL ||
        event_add(a->signals.ev, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "cannot watch signals");
    for (int sig = 0; sig <= LAST_SIGNAL; sig++)
        a->signals.states->v[sig] = (struct signal_state){.agent = a, .sig = sig};
    return 0;
}

void signals_free(struct agent *a)
{
    for (int sig = 0; a->signals.states != NULL && sig <= LAST_SIGNAL; sig++)
        if (a->signals.states->v[sig].settled != NULL)
            event_free(a->signals.states->v[sig].settled);
    free(a->signals.states);
    if (a->signals.ev != NULL)
        event_free(a->signals.ev);
    if (a->signals.stopping != NULL)
        event_free(a->signals.stopping);
    if (a->signals.fd >= 0)
        close(a->signals.fd);
}
