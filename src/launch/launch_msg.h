/* What a started node and the one that has started it say to each other on the link by which its
 * package came, and who starts whom. Pure.
 *
 *   FRAME_LAUNCH = u8 word | u32_be node | u32_be value | what a task has (only with WORD_TASK)
 *   task         = u8 1: output comes back over the link | u32_be fan-out | u32_be grace in ms |
 *                  str starter | str its path | str words in its place | u32_be n, n nodes u32_be
 *   str          = u32_be length | bytes without NUL
 *   FRAME_OUTPUT = u8 stream (0: stdout, 1: stderr) | bytes; none: that was all
 *
 * Words go up to the starting process, from each node to the one that has started it; WORD_TASK,
 * WORD_SIGNAL, WORD_ROOM and WORD_DROP go down.
 */
#ifndef DD_LAUNCH_WORD_H
#define DD_LAUNCH_WORD_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum launch_word_type {
    WORD_TASK = 1, /* before the package: what this node has to do for others */
    WORD_SIGNAL,   /* node: whose agent gets it, of those that the receiver has started or itself;
                      value: the signal, + DD_SIGNAL_AT_ONCE */
    WORD_ROOM,     /* node: a stream; value: so many bytes of it have gone on */
    WORD_CAME,     /* the node has its package */
    WORD_MISSING,  /* it could not be started; value: the starter's exit code */
    WORD_ENDED,    /* its agent has ended; value: the exit code */
    WORD_DROP,     /* down: somebody else starts it now */
};
/* Bytes of one stream that may be under way; one line more may come on top. They fit into the
 * kernel's buffer: a process that was stopped (Ctrl-Z, a suspended job) takes nothing, and a
 * connection on which nothing more can be sent is given up after TCP_USER_TIMEOUT. */
enum { LAUNCH_STREAMS = 2, LAUNCH_WINDOW = 64 * 1024, LAUNCH_FANOUT_MAX = 1024 };

struct launch_task {
    bool output;
    int fanout;
    uint32_t grace_ms;
    char *starter, *program, *words; /* words: NULL where the user has none */
    int *nodes;                      /* to be started from here */
    int n;
};

struct launch_word {
    enum launch_word_type type;
    int node;
    uint32_t value;
    struct launch_task task;
};

int launch_word_encode(struct dd_buf *out, const struct launch_word *w); /* -EMSGSIZE, -ENOMEM */
/* nnodes: of the job; no node is beyond. -EPROTO, -ENOMEM */
int launch_word_decode(struct launch_word *ret, const void *data, size_t n, int nnodes);
void launch_word_done(struct launch_word *w);

/* Cuts nodes[0..n) into at most `fanout` shares of nearly the same size (0: n shares). The k-th
 * begins at *ret_at; its first node is started and starts the others of the share. Returns its
 * size, 0: there is none. */
int launch_share(int n, int fanout, int k, int *ret_at);

static inline void dd_auto_launch_word(struct launch_word *w)
{
    launch_word_done(w);
}

#endif
