/* What Horovod's workers ask of their rendezvous server, for the workers of one node in one round.
 * Pure.
 *
 * Each rank puts its addresses into the scope "global", then into "local_NAME", then into
 * "cross_LOCALRANK", reads those of its peers there, and says with DELETE when it has met them all.
 * Then the same once more for the process set of all workers, whose scopes have a suffix, and for
 * each other process set by its members. What workers of other nodes have to know is exchanged
 * between the agents: where all workers take part, once for "global", when all of this node have
 * put theirs, and once for all cross_ scopes; of other process sets it is told as it comes (news).
 * When all that have put something into a scope here have finished with it, it is emptied, so that
 * they may meet again. Src: Horovod 0.28.1.
 */
#ifndef DD_HTTP_RENDEZVOUS_H
#define DD_HTTP_RENDEZVOUS_H

#include "base/buf.h"
#include "base/err.h"
#include "http/kv.h"
#include "http/request.h"

#include <stdint.h>

/* Where this node stands among the others. Borrowed. */
struct rendezvous_cfg {
    int nnodes, node_rank;
    int first_rank;
    int world_size;
    const int *sizes; /* [nnodes]: workers of each */
};

struct rendezvous;

enum { RENDEZVOUS_PART_MAX = 16 << 20, RENDEZVOUS_NAME_MAX = 64 };

/* What is to be exchanged. */
struct rendezvous_part {
    char name[RENDEZVOUS_NAME_MAX];
    struct dd_buf data; /* the caller frees it */
};

int rendezvous_new(struct rendezvous **ret, const struct rendezvous_cfg *cfg,
                   const unsigned char seed[KV_SEED], struct dd_err *err);
void rendezvous_free(struct rendezvous *r); /* nobody waits any more */
struct kv *
rendezvous_kv(struct rendezvous *r); /* lends it until r is freed: for values and waiters */

/* Takes value, in any case. The status of the reply: 200, 507. */
int rendezvous_put(struct rendezvous *r, struct kv_name name, struct kv_value *value);
/* 200 and *ret, which the caller unrefs; 404; 507; 0: w waits now. */
int rendezvous_get(struct rendezvous *r, struct kv_name name, struct kv_waiter *w,
                   struct kv_value **ret);
int rendezvous_delete(struct rendezvous *r, struct kv_name name); /* 200 */

/* After each put: 1 and a part that the other nodes are to have; 0: there is none; -ENOMEM;
 * -EMSGSIZE: it would be too long. */
int rendezvous_next_part(struct rendezvous *r, struct rendezvous_part *ret);
/* What other nodes are to have besides, and is appended to out; each is told once. */
bool rendezvous_has_news(const struct rendezvous *r);
int rendezvous_take_news(struct rendezvous *r, struct dd_buf *out); /* 0, -ENOMEM, -EMSGSIZE */
/* The part of another node, or its news. -EPROTO with a sentence; -ENOSPC, -ENOMEM. */
int rendezvous_take_part(struct rendezvous *r, const void *data, size_t len, struct dd_err *err);

#endif
