/* The other agents of a job that an outer launcher of MPI programs has started, where nothing else
 * says which they are. */
#ifndef DD_CMD_OUTER_H
#define DD_CMD_OUTER_H

#include "alloc/alloc.h"

struct outer_peers {
    struct dd_strv texts; /* what peers lends */
    struct alloc_peers peers;
};

/* 1: *ret is filled, for in->peers; 0: there are none; or < 0 with a sentence. */
int outer_find(struct outer_peers *ret, const struct alloc_input *in, unsigned limit_ms,
               struct dd_err *err);

#endif
