/* Compression of tables of numbers: each record is encoded as its difference from the linear
 * extrapolation of the two records before it. Pure.
 *
 *   packed = u32 stride, run*       run = varint: zeros, varint: n, n bytes
 *
 * The runs encode the differences as 64-bit little-endian words; the last n % 8 bytes are
 * unchanged. Horovod's values are such tables: per peer a socket address that is always the same
 * and a number that counts up. So a value of any length shrinks to about 50 bytes. Any other data
 * also survives the round trip. */
#ifndef DD_HTTP_DELTA_H
#define DD_HTTP_DELTA_H

#include "base/buf.h"
#include "base/cursor.h"

#include <stddef.h>

/* Append the packed data. stride: size of a record; if it is not a multiple of 8, the data is one
 * record. 0, -ENOMEM or -EMSGSIZE. */
int delta_pack(struct dd_buf *out, const unsigned char *p, size_t n, size_t stride);
/* Unpack exactly n bytes. 0, or -EPROTO: malformed data, or another number of bytes. */
int delta_unpack(unsigned char *out, size_t n, const unsigned char *packed, size_t len);

#endif
