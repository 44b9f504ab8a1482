/* The thread that reads the sources on the first node. */
#ifndef DD_STAGE_STAGE_READER_H
#define DD_STAGE_STAGE_READER_H

#include "stage/stage_pool.h"
#include "stage/stage_walk.h"

struct stage_reader;

enum stage_reader_state {
    STAGE_READER_LISTING,
    STAGE_READER_LISTED, /* waits for stage_reader_go() */
    STAGE_READER_READING,
    STAGE_READER_FINISHED, /* all chunks have been added to the pool */
    STAGE_READER_FAILED,
};

struct stage_reader_view {
    enum stage_reader_state state;
    uint64_t bytes, entries; /* from LISTED on */
    uint64_t files;
    const unsigned char *digest; /* of the listing, from LISTED on */
    uint32_t chunks;             /* FINISHED */
    size_t skipped;
    const char *first_skipped;
    const char *why; /* FAILED */
};

/* Adds chunks to the pool, at most STAGE_WINDOW that have not been released. Writes wake_fd at each
 * change. sources are borrowed until the process exits. */
int stage_reader_start(struct stage_reader **ret, struct stage_pool *pool, char *const *sources,
                       int wake_fd, struct dd_err *err);
void stage_reader_go(struct stage_reader *r);
void stage_reader_release(struct stage_reader *r); /* one chunk */
void stage_reader_look(struct stage_reader *r, struct stage_reader_view *ret);

#endif
