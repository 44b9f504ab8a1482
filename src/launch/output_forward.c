#include "launch/output_forward.h"

#include "base/buf.h"
#include "base/io.h"
#include "launch/parent_link.h"
#include "launch/launch_msg.h"
#include "worker/console.h"
#include "worker/lines.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 65536, READS = 4 };

struct output_sink {
    struct console *console;    /* stdout or stderr of this process; NULL: `parent` is set */
    struct parent_link *parent; /* the link to the parent; NULL: `console` is set */
    int which;                  /* 0: stdout, 1: stderr */
    bool deaf;                  /* the reader has gone: drop all output */
};

struct output_node;

struct output_source {
    struct output_node *node;
    struct output_sink *to; /* NULL: the stream does not exist, or has ended */
    struct event *event;
    int from; /* a pipe; -1: none, or closed */
    struct dd_buf bytes;
    struct lines lines;
    bool last; /* all writers have exited: an empty pipe is the end */
    bool eof;
};

struct output_node {
    struct output_forward *forward;
    int index;
    struct output_source piped[LAUNCH_STREAMS];   /* pipes of the node's starter, or of this node's
                                                     agent */
    struct output_source relayed[LAUNCH_STREAMS]; /* streams over the link */
};

struct output_forward {
    struct output_forward_cfg cfg;
    struct output_sink sinks[LAUNCH_STREAMS];
    int own_fds[LAUNCH_STREAMS]; /* the original stdout and stderr, if fds 1 and 2 are captured;
                                    otherwise -1 */
    struct output_node *nodes;   /* [nnodes] */
    struct event *stalled;
    uint64_t written; /* bytes written at the last check */
    int turn;         /* node that comes first when there is room */
};

/* ---- sinks ---- */

static void output_forward_on_room(void *arg);

/* Create a sink for a descriptor of this process. When its reader has gone, the sink drops the
 * output, so that no process waits for room. */
static int output_sink_console(struct output_sink *ret, struct output_forward *f, int fd,
                               struct dd_err *err)
{
    const struct console_cb cb = {
        .on_room = output_forward_on_room, .on_broken = output_forward_on_room, .arg = f};
    return console_new(&ret->console, f->cfg.base, fd, f->cfg.log, &cb, err);
}

static size_t output_sink_room(const struct output_sink *o)
{
    if (o->deaf)
        return CHUNK;
    if (o->console != NULL)
        return console_full(o->console) ? 0 : CHUNK;
    return parent_link_room(o->parent, o->which);
}

static void output_sink_put(struct output_sink *o, const void *p, size_t n)
{
    if (o->deaf)
        return;
    if (o->console == NULL) {
        parent_link_write(o->parent, o->which, p, n);
        return;
    }
    (void)console_put(o->console, "", p, n, false);
    console_flush(o->console);
}

/* A link reports new room on its own; a console must be asked. */
static void output_sink_wait(const struct output_sink *o)
{
    if (o->console != NULL && !o->deaf)
        console_wait(o->console);
}

static bool output_sink_empty(const struct output_sink *o)
{
    if (o->deaf)
        return true;
    if (o->console != NULL)
        return console_empty(o->console) || console_broken(o->console);
    return o->parent == NULL || parent_link_empty(o->parent);
}

static uint64_t output_sink_written(const struct output_sink *o)
{
    return o->console != NULL ? console_written(o->console) : 0;
}

static void output_sink_drop(struct output_sink *o)
{
    o->deaf = true;
    if (o->console != NULL)
        console_drop(o->console);
}

static void output_sink_done(struct output_sink *o)
{
    console_free(o->console);
    o->console = NULL;
    o->parent = NULL;
}

/* ---- sources ---- */

static bool output_source_is_done(const struct output_source *s)
{
    return s->to == NULL;
}

static void output_source_done(struct output_source *s)
{
    if (s->event != NULL)
        event_free(s->event);
    s->event = NULL;
    if (s->from >= 0 && s->to != NULL)
        close(s->from);
    s->from = -1;
    dd_buf_done(&s->bytes);
    s->to = NULL;
}

/* Grant the node as many bytes as have been passed on. */
static void output_source_took(const struct output_source *s, size_t n)
{
    const struct output_node *c = s->node;
    if (s >= c->relayed && s < c->relayed + LAUNCH_STREAMS)
        c->forward->cfg.on_sent(c->forward->cfg.arg, c->index, (int)(s - c->relayed), n);
}

/* Pass on as many whole lines as there is room for. An incomplete line is passed on only at the
 * end, or if it is too long. */
static void output_source_pass_on(struct output_source *s)
{
    size_t room;
    while (s->bytes.len > 0 && (room = output_sink_room(s->to)) > 0) {
        struct line_piece piece;
        size_t at = 0;
        while (at < room &&
               lines_next(&s->lines, s->bytes.data + at, s->bytes.len - at, s->eof, &piece))
            at += piece.len;
        if (at == 0)
            return;
        output_sink_put(s->to, s->bytes.data, at);
        dd_buf_consume(&s->bytes, at);
        output_source_took(s, at);
    }
}

/* Return false if there is nothing more to read now. */
static bool output_source_read_some(struct output_source *s)
{
    if (dd_buf_reserve(&s->bytes, CHUNK) < 0)
        return false;
    ssize_t n = read(s->from, s->bytes.data + s->bytes.len, CHUNK);
    if (n > 0) {
        s->bytes.len += (size_t)n;
        return true;
    }
    s->eof = n == 0 || (errno != EINTR && errno != EAGAIN) || (errno == EAGAIN && s->last);
    return n < 0 && errno == EINTR;
}

static void output_source_check_end(struct output_source *s)
{
    if (!s->eof || s->bytes.len > 0)
        return;
    output_source_done(s);
    s->node->forward->cfg.on_change(s->node->forward->cfg.arg);
}

static void output_source_push(struct output_source *s)
{
    if (s->to == NULL)
        return;
    output_source_pass_on(s);
    for (int i = 0; (i < READS || s->last) && s->from >= 0 && !s->eof &&
                    output_sink_room(s->to) > 0 && output_source_read_some(s);
         i++)
        output_source_pass_on(s);
    output_source_pass_on(s); /* the source may have ended: pass on an incomplete last line */
    const bool full = output_sink_room(s->to) == 0;
    if (full)
        output_sink_wait(s->to);
    if (s->event != NULL && (full || s->eof))
        (void)event_del(s->event);
    else if (s->event != NULL)
        (void)event_add(s->event, NULL);
    output_source_check_end(s);
}

static void output_source_on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    output_source_push(arg);
}

static void output_source_begin(struct output_source *s, struct output_sink *to)
{
    s->to = to;
    s->from = -1;
    s->lines = (struct lines){0};
    s->bytes = DD_BUF_INIT(LINES_MAX + LAUNCH_WINDOW + CHUNK);
}

static int output_source_read(struct output_source *s, struct event_base *base,
                              struct output_sink *to, int from)
{
    output_source_begin(s, to);
    s->from = from;
    (void)dd_fd_nonblock(from);
    s->event = event_new(base, from, EV_READ | EV_PERSIST, output_source_on_readable, s);
    return s->event == NULL || event_add(s->event, NULL) < 0 ? -ENOMEM : 0;
}

static int output_source_give(struct output_source *s, const void *p, size_t n)
{
    if (s->to == NULL)
        return 0;
    int rc = dd_buf_append(&s->bytes, p, n);
    output_source_push(s);
    return rc;
}

static void output_source_end(struct output_source *s)
{
    s->last = true;
    s->eof |= s->from < 0;
    output_source_push(s);
}

/* ---- public functions ---- */

static void output_forward_on_room(void *arg)
{
    const struct output_forward *f = arg;
    f->cfg.on_change(f->cfg.arg);
}

enum { STALLED_MS = 2000 };

static uint64_t output_forward_written(const struct output_forward *f)
{
    return output_sink_written(&f->sinks[0]) + output_sink_written(&f->sinks[1]);
}

static void output_forward_on_stalled(evutil_socket_t fd, short what, void *arg)
{
    struct output_forward *f = arg;
    (void)fd;
    (void)what;
    for (int k = 0; k < LAUNCH_STREAMS && f->written == output_forward_written(f); k++)
        output_sink_drop(&f->sinks[k]);
    f->cfg.on_change(f->cfg.arg);
}

static int output_forward_make_nodes(struct output_forward *f)
{
    f->nodes = calloc((size_t)f->cfg.nnodes, sizeof(*f->nodes));
    for (int i = 0; i < f->cfg.nnodes && f->nodes != NULL; i++) {
        struct output_node *c = &f->nodes[i];
        c->forward = f;
        c->index = i;
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            c->piped[k] = (struct output_source){.node = c, .from = -1};
            c->relayed[k] = (struct output_source){.node = c, .from = -1};
        }
    }
    return f->nodes == NULL ? -ENOMEM : 0;
}

int output_forward_new(struct output_forward **ret, const struct output_forward_cfg *cfg)
{
    struct output_forward *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return -ENOMEM;
    *f = (struct output_forward){.cfg = *cfg, .own_fds = {-1, -1}};
    f->stalled = evtimer_new(cfg->base, output_forward_on_stalled, f);
    if (f->stalled == NULL || output_forward_make_nodes(f) < 0) {
        output_forward_free(f);
        return -ENOMEM;
    }
    *ret = f;
    return 0;
}

void output_forward_free(struct output_forward *f)
{
    if (f == NULL)
        return;
    for (int i = 0; i < f->cfg.nnodes && f->nodes != NULL; i++)
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            output_source_done(&f->nodes[i].piped[k]);
            output_source_done(&f->nodes[i].relayed[k]);
        }
    for (int k = 0; k < LAUNCH_STREAMS; k++) {
        output_sink_done(&f->sinks[k]);
        if (f->own_fds[k] >= 0)
            close(f->own_fds[k]);
    }
    if (f->stalled != NULL)
        event_free(f->stalled);
    free(f->nodes);
    free(f);
}

int output_forward_to_own(struct output_forward *f, struct dd_err *err)
{
    int rc = 0;
    for (int k = 0; k < LAUNCH_STREAMS && rc == 0; k++)
        rc = output_sink_console(&f->sinks[k], f, k + 1, err);
    return rc;
}

int output_forward_capture(struct output_forward *f, int index, struct parent_link *parent,
                           struct dd_err *err)
{
    int rc = 0;
    for (int k = 0; k < LAUNCH_STREAMS && rc == 0; k++) {
        int fds[2];
        f->own_fds[k] = fcntl(k + 1, F_DUPFD_CLOEXEC, 3);
        if (parent != NULL)
            f->sinks[k] = (struct output_sink){.parent = parent, .which = k};
        else
            rc = output_sink_console(&f->sinks[k], f, f->own_fds[k], err);
        if (rc == 0 && (pipe2(fds, O_CLOEXEC) < 0 || dup2(fds[1], k + 1) < 0))
            rc = dd_err_set(err, -errno, "cannot redirect %s to a pipe: %m",
                            k == 0 ? "stdout" : "stderr");
        if (rc < 0)
            return rc;
        close(fds[1]);
        if (output_forward_read(f, index, k, fds[0]) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    return rc;
}

int output_forward_read(struct output_forward *f, int index, int which, int from)
{
    return output_source_read(&f->nodes[index].piped[which], f->cfg.base, &f->sinks[which], from);
}

void output_forward_push_pipes(struct output_forward *f, int index)
{
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        output_source_push(&f->nodes[index].piped[k]);
}

void output_forward_end_pipes(struct output_forward *f, int index)
{
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        output_source_end(&f->nodes[index].piped[k]);
}

void output_forward_begin_relayed(struct output_forward *f, int index)
{
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        output_source_begin(&f->nodes[index].relayed[k], &f->sinks[k]);
}

int output_forward_relay(struct output_forward *f, int index, int which, const void *p, size_t n)
{
    struct output_source *s = &f->nodes[index].relayed[which];
    if (n > 0)
        return output_source_give(s, p, n);
    output_source_end(s);
    return 0;
}

void output_forward_end_relayed(struct output_forward *f, int index)
{
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        output_source_end(&f->nodes[index].relayed[k]);
}

void output_forward_push(struct output_forward *f)
{
    f->turn = (f->turn + 1) % f->cfg.nnodes;
    for (int i = 0; i < f->cfg.nnodes; i++) {
        struct output_node *c = &f->nodes[(f->turn + i) % f->cfg.nnodes];
        for (int k = 0; k < LAUNCH_STREAMS; k++) {
            output_source_push(&c->piped[k]);
            output_source_push(&c->relayed[k]);
        }
    }
}

bool output_forward_sources_done(const struct output_forward *f, int except)
{
    for (int i = 0; i < f->cfg.nnodes; i++)
        for (int k = 0; k < LAUNCH_STREAMS; k++)
            if (!output_source_is_done(&f->nodes[i].relayed[k]) ||
                (i != except && !output_source_is_done(&f->nodes[i].piped[k])))
                return false;
    return true;
}

bool output_forward_flushed(const struct output_forward *f)
{
    return output_sink_empty(&f->sinks[0]) && output_sink_empty(&f->sinks[1]);
}

void output_forward_wait(struct output_forward *f)
{
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (!output_sink_empty(&f->sinks[k]))
            output_sink_wait(&f->sinks[k]);
}

void output_forward_limit_wait(struct output_forward *f)
{
    const struct timeval limit = dd_timeval(STALLED_MS * DD_NS_PER_MS);
    if (evtimer_pending(f->stalled, NULL))
        return;
    f->written = output_forward_written(f);
    evtimer_add(f->stalled, &limit);
}
