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
void launcher_look(struct launcher *l)
{
    event_active(l->room, EV_WRITE, 0);
}

void launcher_on_room(void *arg)
{
    launcher_look(arg);
}

static void on_stream_end(void *arg, struct output_source *s)
{
    const struct child *c = arg;
    (void)s;
    launcher_look(c->launcher);
}

static void on_took(void *arg, struct output_source *s, size_t n)
{
    const struct child *c = arg;
    bootstrap_server_send(c->launcher->server, c->index, LAUNCH_CREDIT, (int)(s - c->relayed),
                          (uint32_t)n);
}

/* Beginning with another one each time. */
static void push_all(struct launcher *l)
{
    l->turn = (l->turn + 1) % l->nnodes;
    for (int i = 0; i < l->nnodes; i++) {
        struct child *c = &l->children[(l->turn + i) % l->nnodes];
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            output_source_push(&c->streams[k]);
            output_source_push(&c->relayed[k]);
        }
    }
}

static bool all_streams_done(const struct launcher *l, int but)
{
    for (int i = 0; i < l->nnodes; i++)
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            if (!output_source_is_done(&l->children[i].relayed[k]) ||
                (i != but && !output_source_is_done(&l->children[i].streams[k])))
                return false;
    return true;
}

static bool all_told(const struct launcher *l)
{
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (!output_sink_empty(&l->out[k]))
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

static bool is_agent_here(const struct launcher *l)
{
    return l->here >= 0 && l->children[l->here].pid > 0;
}

void launcher_tell_here(const struct launcher *l, int sig, bool at_once)
{
    const union sigval v = {.sival_int = at_once ? DD_SIGNAL_AT_ONCE : 0};
    if (is_agent_here(l) && sigqueue(l->children[l->here].pid, sig, v) < 0)
        kill(l->children[l->here].pid, sig);
}

void launcher_kill(const struct launcher *l, const struct child *c, int sig)
{
    if (c->pid > 0)
        kill(c->index == l->here ? c->pid : -c->pid, sig);
}

/* Whoever is not there yet need not come. */
static void end_starting(struct launcher *l)
{
    for (int i = 0; i < l->nnodes; i++) {
        struct child *c = &l->children[i];
        if (c->pid > 0 && c->state == CHILD_STARTING)
            launcher_kill(l, c, SIGTERM);
        if (c->state == CHILD_STARTING && c->parent != i)
            launcher_drop(l, c);
    }
}

void launcher_stop(struct launcher *l, int sig, bool at_once)
{
    l->stopped = true;
    launcher_tell_here(l, sig, at_once);
    for (int i = 0; i < l->nnodes; i++) {
        struct child *c = &l->children[i];
        if (bootstrap_server_is_connected(l->server, i))
            bootstrap_server_send(l->server, i, LAUNCH_SIGNAL, i,
                                  (uint32_t)sig | (at_once ? DD_SIGNAL_AT_ONCE : 0));
        else if (!at_once)
            close_stdin(c);
    }
    if (!at_once)
        end_starting(l);
}

static bool all_ended(const struct launcher *l)
{
    for (int i = 0; i < l->nnodes; i++)
        if (l->children[i].state == CHILD_CONNECTED || l->children[i].state == CHILD_STARTING)
            return false;
    return true;
}

/* What does not end by itself once the job has ended is ended; but who only waits until somebody
 * reads our output may wait, unless we were asked to end. */
static void on_end(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    struct timeval more = dd_timeval(STARTER_KILL_MS * DD_NS_PER_MS);
    (void)fd;
    (void)what;
    l->over = true;
    evtimer_add(l->end, &more);
    if (!l->asked && all_ended(l) && !all_told(l))
        return;
    for (int i = 0; i < l->nnodes; i++)
        launcher_kill(l, &l->children[i], l->ends > 0 ? SIGKILL : SIGTERM);
    if (!l->stopped)
        launcher_stop(l, SIGTERM, false);
    if (++l->ends == ENDS_MAX)
        event_base_loopbreak(l->base);
}

void launcher_end_in_grace(struct launcher *l)
{
    const struct timeval grace = dd_timeval(l->cfg->grace_ms * DD_NS_PER_MS);
    evtimer_add(l->end, &grace);
}

void launcher_job_over(struct launcher *l)
{
    if (l->over)
        return;
    l->over = true;
    launcher_end_in_grace(l);
    end_starting(l);
    if (l->code != 0 && !l->stopped)
        launcher_stop(l, SIGTERM, false);
}

static uint64_t written(const struct launcher *l)
{
    return output_sink_written(&l->out[0]) + output_sink_written(&l->out[1]);
}

void launcher_fail(struct launcher *l)
{
    const struct timeval t = dd_timeval(FAIL_MS * DD_NS_PER_MS);
    l->code = 1;
    if (!evtimer_pending(l->fail, NULL))
        evtimer_add(l->fail, &t);
}

/* First those that have come are told; who comes meanwhile is told, too, and knows that nothing has
 * begun. */
static void on_fail(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    const struct timeval t = dd_timeval(COMING_MS * DD_NS_PER_MS);
    (void)fd;
    (void)what;
    if (l->over) {
        end_starting(l);
        return;
    }
    l->over = true;
    launcher_stop(l, SIGTERM, true);
    evtimer_add(l->fail, &t);
    launcher_end_in_grace(l);
}

/* Who has read nothing since we were asked to end will not. */
static void on_silence(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    (void)fd;
    (void)what;
    for (int k = 0; k < LAUNCH_STREAMS && l->written == written(l); k++)
        output_sink_drop(&l->out[k]);
    launcher_look(l);
}

static bool some_link_open(const struct launcher *l)
{
    for (int i = 0; i < l->nnodes; i++)
        if (bootstrap_server_is_connected(l->server, i))
            return true;
    return false;
}

static void check_done(struct launcher *l)
{
    const struct timeval silence = dd_timeval(SILENCE_MS * DD_NS_PER_MS);
    const bool gone = l->left == 0 && !some_link_open(l);
    if (gone && all_streams_done(l, l->here) &&
        l->here >= 0) /* all that was to write there has done so */
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            output_source_end(&l->children[l->here].streams[k]);
    if (gone && all_streams_done(l, -1) && l->cfg->parent != NULL)
        parent_link_end(l->cfg->parent); /* so that the last line is known to be whole */
    if (gone && all_streams_done(l, -1) && all_told(l)) {
        event_base_loopbreak(l->base);
        return;
    }
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (!output_sink_empty(&l->out[k]))
            output_sink_wait(&l->out[k]);
    if (l->asked && l->cfg->parent == NULL && all_ended(l) && !evtimer_pending(l->silence, NULL)) {
        l->written = written(l);
        evtimer_add(l->silence, &silence);
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

static void child_ended(struct launcher *l, struct child *c, int status)
{
    c->code = launch_exit_code(status);
    c->pid = 0;
    l->left--;
    close_stdin(c);
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (c->index == l->here)
            output_source_push(&c->streams[k]);
        else
            output_source_end(&c->streams[k]);
    if (c->index == l->here)
        launcher_node_ended(l, c, c->code);
    else if (c->state == CHILD_STARTING && c->parent == c->index)
        launcher_node_missing(l, c, c->code);
    else if (c->parent == c->index && !bootstrap_server_is_connected(l->server, c->index))
        launcher_node_gone(l, c);
    launcher_look(l);
}

static void reap(struct launcher *l)
{
    for (int i = 0; i < l->nnodes; i++) {
        int status;
        siginfo_t si = {.si_pid = 0};
        struct child *c = &l->children[i];
        if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT) < 0 ||
            si.si_pid != c->pid)
            continue;
        if (i != l->here &&
            c->state != CHILD_CONNECTED) /* what it has left behind brings no node any more */
            launcher_kill(l, c, SIGKILL);
        if (waitpid(c->pid, &status, WNOHANG) == c->pid)
            child_ended(l, c, status);
    }
}

/* No agent here that would see to it: a second signal ends the starters, and so does time. */
static void end_asked(struct launcher *l, int sig, bool again)
{
    if (l->sig == 0) {
        l->sig = sig;
        launcher_end_in_grace(l);
    } else if (again) {
        on_end(-1, 0, l);
    }
}

/* A second signal, from somebody who is in a hurry. Our agent has it; the others have been told by
 * the daemon, not by a signal, and take the second one of two different ones for that. */
static bool hurries(struct launcher *l, int sig)
{
    const uint64_t now = dd_now_ns();
    if (l->sig_ns == 0)
        l->sig_ns = now;
    if (now - l->sig_ns <= SAME_SIGNAL_MS * DD_NS_PER_MS)
        return false;
    launcher_stop(l, sig, false);
    launcher_stop(l, sig == SIGTERM ? SIGINT : SIGTERM, false);
    return true;
}

/* This node's agent tells all the others; where there is none, one of them does, or all are told to
 * end. */
static void announce(struct launcher *l, int sig)
{
    for (int i = 0; i < l->nnodes; i++)
        if (l->children[i].state == CHILD_CONNECTED &&
            bootstrap_server_is_connected(l->server, i)) {
            bootstrap_server_send(l->server, i, LAUNCH_SIGNAL, i, (uint32_t)sig);
            return;
        }
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    struct signalfd_siginfo si;
    (void)what;
    if (read(fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return;
    const int sig = (int)si.ssi_signo;
    if (sig == SIGCHLD) {
        reap(l);
        return;
    }
    const bool agent = is_agent_here(l);
    const bool ends = dd_signal_ends_jobs(sig);
    const bool again = ends && hurries(l, sig);
    l->asked |= ends;
    if (agent && si.ssi_code != SI_KERNEL) /* this node's agent has a terminal's already */
        launcher_tell_here(l, sig, false);
    else if (!agent && ends)
        launcher_stop(l, sig, false);
    else if (!agent)
        announce(l, sig);
    if (!agent && ends)
        end_asked(l, sig, again);
    launcher_look(l);
}

static bool give_task(void *arg, int index, struct launch_task *ret)
{
    const struct launcher *l = arg;
    struct child *c = &l->children[index];
    const struct launcher_cfg *cfg = l->cfg;
    if (!launcher_is_to_come(l, c))
        return false;
    if (!c->has_task)
        launcher_trim_subtree(l, c);
    c->has_task = true;
    *ret = (struct launch_task){.output = cfg->starter->loses_output,
                                .fanout = cfg->fanout,
                                .grace_ms = cfg->grace_ms,
                                .starter = cfg->starter->name,
                                .program = cfg->program,
                                .words = cfg->words,
                                .nodes = c->subtree,
                                .n = c->nsubtree};
    return true;
}

static bool on_fetched(void *arg, int index)
{
    struct launcher *l = arg;
    struct child *c = &l->children[index];
    if (!launcher_is_to_come(l, c))
        return false;
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        output_source_begin(&c->relayed[k], &l->out[k]);
    launcher_node_came(l, c);
    return true;
}

static void on_node_message(void *arg, int index, const struct launch_msg *w)
{
    struct launcher *l = arg;
    launcher_node_says(l, &l->children[index], w);
}

static int on_output(void *arg, int index, int which, const void *p, size_t n)
{
    struct launcher *l = arg;
    struct output_source *s = &l->children[index].relayed[which];
    if (n > 0)
        return output_source_give(s, p, n);
    output_source_end(s);
    return 0;
}

static void on_gone(void *arg, int index)
{
    struct launcher *l = arg;
    struct child *c = &l->children[index];
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        output_source_end(&c->relayed[k]);
    if (c->pid == 0)
        launcher_node_gone(l, c);
    launcher_look(l);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct launcher *l = arg;
    (void)fd;
    (void)what;
    if (!launcher_tick(l))
        event_del(l->tick);
}

/* ---- the start ---- */

static int watch_signals(struct launcher *l)
{
    sigset_t set;
    dd_signals_of_jobs(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, &l->old_mask);
    l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    l->signals = l->signal_fd < 0
                     ? NULL
                     : event_new(l->base, l->signal_fd, EV_READ | EV_PERSIST, on_signal, l);
    return l->signals == NULL || event_add(l->signals, NULL) < 0 ? -ENOMEM : 0;
}

/* Each starter has three pipes. */
static void want_files(struct launcher *l)
{
    (void)getrlimit(RLIMIT_NOFILE, &l->files);
    struct rlimit all = {l->files.rlim_max, l->files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &all);
}

static int make_server(struct launcher *l, struct dd_err *err)
{
    const struct bootstrap_server_cfg cfg = {.id = l->cfg->id,
                                             .payload = &l->payload,
                                             .key = l->cfg->key,
                                             .key_in = l->cfg->key_in,
                                             .nnodes = l->nnodes,
                                             .task = give_task,
                                             .on_fetched = on_fetched,
                                             .on_message = on_node_message,
                                             .on_output = on_output,
                                             .on_gone = on_gone,
                                             .arg = l};
    return bootstrap_server_new(&l->server, l->base, &cfg, err);
}

static int make_children(struct launcher *l)
{
    l->children = calloc((size_t)l->nnodes, sizeof(*l->children));
    for (int i = 0; i < l->nnodes && l->children != NULL; i++) {
        struct child *c = &l->children[i];
        *c = (struct child){
            .launcher = l, .index = i, .parent = -1, .former_parent = -1, .stdin_fd = -1};
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            c->streams[k] = (struct output_source){.from = -1, .ended = on_stream_end, .arg = c};
            c->relayed[k] = (struct output_source){
                .from = -1, .ended = on_stream_end, .took = on_took, .arg = c};
        }
    }
    return l->children == NULL ? -ENOMEM : 0;
}

static int make_events(struct launcher *l)
{
    l->tick = event_new(l->base, -1, EV_PERSIST, on_tick, l);
    l->end = evtimer_new(l->base, on_end, l);
    l->silence = evtimer_new(l->base, on_silence, l);
    l->fail = evtimer_new(l->base, on_fail, l);
    l->room = event_new(l->base, -1, 0, on_look, l);
    const bool all = l->tick != NULL && l->end != NULL && l->silence != NULL && l->fail != NULL &&
                     l->room != NULL;
    const struct timeval second = {.tv_sec = 1};
    if (all && l->cfg->parent == NULL) /* up there it is looked at for all */
        (void)event_add(l->tick, &second);
    return !all || watch_signals(l) < 0 ? -ENOMEM : 0;
}

static int make_payload(struct launcher *l, struct dd_err *err)
{
    int rc = bootstrap_payload_encode(&l->payload, l->cfg->payload);
    return rc < 0
               ? dd_err_set(
                     err, rc,
                     "the environment is too large to be carried to the other nodes: more than %d MiB or "
                     "%d variables",
                     BOOTSTRAP_MAX >> 20, BOOTSTRAP_STRINGS_MAX)
               : 0;
}

/* This node's agent, then the others: all of them, or those of our task. */
static int start_all(struct launcher *l, struct dd_err *err)
{
    const struct launch_task *task = l->cfg->task;
    const int n = l->cfg->parent != NULL ? task->n : l->nnodes - (l->here >= 0);
    int rc = n > 0 ? make_payload(l, err) : 0;
    if (rc < 0)
        return rc;
    rc = l->here >= 0 ? launcher_start_here(l, &l->children[l->here]) : 0;
    if (rc < 0)
        return dd_err_set(err, rc, "cannot start ddrun: %s", strerror(-rc));
    if (n == 0)
        return 0;
    rc = make_server(l, err);
    DD_AUTO(free) int *nodes = calloc((size_t)n, sizeof(*nodes));
    if (rc < 0 || nodes == NULL)
        return rc < 0 ? rc : dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < n; i++)
        nodes[i] = l->cfg->parent != NULL ? task->nodes[i] : i + (l->here >= 0 && i >= l->here);
    return launcher_start_nodes(l, nodes, n, err);
}

static int begin(struct launcher *l, struct dd_err *err)
{
    const struct launcher_cfg *cfg = l->cfg;
    l->base = cfg->parent != NULL ? parent_link_base(cfg->parent) : net_loop_new();
    if (l->base == NULL || make_children(l) < 0 || make_events(l) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = cfg->parent != NULL ? launcher_begin_started(l, err) : 0;
    for (int k = 0; k < LAUNCH_STREAMS && cfg->parent == NULL && rc == 0; k++)
        rc = output_sink_console(&l->out[k], l->base, k + 1, launcher_on_room, l, cfg->log, err);
    return rc < 0 ? rc : start_all(l, err);
}

static void launcher_done(struct launcher *l)
{
    for (int i = 0; i < l->nnodes && l->children != NULL; i++) {
        struct child *c = &l->children[i];
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            output_source_done(&c->streams[k]);
            output_source_done(&c->relayed[k]);
        }
        close_stdin(c);
        free(c->subtree);
    }
    bootstrap_server_free(l->server);
    struct event *events[] = {l->tick, l->end, l->signals, l->silence, l->fail, l->room, l->input};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    for (int k = 0; k < LAUNCH_STREAMS; k++) {
        output_sink_done(&l->out[k]);
        if (l->out_fds[k] >= 0)
            close(l->out_fds[k]);
    }
    if (l->signal_fd >= 0)
        close(l->signal_fd);
    if (l->base != NULL && l->cfg->parent == NULL)
        event_base_free(l->base);
    dd_buf_done(&l->payload);
    free(l->children);
}

int launcher_run(const struct launcher_cfg *cfg)
{
    struct launcher l = {.cfg = cfg,
                         .nnodes = (int)hostlist_count(cfg->payload->alloc->nodes),
                         .here = cfg->here,
                         .code = -1,
                         .started_by = getppid(),
                         .signal_fd = -1,
                         .out_fds = {-1, -1},
                         .payload = DD_BUF_INIT(BOOTSTRAP_MAX)};
    struct dd_err err = {0};
    dd_core_empty();
    want_files(&l);
    int rc = begin(&l, &err);
    if (rc < 0) {
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
        l.code = rc == -EMSGSIZE ? TOO_LARGE : 1;
        l.over = true;
        if (l.left > 0)
            on_end(-1, 0, &l);
    }
    if (l.left > 0)
        event_base_dispatch(l.base);
    launcher_done(&l);
    if (l.sig != 0 && (l.code < 0 || l.code == 128 + SIGTERM)) /* who has lost us says SIGTERM */
        return 128 + l.sig;
    return l.code < 0 ? 1 : l.code;
}
