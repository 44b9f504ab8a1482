/* Threads of ddrun-stage that read, compress or decompress chunks, compute their digests and unpack
 * them. All chunks of a phase are finished before any chunk of a later phase is begun. */
#ifndef DD_STAGE_STAGE_POOL_H
#define DD_STAGE_STAGE_POOL_H

#include "stage/stage_codec.h"
#include "stage/stage_pack.h"
#include "stage/stage_unpack.h"

#include <sys/queue.h>

struct stage_chunk {
    TAILQ_ENTRY(stage_chunk) entry; /* in the pool's lists */
    TAILQ_ENTRY(stage_chunk) kept;  /* in the list of the main thread */
    uint32_t seq;                   /* on the node that reads: set by the pool */
    enum stage_phase phase;
    struct stage_part part; /* on the node that reads: contents of the chunk */
    struct dd_buf raw;      /* bytes of the chunk, if already read */
    bool read;              /* this node reads the chunk */
    struct dd_buf frame;    /* frame as received; on the node that reads, made by the pool */
    unsigned char digest[STAGE_DIGEST]; /* made by the pool */
    int rc;                             /* set by the pool */
    struct dd_err err;
    size_t bytes;         /* set by the pool: size of the contents */
    bool empty;           /* set by the pool: the files have vanished, and the chunk has no seq */
    bool worked;          /* the pool has finished the chunk */
    unsigned sent, acked; /* for the main thread: bits of children */
};
TAILQ_HEAD(stage_chunks, stage_chunk);

struct stage_pool;

/* wake_fd: an eventfd, written when a chunk is finished. */
int stage_pool_new(struct stage_pool **ret, int threads, int wake_fd, struct dd_err *err);
/* unpack: where chunks are written, borrowed until the process exits; NULL, the default: nowhere.
 * To be called before the first chunk. */
void stage_pool_unpack_to(struct stage_pool *p, const struct stage_unpack_cfg *unpack);
/* Set whether the pool makes frames and digests of the chunks that it reads, for other nodes. To be
 * called before the first chunk. */
void stage_pool_compress(struct stage_pool *p, bool on);
/* Set the pack that reads the parts: borrowed. The pool numbers chunks in the order in which they
 * are finished. Reading uses more threads than CPUs, since they wait for a file server. */
void stage_pool_read_from(struct stage_pool *p, struct stage_pack *pack);
/* Any thread may call this. The first chunk starts the threads. Return 0, or -errno: none could be
 * started. */
int stage_pool_add(struct stage_pool *p, struct stage_chunk *c);
/* Move the finished chunks to the end of done, in an order that keeps the phases. */
void stage_pool_take(struct stage_pool *p, struct stage_chunks *done);
void stage_chunk_free(struct stage_chunk *c);

#endif
