/* What the agent and its helper ddrun-pmix say to each other over a socket pair. Pure.
 *
 *   message = u32_le bytes that follow | u8 type | u32_le id | u32_le code | data
 */
#ifndef DD_PMI_HMSG_H
#define DD_PMI_HMSG_H

#include "base/buf.h"
#include "base/strv.h"

#include <stdint.h>

enum {
    HMSG_FD = 3, /* the helper's end */
    HMSG_HEAD = 4,
    HMSG_MAX = 32 << 20,
};

enum hmsg_type {
    HMSG_SETUP = 1, /* agent: texts of enum hmsg_setup */
    HMSG_READY,     /* helper: texts NAME=value for each worker, "" after those of each */
    HMSG_FAILED,    /* helper, in place of READY: one text, why */
    HMSG_GATHER,   /* helper: one text, the name, and behind it this node's part; id: for the answer
                    */
    HMSG_GATHERED, /* agent: all nodes' parts, one behind the other; code: 0, or it cannot be had */
    HMSG_CONNECTED, /* helper: worker id has called PMIx_Init */
    HMSG_FINALIZED, /* helper: and PMIx_Finalize */
    HMSG_ABORTED,   /* helper: worker id aborts the job with this code */
    HMSG_END,       /* agent: the round is over; without it the agent has died */
    HMSG_TYPE_MAX,
};

enum hmsg_setup {
    HMSG_NSPACE,
    HMSG_FOLDER,
    HMSG_SHM,
    HMSG_NODES,
    HMSG_SIZES,
    HMSG_NODE_RANK,
    HMSG_ATTEMPT,
    HMSG_SETUP_MAX
};

struct hmsg {
    enum hmsg_type type;
    uint32_t id;
    int32_t code;
    const unsigned char *data; /* lent from the input */
    size_t len;
};

/* Appends it. -EMSGSIZE, -ENOMEM. */
int hmsg_encode(struct dd_buf *out, const struct hmsg *m);
/* Bytes taken; 0: not all of it is there yet; -EPROTO. */
int hmsg_decode(struct hmsg *ret, const void *p, size_t n);
/* How many bytes the message that begins so has in all; 0: too few to know; -EPROTO. */
int hmsg_size(const void *p, size_t n);

int hmsg_put_text(struct dd_buf *out, const char *text); /* with its NUL */
/* The text at *at, which goes behind it; NULL: there is none. Lent. */
const char *hmsg_text(const struct hmsg *m, size_t *at);

#endif
