/* Handles exits: of workers, of the rest of their process groups, and of orphans that were
 * reparented to this process. */
#include "worker/worker_group_inner.h"
#include "worker/output.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* time from SIGTERM to SIGKILL for the rest of a process group whose worker has exited */
#define LINGER_NS (2 * DD_NS_PER_S)
#define QUIET_NS (100 * DD_NS_PER_MS) /* time for daemons to exit when their connection closes */
#define GIVE_UP_NS (10 * DD_NS_PER_S) /* time after SIGKILL until a process is given up */
#define TICK_NS (20 * DD_NS_PER_MS)   /* polling interval for exits without SIGCHLD */
#define LOOK_NS (500 * DD_NS_PER_MS)  /* interval between two passes over /proc for a group */
enum { GIVE_UP_OUTPUT_MS = 5000, FREE_WAIT_MS = 5000 };

void reap_signal(const struct worker *w, int sig)
{
    (void)kill(-w->pid, sig);
    if (sig != SIGKILL && sig != SIGCONT && sig != SIGSTOP && sig != SIGTSTP)
        (void)kill(-w->pid, SIGCONT); /* a stopped process does not handle signals */
}

static bool group_is_gone(const struct worker *w)
{
    return kill(-w->pid, 0) < 0 && errno == ESRCH;
}

/* True if the group has only zombies: their parent, in another group, has not reaped them. Looks
 * once per LOOK_NS; false in between. */
static bool group_is_dead(struct worker *w, uint64_t now)
{
    if (now < w->look_at)
        return false;
    w->look_at = now + LOOK_NS;
    return !children_group_lives(w->pid);
}

static void worker_ended(struct worker_group *g, struct worker *w, int status)
{
    struct worker_exit e = {
        .local_rank = (int)(w - g->w),
        .pid = w->pid,
        .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        .at_ns = dd_now_ns(),
    };
    e.code = e.signal > 0 ? 128 + e.signal : WEXITSTATUS(status);
    w->state = group_is_gone(w) ? WORKER_GONE : WORKER_REST;
    w->look_at = dd_now_ns() + LOOK_NS;
    if (w->state == WORKER_REST && w->kill_at == 0) {
        reap_signal(w, SIGTERM);
        w->kill_at = dd_now_ns() + LINGER_NS;
    }
    if (g->out != NULL)
        worker_output_catch_up(g->out, e.local_rank, e.at_ns);
    if (g->on_exit != NULL)
        g->on_exit(g->arg, &e);
}

/* Stop waiting for a process that has not exited within GIVE_UP_NS after SIGKILL. */
static void worker_give_up(struct worker_group *g, struct worker *w)
{
    enum worker_state was = w->state;
    dd_log(
        g->log, DD_LOG_WARN,
        "process group %d of rank %d did not exit after SIGKILL (uninterruptible sleep, state D); "
        "continuing without it",
        (int)w->pid, w->rank);
    w->state = WORKER_GONE;
    (void)pid_list_add(&g->protected, w->pid);
    if (was == WORKER_RUNNING && g->on_exit != NULL)
        g->on_exit(g->arg, &(struct worker_exit){.local_rank = (int)(w - g->w),
                                                 .pid = w->pid,
                                                 .code = 128 + SIGKILL,
                                                 .signal = SIGKILL,
                                                 .at_ns = dd_now_ns()});
}

static bool is_worker_group(const struct worker_group *g, pid_t pgid)
{
    for (int i = 0; i < g->n; i++)
        if (g->w[i].pid == pgid && g->w[i].state != WORKER_GONE)
            return true;
    return false;
}

/* Reap dead orphans; collect living orphans that are in no worker's group in *ret. */
static void orphans_collect(struct worker_group *g, struct pid_list *ret)
{
    DD_AUTO(pid_list) struct pid_list all = {0};
    if (!g->adopts || children_list(&all) < 0)
        return;
    for (size_t i = 0; i < all.n; i++) {
        pid_t pid = all.v[i];
        if (pid_list_has(&g->protected, pid))
            continue;
        for (int k = 0; k < g->n; k++)
            if (g->w[k].pid == pid && g->w[k].state == WORKER_RUNNING)
                pid = 0;
        if (pid == 0 || waitpid(pid, NULL, WNOHANG) == pid || is_worker_group(g, getpgid(pid)))
            continue;
        (void)pid_list_add(ret, pid);
    }
}

/* Send each orphan SIGTERM once, then SIGKILL repeatedly. Return true if none is left, or the rest
 * is given up. */
static bool strangers_step(struct worker_group *g, struct pid_list *alive, uint64_t now)
{
    if (alive->n == 0) /* a concurrent exit can hide a child: read twice */
        orphans_collect(g, alive);
    if (alive->n == 0)
        return true;
    if (g->strangers_since == 0)
        g->strangers_since = now;
    uint64_t term_at = g->strangers_since + QUIET_NS;
    uint64_t kill_at = earlier(term_at + LINGER_NS, g->stop_kill_at);
    if (now < term_at)
        return false;
    for (size_t i = 0; i < alive->n; i++) {
        pid_t pid = alive->v[i];
        if (now >= kill_at) {
            children_kill(pid, kill_at);
        } else if (!pid_list_has(&g->strangers, pid) && pid_list_add(&g->strangers, pid) == 0) {
            (void)kill(pid, SIGTERM);
            (void)kill(pid, SIGCONT);
        }
    }
    if (now >= kill_at && g->strangers_give_up_at == 0)
        g->strangers_give_up_at = now + GIVE_UP_NS;
    if (g->strangers_give_up_at == 0 || now < g->strangers_give_up_at)
        return false;
    for (size_t i = 0; i < alive->n; i++)
        dd_log(g->log, DD_LOG_WARN,
               "process %d, started by a worker, did not exit after SIGKILL; continuing without it",
               (int)alive->v[i]);
    return true;
}

static void workers_step(struct worker_group *g)
{
    for (int i = 0; i < g->n; i++) {
        int status;
        if (g->w[i].state == WORKER_RUNNING &&
            waitpid(g->w[i].pid, &status, WNOHANG) == g->w[i].pid)
            worker_ended(g, &g->w[i], status);
    }
}

/* Return true if no process of a worker's group is left. */
static bool groups_step(struct worker_group *g, uint64_t now)
{
    bool empty = true;
    for (int i = 0; i < g->n; i++) {
        struct worker *w = &g->w[i];
        if (w->state == WORKER_REST && (group_is_gone(w) || group_is_dead(w, now)))
            w->state = WORKER_GONE;
        if (w->state == WORKER_GONE)
            continue;
        if (w->kill_at != 0 && now >= w->kill_at) {
            if (w->give_up_at == 0)
                w->give_up_at = now + GIVE_UP_NS;
            (void)kill(-w->pid, SIGKILL);
            if (now >= w->give_up_at)
                worker_give_up(g, w);
        }
        empty = empty && w->state == WORKER_GONE;
    }
    return empty;
}

static void output_done(void *arg)
{
    struct worker_group *g = arg;
    g->out = NULL; /* from here on the output belongs to the next round */
    if (g->on_empty != NULL)
        g->on_empty(g->arg); /* the callback may free g */
}

/* While a worker runs, living orphans are left alone: list the children only if one has exited. */
static bool must_list_children(const struct worker_group *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->w[i].state == WORKER_RUNNING)
            return children_one_is_dead();
    return true;
}

void reap_step(struct worker_group *g)
{
    if (g->draining)
        return;
    workers_step(g);
    DD_AUTO(pid_list) struct pid_list orphans = {0};
    if (must_list_children(g))
        orphans_collect(g, &orphans);
    uint64_t now = dd_now_ns();
    if (!groups_step(g, now) || !strangers_step(g, &orphans, now)) {
        reap_schedule(g);
        return;
    }
    g->draining = true;
    event_del(g->on_child);
    event_del(g->on_tick);
    if (g->out == NULL)
        output_done(g);
    else
        worker_output_finish(g->out, g->stop_kill_at != 0 ? GIVE_UP_OUTPUT_MS : 0, output_done, g);
}

void reap_schedule(struct worker_group *g)
{
    uint64_t now = dd_now_ns(), at = 0;
    if (g->draining)
        return;
    bool running = false, rest = false;
    for (int i = 0; i < g->n; i++) {
        const struct worker *w = &g->w[i];
        if (w->state == WORKER_GONE)
            continue;
        running = running || w->state == WORKER_RUNNING;
        rest = rest || w->state == WORKER_REST;
        at = earlier(at, w->give_up_at != 0 ? w->give_up_at : w->kill_at);
    }
    if (rest || !running)
        at = earlier(at, now + TICK_NS);
    if (at == 0) {
        event_del(g->on_tick);
        return;
    }
    uint64_t us = at > now ? (at - now + 999) / 1000 : 0;
    struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    event_add(g->on_tick, &tv);
}

static bool all_gone_now(struct worker_group *g)
{
    bool gone = true;
    DD_AUTO(pid_list) struct pid_list orphans = {0};
    for (int i = 0; i < g->n; i++) {
        struct worker *w = &g->w[i];
        if (w->state == WORKER_GONE)
            continue;
        (void)kill(-w->pid, SIGKILL);
        if (w->state == WORKER_RUNNING && waitpid(w->pid, NULL, WNOHANG) == w->pid)
            w->state = WORKER_REST;
        if (w->state == WORKER_REST && group_is_gone(w))
            w->state = WORKER_GONE;
        gone = gone && w->state == WORKER_GONE;
    }
    orphans_collect(g, &orphans);
    for (size_t i = 0; i < orphans.n; i++)
        (void)kill(orphans.v[i], SIGKILL);
    return gone && orphans.n == 0;
}

void reap_all_now(struct worker_group *g)
{
    const uint64_t end = dd_now_ns() + FREE_WAIT_MS * DD_NS_PER_MS;
    while (!g->draining && !all_gone_now(g) && dd_now_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
