/* Messages between the agent and its helper ddrun-pmix over a socket pair. Pure.
 *
 *   message = u32_le bytes that follow | u8 type | u32_le id | u32_le code | data */
#ifndef DD_PMI_HMSG_H
#define DD_PMI_HMSG_H

#include "base/buf.h"
#include "base/strv.h"

#include <stdint.h>

enum {
    HMSG_FD = 3,         /* the helper's end of the socket pair */
    HMSG_HEAD = 4,       /* bytes of the length */
    HMSG_MAX = 32 << 20, /* maximum of the length */
};

enum hmsg_type {
    HMSG_SETUP = 1, /* agent: texts of enum hmsg_setup */
    HMSG_READY,     /* helper: for each worker texts NAME=value, then "" */
    HMSG_FAILED,    /* helper, instead of READY: one text, the reason */
    HMSG_GATHER,    /* helper: a text, the name, then this node's part; id: repeated in GATHERED */
    HMSG_GATHERED,  /* agent: the parts of all nodes, concatenated; code: 0, or the exchange failed
                     */
    HMSG_CONNECTED, /* helper: worker id has called PMIx_Init */
    HMSG_FINALIZED, /* helper: worker id has called PMIx_Finalize */
    HMSG_ABORTED,   /* helper: worker id aborts the job with this code */
    HMSG_END, /* agent: the round is over. An end of the connection without END: the agent died */
    HMSG_TYPE_MAX,
};

enum hmsg_setup {
    HMSG_NSPACE,
    HMSG_DIRECTORY,
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
    const unsigned char *data; /* borrowed from the input */
    size_t len;
};

/* Append the message. -EMSGSIZE, -ENOMEM. */
int hmsg_encode(struct dd_buf *out, const struct hmsg *m);
/* Return the bytes consumed; 0: incomplete; -EPROTO. */
int hmsg_decode(struct hmsg *ret, const void *p, size_t n);
/* Return the total size of the message that starts at p; 0: too few bytes; -EPROTO. */
int hmsg_size(const void *p, size_t n);

int hmsg_put_text(struct dd_buf *out, const char *text); /* including its NUL */
/* Return the text at *at and advance *at; NULL: none. Points into the message. */
const char *hmsg_text(const struct hmsg *m, size_t *at);

#endif
