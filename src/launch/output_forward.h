/* Output on its way through a process that starts nodes: from a starter's pipe, or from a node over
 * the link, to where ours goes. Lines go on whole. When that place takes nothing, those who write
 * wait, not this process, and no more than a line and a window of each is kept. */
#ifndef DD_LAUNCH_OUTPUT_FORWARD_H
#define DD_LAUNCH_OUTPUT_FORWARD_H

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/lines.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct event;
struct parent_link;

/* ---- where it goes ---- */

struct output_sink {
    struct console *console;    /* our own stdout or stderr; NULL: */
    struct parent_link *parent; /* over the link, to the one that has started us */
    int which;                  /* 0: stdout, 1: stderr */
    bool deaf;                  /* what comes is dropped */
};

/* on_room, from within other functions too: after it had taken nothing. log and what is behind arg
 * are borrowed. */
int output_sink_console(struct output_sink *ret, struct event_base *base, int fd,
                        void (*on_room)(void *arg), void *arg, const struct dd_log *log,
                        struct dd_err *err);
bool output_sink_empty(const struct output_sink *o); /* all has gone where it goes */
void output_sink_wait(
    const struct output_sink *o); /* on_room is to be called when it has room, or is empty */
uint64_t output_sink_written(const struct output_sink *o); /* bytes so far */
void output_sink_drop(struct output_sink *o);              /* what it has, and what comes */
void output_sink_done(struct output_sink *o);

/* ---- where it comes from ---- */

struct output_source {
    struct output_sink *to; /* NULL: there is no such stream */
    struct event *event;
    int from; /* a pipe, -1: none (any more) */
    struct dd_buf bytes;
    struct lines lines;
    bool last; /* nobody writes any more: there is an end when there is nothing to read */
    bool eof;
    void (*took)(void *arg, struct output_source *s,
                 size_t n); /* so many bytes have gone on; NULL */
    void (*ended)(
        void *arg,
        struct output_source *s); /* all has gone on; legal from within the functions here */
    void *arg;
};

/* Reads a pipe (taken). The callbacks have been set. */
int output_source_read(struct output_source *s, struct event_base *base, struct output_sink *to,
                       int from);
/* Is given its bytes. */
void output_source_begin(struct output_source *s, struct output_sink *to);
int output_source_give(struct output_source *s, const void *p,
                       size_t n); /* -EMSGSIZE: more than was allowed */
void output_source_end(
    struct output_source *s); /* nobody writes any more: the rest goes on, then it has ended */
void output_source_push(struct output_source *s); /* the sink has room */
bool output_source_is_done(const struct output_source *s);
void output_source_done(struct output_source *s); /* at once; ended is not called */

#endif
