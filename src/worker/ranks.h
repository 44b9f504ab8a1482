/* Which local ranks: torchrun's syntax of --redirects, --tee and --local-ranks-filter. */
#ifndef DD_WORKER_RANKS_H
#define DD_WORKER_RANKS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct rank_bits {
    int rank;
    int bits;
};

/* Bits per local rank: `all` for those that are not listed. */
struct rank_map {
    int all;
    struct rank_bits *v;
    size_t n;
};

/* "3" (all ranks) or "0:1,12:3" (ranks that are not named: 0); NULL and "" are 0. A rank that comes
 * twice has the later bits, as with torchrun. option goes into the sentence of -EINVAL. */
int rank_map_parse(struct rank_map *ret, const char *text, const char *option, struct dd_err *err);
/* "0,1,12": bits 1 for those, 0 for all others; NULL and "": 1 for all. */
int rank_list_parse(struct rank_map *ret, const char *text, const char *option, struct dd_err *err);
int rank_map_get(const struct rank_map *m, int rank);
bool rank_map_any(const struct rank_map *m); /* some rank has a bit */
void rank_map_done(struct rank_map *m);

#endif
