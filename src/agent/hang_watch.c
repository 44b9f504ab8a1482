#include "agent/hang_watch.h"

#include "agent/agent.h"
#include "agent/cuda_core.h"
#include "agent/mpi_servers.h"
#include "agent/pty_rank.h"

#include "base/io.h"
#include "rdzv/msg.h"
#include "report/causes.h"
#include "report/rank_set.h"
#include "report/stacks.h"
#include "worker/activity.h"
#include "worker/children.h"
#include "worker/command.h"
#include "worker/hang.h"
#include "worker/output.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    COMMAND_MS = 60000,
    ABORT_MS = 10000, /* for faulthandler to write its tracebacks */
    COMMAND_LINES = 100,
    MISSING_TEXT = 80,
    USED_TEXT = 160,
    RANKS_TEXT = 1 << 16,
    SOON_MS = 500, /* time between ticks while stacks are being read, or dumps written */
};

struct hung {
    const struct round *round;
    int beat_fd;   /* the heartbeat file, anonymous; -1: none */
    bool reported; /* the worker was reported as hung */
    bool waits;    /* the worker is to be ended once stacks and core dumps have been taken */
    bool ended;    /* ddrun has ended the worker */
    bool stopped;  /* a signal had stopped the worker at the last check */
    int local_rank;
    struct command *command;
};

struct hangs {
    const struct round *round;
    struct hang *watch; /* NULL: no watch is active */
    struct event *tick;
    int signs;         /* signs of life that counted at the last tick: bits of HANG_SIGN_* */
    bool mpi;          /* processor time did not count at the last tick: MPI ranks busy-wait */
    uint64_t asked_ns; /* time of STACKS_WANTED; 0: not sent */
    bool taken;        /* the daemon has answered */
    bool sent_idle;    /* the last IDLE reported that all workers are idle */
    bool blind;        /* the user was warned that bytes of TCP connections cannot be read */
    int n;
    struct hung v[];
};

/* Find out which signs count: a program may initialize MPI at any time. */
static void update_signs(struct hangs *s)
{
    const struct hang_watch_cfg *c = &s->round->cfg->hang;
    const bool mpi = mpi_servers_have_ranks(s->round);
    s->signs = hang_signs(c->signs, c->has_gpus || mpi);
    s->mpi = mpi && (s->signs & HANG_SIGN_CPU) == 0;
}

static uint64_t sign_of_life(const struct hangs *s, const struct hung *u)
{
    const struct round *r = s->round;
    uint64_t sign = 0;
    struct stat st;
    if ((s->signs & HANG_SIGN_OUTPUT) != 0 && r->output != NULL)
        sign = worker_output_written(r->output, u->local_rank) * UINT64_C(0x9e3779b97f4a7c15);
    if ((s->signs & HANG_SIGN_OUTPUT) != 0)
        sign += pty_rank_written(r, u->local_rank) * UINT64_C(0x9e3779b97f4a7c15);
    if ((s->signs & HANG_SIGN_FILE) != 0 && u->beat_fd >= 0 && fstat(u->beat_fd, &st) == 0)
        sign += (uint64_t)st.st_mtim.tv_sec * DD_NS_PER_S + (uint64_t)st.st_mtim.tv_nsec +
                (uint64_t)st.st_size;
    return sign;
}

/* ---- the end of a hung worker ---- */

static void end_worker(struct hung *u, int sig, unsigned wait_ms)
{
    command_free(u->command);
    u->command = NULL;
    u->ended = true;
    if (u->round->group != NULL)
        worker_group_end(u->round->group, u->local_rank, sig, wait_ms);
}

static void hang_watch_on_command(void *arg, int code, const char *out)
{
    struct hung *u = arg;
    char line[1024];
    int lines = 0;
    for (const char *p = out; *p != '\0' && lines < COMMAND_LINES; lines++) {
        size_t n = strcspn(p, "\n");
        dd_log(u->round->cfg->log, DD_LOG_NOTICE, "rank %d: %s",
               u->round->plan.first_rank + u->local_rank, dd_log_escape(line, sizeof(line), p, n));
        p += n + (p[n] == '\n');
    }
    if (code != 0)
        dd_log(u->round->cfg->log, DD_LOG_WARN,
               code == COMMAND_TOO_LATE
                   ? "--on-hang: command for rank %d timed out after %d s and was killed"
                   : "--on-hang: command for rank %d exited with code %d",
               u->round->plan.first_rank + u->local_rank,
               code == COMMAND_TOO_LATE ? COMMAND_MS / 1000 : code);
    end_worker(u, SIGKILL, 0);
}

static int run_command(struct hung *u, const char *text, pid_t pid, struct dd_err *err)
{
    const struct round *r = u->round;
    const char *argv[] = {"/bin/sh", "-c", text, NULL};
    DD_AUTO(strv) struct dd_strv env = {0};
    int rc = dd_strv_copy(&env, r->cfg->env);
    if (rc == 0)
        rc = dd_env_setf(&env, "DDRUN_HUNG_PID", "%d", (int)pid);
    if (rc == 0)
        rc = dd_env_setf(&env, "DDRUN_HUNG_RANK", "%d", r->plan.first_rank + u->local_rank);
    if (rc < 0)
        return dd_err_set(err, rc, "out of memory");
    const struct command_spec spec = {.argv = argv, .env = env.v, .limit_ms = COMMAND_MS};
    rc = command_start(&u->command, r->base, &spec, hang_watch_on_command, u, err);
    if (rc == 0)
        round_protect(r, command_pid(u->command));
    return rc;
}

static void begin_end(struct hung *u, pid_t pid)
{
    const char *command = u->round->cfg->hang.command;
    struct dd_err err = {0};
    const int rc = command != NULL ? run_command(u, command, pid, &err) : -ENOENT;
    if (rc < 0 && command != NULL)
        dd_log(u->round->cfg->log, DD_LOG_WARN, "--on-hang: %s", err.text);
    if (rc < 0)
        end_worker(u, SIGABRT, ABORT_MS);
}

static bool hang_watch_is_joint(const struct hangs *s)
{
    return (s->signs & HANG_SIGNS_USED) != 0;
}

/* Write what a worker used while it was silent, which is less than what counts as activity:
 * "PREFIX0.1 % of a CPU, 12 bytes read or written", or "" if only output and heartbeats count. */
static const char *describe_used(const struct hangs *s, const struct hang_counters *c,
                                 uint64_t silent_ns, const char *prefix, char *out, size_t size)
{
    const int signs = s->signs;
    const char *sep = prefix;
    size_t n = 0;
    out[0] = '\0';
    if ((signs & HANG_SIGN_CPU) != 0) {
        n += (size_t)snprintf(out, size, "%s%.1f %% of a CPU", sep,
                              silent_ns > 0 ? 100.0 * (double)c->cpu_ns / (double)silent_ns : 0);
        sep = ", ";
    }
    if ((signs & HANG_SIGN_IO) != 0 && n < size) {
        n += (size_t)snprintf(out + n, size - n, "%s%" PRIu64 " byte%s read or written", sep,
                              c->io_bytes, c->io_bytes == 1 ? "" : "s");
        sep = ", ";
    }
    if ((signs & HANG_SIGN_NETWORK) != 0 && n < size)
        (void)snprintf(out + n, size - n, "%s%" PRIu64 " byte%s on TCP connections", sep,
                       c->net_bytes, c->net_bytes == 1 ? "" : "s");
    return out;
}

/* Return why a rank may be hung although it uses a processor; the report recognizes the words. */
static const char *hang_watch_note(const struct hangs *s)
{
    return s->mpi ? "; " FAILURE_CAUSE_IN_MPI : "";
}

/* Name only the innermost function of the kernel: the stacks contain its callers. */
static const char *hang_watch_state(pid_t pid, char *where, size_t size)
{
    (void)children_state(pid, where, size);
    char *callers = strstr(where, " < ");
    if (callers != NULL)
        *callers = '\0';
    return where;
}

static void report_hang(const struct hangs *s, const struct hung *u, pid_t pid, uint64_t now)
{
    const struct round *r = u->round;
    const struct hang_counters c = hang_used(s->watch, u->local_rank);
    const uint64_t silent_ns = hang_silent(s->watch, u->local_rank, now);
    char where[300], missing[MISSING_TEXT], used[USED_TEXT];
    dd_log(r->cfg->log, DD_LOG_ERR,
           "rank %d on %s %s: %s for %.0f s%s (local rank %d, pid %d, state %s%s)",
           r->plan.first_rank + u->local_rank, r->cfg->node_name,
           children_is_stopped(pid) ? "is stopped by a signal" : "seems hung",
           hang_missing(s->signs, missing, sizeof(missing)), (double)silent_ns / 1e9,
           hang_watch_note(s), u->local_rank, (int)pid, hang_watch_state(pid, where, sizeof(where)),
           describe_used(s, &c, silent_ns, ", used ", used, sizeof(used)));
}

static void hang_watch_most(struct hang_counters *most, const struct hang_counters *c)
{
    most->cpu_ns = c->cpu_ns > most->cpu_ns ? c->cpu_ns : most->cpu_ns;
    most->io_bytes = c->io_bytes > most->io_bytes ? c->io_bytes : most->io_bytes;
    most->net_bytes = c->net_bytes > most->net_bytes ? c->net_bytes : most->net_bytes;
}

/* Report several ranks by one line, since a hung job may have thousands. */
static void report_hung_ranks(const struct hangs *s, const struct rank_set *local, uint64_t now)
{
    const struct round *r = s->round;
    const int first = r->plan.first_rank;
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(RANKS_TEXT);
    struct hang_counters most = {0};
    uint64_t silent_ns = UINT64_MAX;
    char missing[MISSING_TEXT], used[USED_TEXT];
    for (size_t i = 0; i < rank_set_count(local); i++) {
        const int l = rank_set_nth(local, i);
        const struct hang_counters c = hang_used(s->watch, l);
        const uint64_t silent = hang_silent(s->watch, l, now);
        hang_watch_most(&most, &c);
        silent_ns = silent < silent_ns ? silent : silent_ns;
        (void)rank_set_add(&ranks, first + l, first + l);
    }
    (void)rank_set_name(&ranks, &text);
    (void)describe_used(s, &most, silent_ns, " (each used at most ", used, sizeof(used));
    dd_log(r->cfg->log, DD_LOG_ERR, "%s on %s seem hung: %s for %.0f s%s%s%s", dd_buf_str(&text),
           r->cfg->node_name, hang_missing(s->signs, missing, sizeof(missing)),
           (double)silent_ns / 1e9, hang_watch_note(s), used, used[0] != '\0' ? ")" : "");
}

static void report_waiting(const struct hangs *s, const struct rank_set *local, uint64_t now)
{
    const size_t n = rank_set_count(local);
    const struct hung *u = n == 1 ? &s->v[rank_set_nth(local, 0)] : NULL;
    if (u != NULL)
        report_hang(s, u, worker_group_pid(s->round->group, u->local_rank), now);
    else if (n > 1)
        report_hung_ranks(s, local, now);
}

/* ---- watching ---- */

static void check_worker(struct hangs *s, struct hung *u, uint64_t now)
{
    const struct round *r = s->round;
    pid_t pid = r->group != NULL ? worker_group_pid(r->group, u->local_rank) : 0;
    if (pid == 0 || u->reported)
        return;
    if (!hang_look(s->watch, u->local_rank, sign_of_life(s, u), now))
        return;
    if (children_is_stopped(pid)) { /* stopped by SIGSTOP or a debugger, on purpose */
        hang_alive(s->watch, u->local_rank, now);
        return;
    }
    u->reported = true;
    report_hang(s, u, pid, now);
    u->waits = true;
    cuda_core_start(r);
}

/* ---- idle nodes ---- */

/* Read the connections of all workers. False: the kernel does not report them, or not all. A
 * container may forbid sock_diag, old kernels lack it, and any user may open too many. */
static bool read_sockets(struct hangs *s, struct socket_bytes *ret)
{
    const int rc = socket_bytes_read(ret);
    if (rc < 0 && !s->blind)
        dd_log(s->round->cfg->log, DD_LOG_WARN,
               "cannot read the bytes of TCP connections (%s), so --hang-timeout ends no worker "
               "until they can be read\n"
               "  tip: to ignore the network, use --hang-sign=output,file,io,cpu (without cpu on "
               "nodes with GPUs or under MPI)",
               rc == -EOVERFLOW ? "there are too many" : strerror(-rc));
    s->blind = s->blind || rc < 0;
    return rc == 0;
}

/* Read what the workers without a sign of life have used. A worker that a tracer, such as a
 * debugger, has stopped counts as alive. */
static void count_workers(struct hangs *s, uint64_t now)
{
    DD_AUTO(socket_bytes) struct socket_bytes sockets = {0};
    const struct round *r = s->round;
    bool asked = (s->signs & HANG_SIGN_NETWORK) == 0;
    bool known = true;
    for (int i = 0; i < s->n && r->group != NULL; i++) {
        struct hang_counters c;
        const pid_t pid = worker_group_pid(r->group, i);
        const bool stopped = pid != 0 && children_is_stopped(pid);
        const bool continued = pid != 0 && s->v[i].stopped && !stopped;
        s->v[i].stopped = stopped;
        (void)hang_look(s->watch, i, sign_of_life(s, &s->v[i]), now);
        if (continued || (pid != 0 && children_state_letter(pid) == 't'))
            hang_alive(s->watch, i, now);
        if (pid == 0 || !hang_wants_counters(s->watch, i, now))
            continue;
        if (!asked)
            known = read_sockets(s, &sockets);
        asked = true;
        if (!known)
            hang_alive(s->watch, i, now);
        else if (activity_read(pid, &sockets, &c) == 0)
            hang_count(s->watch, i, s->signs, &c, now);
    }
}

/* Send whether all workers of this node are idle: again at each check, for a daemon that has taken
 * over meanwhile. */
static void check_node(struct hangs *s, uint64_t now)
{
    const struct round *r = s->round;
    bool idle = true, stopped = true;
    count_workers(s, now);
    for (int i = 0; i < s->n && r->group != NULL; i++) {
        const pid_t pid = worker_group_pid(r->group, i);
        if (pid == 0)
            continue;
        idle = idle && hang_look(s->watch, i, sign_of_life(s, &s->v[i]), now);
        stopped = stopped && children_is_stopped(pid);
    }
    if (idle || s->sent_idle)
        round_send(r, MSG(IDLE, .round = r->plan.round, .idle = idle, .stopped = stopped));
    s->sent_idle = idle;
}

/* The daemon has found the workers of all nodes idle. A worker of this node may have become active
 * since then. */
static void on_hung(struct hangs *s)
{
    const uint64_t now = dd_now_ns();
    const struct round *r = s->round;
    DD_AUTO(rank_set) struct rank_set waiting = {0};
    for (int i = 0; i < s->n && r->group != NULL; i++) {
        struct hung *u = &s->v[i];
        const pid_t pid = worker_group_pid(r->group, i);
        if (pid == 0 || u->reported || !hang_look(s->watch, i, sign_of_life(s, u), now))
            continue;
        u->reported = u->waits = true;
        if (children_is_stopped(pid) || rank_set_add(&waiting, i, i) < 0)
            report_hang(s, u, pid, now);
        cuda_core_start(r);
    }
    report_waiting(s, &waiting, now);
}

/* True once the stacks of all workers have been read: ending a hung worker makes others fail, which
 * changes their stacks. Limit the wait, because the daemon may be lost. */
static bool may_end(struct hangs *s, uint64_t now)
{
    const struct round *r = s->round;
    if (r->cfg->stacks.mode == STACKS_OFF || s->taken)
        return true;
    if (s->asked_ns == 0) {
        s->asked_ns = now;
        round_send(r, MSG(STACKS_WANTED, .round = r->plan.round));
    }
    return now >= s->asked_ns + stacks_hang_ns(r->cfg->stacks.timeout_ns);
}

/* End the hung workers once their stacks and core dumps have been taken. */
static void end_hung(struct hangs *s, uint64_t now)
{
    for (int i = 0; i < s->n && s->round->group != NULL; i++) {
        struct hung *u = &s->v[i];
        const pid_t pid = worker_group_pid(s->round->group, u->local_rank);
        if (!u->waits || !may_end(s, now) || !cuda_core_is_ready(s->round))
            continue;
        u->waits = false;
        if (pid != 0)
            begin_end(u, pid);
    }
}

static void wait_for_tick(struct hangs *s)
{
    const uint64_t usual = hang_interval(s->watch);
    const bool waits = (s->asked_ns != 0 && !s->taken) || !cuda_core_is_ready(s->round);
    const bool soon = waits && usual > SOON_MS * DD_NS_PER_MS;
    const struct timeval tv = dd_timeval(soon ? SOON_MS * DD_NS_PER_MS : usual);
    evtimer_add(s->tick, &tv);
}

static void hang_watch_on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct hangs *s = arg;
    const uint64_t now = dd_now_ns();
    update_signs(s);
    if (hang_tick(s->watch, now,
                  activity_own_ns())) { /* first handle output that arrived meanwhile */
        const struct timeval next = {0};
        evtimer_add(s->tick, &next);
        return;
    }
    if (hang_watch_is_joint(s))
        check_node(s, now);
    for (int i = 0; i < s->n && s->round->group != NULL && !hang_watch_is_joint(s); i++)
        check_worker(s, &s->v[i], now);
    end_hung(s, now);
    wait_for_tick(s);
}

/* ---- hooks ---- */

static int hang_watch_prepare(void **state, const struct round *r, struct dd_err *err)
{
    int n = r->plan.local_size;
    if (r->cfg->hang.timeout_ns == 0)
        return 0;
    struct hangs *s = *state = calloc(1, sizeof(*s) + (size_t)n * sizeof(s->v[0]));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->round = r;
    s->n = n;
    for (int i = 0; i < n; i++)
        s->v[i] = (struct hung){.round = r, .local_rank = i, .beat_fd = -1};
    for (int i = 0; i < n; i++) {
        s->v[i].beat_fd = memfd_create("ddrun-heartbeat", MFD_CLOEXEC);
        if (s->v[i].beat_fd < 0)
            return dd_err_set(err, -errno, "cannot create a heartbeat file: %m");
    }
    return 0;
}

static int hang_watch_env(void *state, const struct round *r, int local_rank,
                          struct worker_spec *spec)
{
    const struct hangs *s = state;
    int fd = s->v[local_rank].beat_fd;
    (void)r;
    int rc = dd_env_setf(&spec->env, "DDRUN_HEARTBEAT_FILE", "/proc/%d/fd/%d", (int)getpid(), fd);
    /* a worker in another user or PID namespace cannot open that path, but inherits the descriptor
     */
    return rc < 0 ? rc
                  : dd_env_setf(&spec->env, "DDRUN_HEARTBEAT_FD", "%d", worker_spec_fd(spec, fd));
}

static int hang_watch_started(void *state, const struct round *r, struct dd_err *err)
{
    struct hangs *s = state;
    s->tick = evtimer_new(r->base, hang_watch_on_tick, s);
    update_signs(s);
    if (s->tick == NULL || hang_new(&s->watch, s->n, r->cfg->hang.timeout_ns, dd_now_ns()) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    wait_for_tick(s);
    return 0;
}

static void hang_watch_message(void *state, const struct round *r, const struct round_message *m)
{
    struct hangs *s = state;
    (void)r;
    if (s->tick == NULL)
        return;
    if (m->type == ROUND_HUNG)
        on_hung(s);
    else if (m->type == ROUND_STACKS_TAKEN && s->asked_ns != 0)
        s->taken = true;
    else
        return;
    end_hung(s, dd_now_ns());
}

/* A hung worker has failed, even if it catches SIGABRT and exits with 0. */
static void hang_watch_exit(void *state, const struct round *r, struct worker_end *end)
{
    const struct hangs *s = state;
    char missing[MISSING_TEXT];
    if (!s->v[end->exit.local_rank].reported)
        return;
    if (end->exit.code == 0)
        end->exit.code = 128 + SIGABRT;
    (void)snprintf(end->why, sizeof(end->why), "%shung: %s for %g s%s",
                   hang_watch_is_joint(s) ? "the job " : "",
                   hang_missing(s->signs, missing, sizeof(missing)),
                   (double)r->cfg->hang.timeout_ns / 1e9, hang_watch_note(s));
}

/* The round is being stopped: from now on, an exit counts as that of a hung worker only if ddrun
 * has ended the worker for it. */
static void hang_watch_stopping(void *state, const struct round *r)
{
    struct hangs *s = state;
    (void)r;
    if (s->tick != NULL)
        event_free(DD_TAKE(s->tick));
    for (int i = 0; i < s->n; i++) {
        command_free(DD_TAKE(s->v[i].command));
        s->v[i].reported = s->v[i].reported && s->v[i].ended;
        s->v[i].waits = false;
    }
}

static void hang_watch_end(void *state, const struct round *r)
{
    struct hangs *s = state;
    hang_watch_stopping(s, r);
    for (int i = 0; i < s->n; i++)
        if (s->v[i].beat_fd >= 0)
            close(s->v[i].beat_fd);
    hang_free(s->watch);
    free(s);
}

const struct round_feature hang_watch_feature = {
    .name = "hang-watch",
    .prepare = hang_watch_prepare,
    .worker_env = hang_watch_env,
    .started = hang_watch_started,
    .message = hang_watch_message,
    .worker_exit = hang_watch_exit,
    .stopping = hang_watch_stopping,
    .end = hang_watch_end,
};
