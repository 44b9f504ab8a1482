/* JSON of a single stack, which the stacks of ranks and those of their children share. */
#ifndef DD_REPORT_STACKS_JSON_INNER_H
#define DD_REPORT_STACKS_JSON_INNER_H

#include "report/stacks.h"

#include <jansson.h>

/* Return a stack as an object. depth: number of frames. NULL: out of memory. The caller owns the
 * reference. */
json_t *stacks_one_json(const struct stack *s, const struct rank_set *ranks, int depth);
/* Parse a stack of a peer. 0, -EPROTO or -ENOMEM. *storage holds its texts and is freed by the
 * caller. */
int stacks_parse_one(struct stack *ret, char **storage, const json_t *o);
/* Parse the ranks of a stack of a peer. -EPERM: a rank is not one of the peer's, see
 * stacks_parse(). The caller frees *ret, also on failure. */
int stacks_parse_ranks(struct rank_set *ret, const json_t *o, int first, int workers);

#endif
