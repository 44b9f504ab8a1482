/* Forwards output through a process that starts nodes: from a starter's pipe, or from a node's
 * link, to stdout and stderr of this process or to its parent. Lines stay whole. If the destination
 * blocks, the writing processes wait, but this process does not; it keeps at most one line and one
 * window of each stream. */
#ifndef DD_LAUNCH_OUTPUT_FORWARD_H
#define DD_LAUNCH_OUTPUT_FORWARD_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct parent_link;
struct output_forward;

/* All borrowed. Every function here may call both callbacks. */
struct output_forward_cfg {
    struct event_base *base;
    int nnodes;
    const struct dd_log *log;
    /* This number of bytes of a stream from a node's link has been passed on. */
    void (*on_sent)(void *arg, int index, int which, size_t n);
    void (*on_change)(void *arg); /* there is room again, or a stream has ended */
    void *arg;
};

int output_forward_new(struct output_forward **ret,
                       const struct output_forward_cfg *cfg); /* -ENOMEM */
void output_forward_free(struct output_forward *f);

/* Send the output to stdout and stderr of this process. Call this function or
 * output_forward_capture() before all others. */
int output_forward_to_own(struct output_forward *f, struct dd_err *err);
/* Capture what this process and its children write to stdout and stderr as output of node `index`,
 * so that lines stay whole. The destination is `parent`; NULL: the original stdout and stderr. */
int output_forward_capture(struct output_forward *f, int index, struct parent_link *parent,
                           struct dd_err *err);

/* Read a pipe with output of node `index`. Takes ownership of the pipe. */
int output_forward_read(struct output_forward *f, int index, int which, int from);
void output_forward_push_pipes(struct output_forward *f,
                               int index); /* read what the pipes contain */
/* All writers have exited: read the rest, then end the streams of these pipes. */
void output_forward_end_pipes(struct output_forward *f, int index);

/* Begin, pass on and end the streams that come over the link of node `index`. */
void output_forward_begin_relayed(struct output_forward *f, int index);
/* n 0: end of the stream. -EMSGSIZE: the node has exceeded its window. */
int output_forward_relay(struct output_forward *f, int index, int which, const void *p, size_t n);
void output_forward_end_relayed(struct output_forward *f, int index);

/* Pass on what waits, if there is room. Each call begins with another node. */
void output_forward_push(struct output_forward *f);
/* True if all streams have ended, except for the pipes of node `except` (-1: no exception). */
bool output_forward_sources_done(const struct output_forward *f, int except);
bool output_forward_flushed(
    const struct output_forward *f); /* true if all output has been written */
/* Arrange for on_change to be called when all output may have been written. */
void output_forward_wait(struct output_forward *f);
/* The job has ended after a request: wait at most 2 s for a reader that does not read. */
void output_forward_limit_wait(struct output_forward *f);

#endif
