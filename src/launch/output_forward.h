/* Output on its way through a process that starts nodes: from a starter's pipe, or from a node over
 * the link, to where ours goes. Lines go on whole. When that place takes nothing, those who write
 * wait, not this process, and no more than a line and a window of each is kept. */
#ifndef DD_LAUNCH_OUTLET_H
#define DD_LAUNCH_OUTLET_H

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/lines.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct event;
struct launch_up;

/* ---- where it goes ---- */

struct outlet {
    struct console *console; /* our own stdout or stderr; NULL: */
    struct launch_up *up;    /* over the link, to the one that has started us */
    int which;               /* 0: stdout, 1: stderr */
    bool deaf;               /* what comes is dropped */
};

/* on_room, from within other functions too: after it had taken nothing. log and what is behind arg
 * are borrowed. */
int outlet_console(struct outlet *ret, struct event_base *base, int fd, void (*on_room)(void *arg),
                   void *arg, const struct dd_log *log, struct dd_err *err);
bool outlet_empty(const struct outlet *o); /* all has gone where it goes */
void outlet_wait(
    const struct outlet *o); /* on_room is to be called when it has room, or is empty */
uint64_t outlet_written(const struct outlet *o); /* bytes so far */
void outlet_drop(struct outlet *o);              /* what it has, and what comes */
void outlet_done(struct outlet *o);

/* ---- where it comes from ---- */

struct stream {
    struct outlet *to; /* NULL: there is no such stream */
    struct event *event;
    int from; /* a pipe, -1: none (any more) */
    struct dd_buf bytes;
    struct lines lines;
    bool last; /* nobody writes any more: there is an end when there is nothing to read */
    bool eof;
    void (*took)(void *arg, struct stream *s, size_t n); /* so many bytes have gone on; NULL */
    void (*ended)(void *arg,
                  struct stream *s); /* all has gone on; legal from within the functions here */
    void *arg;
};

/* Reads a pipe (taken). The callbacks have been set. */
int stream_read(struct stream *s, struct event_base *base, struct outlet *to, int from);
/* Is given its bytes. */
void stream_begin(struct stream *s, struct outlet *to);
int stream_give(struct stream *s, const void *p, size_t n); /* -EMSGSIZE: more than was allowed */
void stream_end(struct stream *s); /* nobody writes any more: the rest goes on, then it has ended */
void stream_push(struct stream *s); /* the outlet has room */
bool stream_is_done(const struct stream *s);
void stream_done(struct stream *s); /* at once; ended is not called */

#endif
