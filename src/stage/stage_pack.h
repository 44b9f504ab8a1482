/* Reads the files of a list, one after the other, and makes chunks of them. */
#ifndef DD_STAGE_STAGE_PACK_H
#define DD_STAGE_STAGE_PACK_H

#include "stage/stage_walk.h"

/* Takes ownership of raw's bytes. < 0: stop; the receiver knows why. */
typedef int stage_pack_emit(void *arg, enum stage_phase phase, struct dd_buf *raw);

struct stage_pack_cfg {
    const struct stage_list *list;
    char *const *sources; /* NULL-terminated, in the order of the numbers in the list */
    stage_pack_emit *emit;
    void *arg;
};

int stage_pack(const struct stage_pack_cfg *cfg, struct dd_err *err);

#endif
