/* Sets of local ranks in torchrun's syntax of --redirects, --tee and --local-ranks-filter. */
#ifndef DD_WORKER_RANKS_H
#define DD_WORKER_RANKS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct rank_bits {
    int rank;
    int bits;
};

/* Bits per local rank; `all` applies to ranks that are not listed. */
struct rank_map {
    int all;
    struct rank_bits *v;
    size_t n;
};

/* Parse "3" (all ranks) or "0:1,12:3" (0 for other ranks); NULL and "" are 0. As in torchrun, the
 * last entry of a rank counts. The message of -EINVAL names `option`. */
int rank_map_parse(struct rank_map *ret, const char *text, const char *option, struct dd_err *err);
/* Parse "0,1,12": bits 1 for these, 0 for all other ranks; NULL and "": 1 for all. */
int rank_list_parse(struct rank_map *ret, const char *text, const char *option, struct dd_err *err);
int rank_map_get(const struct rank_map *m, int rank);
bool rank_map_any(const struct rank_map *m); /* true if any rank has a bit */
void rank_map_done(struct rank_map *m);

#endif
