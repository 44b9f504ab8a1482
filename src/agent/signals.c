#include "agent/signals.h"

#include "agent/agent.h"
#include "agent/guardian.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/sig.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    STILL_S = 1, /* time to the notice that ddrun waits: none if the workers exit sooner */
    /* Time for the scheduler to signal all processes of the step on this node: less than 1 ms on an
       idle machine. SIGUSR1 and SIGUSR2 wait longer, as a machine may stall: if the agent forwarded
       one too soon, its workers would get it twice. A signal that ends the job must soon reach all
       nodes, so that their workers can still communicate while they end. */
    SETTLE_MS = 100,
    SETTLE_NOTICE_MS = 1000,
    LAST_SIGNAL = 64,
};

/* Path of a signal. One Ctrl-C or qdel reaches the agent, the guardian, and the process that has
 * started this node. */
enum signal_path { PATH_SELF, PATH_GUARDIAN, PATH_STARTER, PATHS };

struct signal_state {
    struct signals *signals;
    int sig;
    uint64_t taken_ns;
    uint64_t heard_ns[PATHS];
    struct event
        *settled;    /* timer after a signal of the scheduler; NULL: the scheduler has sent none */
    bool everywhere; /* the scheduler has signalled the agent, too, hence also the workers */
};

struct signals {
    struct signals_parts parts;
    int fd;
    struct event *ev;
    struct event *stopping; /* notice that ddrun still waits for workers */
    bool waits_for_second;  /* the time of that notice has come: Ctrl-C again kills the workers */
    char why[256]; /* reason of the last stop signal; "": sent by a user or the scheduler */
    bool end_stop; /* --signal-before-end ends the job */
    struct signal_state states[LAST_SIGNAL + 1];
};

/* True if sig ends the job. --signals-to-handle may add SIGUSR1 and SIGUSR2. */
static bool ends_this_job(const struct signals *s, int sig)
{
    const bool named = s->parts.loop->cfg->ending_signals != NULL &&
                       sigismember(s->parts.loop->cfg->ending_signals, sig) == 1;
    return dd_signal_ends_jobs(sig) || (named && dd_signal_announces(sig));
}

/* Without a link the request is dropped. The machine sends another one when a daemon is found, so
 * that other nodes do not wait for this one. */
void signals_request_stop(struct signals *s, int sig)
{
    char text[400];
    if (s->why[0] != '\0')
        (void)snprintf(text, sizeof(text), "stopped by SIG%s: %s", dd_signal_name(sig), s->why);
    else
        (void)snprintf(text, sizeof(text), "stopped by SIG%s (to ddrun on %.255s)",
                       dd_signal_name(sig), s->parts.loop->cfg->node_name);
    uplink_send(s->parts.uplink, MSG(STOP_REQUEST, .signal = sig,
                                     .code = s->parts.loop->machine.stop_code, .text = text));
}

/* Report to a user who pressed Ctrl-C why ddrun still runs: on the leader, and on any agent with a
 * terminal. */
static void on_still_stopping(evutil_socket_t fd, short what, void *arg)
{
    struct signals *s = arg;
    (void)fd;
    (void)what;
    s->waits_for_second = true;
    if (!round_is_running(s->parts.round) || s->parts.loop->machine.state == AM_LEAVING ||
        (leader_daemon(s->parts.leader) <= 0 && isatty(s->parts.loop->cfg->log->fd) != 1))
        return;
    dd_log(s->parts.loop->cfg->log, DD_LOG_NOTICE,
           "stopping %d worker%s, for up to %.10g s; Ctrl-C again to kill",
           s->parts.round->plan.world_size, s->parts.round->plan.world_size == 1 ? "" : "s",
           (double)s->parts.loop->cfg->grace_ms / 1e3);
}

/* Stop the job. by_scheduler: repeated signals of the scheduler do not shorten the grace period, as
 * it repeats SIGTERM; only a later SIGINT is a second Ctrl-C, which srun forwards. */
static void on_stop_signal(struct signals *s, int sig, bool by_scheduler, const char *why)
{
    const bool again = s->parts.loop->machine.sig != 0;
    if (again && by_scheduler && !(sig == SIGINT && s->waits_for_second))
        return;
    (void)snprintf(s->why, sizeof(s->why), "%s", why);
    agent_step(s->parts.loop, (struct am_event){.kind = AM_SIGNAL, .sig = sig});
    if (!again && sig == SIGINT && s->stopping != NULL) {
        const struct timeval t = {.tv_sec = STILL_S};
        evtimer_add(s->stopping, &t);
    }
}

void signals_stop(struct signals *s, int sig, int code, const char *why)
{
    if (s->parts.loop->machine.sig != 0 || !uplink_is_up(s->parts.uplink) ||
        s->parts.loop->machine.state == AM_LEAVING)
        return;
    s->states[sig].taken_ns = dd_now_ns();
    s->end_stop = code == 0;
    (void)snprintf(s->why, sizeof(s->why), "%s", why);
    agent_step(s->parts.loop, (struct am_event){.kind = AM_SIGNAL, .sig = sig, .code = code});
}

int signals_announce(const struct signals *s, int sig)
{
    const bool runs = s->parts.loop->machine.state == AM_RUNNING;
    return runs && dd_signal_announces(sig) ? round_signal(s->parts.round, sig) : 0;
}

/* The scheduler has signalled every node: either all processes of the step, or (Slurm with cgroups)
 * only its own child, the guardian. */
static void on_settled(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct signal_state *n = arg;
    struct signals *s = n->signals;
    dd_log(s->parts.loop->cfg->log, DD_LOG_DEBUG, "event=scheduler-signal signal=%d everywhere=%d",
           n->sig, n->everywhere);
    if (!ends_this_job(s, n->sig)) {
        if (!n->everywhere)
            (void)signals_announce(s, n->sig);
        if (uplink_is_up(s->parts.uplink))
            uplink_send(s->parts.uplink, MSG(SIGNAL_REQUEST, .signal = n->sig, .heard = 1));
        return;
    }
    if (n->everywhere)
        round_has_signal(s->parts.round, n->sig);
    if (s->parts.loop->machine.sig == 0)
        n->taken_ns = dd_now_ns();
    on_stop_signal(s, n->sig, true, "");
    if (!signals_settling(s))
        agent_step(s->parts.loop, (struct am_event){.kind = AM_SETTLED});
}

static void by_scheduler(struct signal_state *n, bool to_agent)
{
    const bool ends = ends_this_job(n->signals, n->sig);
    const struct timeval t = dd_timeval((ends ? SETTLE_MS : SETTLE_NOTICE_MS) * DD_NS_PER_MS);
    if (n->settled == NULL)
        n->settled = evtimer_new(n->signals->parts.loop->base, on_settled, n);
    if (n->settled == NULL)
        return;
    bool first = !evtimer_pending(n->settled, NULL);
    n->everywhere = to_agent || (!first && n->everywhere);
    if (first)
        evtimer_add(n->settled, &t);
}

static void by_user(struct signal_state *n, enum signal_path path, const char *why)
{
    struct signals *s = n->signals;
    if (dd_signal_is_copy(n->sig, &n->taken_ns, &n->heard_ns[path], dd_now_ns()))
        return;
    if (ends_this_job(s, n->sig))
        on_stop_signal(s, n->sig, false, why);
    else if (uplink_is_up(s->parts.uplink))
        uplink_send(s->parts.uplink, MSG(SIGNAL_REQUEST, .signal = n->sig));
    else
        (void)signals_announce(s, n->sig);
}

/* End this node alone; `why` names the process that was lost. */
static void leave_job(struct signals *s, const char *why)
{
    if (s->parts.loop->machine.sig == 0)
        dd_log(s->parts.loop->cfg->log, DD_LOG_ERR, "%s on %s was lost; this node leaves the job",
               why, s->parts.loop->cfg->node_name);
    agent_step(s->parts.loop, (struct am_event){.kind = AM_GUARDIAN_LOST, .sig = SIGTERM});
}

static void take_signal(struct signals *s, const struct signalfd_siginfo *si)
{
    int sig = (int)si->ssi_signo;
    bool scheduler = false;
    bool at_once = false;
    bool leave = false;
    bool to_agent = sig != GUARDIAN_SIGNAL;
    char why[sizeof(s->why)] = "";
    enum signal_path path = PATH_SELF;
    if (!to_agent) {
        sig = si->ssi_int & ~(GUARDIAN_BY_SCHEDULER | GUARDIAN_BY_STARTER | GUARDIAN_STARTER_LOST |
                              DD_SIGNAL_AT_ONCE | DD_SIGNAL_LEAVE);
        path = (si->ssi_int & GUARDIAN_BY_STARTER) != 0 ? PATH_STARTER : PATH_GUARDIAN;
        at_once = (si->ssi_int & DD_SIGNAL_AT_ONCE) != 0 && !round_is_running(s->parts.round);
        leave = (si->ssi_int & DD_SIGNAL_LEAVE) != 0;
        scheduler = (si->ssi_int & GUARDIAN_BY_SCHEDULER) != 0;
        if ((si->ssi_int & GUARDIAN_STARTER_LOST) != 0)
            (void)snprintf(why, sizeof(why), "the process that started ddrun on %.200s has died",
                           s->parts.loop->cfg->node_name);
    } else {
        scheduler = guardian_is_scheduler((pid_t)si->ssi_pid);
    }
    dd_log(s->parts.loop->cfg->log, DD_LOG_DEBUG, "event=signal signal=%d from=%u scheduler=%d",
           sig, si->ssi_pid, scheduler);
    if (!dd_signal_ends_jobs(sig) && !dd_signal_announces(sig))
        return;
    if (to_agent && sig == SIGTERM && getppid() != s->parts.loop->cfg->guardian)
        leave_job(s, "the parent process of ddrun's agent");
    else if (leave)
        leave_job(s, "the process that started ddrun");
    else if (at_once)
        agent_step(s->parts.loop, (struct am_event){.kind = AM_STOP_AT_ONCE, .sig = sig});
    else if (scheduler)
        by_scheduler(&s->states[sig], to_agent);
    else
        by_user(&s->states[sig], path, why);
}

static void signals_on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct signalfd_siginfo si;
    while (read(fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
        take_signal(arg, &si);
}

void signals_drain(struct signals *s)
{
    signals_on_signal(s->fd, EV_READ, s);
}

bool signals_settling(const struct signals *s)
{
    bool settling = false;
    for (int sig = 1; sig <= LAST_SIGNAL; sig++)
        settling = settling || (ends_this_job(s, sig) && s->states[sig].settled != NULL &&
                                evtimer_pending(s->states[sig].settled, NULL));
    return settling;
}

bool signals_before_end(const struct signals *s)
{
    return s->end_stop;
}

int signals_new(struct signals **ret, struct dd_err *err)
{
    sigset_t set;
    struct signals *s = *ret = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (int sig = 0; sig <= LAST_SIGNAL; sig++)
        s->states[sig] = (struct signal_state){.signals = s, .sig = sig};
    dd_signals_of_jobs(&set);
    sigaddset(&set, GUARDIAN_SIGNAL);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->fd < 0 ? dd_err_set(err, -errno, "cannot watch signals: %m") : 0;
}

int signals_watch(struct signals *s, const struct signals_parts *parts, struct dd_err *err)
{
    struct event_base *base = parts->loop->base;
    s->parts = *parts;
    s->ev = event_new(base, s->fd, EV_READ | EV_PERSIST, signals_on_signal, s);
    s->stopping = evtimer_new(base, on_still_stopping, s);
    if (s->ev == NULL || s->stopping == NULL || event_add(s->ev, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "cannot watch signals: out of memory");
    return 0;
}

void signals_free(struct signals *s)
{
    if (s == NULL)
        return;
    for (int sig = 0; sig <= LAST_SIGNAL; sig++)
        if (s->states[sig].settled != NULL)
            event_free(s->states[sig].settled);
    if (s->ev != NULL)
        event_free(s->ev);
    if (s->stopping != NULL)
        event_free(s->stopping);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}
