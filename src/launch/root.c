#include "launch/root.h"

#include "base/io.h"
#include "base/sig.h"
#include "launch/codes.h"
#include "launch/door.h"
#include "worker/lines.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STREAMS = 2, CHUNK = 65536, SLOW_S = 30, STARTER_KILL_MS = 2000, SAME_SIGNAL_MS = 250 };

/* What a starter writes is what its node writes: whole lines go on to where ours go. */
struct stream {
    struct event *event;
    int from, to;
    struct dd_buf bytes;
    struct lines lines;
};

struct child {
    int index; /* of the node */
    pid_t pid; /* 0: gone, or never there */
    bool fetched;
    int stdin_fd; /* as long as it is open, the node knows that we live; -1: none */
    struct stream streams[STREAMS];
};

struct root {
    const struct root_cfg *cfg;
    struct event_base *base;
    struct launch_door *door;
    struct dd_buf package;
    struct child *children; /* [nnodes] */
    int nnodes, here, left; /* here: index of this node, -1 */
    int missing;            /* nodes that have not been started */
    int code;               /* < 0: not known yet */
    bool over, killed;
    int sig;                /* that asked for the end */
    uint64_t sig_ns;
    struct rlimit files;    /* as we found it */
    sigset_t old_mask;
    int signal_fd;
    struct event *signals, *slow, *end;
};

/* ---- lines ----------------------------------------------------------------------------------- */

static void write_lines(struct stream *s, bool eof)
{
    struct line_piece piece;
    size_t at = 0;
    while (lines_next(&s->lines, s->bytes.data + at, s->bytes.len - at, eof, &piece))
        at += piece.len;
    if (at > 0)
        (void)dd_write_full(s->to, s->bytes.data, at);
    dd_buf_consume(&s->bytes, at);
}

static void stream_end(struct stream *s)
{
    if (s->event == NULL)
        return;
    write_lines(s, true);
    event_free(s->event);
    s->event = NULL;
    close(s->from);
    dd_buf_done(&s->bytes);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct stream *s = arg;
    (void)what;
    if (dd_buf_reserve(&s->bytes, CHUNK) < 0) /* a line without an end */
        write_lines(s, true);
    if (dd_buf_reserve(&s->bytes, CHUNK) < 0)
        return;
    ssize_t n = read(fd, s->bytes.data + s->bytes.len, CHUNK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        stream_end(s);
        return;
    }
    s->bytes.len += (size_t)n;
    write_lines(s, false);
}

static int stream_begin(struct stream *s, struct root *r, int from, int to)
{
    *s = (struct stream){.from = from, .to = to, .bytes = DD_BUF_INIT(LINES_MAX + CHUNK)};
    (void)dd_fd_nonblock(from);
    s->event = event_new(r->base, from, EV_READ | EV_PERSIST, on_readable, s);
    return s->event == NULL || event_add(s->event, NULL) < 0 ? -ENOMEM : 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static const char *name_of(const struct root *r, int index)
{
    return hostlist_nth(r->cfg->package->alloc->nodes, (size_t)index);
}

/* The node's ddrun takes it for SIGTERM. */
static void close_stdin(struct child *c)
{
    if (c->stdin_fd >= 0)
        close(c->stdin_fd);
    c->stdin_fd = -1;
}

static bool is_agent_here(const struct root *r)
{
    return r->here >= 0 && r->children[r->here].pid > 0;
}

/* A starter hands its node our end of stdin, or a signal; this node's agent tells all the others. */
static void tell(const struct root *r, struct child *c, int sig)
{
    if (c->pid <= 0)
        return;
    if (c->index == r->here)
        kill(c->pid, sig);
    else if (!is_agent_here(r) && dd_signal_ends_jobs(sig))
        close_stdin(c);
}

static void tell_all(struct root *r, int sig)
{
    for (int i = 0; i < r->nnodes; i++)
        tell(r, &r->children[i], sig);
}

/* What does not end by itself once the job has ended is ended. */
static void on_end(evutil_socket_t fd, short what, void *arg)
{
    struct root *r = arg;
    struct timeval more = dd_timeval(STARTER_KILL_MS * DD_NS_PER_MS);
    (void)fd;
    (void)what;
    r->over = true;
    for (int i = 0; i < r->nnodes; i++)
        if (r->children[i].pid > 0)
            kill(r->children[i].pid, r->killed ? SIGKILL : SIGTERM);
    r->killed = true;
    evtimer_add(r->end, &more);
}

static void job_over(struct root *r, unsigned wait_ms)
{
    struct timeval t = dd_timeval(wait_ms * DD_NS_PER_MS);
    if (r->over)
        return;
    r->over = true;
    evtimer_add(r->end, &t);
    for (int i = 0; i < r->nnodes; i++) { /* whoever is not there yet need not come */
        struct child *c = &r->children[i];
        if (c->pid > 0 && i != r->here && !c->fetched)
            kill(c->pid, SIGTERM);
        close_stdin(c);
    }
}

/* A node that never came: nobody else has to wait for it. */
static void not_started(struct root *r, const struct child *c, int code)
{
    const struct root_cfg *cfg = r->cfg;
    if (r->over || r->sig != 0)
        return;
    const bool enough = ++r->missing <= r->nnodes - cfg->min_nodes;
    dd_log(cfg->log, DD_LOG_ERR, "%s: %s did not start ddrun there: it ended with %d%s", name_of(r, c->index),
           cfg->starter->name, code, enough ? "; the others may go on without" : "");
    if (enough)
        return;
    r->code = 1;
    tell_all(r, SIGTERM);
    job_over(r, cfg->grace_ms);
}

/* None is left of those that came: who has not come until now is not waited for much longer. */
static void check_left(struct root *r)
{
    struct timeval grace = dd_timeval(r->cfg->grace_ms * DD_NS_PER_MS);
    bool came = false;
    for (int i = 0; i < r->nnodes; i++) {
        const struct child *c = &r->children[i];
        if (i != r->here && !c->fetched)
            continue;
        if (c->pid > 0)
            return;
        came = true;
    }
    if (came && !r->over)
        evtimer_add(r->end, &grace);
}

static void child_ended(struct root *r, struct child *c, int status)
{
    const int code = launch_exit_code(status);
    /* The agent of this node knows how the job has ended, unless that goes on without it. */
    const bool knows = c->index == r->here && (!r->cfg->go_on || code == 0);
    c->pid = 0;
    r->left--;
    if (c->index != r->here && !c->fetched)
        not_started(r, c, code);
    else if (!r->over)
        r->code = knows ? code : launch_code_of_job(r->code, code, r->cfg->go_on);
    if (knows)
        job_over(r, r->cfg->grace_ms);
    close_stdin(c);
    for (int i = 0; i < STREAMS; i++)
        if (c->streams[i].event != NULL)
            on_readable(c->streams[i].from, EV_READ, &c->streams[i]);
    check_left(r);
}

static void reap(struct root *r)
{
    for (int i = 0; i < r->nnodes; i++) {
        int status;
        struct child *c = &r->children[i];
        if (c->pid > 0 && waitpid(c->pid, &status, WNOHANG) == c->pid)
            child_ended(r, c, status);
    }
    if (r->left == 0)
        event_base_loopbreak(r->base);
}

/* No agent here that would see to it: a second signal ends the starters, and so does time. */
static void end_asked(struct root *r, int sig)
{
    struct timeval grace = dd_timeval(r->cfg->grace_ms * DD_NS_PER_MS);
    const uint64_t now = dd_now_ns();
    if (r->sig == 0) {
        r->sig = sig;
        r->sig_ns = now;
        evtimer_add(r->end, &grace);
    } else if (now - r->sig_ns > SAME_SIGNAL_MS * DD_NS_PER_MS) {
        on_end(-1, 0, r);
    }
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    struct root *r = arg;
    struct signalfd_siginfo si;
    (void)what;
    if (read(fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return;
    const int sig = (int)si.ssi_signo;
    const bool agent = is_agent_here(r);
    if (sig == SIGCHLD)
        reap(r);
    else if (si.ssi_code != SI_KERNEL || !agent) /* this node's agent has a terminal's already */
        tell_all(r, sig);
    if (!agent && dd_signal_ends_jobs(sig))
        end_asked(r, sig);
}

static void on_fetched(void *arg, int index)
{
    struct root *r = arg;
    r->children[index].fetched = true;
    if (!r->over && r->sig == 0) /* somebody is there again */
        evtimer_del(r->end);
}

/* Those that neither came nor failed. */
static void on_slow(evutil_socket_t fd, short what, void *arg)
{
    struct root *r = arg;
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(600);
    (void)fd;
    (void)what;
    for (int i = 0; i < r->nnodes; i++)
        if (r->children[i].pid > 0 && i != r->here && !r->children[i].fetched)
            (void)dd_buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", name_of(r, i));
    if (names.len > 0)
        dd_log(r->cfg->log, DD_LOG_NOTICE, "%s has not started ddrun on %s for %d s", r->cfg->starter->name,
               dd_buf_str(&names), SLOW_S);
}

/* ---- the start ------------------------------------------------------------------------------- */

static void in_child(const struct root *r)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
    (void)setrlimit(RLIMIT_NOFILE, &r->files);
}

/* An open end of a starter's stdin would keep its node alive. Not event_free(): the loop is shared. */
static void close_ours(const struct root *r)
{
    for (int i = 0; i < r->nnodes; i++) {
        const struct child *c = &r->children[i];
        if (c->stdin_fd >= 0)
            close(c->stdin_fd);
        for (int k = 0; k < STREAMS; k++)
            if (c->streams[k].event != NULL)
                close(c->streams[k].from);
    }
    close(r->signal_fd);
    launch_door_leave(r->door);
}

static int start_here(struct root *r, struct child *c)
{
    const pid_t self = getpid();
    c->pid = fork();
    if (c->pid != 0)
        return c->pid < 0 ? -errno : 0;
    in_child(r);
    close_ours(r);
    _exit(getppid() != self ? 1 : r->cfg->node(r->cfg->arg, c->index));
}

static _Noreturn void become_starter(const struct root *r, char *const *argv, const int fds[3], pid_t parent)
{
    in_child(r);
    (void)setpgid(0, 0); /* Ctrl-C is for the agents; the starters bring the last lines */
    if (r->cfg->starter->must_outlive) {
        (void)signal(SIGTERM, SIG_IGN);
        (void)signal(SIGUSR1, SIG_IGN);
    }
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0 && dup2(fds[i], i) < 0)
            _exit(126);
    if (getppid() == parent)
        (void)execvp(argv[0], argv);
    _exit(127);
}

static int make_pipes(int pipes[3][2], bool takes_stdin)
{
    int rc = takes_stdin ? pipe2(pipes[0], O_CLOEXEC) : 0;
    if (!takes_stdin)
        pipes[0][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 1; i < 3 && rc == 0; i++)
        rc = pipe2(pipes[i], O_CLOEXEC);
    return rc < 0 || pipes[0][0] < 0 ? -errno : 0;
}

static void close_pipes(int pipes[3][2])
{
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++)
            if (pipes[i][k] >= 0)
                close(pipes[i][k]);
}

static int start_argv(struct root *r, struct child *c, char *const *argv)
{
    const struct root_cfg *cfg = r->cfg;
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    const pid_t self = getpid();
    int rc = make_pipes(pipes, cfg->starter->takes_stdin);
    c->pid = rc < 0 ? -1 : fork();
    if (c->pid == 0)
        become_starter(r, argv, (const int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, self);
    if (c->pid < 0) {
        rc = rc < 0 ? rc : -errno;
        close_pipes(pipes);
        return rc;
    }
    for (int i = 0; i < STREAMS && rc == 0; i++) {
        rc = stream_begin(&c->streams[i], r, pipes[i + 1][0], i + 1);
        pipes[i + 1][0] = -1;
    }
    c->stdin_fd = pipes[0][1];
    pipes[0][1] = -1;
    close_pipes(pipes);
    const char *key = cfg->key_for_stdin;
    if (c->stdin_fd >= 0 && key != NULL) /* one that is gone already is told of when it is reaped */
        (void)dd_write_full(c->stdin_fd, key, strlen(key));
    return rc;
}

static int start_there(struct root *r, struct child *c)
{
    const struct root_cfg *cfg = r->cfg;
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(free) char *ticket =
        launch_door_argument(r->door, c->index, cfg->starter->takes_stdin, cfg->addresses);
    char *command[] = {(char *)(uintptr_t)cfg->ddrun, ticket, NULL};
    const struct start s = {.program = cfg->program,
                            .words = cfg->words,
                            .host = name_of(r, c->index),
                            .nnodes = r->nnodes,
                            .command = command};
    if (ticket == NULL || starter_command(&argv, cfg->starter, &s) < 0)
        return -ENOMEM;
    return start_argv(r, c, argv.v);
}

static int start_all(struct root *r, struct dd_err *err)
{
    for (int i = 0; i < r->nnodes; i++) {
        struct child *c = &r->children[i];
        int rc = i == r->here ? start_here(r, c) : start_there(r, c);
        if (c->pid > 0)
            r->left++;
        if (rc < 0)
            return dd_err_set(err, rc, "cannot start ddrun on %s: %s", name_of(r, i), strerror(-rc));
    }
    return 0;
}

static int watch_signals(struct root *r)
{
    sigset_t set;
    dd_signals_of_jobs(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, &r->old_mask);
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    r->signals = r->signal_fd < 0 ? NULL : event_new(r->base, r->signal_fd, EV_READ | EV_PERSIST, on_signal, r);
    return r->signals == NULL || event_add(r->signals, NULL) < 0 ? -ENOMEM : 0;
}

/* Each starter has three pipes. */
static void want_files(struct root *r)
{
    (void)getrlimit(RLIMIT_NOFILE, &r->files);
    struct rlimit all = {r->files.rlim_max, r->files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &all);
}

static int begin(struct root *r, struct dd_err *err)
{
    const struct launch_door_cfg door = {.id = r->cfg->id,
                                         .package = &r->package,
                                         .key = r->cfg->key,
                                         .key_in = r->cfg->key_in,
                                         .nnodes = r->nnodes,
                                         .on_fetched = on_fetched,
                                         .arg = r};
    struct timeval slow = {.tv_sec = SLOW_S};
    r->base = event_base_new();
    r->children = calloc((size_t)r->nnodes, sizeof(*r->children));
    if (r->base == NULL || r->children == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < r->nnodes; i++)
        r->children[i] = (struct child){.index = i, .stdin_fd = -1};
    int rc = package_encode(&r->package, r->cfg->package);
    if (rc < 0)
        return dd_err_set(err, rc, "the environment is too large to be carried to the other nodes: more than %d MiB or "
                          "%d variables", PACKAGE_MAX >> 20, PACKAGE_STRINGS_MAX);
    r->slow = evtimer_new(r->base, on_slow, r);
    r->end = evtimer_new(r->base, on_end, r);
    if (r->slow == NULL || r->end == NULL || watch_signals(r) < 0 || evtimer_add(r->slow, &slow) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    rc = launch_door_new(&r->door, r->base, &door, err);
    return rc < 0 ? rc : start_all(r, err);
}

static void root_done(struct root *r)
{
    for (int i = 0; i < r->nnodes && r->children != NULL; i++)
        for (int k = 0; k < STREAMS; k++)
            stream_end(&r->children[i].streams[k]);
    launch_door_free(r->door);
    struct event *events[] = {r->slow, r->end, r->signals};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    if (r->signal_fd >= 0)
        close(r->signal_fd);
    if (r->base != NULL)
        event_base_free(r->base);
    dd_buf_done(&r->package);
    free(r->children);
}

int root_run(const struct root_cfg *cfg)
{
    struct root r = {.cfg = cfg,
                     .nnodes = (int)hostlist_count(cfg->package->alloc->nodes),
                     .here = cfg->package->alloc->index,
                     .code = -1,
                     .signal_fd = -1,
                     .package = DD_BUF_INIT(PACKAGE_MAX)};
    struct dd_err err = {0};
    want_files(&r);
    if (begin(&r, &err) < 0) {
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
        r.code = 1;
        tell_all(&r, SIGTERM);
        r.over = true;
        if (r.left > 0)
            on_end(-1, 0, &r);
    }
    if (r.left > 0)
        event_base_dispatch(r.base);
    root_done(&r);
    if (r.sig != 0 && (r.code < 0 || r.code == 128 + SIGTERM)) /* the end of their stdin is a SIGTERM there */
        return 128 + r.sig;
    return r.code < 0 ? 1 : r.code;
}
