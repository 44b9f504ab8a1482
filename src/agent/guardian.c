#include "agent/guardian.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/sig.h"
#include "worker/children.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GIVE_UP_NS (10 * DD_NS_PER_S) /* wait for exits after SIGKILL */

struct guardian {
    pid_t parent; /* parent process when the guardian started */
    pid_t agent;
    bool launched;
    int status; /* wait status of the agent, once it has exited */
    bool agent_gone;
    bool children_left;
    sigset_t waited;
    struct pid_list
        foreign; /* children older than the agent, of a shell that has called exec on ddrun */
    const struct dd_log *log;
};

/* Send SIGTERM once to each orphan of the agent: each child that is neither foreign nor in `had`,
 * the list of those already signalled. */
static void ask_children(const struct guardian *g, struct pid_list *had)
{
    DD_AUTO(pid_list) struct pid_list all = {0};
    (void)children_list(&all);
    for (size_t i = 0; i < all.n; i++)
        if (!pid_list_has(&g->foreign, all.v[i]) && !pid_list_has(had, all.v[i])) {
            kill(all.v[i], SIGTERM);
            (void)pid_list_add(had, all.v[i]);
        }
}

static void kill_children(const struct guardian *g, uint64_t since_ns)
{
    DD_AUTO(pid_list) struct pid_list all = {0};
    (void)children_list(&all);
    for (size_t i = 0; i < all.n; i++)
        if (!pid_list_has(&g->foreign, all.v[i]))
            children_kill(all.v[i], since_ns);
}

static bool only_foreign_left(const struct guardian *g)
{
    DD_AUTO(pid_list) struct pid_list all = {0};
    if (g->foreign.n == 0 || children_list(&all) < 0 ||
        children_list(&all) < 0) /* again: a process may have been reparented meanwhile */
        return false;
    for (size_t i = 0; i < all.n; i++)
        if (!pid_list_has(&g->foreign, all.v[i]))
            return false;
    return true;
}

/* Reap all exited children and note whether other children are left. */
static void guardian_reap(struct guardian *g)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        pid_list_remove(&g->foreign, pid); /* the pid may be reused */
        if (pid == g->agent) {
            g->status = status;
            g->agent_gone = true;
        }
    }
    g->children_left = pid == 0 && !only_foreign_left(g);
}

bool guardian_is_scheduler(pid_t sender)
{
    return sender > 0 && children_is_called(sender, "slurmstepd");
}

static void pass_on(const struct guardian *g, const siginfo_t *si)
{
    /* The terminal sends its signals to the whole process group, and so to the agent, too. */
    if (si->si_signo == SIGCHLD || si->si_code == SI_KERNEL || g->agent_gone)
        return;
    const bool by_starter = si->si_code == SI_QUEUE && si->si_pid == getppid();
    /* PR_SET_PDEATHSIG: the sender is the parent that has died */
    const bool lost = si->si_signo == SIGTERM && si->si_pid == g->parent && getppid() != g->parent;
    const int how = by_starter ? si->si_value.sival_int & (DD_SIGNAL_AT_ONCE | DD_SIGNAL_LEAVE)
                    : lost && g->launched ? DD_SIGNAL_LEAVE
                                          : 0;
    const union sigval v = {
        .sival_int = si->si_signo | how | (by_starter ? GUARDIAN_BY_STARTER : 0) |
                     (lost ? GUARDIAN_STARTER_LOST : 0) |
                     (guardian_is_scheduler(si->si_pid) ? GUARDIAN_BY_SCHEDULER : 0)};
    if (sigqueue(g->agent, GUARDIAN_SIGNAL, v) < 0)
        kill(g->agent, si->si_signo);
}

/* Wait for a signal until `deadline_ns` (0: forever) and handle it. */
static void wait_once(struct guardian *g, uint64_t deadline_ns)
{
    siginfo_t si;
    uint64_t now = dd_now_ns();
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    struct timespec t = {.tv_sec = (time_t)(left / DD_NS_PER_S),
                         .tv_nsec = (long)(left % DD_NS_PER_S)};
    int sig = sigtimedwait(&g->waited, &si, deadline_ns == 0 ? NULL : &t);
    if (sig > 0)
        pass_on(g, &si);
    guardian_reap(g);
}

/* The agent has exited: end the remaining processes of the job. On SIGTERM ddrund informs the other
 * nodes and exits. Each exit may leave new orphans, so repeat until none is left. */
static void end_orphans(struct guardian *g, unsigned grace_ms)
{
    uint64_t deadline = dd_now_ns() + grace_ms * DD_NS_PER_MS;
    DD_AUTO(pid_list) struct pid_list asked = {0};
    while (g->children_left && dd_now_ns() < deadline) {
        ask_children(g, &asked);
        wait_once(g, deadline);
    }
    const uint64_t since = dd_now_ns();
    while (g->children_left && dd_now_ns() < since + GIVE_UP_NS) {
        kill_children(g, since);
        wait_once(g, dd_now_ns() + 20 * DD_NS_PER_MS);
    }
    if (g->children_left)
        dd_log(g->log, DD_LOG_WARN,
               "some processes of the job did not exit within 10 s after SIGKILL (usually because "
               "of uninterruptible sleep, state D); exiting without them");
}

static int start_agent(struct guardian *g, int (*fn)(void *arg), void *arg)
{
    pid_t self = getpid();
    g->agent = fork();
    if (g->agent < 0)
        return -errno;
    if (g->agent > 0)
        return 0;
    /* signals stay blocked until the agent handles them */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    _exit(getppid() != self ? 1 : fn(arg));
}

int guardian_run(int (*fn)(void *arg), void *arg, const struct guardian_cfg *cfg)
{
    const struct dd_log *log = cfg->log;
    struct guardian g = {
        .log = log, .parent = getppid(), .launched = cfg->launched, .children_left = true};
    dd_signals_of_jobs(&g.waited);
    sigaddset(&g.waited, SIGCHLD);
    sigset_t blocked = g.waited;
    sigaddset(&blocked, GUARDIAN_SIGNAL); /* blocked before the fork, so that the agent never takes
                                             the default action */
    (void)sigprocmask(SIG_BLOCK, &blocked, NULL);
    (void)children_list(&g.foreign);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    int rc = start_agent(&g, fn, arg);
    if (rc < 0) {
        dd_log(log, DD_LOG_ERR, "cannot fork the agent: %s", strerror(-rc));
        pid_list_done(&g.foreign);
        return 1;
    }
    while (!g.agent_gone)
        wait_once(&g, 0);
    if (WIFSIGNALED(g.status))
        dd_log(log, DD_LOG_ERR, "the agent was killed by signal %d; ending its remaining processes",
               WTERMSIG(g.status));
    if (g.children_left)
        end_orphans(&g, cfg->grace_ms);
    pid_list_done(&g.foreign);
    terminal_restore(cfg->terminal); /* a worker or the agent may have left it in raw mode */
    return WIFSIGNALED(g.status) ? 128 + WTERMSIG(g.status) : WEXITSTATUS(g.status);
}
