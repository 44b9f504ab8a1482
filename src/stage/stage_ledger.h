/* Which chunks of a copy have come to a node, which of them its subtree needs no more, and their
 * digests. Pure. */
#ifndef DD_STAGE_STAGE_LEDGER_H
#define DD_STAGE_STAGE_LEDGER_H

#include "stage/stage_codec.h"

/* Zero-initialized: no chunk has come. */
struct stage_ledger {
    struct stage_record *records; /* [cap], by seq */
    uint32_t cap;
    uint32_t received; /* different chunks */
    uint32_t released; /* of those */
};

enum stage_news {
    STAGE_NEWS_NEW = 1,
    STAGE_NEWS_HELD, /* it has come before; after the loss of a link a parent sends it again */
    STAGE_NEWS_GONE, /* the same, and the subtree needs it no more */
};

/* A chunk has come. Returns a stage_news, -EPROTO if it exceeds the window, or -ENOMEM. */
int stage_ledger_take(struct stage_ledger *l, uint32_t seq);
/* seq must have been taken, once. */
void stage_ledger_digest(struct stage_ledger *l, uint32_t seq,
                         const unsigned char digest[STAGE_DIGEST]);
void stage_ledger_release(struct stage_ledger *l, uint32_t seq);
/* True if exactly the chunks 0 to chunks - 1 have come. */
bool stage_ledger_is_complete(const struct stage_ledger *l, uint32_t chunks);
/* The digest of a complete copy. 0 or -EIO. */
int stage_ledger_total(const struct stage_ledger *l, uint32_t chunks,
                       unsigned char out[STAGE_DIGEST]);
void stage_ledger_done(struct stage_ledger *l);

#endif
