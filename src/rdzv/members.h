/* Who took part in a round, as every agent remembers it. A daemon that comes after another one may
 * start a round only with a majority of these. Pure.
 */
#ifndef DD_RDZV_MEMBERS_H
#define DD_RDZV_MEMBERS_H

#include "base/auto.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { RDZV_NO_EPOCH = -1, RDZV_EPOCH_STEP = 1 << 16 };
enum { RDZV_SUCCESSORS = 8 }; /* nodes that may take a lost daemon's place */

struct rdzv_members {
    int64_t epoch; /* of the daemon that planned the round; RDZV_NO_EPOCH: there is none */
    int round;
    int restarts; /* used up by then */
    int tie;      /* index of the daemon's node: exactly half with it is enough */
    int n;
    int *index; /* [n] positions in the host list, in node rank order; owned */
};

#define RDZV_MEMBERS_NONE ((struct rdzv_members){.epoch = RDZV_NO_EPOCH})

/* Epochs grow from daemon to daemon, and no two nodes make the same one. */
int64_t rdzv_next_epoch(int64_t epoch, int index);
bool rdzv_members_newer(const struct rdzv_members *a, const struct rdzv_members *b);
bool rdzv_members_same(const struct rdzv_members *a,
                       const struct rdzv_members *b); /* round, epoch */
int rdzv_members_copy(struct rdzv_members *ret,
                      const struct rdzv_members *m); /* ret is cleared before */
void rdzv_members_clear(struct rdzv_members *m);

/* "EPOCH ROUND RESTARTS TIE n[0-2,7]", and back; "" is none. -EPROTO with a sentence, -ENOMEM. */
int rdzv_members_format(struct dd_buf *out, const struct rdzv_members *m);
int rdzv_members_parse(struct rdzv_members *ret, const char *text, struct dd_err *err);

static inline void dd_auto_rdzv_members(struct rdzv_members *m)
{
    rdzv_members_clear(m);
}

#endif
