/* Messages between a started node and the node that started it, on the link over which the
 * bootstrap payload came, and how the nodes are divided among those that start others. Pure.
 *
 *   FRAME_LAUNCH = u8 type | u32_be node | u32_be value | task (only with LAUNCH_TASK)
 *   task         = u8 1: output comes back over the link | u32_be fan-out | u32_be grace in ms |
 *                  str starter | str path of the starter | str --launch-command |
 *                  u32_be n | n nodes, each u32_be
 *   str          = u32_be length | bytes without NUL
 *   FRAME_OUTPUT = u8 stream (0: stdout, 1: stderr) | bytes (no bytes: end of the stream)
 *
 * LAUNCH_TASK, LAUNCH_SIGNAL, LAUNCH_CREDIT and LAUNCH_CANCEL go to started nodes, all other
 * messages to the node that started the sender.
 */
#ifndef DD_LAUNCH_LAUNCH_MSG_H
#define DD_LAUNCH_LAUNCH_MSG_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum launch_msg_type {
    LAUNCH_TASK = 1,  /* sent before the payload: which nodes the receiver starts, and how */
    LAUNCH_SIGNAL,    /* node: the node whose agent gets the signal, the receiver or a node below
                         it; value: the signal, + DD_SIGNAL_AT_ONCE or DD_SIGNAL_LEAVE */
    LAUNCH_CREDIT,    /* node: a stream; value: bytes of the stream that were passed on */
    LAUNCH_CONNECTED, /* the node has received its payload */
    LAUNCH_FAILED,    /* the node could not be started; value: exit code of the starter */
    LAUNCH_EXITED,    /* the node's agent has exited; value: exit code */
    LAUNCH_CANCEL,    /* node: one that the receiver is not to start any more */
};
/* Bytes of a stream that may be in flight, plus at most one line. They fit into the kernel's
 * buffer: a stopped process (Ctrl-Z, a suspended job) reads nothing, and TCP_USER_TIMEOUT closes a
 * connection that cannot send. */
enum { LAUNCH_STREAMS = 2, LAUNCH_WINDOW = 64 * 1024, LAUNCH_FANOUT_MAX = 1024 };

struct launch_task {
    bool output;
    bool by_relay; /* the sender was itself started by another node */
    int fanout;
    uint32_t grace_ms;
    const char *starter, *program, *words; /* words: NULL without --launch-command */
    const int *nodes;                      /* nodes that the receiver starts */
    int n;
    void *storage[4]; /* memory of a decoded task: three texts and the nodes */
};

struct launch_msg {
    enum launch_msg_type type;
    int node;
    uint32_t value;
    struct launch_task task;
};

int launch_msg_encode(struct dd_buf *out, const struct launch_msg *m); /* -EMSGSIZE, -ENOMEM */
/* nnodes: number of nodes of the job; indices from nnodes on are invalid. -EPROTO, -ENOMEM */
int launch_msg_decode(struct launch_msg *ret, const void *data, size_t n, int nnodes);
void launch_msg_done(struct launch_msg *m);

/* Divide nodes[0..n) into at most `fanout` subtrees of nearly equal size (0: n subtrees). Subtree k
 * begins at *ret_at; its first node starts the others. Return the size of the subtree, or 0 if
 * there is no such subtree. */
int launch_subtree(int n, int fanout, int k, int *ret_at);

static inline void dd_auto_launch_msg(struct launch_msg *m)
{
    launch_msg_done(m);
}

#endif
