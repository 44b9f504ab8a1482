/* What every node of a round gives, given to every node: an allgather over the links. The agents
 * send their parts to the daemon, which sends all of them to each once the last has come. This is
 * the putting together, the same on both sides, and the pieces that parts travel in. Pure.
 *
 *   piece = u32_be round | u32_be node rank | u32_be bytes of the part that follow in other pieces
 * | u8 length of the name | name | data
 *
 * A name that ends with '@' and node ranks ("fence@0-2,5") is an exchange among these nodes alone.
 * A name that begins with '?' is begun by whoever has something to tell: the daemon asks the others
 * for theirs, with a piece whose node rank is EXCHANGE_ASK and which has no data.
 */
#ifndef DD_RDZV_EXCHANGE_H
#define DD_RDZV_EXCHANGE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    EXCHANGE_NAME_MAX = 255,
    EXCHANGE_PIECE = 256 << 10, /* data in one piece */
    EXCHANGE_MAX = 16 << 20,    /* all parts of one name together */
    EXCHANGE_OPEN_MAX = 256,    /* names that are not complete */
};

#define EXCHANGE_ASK UINT32_MAX

struct exchange_part {
    const unsigned char *data;
    size_t len;
};

struct exchange_piece {
    uint32_t round, node_rank, left;
    char name[EXCHANGE_NAME_MAX + 1];
    struct exchange_part data; /* lent from the input */
};

int exchange_piece_decode(struct exchange_piece *ret, const void *p, size_t n); /* -EPROTO */
/* Puts the piece of part that begins at *at into the empty out, and moves *at behind it. */
int exchange_piece_encode(struct dd_buf *out, uint32_t round, uint32_t node_rank, const char *name,
                          const struct exchange_part *part, size_t *at);

struct exchange;
int exchange_new(struct exchange **ret, int nnodes); /* -ENOMEM */
void exchange_free(struct exchange *x);              /* NULL is fine */
/* 1: all nodes' parts of this name are there now; 0: not yet; -EPROTO, -EMSGSIZE, -ENOMEM with a
 * sentence. */
int exchange_take(struct exchange *x, const struct exchange_piece *p, struct dd_err *err);
bool exchange_is_open(const struct exchange *x,
                      const char *name); /* some node has begun to give its part */
/* False: the name leaves this node out. */
bool exchange_takes_part(const struct exchange *x, const char *name, int node_rank);
/* The parts of a name that is complete, by node rank, lent until exchange_drop(). */
const struct exchange_part *exchange_parts(const struct exchange *x, const char *name);
void exchange_drop(struct exchange *x, const char *name);

#endif
