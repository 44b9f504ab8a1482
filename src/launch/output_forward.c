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

int outlet_console(struct outlet *ret, struct event_base *base, int fd, void (*on_room)(void *arg),
                   void *arg, const struct dd_log *log, struct dd_err *err)
{
    /* who has lost his reader goes on: what comes is dropped, and nobody waits for room */
    const struct console_cb cb = {.on_room = on_room, .on_broken = on_room, .arg = arg};
    return console_new(&ret->console, base, fd, log, &cb, err);
}

static size_t outlet_room(const struct outlet *o)
{
    if (o->deaf)
        return CHUNK;
    if (o->console != NULL)
        return console_full(o->console) ? 0 : CHUNK;
    return launch_up_room(o->up, o->which);
}

static void outlet_put(struct outlet *o, const void *p, size_t n)
{
    if (o->deaf)
        return;
    if (o->console == NULL) {
        launch_up_put(o->up, o->which, p, n);
        return;
    }
    (void)console_put(o->console, "", p, n, false);
    console_flush(o->console);
}

/* The link always tells. */
void outlet_wait(const struct outlet *o)
{
    if (o->console != NULL && !o->deaf)
        console_wait(o->console);
}

bool outlet_empty(const struct outlet *o)
{
    if (o->deaf)
        return true;
    if (o->console != NULL)
        return console_empty(o->console) || console_broken(o->console);
    return o->up == NULL || launch_up_empty(o->up);
}

uint64_t outlet_written(const struct outlet *o)
{
    return o->console != NULL ? console_written(o->console) : 0;
}

void outlet_drop(struct outlet *o)
{
    o->deaf = true;
    if (o->console != NULL)
        console_drop(o->console);
}

void outlet_done(struct outlet *o)
{
    console_free(o->console);
    o->console = NULL;
    o->up = NULL;
}

/* ---- where it comes from ---- */

bool stream_is_done(const struct stream *s)
{
    return s->to == NULL;
}

void stream_done(struct stream *s)
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
static void pass_on(struct stream *s)
{
    size_t room;
    while (s->bytes.len > 0 && (room = outlet_room(s->to)) > 0) {
        struct line_piece piece;
        size_t at = 0;
        while (at < room &&
               lines_next(&s->lines, s->bytes.data + at, s->bytes.len - at, s->eof, &piece))
            at += piece.len;
        if (at == 0)
            return;
        outlet_put(s->to, s->bytes.data, at);
        dd_buf_consume(&s->bytes, at);
        if (s->took != NULL)
            s->took(s->arg, s, at);
    }
}

/* False: there is no more now. */
static bool read_some(struct stream *s)
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

static void check_end(struct stream *s)
{
    if (!s->eof || s->bytes.len > 0)
        return;
    stream_done(s);
    if (s->ended != NULL)
        s->ended(s->arg, s);
}

void stream_push(struct stream *s)
{
    if (s->to == NULL)
        return;
    pass_on(s);
    for (int i = 0; (i < READS || s->last) && s->from >= 0 && !s->eof && outlet_room(s->to) > 0 &&
                    read_some(s);
         i++)
        pass_on(s);
    pass_on(s); /* now it may be known that the last line is the last */
    const bool full = outlet_room(s->to) == 0;
    if (full)
        outlet_wait(s->to);
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
    stream_push(arg);
}

int stream_read(struct stream *s, struct event_base *base, struct outlet *to, int from)
{
    stream_begin(s, to);
    s->from = from;
    (void)dd_fd_nonblock(from);
    s->event = event_new(base, from, EV_READ | EV_PERSIST, on_readable, s);
    return s->event == NULL || event_add(s->event, NULL) < 0 ? -ENOMEM : 0;
}

void stream_begin(struct stream *s, struct outlet *to)
{
    s->to = to;
    s->from = -1;
    s->lines = (struct lines){0};
    s->bytes = DD_BUF_INIT(LINES_MAX + LAUNCH_WINDOW + CHUNK);
}

int stream_give(struct stream *s, const void *p, size_t n)
{
    if (s->to == NULL)
        return 0;
    int rc = dd_buf_append(&s->bytes, p, n);
    stream_push(s);
    return rc;
}

void stream_end(struct stream *s)
{
    s->last = true;
    s->eof |= s->from < 0;
    stream_push(s);
}
