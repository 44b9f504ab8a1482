#include "launch/launcher_inner.h"

#include "base/core.h"
#include "base/io.h"
#include "base/sig.h"
#include "launch/codes.h"
#include "net/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STARTER_KILL_MS = 2000,
    SAME_SIGNAL_MS = 250,
    SILENCE_MS =
        2000,        /* for a reader who reads nothing, once all have ended as they were asked to */
    FAIL_MS = 300,   /* for more nodes that cannot be started, to be named as well */
    COMING_MS = 500, /* for those that are about to come, once they need not */
    ENDS_MAX = 3,    /* SIGTERM, SIGKILL, and nobody is waited for any more */
    TOO_LARGE = 2,   /* exit code: nothing has begun, and the user can mend it */
};

/* ---- output ---- */

/* Not at once: whoever asks is in the middle of something. */
void root_look(struct root *r)
{
    event_active(r->room, EV_WRITE, 0);
}

void root_on_room(void *arg)
{
    root_look(arg);
}

static void on_stream_end(void *arg, struct stream *s)
{
    const struct child *c = arg;
    (void)s;
    root_look(c->root);
}

static void on_took(void *arg, struct stream *s, size_t n)
{
    const struct child *c = arg;
    launch_door_say(c->root->door, c->index, WORD_ROOM, (int)(s - c->said), (uint32_t)n);
}

/* Beginning with another one each time. */
static void push_all(struct root *r)
{
    r->turn = (r->turn + 1) % r->nnodes;
    for (int i = 0; i < r->nnodes; i++) {
        struct child *c = &r->children[(r->turn + i) % r->nnodes];
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            stream_push(&c->streams[k]);
            stream_push(&c->said[k]);
        }
    }
}

static bool all_streams_done(const struct root *r, int but)
{
    for (int i = 0; i < r->nnodes; i++)
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            if (!stream_is_done(&r->children[i].said[k]) ||
                (i != but && !stream_is_done(&r->children[i].streams[k])))
                return false;
    return true;
}

static bool all_told(const struct root *r)
{
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (!outlet_empty(&r->out[k]))
            return false;
    return true;
}

/* ---- the end ---- */

/* The node's ddrun takes it for the end of those who have started it. */
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

void root_tell_here(const struct root *r, int sig, bool at_once)
{
    const union sigval v = {.sival_int = at_once ? DD_SIGNAL_AT_ONCE : 0};
    if (is_agent_here(r) && sigqueue(r->children[r->here].pid, sig, v) < 0)
        kill(r->children[r->here].pid, sig);
}

void root_kill(const struct root *r, const struct child *c, int sig)
{
    if (c->pid > 0)
        kill(c->index == r->here ? c->pid : -c->pid, sig);
}

/* Whoever is not there yet need not come. */
static void end_starting(struct root *r)
{
    for (int i = 0; i < r->nnodes; i++) {
        struct child *c = &r->children[i];
        if (c->pid > 0 && c->state == CHILD_STARTING)
            root_kill(r, c, SIGTERM);
        if (c->state == CHILD_STARTING && c->lead != i)
            root_drop(r, c);
    }
}

void root_stop(struct root *r, int sig, bool at_once)
{
    r->stopped = true;
    root_tell_here(r, sig, at_once);
    for (int i = 0; i < r->nnodes; i++) {
        struct child *c = &r->children[i];
        if (launch_door_is_open(r->door, i))
            launch_door_say(r->door, i, WORD_SIGNAL, i,
                            (uint32_t)sig | (at_once ? DD_SIGNAL_AT_ONCE : 0));
        else if (!at_once)
            close_stdin(c);
    }
    if (!at_once)
        end_starting(r);
}

static bool all_ended(const struct root *r)
{
    for (int i = 0; i < r->nnodes; i++)
        if (r->children[i].state == CHILD_CAME || r->children[i].state == CHILD_STARTING)
            return false;
    return true;
}

/* What does not end by itself once the job has ended is ended; but who only waits until somebody
 * reads our output may wait, unless we were asked to end. */
static void on_end(evutil_socket_t fd, short what, void *arg)
{
    struct root *r = arg;
    struct timeval more = dd_timeval(STARTER_KILL_MS * DD_NS_PER_MS);
    (void)fd;
    (void)what;
    r->over = true;
    evtimer_add(r->end, &more);
    if (!r->asked && all_ended(r) && !all_told(r))
        return;
    for (int i = 0; i < r->nnodes; i++)
        root_kill(r, &r->children[i], r->ends > 0 ? SIGKILL : SIGTERM);
    if (!r->stopped)
        root_stop(r, SIGTERM, false);
    if (++r->ends == ENDS_MAX)
        event_base_loopbreak(r->base);
}

void root_end_in_grace(struct root *r)
{
    const struct timeval grace = dd_timeval(r->cfg->grace_ms * DD_NS_PER_MS);
    evtimer_add(r->end, &grace);
}

void root_job_over(struct root *r)
{
    if (r->over)
        return;
    r->over = true;
    root_end_in_grace(r);
    end_starting(r);
    if (r->code != 0 && !r->stopped)
        root_stop(r, SIGTERM, false);
}

static uint64_t written(const struct root *r)
{
    return outlet_written(&r->out[0]) + outlet_written(&r->out[1]);
}

void root_fail(struct root *r)
{
    const struct timeval t = dd_timeval(FAIL_MS * DD_NS_PER_MS);
    r->code = 1;
    if (!evtimer_pending(r->fail, NULL))
        evtimer_add(r->fail, &t);
}

/* First those that have come are told; who comes meanwhile is told, too, and knows that nothing has
 * begun. */
static void on_fail(evutil_socket_t fd, short what, void *arg)
{
    struct root *r = arg;
    const struct timeval t = dd_timeval(COMING_MS * DD_NS_PER_MS);
    (void)fd;
    (void)what;
    if (r->over) {
        end_starting(r);
        return;
    }
    r->over = true;
    root_stop(r, SIGTERM, true);
    evtimer_add(r->fail, &t);
    root_end_in_grace(r);
}

/* Who has read nothing since we were asked to end will not. */
static void on_silence(evutil_socket_t fd, short what, void *arg)
{
    struct root *r = arg;
    (void)fd;
    (void)what;
    for (int k = 0; k < LAUNCH_STREAMS && r->written == written(r); k++)
        outlet_drop(&r->out[k]);
    root_look(r);
}

static bool some_link_open(const struct root *r)
{
    for (int i = 0; i < r->nnodes; i++)
        if (launch_door_is_open(r->door, i))
            return true;
    return false;
}

static void check_done(struct root *r)
{
    const struct timeval silence = dd_timeval(SILENCE_MS * DD_NS_PER_MS);
    const bool gone = r->left == 0 && !some_link_open(r);
    if (gone && all_streams_done(r, r->here) &&
        r->here >= 0) /* all that was to write there has done so */
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            stream_end(&r->children[r->here].streams[k]);
    if (gone && all_streams_done(r, -1) && r->cfg->up != NULL)
        launch_up_end(r->cfg->up); /* so that the last line is known to be whole */
    if (gone && all_streams_done(r, -1) && all_told(r)) {
        event_base_loopbreak(r->base);
        return;
    }
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (!outlet_empty(&r->out[k]))
            outlet_wait(&r->out[k]);
    if (r->asked && r->cfg->up == NULL && all_ended(r) && !evtimer_pending(r->silence, NULL)) {
        r->written = written(r);
        evtimer_add(r->silence, &silence);
    }
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    push_all(arg);
    check_done(arg);
}

/* ---- what happens ---- */

static void child_ended(struct root *r, struct child *c, int status)
{
    c->code = launch_exit_code(status);
    c->pid = 0;
    r->left--;
    close_stdin(c);
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (c->index == r->here)
            stream_push(&c->streams[k]);
        else
            stream_end(&c->streams[k]);
    if (c->index == r->here)
        root_node_ended(r, c, c->code);
    else if (c->state == CHILD_STARTING && c->lead == c->index)
        root_node_missing(r, c, c->code);
    else if (c->lead == c->index && !launch_door_is_open(r->door, c->index))
        root_node_gone(r, c);
    root_look(r);
}

static void reap(struct root *r)
{
    for (int i = 0; i < r->nnodes; i++) {
        int status;
        siginfo_t si = {.si_pid = 0};
        struct child *c = &r->children[i];
        if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT) < 0 ||
            si.si_pid != c->pid)
            continue;
        if (i != r->here &&
            c->state != CHILD_CAME) /* what it has left behind brings no node any more */
            root_kill(r, c, SIGKILL);
        if (waitpid(c->pid, &status, WNOHANG) == c->pid)
            child_ended(r, c, status);
    }
}

/* No agent here that would see to it: a second signal ends the starters, and so does time. */
static void end_asked(struct root *r, int sig, bool again)
{
    if (r->sig == 0) {
        r->sig = sig;
        root_end_in_grace(r);
    } else if (again) {
        on_end(-1, 0, r);
    }
}

/* A second signal, from somebody who is in a hurry. Our agent has it; the others have been told by
 * the daemon, not by a signal, and take the second one of two different ones for that. */
static bool hurries(struct root *r, int sig)
{
    const uint64_t now = dd_now_ns();
    if (r->sig_ns == 0)
        r->sig_ns = now;
    if (now - r->sig_ns <= SAME_SIGNAL_MS * DD_NS_PER_MS)
        return false;
    root_stop(r, sig, false);
    root_stop(r, sig == SIGTERM ? SIGINT : SIGTERM, false);
    return true;
}

/* This node's agent tells all the others; where there is none, one of them does, or all are told to
 * end. */
static void announce(struct root *r, int sig)
{
    for (int i = 0; i < r->nnodes; i++)
        if (r->children[i].state == CHILD_CAME && launch_door_is_open(r->door, i)) {
            launch_door_say(r->door, i, WORD_SIGNAL, i, (uint32_t)sig);
            return;
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
    if (sig == SIGCHLD) {
        reap(r);
        return;
    }
    const bool agent = is_agent_here(r);
    const bool ends = dd_signal_ends_jobs(sig);
    const bool again = ends && hurries(r, sig);
    r->asked |= ends;
    if (agent && si.ssi_code != SI_KERNEL) /* this node's agent has a terminal's already */
        root_tell_here(r, sig, false);
    else if (!agent && ends)
        root_stop(r, sig, false);
    else if (!agent)
        announce(r, sig);
    if (!agent && ends)
        end_asked(r, sig, again);
    root_look(r);
}

static bool give_task(void *arg, int index, struct launch_task *ret)
{
    const struct root *r = arg;
    struct child *c = &r->children[index];
    const struct root_cfg *cfg = r->cfg;
    if (!root_is_to_come(r, c))
        return false;
    if (!c->has_task)
        root_trim_share(r, c);
    c->has_task = true;
    *ret = (struct launch_task){.output = cfg->starter->loses_output,
                                .fanout = cfg->fanout,
                                .grace_ms = cfg->grace_ms,
                                .starter = (char *)(uintptr_t)cfg->starter->name,
                                .program = (char *)(uintptr_t)cfg->program,
                                .words = (char *)(uintptr_t)cfg->words,
                                .nodes = c->share,
                                .n = c->nshare};
    return true;
}

static bool on_fetched(void *arg, int index)
{
    struct root *r = arg;
    struct child *c = &r->children[index];
    if (!root_is_to_come(r, c))
        return false;
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        stream_begin(&c->said[k], &r->out[k]);
    root_node_came(r, c);
    return true;
}

static void on_node_word(void *arg, int index, const struct launch_word *w)
{
    struct root *r = arg;
    root_node_says(r, &r->children[index], w);
}

static int on_output(void *arg, int index, int which, const void *p, size_t n)
{
    struct root *r = arg;
    struct stream *s = &r->children[index].said[which];
    if (n > 0)
        return stream_give(s, p, n);
    stream_end(s);
    return 0;
}

static void on_gone(void *arg, int index)
{
    struct root *r = arg;
    struct child *c = &r->children[index];
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        stream_end(&c->said[k]);
    if (c->pid == 0)
        root_node_gone(r, c);
    root_look(r);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct root *r = arg;
    (void)fd;
    (void)what;
    if (!root_tick(r))
        event_del(r->tick);
}

/* ---- the start ---- */

static int watch_signals(struct root *r)
{
    sigset_t set;
    dd_signals_of_jobs(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, &r->old_mask);
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    r->signals = r->signal_fd < 0
                     ? NULL
                     : event_new(r->base, r->signal_fd, EV_READ | EV_PERSIST, on_signal, r);
    return r->signals == NULL || event_add(r->signals, NULL) < 0 ? -ENOMEM : 0;
}

/* Each starter has three pipes. */
static void want_files(struct root *r)
{
    (void)getrlimit(RLIMIT_NOFILE, &r->files);
    struct rlimit all = {r->files.rlim_max, r->files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &all);
}

static int make_door(struct root *r, struct dd_err *err)
{
    const struct launch_door_cfg door = {.id = r->cfg->id,
                                         .package = &r->package,
                                         .key = r->cfg->key,
                                         .key_in = r->cfg->key_in,
                                         .nnodes = r->nnodes,
                                         .task = give_task,
                                         .on_fetched = on_fetched,
                                         .on_word = on_node_word,
                                         .on_output = on_output,
                                         .on_gone = on_gone,
                                         .arg = r};
    return launch_door_new(&r->door, r->base, &door, err);
}

static int make_children(struct root *r)
{
    r->children = calloc((size_t)r->nnodes, sizeof(*r->children));
    for (int i = 0; i < r->nnodes && r->children != NULL; i++) {
        struct child *c = &r->children[i];
        *c = (struct child){.root = r, .index = i, .lead = -1, .was = -1, .stdin_fd = -1};
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            c->streams[k] = (struct stream){.from = -1, .ended = on_stream_end, .arg = c};
            c->said[k] = (struct stream){
                .from = -1, .ended = on_stream_end, .took = on_took, .arg = c};
        }
    }
    return r->children == NULL ? -ENOMEM : 0;
}

static int make_events(struct root *r)
{
    r->tick = event_new(r->base, -1, EV_PERSIST, on_tick, r);
    r->end = evtimer_new(r->base, on_end, r);
    r->silence = evtimer_new(r->base, on_silence, r);
    r->fail = evtimer_new(r->base, on_fail, r);
    r->room = event_new(r->base, -1, 0, on_look, r);
    const bool all = r->tick != NULL && r->end != NULL && r->silence != NULL && r->fail != NULL &&
                     r->room != NULL;
    const struct timeval second = {.tv_sec = 1};
    if (all && r->cfg->up == NULL) /* up there it is looked at for all */
        (void)event_add(r->tick, &second);
    return !all || watch_signals(r) < 0 ? -ENOMEM : 0;
}

static int make_package(struct root *r, struct dd_err *err)
{
    int rc = package_encode(&r->package, r->cfg->package);
    return rc < 0
               ? dd_err_set(
                     err, rc,
                     "the environment is too large to be carried to the other nodes: more than %d MiB or "
                     "%d variables",
                     PACKAGE_MAX >> 20, PACKAGE_STRINGS_MAX)
               : 0;
}

/* This node's agent, then the others: all of them, or those of our task. */
static int start_all(struct root *r, struct dd_err *err)
{
    const struct launch_task *task = r->cfg->task;
    const int n = r->cfg->up != NULL ? task->n : r->nnodes - (r->here >= 0);
    int rc = n > 0 ? make_package(r, err) : 0;
    if (rc < 0)
        return rc;
    rc = r->here >= 0 ? root_start_here(r, &r->children[r->here]) : 0;
    if (rc < 0)
        return dd_err_set(err, rc, "cannot start ddrun: %s", strerror(-rc));
    if (n == 0)
        return 0;
    rc = make_door(r, err);
    DD_AUTO(free) int *nodes = calloc((size_t)n, sizeof(*nodes));
    if (rc < 0 || nodes == NULL)
        return rc < 0 ? rc : dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < n; i++)
        nodes[i] = r->cfg->up != NULL ? task->nodes[i] : i + (r->here >= 0 && i >= r->here);
    return root_start_nodes(r, nodes, n, err);
}

static int begin(struct root *r, struct dd_err *err)
{
    const struct root_cfg *cfg = r->cfg;
    r->base = cfg->up != NULL ? launch_up_base(cfg->up) : net_loop_new();
    if (r->base == NULL || make_children(r) < 0 || make_events(r) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = cfg->up != NULL ? root_begin_started(r, err) : 0;
    for (int k = 0; k < LAUNCH_STREAMS && cfg->up == NULL && rc == 0; k++)
        rc = outlet_console(&r->out[k], r->base, k + 1, root_on_room, r, cfg->log, err);
    return rc < 0 ? rc : start_all(r, err);
}

static void root_done(struct root *r)
{
    for (int i = 0; i < r->nnodes && r->children != NULL; i++) {
        struct child *c = &r->children[i];
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            stream_done(&c->streams[k]);
            stream_done(&c->said[k]);
        }
        close_stdin(c);
        free(c->share);
    }
    launch_door_free(r->door);
    struct event *events[] = {r->tick, r->end, r->signals, r->silence, r->fail, r->room, r->input};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    for (int k = 0; k < LAUNCH_STREAMS; k++) {
        outlet_done(&r->out[k]);
        if (r->out_fds[k] >= 0)
            close(r->out_fds[k]);
    }
    if (r->signal_fd >= 0)
        close(r->signal_fd);
    if (r->base != NULL && r->cfg->up == NULL)
        event_base_free(r->base);
    dd_buf_done(&r->package);
    free(r->children);
}

int root_run(const struct root_cfg *cfg)
{
    struct root r = {.cfg = cfg,
                     .nnodes = (int)hostlist_count(cfg->package->alloc->nodes),
                     .here = cfg->here,
                     .code = -1,
                     .started_by = getppid(),
                     .signal_fd = -1,
                     .out_fds = {-1, -1},
                     .package = DD_BUF_INIT(PACKAGE_MAX)};
    struct dd_err err = {0};
    dd_core_empty();
    want_files(&r);
    int rc = begin(&r, &err);
    if (rc < 0) {
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
        r.code = rc == -EMSGSIZE ? TOO_LARGE : 1;
        r.over = true;
        if (r.left > 0)
            on_end(-1, 0, &r);
    }
    if (r.left > 0)
        event_base_dispatch(r.base);
    root_done(&r);
    if (r.sig != 0 && (r.code < 0 || r.code == 128 + SIGTERM)) /* who has lost us says SIGTERM */
        return 128 + r.sig;
    return r.code < 0 ? 1 : r.code;
}
