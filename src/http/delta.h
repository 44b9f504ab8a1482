/* Tables of numbers, packed: each record is told as what it differs from a straight line through
 * the two before it. Pure.
 *
 *   packed = u32 stride, run*       run = varint: zero bytes, varint: bytes that follow, these
 *
 * The runs are the differences, as words of 64 bits, little-endian; the last n % 8 bytes are as
 * they were. Horovod's values are such tables: a socket address for each peer, always the same, and
 * a number that counts up. So a value of any length becomes some 50 bytes. Any other bytes come
 * through as well.
 */
#ifndef DD_HTTP_DELTA_H
#define DD_HTTP_DELTA_H

#include "base/buf.h"
#include "base/cursor.h"

#include <stddef.h>

/* Appends. stride: bytes of a record; what is no multiple of 8 counts as one record. 0, -ENOMEM,
 * -EMSGSIZE. */
int delta_pack(struct dd_buf *out, const unsigned char *p, size_t n, size_t stride);
/* Fills exactly n bytes; -EPROTO. */
int delta_unpack(unsigned char *out, size_t n, const unsigned char *packed, size_t len);

#endif
