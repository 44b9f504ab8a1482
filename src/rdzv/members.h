/* The members of a round, as every agent remembers them. A successor of the daemon starts a round
 * only with a majority of these. Pure. */
#ifndef DD_RDZV_MEMBERS_H
#define DD_RDZV_MEMBERS_H

#include "base/auto.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { RDZV_NO_EPOCH = -1, RDZV_EPOCH_STEP = 1 << 16 };
enum { RDZV_SUCCESSORS = 8 }; /* number of nodes that may start a successor of the daemon */

struct rdzv_members {
    int64_t epoch; /* of the daemon that planned the round; RDZV_NO_EPOCH: no round */
    int round;
    int restarts; /* restarts used before the round */
    int tie; /* index of the daemon's node: half of the members with this node are a majority */
    int n;
    int *index; /* [n] positions in the host list, in node rank order; owned */
};

#define RDZV_MEMBERS_NONE ((struct rdzv_members){.epoch = RDZV_NO_EPOCH})

/* Return the next epoch for a daemon on node `index`: larger than `epoch`, and different on every
 * node. */
int64_t rdzv_next_epoch(int64_t epoch, int index);
/* Return how many daemons were lost before the one of this epoch. */
int64_t rdzv_term(int64_t epoch);
bool rdzv_members_newer(const struct rdzv_members *a, const struct rdzv_members *b);
bool rdzv_members_same(const struct rdzv_members *a,
                       const struct rdzv_members *b); /* compares round and epoch */
int rdzv_members_copy(struct rdzv_members *ret,
                      const struct rdzv_members *m); /* replaces the content of ret; 0 or -ENOMEM */
void rdzv_members_clear(struct rdzv_members *m);

/* Text form "EPOCH ROUND RESTARTS TIE n[0-2,7]"; "": no round. Return 0, -ENOMEM, or
 * -EPROTO with a message. */
int rdzv_members_format(struct dd_buf *out, const struct rdzv_members *m);
int rdzv_members_parse(struct rdzv_members *ret, const char *text, struct dd_err *err);

static inline void dd_auto_rdzv_members(struct rdzv_members *m)
{
    rdzv_members_clear(m);
}

#endif
