/* Signals to the agent: those that end the job, and those that announce something, go to all nodes
 * through the daemon. */
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
    ANSWER_S = 2,
    STILL_S = 1, /* workers that end at once need no notice */
    /* Until the scheduler has signalled all processes of the step on this node. It takes less than
     * a millisecond; the rest is for a busy machine. */
    SETTLE_MS = 100,
    LAST_SIGNAL = 64,
    TOLD_MS = 600, /* for ddrund, which waits 300 ms for a better word before it says what SIGTERM
                      means */
};

/* One Ctrl-C or qdel reaches agent, guardian, and the process that has started this node. */
enum way { WAY_SELF, WAY_GUARDIAN, WAY_STARTER, WAYS };

struct news {
    struct agent *agent;
    int sig;
    uint64_t taken_ns;
    uint64_t heard_ns[WAYS];
    struct event *settled; /* NULL: the scheduler has never sent it */
    bool everywhere;       /* the scheduler signalled the agent too: the workers have it already */
};

struct signal_news {
    struct news v[LAST_SIGNAL + 1];
};

/* Whether it is to end the job: --signals-to-handle may name those that else announce something. */
static bool ends_this_job(const struct agent *a, int sig)
{
    const bool named = a->cfg->ending_signals != NULL &&
                       sigismember(a->cfg->ending_signals, sig) == 1;
    return dd_signal_ends_jobs(sig) || (named && dd_signal_announces(sig));
}

int signals_code(const struct agent *a)
{
    return a->signals.code > 0 ? a->signals.code : 128 + a->signals.last;
}

/* The daemon has not answered: end what is ours. */
static void on_alone(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    if (a->state == AGENT_LEAVING)
        return;
    agent_end(a, signals_code(a), a->signals.last);
}

/* While the daemon is still sought, it is told when it is found: the other nodes must not wait for
 * one that will not come. */
static void ask_to_stop(struct agent *a, int sig, int code, const char *why)
{
    char text[400];
    struct timeval t = {.tv_sec = ANSWER_S};
    (void)snprintf(text, sizeof(text),
                   why != NULL ? "stopped by SIG%s: %.255s"
                               : "stopped by SIG%s (to ddrun on %.255s)",
                   dd_signal_name(sig), why != NULL ? why : a->cfg->node_name);
    agent_send(a, MSG(STOP_REQUEST, .signal = sig, .code = code, .text = text));
    evtimer_add(a->alone, &t);
}

/* A person who pressed Ctrl-C sees why the command is still there. One agent writes that for the
 * job; another one where a person started it by hand. */
static void on_still_stopping(evutil_socket_t fd, short what, void *arg)
{
    struct agent *a = arg;
    (void)fd;
    (void)what;
    if (!round_is_running(a->round) || a->state == AGENT_LEAVING ||
        (a->host.daemon <= 0 && isatty(a->cfg->log->fd) != 1))
        return;
    dd_log(a->cfg->log, DD_LOG_NOTICE,
           "stopping %d worker%s, for up to %.0f s; Ctrl-C again to kill",
           a->round->plan.world_size, a->round->plan.world_size == 1 ? "" : "s",
           (double)a->cfg->grace_ms / 1e3);
}

/* by_scheduler: it repeats itself, but is in no hurry. */
static void on_stop_signal(struct agent *a, int sig, bool by_scheduler)
{
    const bool again = a->signals.last != 0;
    if (again && by_scheduler)
        return;
    a->signals.last = sig;
    a->signals.scheduler_ends = by_scheduler;
    if (again &&
        (a->state == AGENT_SEEKING || (a->state == AGENT_ORPHAN && !round_is_running(a->round))))
        agent_leave(a, 128 + sig);
    else if (again && a->state == AGENT_LEAVING && a->host.daemon > 0)
        (void)kill(a->host.daemon,
                   SIGTERM); /* it waits for nodes that may still come, to tell them */
    else if (again)
        round_stop(a->round, SIGKILL, 0); /* somebody is in a hurry */
    else if (a->state == AGENT_SEEKING || a->state == AGENT_ORPHAN ||
             (a->link != NULL && a->state != AGENT_LEAVING))
        ask_to_stop(a, sig, 0, NULL);
    if (!again && sig == SIGINT && !by_scheduler && a->stopping != NULL) {
        const struct timeval t = {.tv_sec = STILL_S};
        evtimer_add(a->stopping, &t);
    }
}

void signals_stop(struct agent *a, int sig, int code, const char *why)
{
    if (a->signals.last != 0 || a->link == NULL || a->state == AGENT_LEAVING)
        return;
    a->signals.last = sig;
    a->signals.code = code;
    a->signals.news->v[sig].taken_ns = dd_now_ns();
    a->signals.end_stop = code == 0;
    ask_to_stop(a, sig, code, why);
}

void signals_joined(struct agent *a)
{
    if (a->signals.last != 0)
        ask_to_stop(a, a->signals.last, a->signals.code, NULL);
}

void signals_announce(struct agent *a, int sig)
{
    if (a->state == AGENT_RUNNING && dd_signal_announces(sig))
        round_signal(a->round, sig);
}

/* The scheduler has signalled every node. It signals all processes of a step, or (Slurm with
 * cgroups) only those that it has started itself, which is the guardian. */
static void on_settled(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct news *n = arg;
    struct agent *a = n->agent;
    dd_log(a->cfg->log, DD_LOG_DEBUG, "event=scheduler-signal signal=%d everywhere=%d", n->sig,
           n->everywhere);
    if (!ends_this_job(a, n->sig)) {
        if (!n->everywhere)
            signals_announce(a, n->sig);
        if (a->link != NULL)
            agent_send(a, MSG(SIGNAL_REQUEST, .signal = n->sig, .heard = 1));
        return;
    }
    if (n->everywhere)
        round_has_signal(a->round, n->sig);
    if (a->signals.last == 0)
        n->taken_ns = dd_now_ns();
    on_stop_signal(a, n->sig, true);
    if (!signals_settling(a))
        rounds_settled(a);
}

static void by_scheduler(struct news *n, bool to_agent)
{
    const struct timeval t = {.tv_usec = SETTLE_MS * 1000};
    if (n->settled == NULL)
        n->settled = evtimer_new(n->agent->base, on_settled, n);
    if (n->settled == NULL)
        return;
    bool first = !evtimer_pending(n->settled, NULL);
    n->everywhere = to_agent || (!first && n->everywhere);
    if (first)
        evtimer_add(n->settled, &t);
}

static void by_somebody(struct news *n, enum way way)
{
    struct agent *a = n->agent;
    if (dd_signal_is_copy(&n->taken_ns, &n->heard_ns[way], dd_now_ns()))
        return;
    if (ends_this_job(a, n->sig))
        on_stop_signal(a, n->sig, false);
    else if (a->link != NULL)
        agent_send(a, MSG(SIGNAL_REQUEST, .signal = n->sig));
    else
        signals_announce(a, n->sig);
}

/* By now it has told all that have come; whoever still seeks it is told by those who have started
 * us. */
static void on_told(evutil_socket_t fd, short what, void *arg)
{
    const struct agent *a = arg;
    (void)fd;
    (void)what;
    if (a->host.daemon > 0)
        kill(a->host.daemon, SIGTERM);
}

/* Whoever has started us cannot start all the others, and tells all that are there. */
static void leave_at_once(struct agent *a, int sig)
{
    const struct timeval t = {.tv_usec = TOLD_MS * 1000};
    agent_leave(a, 128 + sig);
    if (a->host.daemon > 0 && kill(a->host.daemon, SIGTERM) == 0)
        event_base_once(a->base, -1, EV_TIMEOUT, on_told, a, &t);
}

/* The kernel's SIGTERM for the guardian's death (PR_SET_PDEATHSIG). This node ends as if the agent
 * were killed: a job that may lose a node goes on, as after any other crash of one. */
static void on_guardian_lost(struct agent *a)
{
    if (a->signals.last != 0)
        return;
    dd_log(a->cfg->log, DD_LOG_ERR,
           "the process that started the agent on %s was killed; stopping this node's workers",
           a->cfg->node_name);
    a->signals.last = SIGTERM;
    succession_end(a);
    search_end(a);
    link_free(DD_TAKE(a->link));
    control_lost(a);
    if (a->host.daemon > 0)
        (void)kill(a->host.daemon, SIGTERM);
    agent_end(a, 128 + SIGTERM, SIGTERM);
}

static void take_signal(struct agent *a, const struct signalfd_siginfo *si)
{
    int sig = (int)si->ssi_signo;
    bool scheduler = false;
    bool at_once = false;
    bool to_agent = sig != GUARDIAN_SIGNAL;
    enum way way = WAY_SELF;
    if (!to_agent) {
        sig = si->ssi_int & ~(GUARDIAN_BY_SCHEDULER | GUARDIAN_BY_STARTER | DD_SIGNAL_AT_ONCE);
        way = (si->ssi_int & GUARDIAN_BY_STARTER) != 0 ? WAY_STARTER : WAY_GUARDIAN;
        at_once = (si->ssi_int & DD_SIGNAL_AT_ONCE) != 0 && !round_is_running(a->round);
        scheduler = (si->ssi_int & GUARDIAN_BY_SCHEDULER) != 0;
    } else {
        scheduler = guardian_is_scheduler((pid_t)si->ssi_pid);
    }
    dd_log(a->cfg->log, DD_LOG_DEBUG, "event=signal signal=%d from=%u scheduler=%d", sig,
           si->ssi_pid, scheduler);
    if (!dd_signal_ends_jobs(sig) && !dd_signal_announces(sig))
        return;
    if (to_agent && sig == SIGTERM && getppid() != a->cfg->guardian)
        on_guardian_lost(a);
    else if (at_once)
        leave_at_once(a, sig);
    else if (scheduler)
        by_scheduler(&a->signals.news->v[sig], to_agent);
    else
        by_somebody(&a->signals.news->v[sig], way);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct signalfd_siginfo si;
    while (read(fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
        take_signal(arg, &si);
}

bool signals_settling(struct agent *a)
{
    bool settling = false;
    on_signal(a->signals.fd, EV_READ, a); /* what has come by now */
    for (int sig = 1; sig <= LAST_SIGNAL; sig++)
        settling = settling || (ends_this_job(a, sig) && a->signals.news->v[sig].settled != NULL &&
                                evtimer_pending(a->signals.news->v[sig].settled, NULL));
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
    a->signals.news = calloc(1, sizeof(*a->signals.news));
    a->signals.ev = event_new(a->base, a->signals.fd, EV_READ | EV_PERSIST, on_signal, a);
    a->alone = evtimer_new(a->base, on_alone, a);
    a->stopping = evtimer_new(a->base, on_still_stopping, a);
    if (a->signals.news == NULL || a->signals.ev == NULL || a->alone == NULL ||
        a->stopping == NULL || event_add(a->signals.ev, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "cannot watch signals");
    for (int sig = 0; sig <= LAST_SIGNAL; sig++)
        a->signals.news->v[sig] = (struct news){.agent = a, .sig = sig};
    return 0;
}

void signals_free(struct agent *a)
{
    for (int sig = 0; a->signals.news != NULL && sig <= LAST_SIGNAL; sig++)
        if (a->signals.news->v[sig].settled != NULL)
            event_free(a->signals.news->v[sig].settled);
    free(a->signals.news);
    if (a->signals.ev != NULL)
        event_free(a->signals.ev);
    if (a->alone != NULL)
        event_free(a->alone);
    if (a->stopping != NULL)
        event_free(a->stopping);
    if (a->signals.fd >= 0)
        close(a->signals.fd);
}
