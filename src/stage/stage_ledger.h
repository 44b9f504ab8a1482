/* Records which chunks of a copy a node has received, which of them its subtree no longer needs,
 * and their digests. Pure. */
#ifndef DD_STAGE_STAGE_LEDGER_H
#define DD_STAGE_STAGE_LEDGER_H

#include "stage/stage_codec.h"

/* Zero-initialized: no chunk received. */
struct stage_ledger {
    struct stage_record *records; /* [cap], by seq */
    uint32_t cap;
    uint32_t received; /* number of chunks, without repetitions */
    uint32_t released; /* number of received chunks that the subtree no longer needs */
};

enum stage_news {
    STAGE_NEWS_NEW = 1,
    STAGE_NEWS_HELD, /* repeated: after the loss of a link, a parent sends chunks again */
    STAGE_NEWS_GONE, /* repeated, and the subtree no longer needs the chunk */
};

/* Record a received chunk. Return an enum stage_news, -EPROTO if the chunk exceeds the window, or
 * -ENOMEM. */
int stage_ledger_take(struct stage_ledger *l, uint32_t seq);
/* Record the digest of a chunk that was taken. */
void stage_ledger_digest(struct stage_ledger *l, uint32_t seq,
                         const unsigned char digest[STAGE_DIGEST]);
void stage_ledger_release(struct stage_ledger *l, uint32_t seq);
/* True if exactly the chunks 0 to chunks - 1 were received. */
bool stage_ledger_is_complete(const struct stage_ledger *l, uint32_t chunks);
/* Compute the digest of a complete copy. 0 or -EIO. */
int stage_ledger_total(const struct stage_ledger *l, uint32_t chunks,
                       unsigned char out[STAGE_DIGEST]);
void stage_ledger_done(struct stage_ledger *l);

#endif
