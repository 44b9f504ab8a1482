#include "worker/worker_group.h"

#include "base/auto.h"
#include "base/sig.h"
#include "worker/worker_group_inner.h"
#include "worker/output.h"
#include "worker/spawn.h"
#include "worker/warm_fork.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXEC_WAIT_MS = 1000, MAX_WORKERS = 65536 };

DD_AUTO_DEFINE(group, struct worker_group *, worker_group_free);

static void on_child(evutil_socket_t sig, short what, void *arg)
{
    (void)sig;
    (void)what;
    reap_step(arg);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    reap_step(arg);
}

static int group_new(struct worker_group **ret, struct event_base *base, int n, struct dd_err *err)
{
    if (n < 1 || n > MAX_WORKERS)
        return dd_err_set(err, -EINVAL, "cannot start %d workers: a node runs 1 to %d", n,
                          MAX_WORKERS);
    DD_AUTO(group) struct worker_group *g = calloc(1, sizeof(*g) + (size_t)n * sizeof(g->w[0]));
    if (g == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    g->base = base;
    g->report_fd = -1;
    g->n = n;
    for (int i = 0; i < n; i++)
        g->w[i].state = WORKER_GONE;
    g->adopts = children_adopts_orphans() && children_list(&g->protected) == 0;
    sigset_t child; /* the parent may have blocked SIGCHLD: exits would go unnoticed */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    g->on_child = evsignal_new(base, SIGCHLD, on_child, g);
    g->on_tick = evtimer_new(base, on_tick, g);
    if (g->on_child == NULL || g->on_tick == NULL || event_add(g->on_child, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "cannot watch SIGCHLD: out of memory");
    *ret = DD_TAKE(g);
    return 0;
}

/* Find all programs before the first fork. paths[i] is NULL if it equals that of worker i - 1, or
 * if specs[i] has `via`. */
static int paths_find(char **paths, const struct worker_spec *specs, int n, struct dd_err *err)
{
    for (int i = 0; i < n; i++) {
        const char *name = specs[i].argv.n > 0 ? specs[i].argv.v[0] : "";
        if (specs[i].via != NULL) /* the program of `via` searches PATH itself */
            continue;
        const char *dirs = dd_env_get(specs[i].env.v, "PATH");
        const char *before = i > 0 ? dd_env_get(specs[i - 1].env.v, "PATH") : NULL;
        if (i > 0 && strcmp(name, specs[i - 1].argv.v[0]) == 0 &&
            (dirs == before || (dirs != NULL && before != NULL && strcmp(dirs, before) == 0)))
            continue;
        int rc = spawn_lookup(&paths[i], name, specs[i].env.v);
        if (rc == -ENOENT && strchr(name, '/') == NULL)
            return dd_err_set(err, rc, "cannot run '%s': not found in PATH (%s)", name,
                              dirs == NULL ? "not set" : dirs);
        if (rc == -EACCES)
            return strchr(name, '/') == NULL
                       ? dd_err_set(err, rc,
                                    "cannot run '%s': not executable in any directory of "
                                    "PATH (%s)",
                                    name, dirs == NULL ? "not set" : dirs)
                       : dd_err_set(err, rc,
                                    "cannot run '%s': not an executable file"
                                    "\n  tip: chmod +x '%s'",
                                    name, name);
        if (rc < 0)
            return dd_err_set(err, rc, "cannot run '%s': %s", name, strerror(-rc));
    }
    return 0;
}

/* What the workers of a group have in common while they are started. */
struct group_start {
    const struct worker_spec *specs;
    char *const *paths;
    int null_fd, report_fd;
    struct spawn_parent parent;
};

static int request_make(struct spawn_request *ret, const struct worker_group *g,
                        const struct group_start *s, int i, struct dd_err *err)
{
    const struct worker_spec *spec = &s->specs[i];
    *ret = (struct spawn_request){.parent = &s->parent,
                                  .spec = spec,
                                  .index = i,
                                  .fds = {spec->has_stdin ? -1 : s->null_fd, -1, -1},
                                  .report_fd = s->report_fd};
    return g->out != NULL && spec->tty == NULL ? worker_output_fds(g->out, i, ret->fds + 1, err)
                                               : 0;
}

static void worker_began(struct worker_group *g, const struct worker_spec *spec, int i, pid_t pid,
                         uint64_t at_ns)
{
    if (g->out != NULL)
        worker_output_given(g->out, i);
    if (pid > 0)
        g->w[i] = (struct worker){
            .pid = pid, .rank = spec->rank, .started_ns = at_ns, .state = WORKER_RUNNING};
}

/* Fork from the warm interpreter all workers that can be. On failure none runs, and
 * worker_output_given() is still to be called for each. */
static int group_fork_warm(struct worker_group *g, const struct group_start *s,
                           const struct warm_fork *warm, pid_t *pids, struct dd_err *err)
{
    struct warm_batch b;
    int rc = warm_batch_begin(&b, warm, s->report_fd, err);
    for (int i = 0; i < g->n && rc == 0; i++) {
        struct spawn_request r;
        char why[WARM_FORK_WHY];
        if (!warm_fork_fits(warm, &s->specs[i], why))
            dd_log(g->log, DD_LOG_WARN, "--warm does not apply to rank %d: %s", s->specs[i].rank,
                   why);
        else if ((rc = request_make(&r, g, s, i, err)) == 0)
            rc = warm_batch_add(&b, &r, err);
    }
    if (rc == 0)
        rc = warm_batch_collect(&b, pids, g->n, err);
    if (rc == 0)
        rc = warm_batch_release(&b, err);
    warm_batch_done(&b);
    return rc;
}

/* With --warm, fork workers from the interpreter. The caller executes those that are not forked
 * here. */
static void group_try_warm(struct worker_group *g, const struct group_start *s,
                           const struct worker_group_cfg *cfg)
{
    struct dd_err err = {0};
    const uint64_t now = dd_now_ns();
    DD_AUTO(free) pid_t *pids = calloc((size_t)g->n, sizeof(*pids));
    if (cfg->warm == NULL || pids == NULL)
        return;
    if (group_fork_warm(g, s, cfg->warm, pids, &err) < 0) {
        cfg->on_warm_failed(cfg->arg, err.text);
        return;
    }
    for (int i = 0; i < g->n; i++)
        if (pids[i] > 0)
            worker_began(g, &s->specs[i], i, pids[i], now);
}

static int group_exec(const struct spawn_request *request, struct dd_err *err)
{
    struct spawn_request r = *request;
    struct worker_spec spec;
    if (r.spec->via == NULL)
        return spawn_child(&r, err);
    if (worker_spec_via(&spec, r.spec) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    r.path = r.spec->via;
    r.spec = &spec;
    const int rc = spawn_child(&r, err);
    dd_strv_done(&spec.argv);
    return rc;
}

struct group_fork {
    struct spawn_request request;
    pid_t pid; /* -errno: not forked; 0: not to be forked */
    uint64_t at_ns;
};

/* Fork the workers that do not run yet. The kernel copies each page that the parent writes between
 * two forks, so all requests are made before the first fork. */
static int group_fork_each(struct worker_group *g, const struct group_start *s,
                           struct group_fork *forks, struct dd_err *err)
{
    const char *path = NULL;
    int rc = 0;
    for (int i = 0; i < g->n && rc == 0; i++) {
        path = s->paths[i] != NULL ? s->paths[i] : path;
        if (g->w[i].state != WORKER_RUNNING)
            rc = request_make(&forks[i].request, g, s, i, err);
        forks[i].request.path = path;
    }
    for (int i = 0; i < g->n && rc >= 0; i++) {
        if (g->w[i].state == WORKER_RUNNING)
            continue;
        forks[i].at_ns = dd_now_ns();
        forks[i].pid = rc = group_exec(&forks[i].request, err);
    }
    return rc < 0 ? rc : 0;
}

static int group_fork(struct worker_group *g, const struct group_start *s,
                      const struct worker_group_cfg *cfg, struct dd_err *err)
{
    struct spawn_mask mask;
    DD_AUTO(free) struct group_fork *forks = calloc((size_t)g->n, sizeof(*forks));
    if (forks == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    spawn_begin(&mask);
    group_try_warm(g, s, cfg);
    const int rc = group_fork_each(g, s, forks, err);
    for (int i = 0; i < g->n; i++)
        if (g->w[i].state != WORKER_RUNNING)
            worker_began(g, &s->specs[i], i, forks[i].pid, forks[i].at_ns);
    spawn_end(&mask);
    return rc;
}

/* Explain a report that comes after worker_group_start() has returned: the specs, which name the
 * program and the directory, do not exist any more. */
static int late_explain(const struct spawn_report *r, struct dd_err *err)
{
    errno = r->error;
    return dd_err_set(err, -r->error, "cannot %s: %m",
                      r->stage == SPAWN_STDIO       ? "set up stdin, stdout and stderr"
                      : r->stage == SPAWN_DIRECTORY ? "change to the directory of --chdir"
                                                    : "run its program");
}

/* Handle one report. Return 0 if it is only a warning. specs is NULL if the report comes late. */
static int report_take(struct worker_group *g, const struct spawn_report *r,
                       const struct worker_spec *specs, struct dd_err *err)
{
    if (r->index < 0 || r->index >= g->n)
        return 0;
    if (r->stage != SPAWN_AFFINITY)
        return specs == NULL
                   ? late_explain(r, err)
                   : spawn_explain(r, specs[r->index].argv.v[0], specs[r->index].directory, err);
    errno = r->error;
    dd_log(g->log, DD_LOG_WARN, "cannot bind rank %d to its CPUs: %m", g->w[r->index].rank);
    return 0;
}

/* Wait until every child has executed its program (EOF) or reported why not. > 0: some need more
 * time. */
static int reports_wait(struct worker_group *g, const struct worker_spec *specs, int fd,
                        struct dd_err *err)
{
    uint64_t end = dd_now_ns() + EXEC_WAIT_MS * DD_NS_PER_MS;
    for (;;) {
        uint64_t now = dd_now_ns();
        if (now >= end)
            return 1;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((end - now) / DD_NS_PER_MS) + 1) <= 0)
            continue;
        struct spawn_report r;
        ssize_t n = read(fd, &r, sizeof(r));
        if (n == 0)
            return 0;
        if (n != sizeof(r))
            continue;
        int rc = report_take(g, &r, specs, err);
        if (rc < 0)
            return rc;
    }
}

static void on_late_report(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct worker_group *g = arg;
    struct spawn_report r;
    struct dd_err err = {0};
    ssize_t n = read(fd, &r, sizeof(r));
    if (n == sizeof(r) && report_take(g, &r, NULL, &err) < 0)
        dd_log(g->log, DD_LOG_ERR, "rank %d: %s", g->w[r.index].rank, err.text);
    if (n == 0)
        event_del(g->on_report);
}

static int reports_go_on(struct worker_group *g, int fd)
{
    g->report_fd = fd;
    g->on_report = event_new(g->base, fd, EV_READ | EV_PERSIST, on_late_report, g);
    return g->on_report == NULL || event_add(g->on_report, NULL) < 0 ? -ENOMEM : 0;
}

static int group_run(struct worker_group *g, const struct worker_spec *specs, char *const *paths,
                     const struct worker_group_cfg *cfg, struct dd_err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "cannot create a pipe: %m");
    DD_AUTO(fd) int from = fds[0];
    DD_AUTO(fd) int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct group_start start = {
        .specs = specs, .paths = paths, .null_fd = null, .report_fd = fds[1]};
    spawn_parent_read(&start.parent);
    int rc = group_fork(g, &start, cfg, err);
    close(fds[1]);
    if (rc == 0)
        rc = reports_wait(g, specs, from, err);
    if (rc > 0)
        rc = reports_go_on(g, DD_TAKE_FD(from));
    return rc;
}

static void free_paths(char **paths, int n)
{
    for (int i = 0; paths != NULL && i < n; i++)
        free(paths[i]);
    free(paths);
}

int worker_group_start(struct worker_group **ret, struct event_base *base,
                       const struct worker_spec *specs, int n, const struct worker_group_cfg *cfg,
                       struct dd_err *err)
{
    DD_AUTO(group) struct worker_group *g = NULL;
    int rc = group_new(&g, base, n, err);
    if (rc < 0)
        return rc;
    char **paths = calloc((size_t)n, sizeof(*paths));
    rc = paths == NULL ? dd_err_set(err, -ENOMEM, "out of memory")
                       : paths_find(paths, specs, n, err);
    g->log = cfg->log;
    g->out = cfg->out;
    if (rc == 0)
        rc = group_run(g, specs, paths, cfg, err);
    free_paths(paths, n);
    if (rc < 0)
        return rc;
    if (g->out != NULL)
        worker_output_started(g->out);
    g->on_exit = cfg->on_exit;
    g->on_empty = cfg->on_empty;
    g->arg = cfg->arg;
    *ret = DD_TAKE(g);
    return 0;
}

int worker_group_protect(struct worker_group *g, pid_t pid)
{
    return pid_list_add(&g->protected, pid);
}

int worker_group_signal(struct worker_group *g, int sig)
{
    DD_AUTO(pid_list) struct pid_list leaders = {0};
    for (int i = 0; i < g->n; i++)
        if (g->w[i].state == WORKER_RUNNING)
            (void)pid_list_add(&leaders, g->w[i].pid);
    if (dd_signal_announces(sig))
        return children_notify(&leaders, sig);
    int reached = 0;
    for (size_t i = 0; i < leaders.n; i++)
        reached += kill(-leaders.v[i], sig) == 0;
    return reached;
}

void worker_group_has_signal(struct worker_group *g, int sig)
{
    g->stop_sig = sig;
}

void worker_group_stop(struct worker_group *g, int sig, unsigned grace_ms)
{
    uint64_t now = dd_now_ns();
    uint64_t at = now + grace_ms * DD_NS_PER_MS;
    g->stop_kill_at = earlier(g->stop_kill_at, at);
    for (int i = 0; i < g->n; i++) {
        struct worker *w = &g->w[i];
        if (w->state == WORKER_GONE)
            continue;
        w->kill_at = earlier(w->kill_at, g->stop_kill_at);
        if (w->kill_at <= now)
            reap_signal(w, SIGKILL);
        else if (sig != g->stop_sig)
            reap_signal(w, sig);
    }
    g->stop_sig = sig;
    reap_schedule(g);
}

pid_t worker_group_pid(const struct worker_group *g, int local_rank)
{
    bool runs = local_rank >= 0 && local_rank < g->n && g->w[local_rank].state == WORKER_RUNNING;
    return runs ? g->w[local_rank].pid : 0;
}

uint64_t worker_group_started_ns(const struct worker_group *g, int local_rank)
{
    return g->w[local_rank].started_ns;
}

void worker_group_end(struct worker_group *g, int local_rank, int sig, unsigned wait_ms)
{
    if (worker_group_pid(g, local_rank) == 0)
        return;
    struct worker *w = &g->w[local_rank];
    (void)kill(w->pid, sig);
    (void)kill(w->pid, SIGCONT);
    w->kill_at = earlier(w->kill_at, dd_now_ns() + wait_ms * DD_NS_PER_MS);
    reap_schedule(g);
}

void worker_group_free(struct worker_group *g)
{
    if (g == NULL)
        return;
    reap_all_now(g);
    if (g->out != NULL)
        worker_output_abort(g->out);
    if (g->on_child != NULL)
        event_free(g->on_child);
    if (g->on_tick != NULL)
        event_free(g->on_tick);
    if (g->on_report != NULL)
        event_free(g->on_report);
    if (g->report_fd >= 0)
        close(g->report_fd);
    pid_list_done(&g->protected);
    pid_list_done(&g->strangers);
    free(g);
}
