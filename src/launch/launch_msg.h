/* Messages between a started node and the node that started it, on the link that brought the
 * bootstrap payload, and how the nodes are divided among those that start others. Pure.
 *
 *   FRAME_LAUNCH = u8 type | u32_be node | u32_be value | what a task has (only with LAUNCH_TASK)
 *   task         = u8 1: output comes back over the link | u32_be fan-out | u32_be grace in ms |
 *                  str starter | str its path | str words in its place | u32_be n, n nodes u32_be
 *   str          = u32_be length | bytes without NUL
 *   FRAME_OUTPUT = u8 stream (0: stdout, 1: stderr) | bytes; none: that was all
 *
 * Messages go up from each node to the one that started it; LAUNCH_TASK,
 * LAUNCH_SIGNAL, LAUNCH_CREDIT and LAUNCH_CANCEL go down.
 */
#ifndef DD_LAUNCH_LAUNCH_MSG_H
#define DD_LAUNCH_LAUNCH_MSG_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum launch_msg_type {
    LAUNCH_TASK = 1, /* before the payload: what this node has to do for others */
    LAUNCH_SIGNAL,   /* node: whose agent gets it, of those that the receiver has started or itself;
                      value: the signal, + DD_SIGNAL_AT_ONCE */
    LAUNCH_CREDIT,   /* node: a stream; value: so many bytes of it have gone on */
    LAUNCH_CONNECTED, /* the node has received its payload */
    LAUNCH_FAILED,    /* it could not be started; value: the starter's exit code */
    LAUNCH_EXITED,    /* its agent has ended; value: the exit code */
    LAUNCH_CANCEL,    /* down: another node starts it now */
};
/* Bytes of one stream that may be under way; one line more may come on top. They fit into the
 * kernel's buffer: a process that was stopped (Ctrl-Z, a suspended job) takes nothing, and a
 * connection on which nothing more can be sent is given up after TCP_USER_TIMEOUT. */
enum { LAUNCH_STREAMS = 2, LAUNCH_WINDOW = 64 * 1024, LAUNCH_FANOUT_MAX = 1024 };

struct launch_task {
    bool output;
    int fanout;
    uint32_t grace_ms;
    const char *starter, *program, *words; /* words: NULL where the user has none */
    const int *nodes;                      /* to be started from here */
    int n;
    void *storage[4]; /* of a decoded task: the three texts and the nodes */
};

struct launch_msg {
    enum launch_msg_type type;
    int node;
    uint32_t value;
    struct launch_task task;
};

int launch_msg_encode(struct dd_buf *out, const struct launch_msg *m); /* -EMSGSIZE, -ENOMEM */
/* nnodes: of the job; no node is beyond. -EPROTO, -ENOMEM */
int launch_msg_decode(struct launch_msg *ret, const void *data, size_t n, int nnodes);
void launch_msg_done(struct launch_msg *m);

/* Cuts nodes[0..n) into at most `fanout` shares of nearly the same size (0: n shares). The k-th
 * begins at *ret_at; its first node is started and starts the others of the share. Returns its
 * size, 0: there is none. */
int launch_subtree(int n, int fanout, int k, int *ret_at);

static inline void dd_auto_launch_msg(struct launch_msg *m)
{
    launch_msg_done(m);
}

#endif
