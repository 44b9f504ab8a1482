/* The thread that lists the sources, on the root of the tree, and gives their parts to the pool. */
#ifndef DD_STAGE_STAGE_READER_H
#define DD_STAGE_STAGE_READER_H

#include "stage/compile_dir.h"
#include "stage/stage_pool.h"
#include "stage/stage_source.h"
#include "stage/stage_walk.h"

struct stage_reader;

enum stage_reader_state {
    STAGE_READER_LISTING,
    STAGE_READER_LISTED, /* the reader waits for stage_reader_go() */
    STAGE_READER_READING,
    STAGE_READER_FINISHED, /* the pool has all chunks */
    STAGE_READER_FAILED,
};

struct stage_reader_view {
    enum stage_reader_state state;
    uint64_t bytes, entries; /* what the copy needs; valid from LISTED on */
    uint64_t files;
    uint32_t chunks; /* FINISHED: number of chunks given to the pool */
    size_t skipped;
    const char *first_skipped;
    const char *warning; /* from LISTED on; "": none */
    const char *why;     /* FAILED: the message */
};

/* Start the thread, which gives chunks to the pool, at most STAGE_WINDOW that have not been
 * released, and writes to wake_fd at each change. sources are borrowed until the process exits.
 * cache: read it instead of the sources; NULL: read the sources. */
int stage_reader_start(struct stage_reader **ret, struct stage_pool *pool,
                       const struct stage_sources *sources, const struct compile_dir *cache,
                       int wake_fd, struct dd_err *err);
void stage_reader_go(struct stage_reader *r);
void stage_reader_release(struct stage_reader *r); /* releases one chunk */
void stage_reader_look(struct stage_reader *r, struct stage_reader_view *ret);
/* SHA-256 of the listing, from LISTED on. 0 or -EIO. */
int stage_reader_digest(const struct stage_reader *r, unsigned char out[STAGE_DIGEST]);

#endif
