/* Exchanges: an allgather of parts among the nodes of a round, over their links. The agents send
 * their parts to the daemon, which sends all of them to each agent once the last has arrived. This
 * file assembles parts, for agent and daemon alike, and encodes the pieces that carry them. Pure.
 *
 *   piece = u32_be round | u32_be node rank | u32_be bytes of the part in further pieces
 *           | u8 length of the name | name | data
 *
 * A name that ends with '@' and node ranks ("fence@0-2,5") is an exchange among these nodes only.
 * An exchange whose name begins with '?' is begun by any node: the daemon requests the parts of the
 * others by a piece without data whose node rank is EXCHANGE_ASK.
 */
#ifndef DD_RDZV_EXCHANGE_H
#define DD_RDZV_EXCHANGE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    EXCHANGE_NAME_MAX = 255,
    EXCHANGE_PIECE = 256 << 10, /* maximum bytes of data in one piece */
    EXCHANGE_MAX = 16 << 20,    /* maximum bytes of all parts of an exchange */
    EXCHANGE_OPEN_MAX = 256,    /* maximum number of incomplete exchanges */
};

#define EXCHANGE_ASK UINT32_MAX

struct exchange_part {
    const unsigned char *data;
    size_t len;
};

struct exchange_piece {
    uint32_t round, node_rank, left;
    char name[EXCHANGE_NAME_MAX + 1];
    struct exchange_part data; /* borrowed from the input */
};

int exchange_piece_decode(struct exchange_piece *ret, const void *p, size_t n); /* 0 or -EPROTO */
/* Encode the piece of part that begins at *at into the empty out, and advance *at. 0, -EINVAL
 * (invalid name) or -ENOMEM. */
int exchange_piece_encode(struct dd_buf *out, uint32_t round, uint32_t node_rank, const char *name,
                          const struct exchange_part *part, size_t *at);

struct exchange;
int exchange_new(struct exchange **ret, int nnodes); /* 0 or -ENOMEM */
void exchange_free(struct exchange *x);              /* NULL does nothing */
/* Take a piece. Returns 1 if it completes the exchange, 0 if not, or -EPROTO, -EMSGSIZE, -ENOMEM
 * with a message. */
int exchange_take(struct exchange *x, const struct exchange_piece *p, struct dd_err *err);
bool exchange_is_open(const struct exchange *x,
                      const char *name); /* True once a piece has arrived, until exchange_drop(). */
/* False: the exchange is not open, or its name excludes this node. */
bool exchange_takes_part(const struct exchange *x, const char *name, int node_rank);
/* Return the parts of a complete exchange by node rank, lent until exchange_drop(); NULL: it is not
 * complete. */
const struct exchange_part *exchange_parts(const struct exchange *x, const char *name);
void exchange_drop(struct exchange *x, const char *name);

#endif
