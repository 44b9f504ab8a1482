#include "launch/output_forward.h"

#include "base/io.h"
#include "launch/parent_link.h"
#include "launch/launch_msg.h"
#include "worker/console.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 65536, READS = 4 };

/* ---- where it goes ---- */

int output_sink_console(struct output_sink *ret, struct event_base *base, int fd,
                        void (*on_room)(void *arg), void *arg, const struct dd_log *log,
                        struct dd_err *err)
{
    /* who has lost his reader goes on: what comes is dropped, and nobody waits for room */
    const struct console_cb cb = {.on_room = on_room, .on_broken = on_room, .arg = arg};
    return console_new(&ret->console, base, fd, log, &cb, err);
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

/* The link always tells. */
void output_sink_wait(const struct output_sink *o)
{
    if (o->console != NULL && !o->deaf)
        console_wait(o->console);
}

bool output_sink_empty(const struct output_sink *o)
{
    if (o->deaf)
        return true;
    if (o->console != NULL)
        return console_empty(o->console) || console_broken(o->console);
    return o->parent == NULL || parent_link_empty(o->parent);
}

uint64_t output_sink_written(const struct output_sink *o)
{
    return o->console != NULL ? console_written(o->console) : 0;
}

void output_sink_drop(struct output_sink *o)
{
    o->deaf = true;
    if (o->console != NULL)
        console_drop(o->console);
}

void output_sink_done(struct output_sink *o)
{
    console_free(o->console);
    o->console = NULL;
    o->parent = NULL;
}

/* ---- where it comes from ---- */

bool output_source_is_done(const struct output_source *s)
{
    return s->to == NULL;
}

void output_source_done(struct output_source *s)
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

/* Whole lines, as many as there is room for; a part of a line only at the end, or when it is too
 * long. */
static void pass_on(struct output_source *s)
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
        if (s->took != NULL)
            s->took(s->arg, s, at);
    }
}

/* False: there is no more now. */
static bool read_some(struct output_source *s)
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

static void check_end(struct output_source *s)
{
    if (!s->eof || s->bytes.len > 0)
        return;
    output_source_done(s);
    if (s->ended != NULL)
        s->ended(s->arg, s);
}

void output_source_push(struct output_source *s)
{
    if (s->to == NULL)
        return;
    pass_on(s);
    for (int i = 0; (i < READS || s->last) && s->from >= 0 && !s->eof &&
                    output_sink_room(s->to) > 0 && read_some(s);
         i++)
        pass_on(s);
    pass_on(s); /* now it may be known that the last line is the last */
    const bool full = output_sink_room(s->to) == 0;
    if (full)
        output_sink_wait(s->to);
    if (s->event != NULL && (full || s->eof))
        (void)event_del(s->event);
    else if (s->event != NULL)
        (void)event_add(s->event, NULL);
    check_end(s);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    output_source_push(arg);
}

int output_source_read(struct output_source *s, struct event_base *base, struct output_sink *to,
                       int from)
{
    output_source_begin(s, to);
    s->from = from;
    (void)dd_fd_nonblock(from);
    s->event = event_new(base, from, EV_READ | EV_PERSIST, on_readable, s);
    return s->event == NULL || event_add(s->event, NULL) < 0 ? -ENOMEM : 0;
}

void output_source_begin(struct output_source *s, struct output_sink *to)
{
    s->to = to;
    s->from = -1;
    s->lines = (struct lines){0};
    s->bytes = DD_BUF_INIT(LINES_MAX + LAUNCH_WINDOW + CHUNK);
}

int output_source_give(struct output_source *s, const void *p, size_t n)
{
    if (s->to == NULL)
        return 0;
    int rc = dd_buf_append(&s->bytes, p, n);
    output_source_push(s);
    return rc;
}

void output_source_end(struct output_source *s)
{
    s->last = true;
    s->eof |= s->from < 0;
    output_source_push(s);
}
