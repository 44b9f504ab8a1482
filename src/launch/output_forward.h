/* Output on its way through a process that starts nodes: from a starter's pipe, or from a node over
 * the link, to this process's own stdout and stderr or to its parent. Lines go on whole. While that
 * place takes nothing, the processes that write wait, not this one, and no more than a line and a
 * window of each is kept. */
#ifndef DD_LAUNCH_OUTPUT_FORWARD_H
#define DD_LAUNCH_OUTPUT_FORWARD_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct parent_link;
struct output_forward;

/* All borrowed. Of the callbacks both may come from within any function here. */
struct output_forward_cfg {
    struct event_base *base;
    int nnodes;
    const struct dd_log *log;
    /* So many bytes of a stream that came over a node's link have gone on. */
    void (*on_sent)(void *arg, int index, int which, size_t n);
    void (*on_change)(void *arg); /* there is room again, or a stream has ended */
    void *arg;
};

int output_forward_new(struct output_forward **ret,
                       const struct output_forward_cfg *cfg); /* -ENOMEM */
void output_forward_free(struct output_forward *f);

/* Where it goes, one of them first: to stdout and stderr. */
int output_forward_to_own(struct output_forward *f, struct dd_err *err);
/* Or: what this process and its children write to stdout and stderr passes through here, as that of
 * node index, so that lines stay whole; it goes to the parent, or where stdout and stderr led. */
int output_forward_capture(struct output_forward *f, int index, struct parent_link *parent,
                           struct dd_err *err);

/* Reads a pipe (taken), which has output of that node. */
int output_forward_read(struct output_forward *f, int index, int which, int from);
void output_forward_push_pipes(struct output_forward *f, int index); /* reads what is there */
/* No process writes to its pipes any more: the rest goes on, then they have ended. */
void output_forward_end_pipes(struct output_forward *f, int index);

/* The same for what comes over its link. */
void output_forward_begin_relayed(struct output_forward *f, int index);
/* n 0: that was all. -EMSGSIZE: more than was allowed. */
int output_forward_relay(struct output_forward *f, int index, int which, const void *p, size_t n);
void output_forward_end_relayed(struct output_forward *f, int index);

/* There may be room: passes on what waits, beginning with another node each time. */
void output_forward_push(struct output_forward *f);
/* All streams have ended, but for the pipes of node `except`; -1: of all nodes. */
bool output_forward_sources_done(const struct output_forward *f, int except);
bool output_forward_flushed(const struct output_forward *f); /* all has gone where it goes */
void output_forward_wait(struct output_forward *f); /* on_change is to come when that may be so */
/* The job has been asked to end and has: a reader that reads nothing for 2 s is not waited for. */
void output_forward_limit_wait(struct output_forward *f);

#endif
