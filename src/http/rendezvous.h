/* Horovod's rendezvous for the workers of one node in one round. Pure.
 *
 * Each rank puts its addresses into the scope "global", then into "local_NAME", then into
 * "cross_LOCALRANK", reads those of its peers there, and sends DELETE after it has connected to all
 * of them. This repeats for the process set of all workers, whose scopes have a suffix, and for
 * each other process set by its members. Agents exchange the values that workers of other nodes
 * need: for all workers once for "global", after all workers of the node have put theirs, and once
 * for all cross_ scopes; for other process sets as they arrive (news). A scope is emptied once
 * every worker of the node that has put a key into it has finished, so that it can be used again.
 * Src: Horovod 0.28.1. */
#ifndef DD_HTTP_RENDEZVOUS_H
#define DD_HTTP_RENDEZVOUS_H

#include "base/buf.h"
#include "base/err.h"
#include "http/kv.h"
#include "http/request.h"

#include <stdint.h>

/* The position of this node in the round. Borrowed. */
struct rendezvous_cfg {
    int nnodes, node_rank;
    int first_rank;
    int world_size;
    const int *sizes; /* [nnodes]: number of workers per node */
};

struct rendezvous;

enum { RENDEZVOUS_PART_MAX = 16 << 20, RENDEZVOUS_NAME_MAX = 64 };

/* A part to exchange. */
struct rendezvous_part {
    char name[RENDEZVOUS_NAME_MAX];
    struct dd_buf data; /* the caller frees it */
};

int rendezvous_new(struct rendezvous **ret, const struct rendezvous_cfg *cfg,
                   const unsigned char seed[KV_SEED], struct dd_err *err);
void rendezvous_free(struct rendezvous *r); /* requires that no waiter is left */
struct kv *
rendezvous_kv(struct rendezvous *r); /* borrowed until r is freed: for values and waiters */

/* Handle PUT; value is taken even on failure. Returns the status of the reply: 200 or 507. */
int rendezvous_put(struct rendezvous *r, struct kv_name name, struct kv_value *value);
/* Handle GET. 200 and *ret, which the caller unrefs; 404; 507; 0: w waits. */
int rendezvous_get(struct rendezvous *r, struct kv_name name, struct kv_waiter *w,
                   struct kv_value **ret);
int rendezvous_delete(struct rendezvous *r, struct kv_name name); /* 200 */

/* Called after each put. 1: *ret is a part for the other nodes; 0: none; -ENOMEM; -EMSGSIZE: too
 * long. */
int rendezvous_next_part(struct rendezvous *r, struct rendezvous_part *ret);
/* News: values for the other nodes that belong to no part. rendezvous_take_news() appends each
 * value to out once. */
bool rendezvous_has_news(const struct rendezvous *r);
int rendezvous_take_news(struct rendezvous *r, struct dd_buf *out); /* 0, -ENOMEM, -EMSGSIZE */
/* Take a part or news from another node. 0 or -errno with a message. */
int rendezvous_take_part(struct rendezvous *r, const void *data, size_t len, struct dd_err *err);

#endif
