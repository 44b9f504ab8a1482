/* Reads the files of a list into chunks. The contents of each chunk are planned before any file is
 * read, so that several threads can read at once and hide the latency of a file server. */
#ifndef DD_STAGE_STAGE_PACK_H
#define DD_STAGE_STAGE_PACK_H

#include "stage/stage_walk.h"

#include <stdbool.h>

struct stage_pack_cfg {
    const struct stage_list *list;
    char *const *sources; /* NULL-terminated, in the order of the numbers in the list */
};

struct stage_pack;

/* The contents of a chunk: the items [from, to) of the list that belong to the phase, or a piece of
 * the file `from`. */
struct stage_part {
    enum stage_phase phase;
    size_t from, to;
    uint64_t offset;
    size_t len; /* bytes of the piece; 0: whole items */
};

/* cfg is copied; what it points to must outlive the pack. */
int stage_pack_new(struct stage_pack **ret, const struct stage_pack_cfg *cfg, struct dd_err *err);
/* Set *ret to the next part, in the order of the phases. False at the end. Only one thread may call
 * this. */
bool stage_pack_next(struct stage_pack *p, struct stage_part *ret);
/* Read a part. Any thread may call this, once for each part. The caller frees raw, which stays
 * empty if all files of the part have vanished. */
int stage_pack_read(struct stage_pack *p, const struct stage_part *part, struct dd_buf *raw,
                    struct dd_err *err);
void stage_pack_free(struct stage_pack *p);

#endif
