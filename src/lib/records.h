/* What the members of a group have given to a collective, as it lies under one key of the store: a
 * record per member, in the order in which they came. Pure.
 *
 *     u32 place in the group | u64 length, bit 63: the bytes are under a key of their own | bytes
 *
 * Whoever has written them, they are not trusted: each member once, all of them, nothing else.
 */
#ifndef DD_LIB_RECORDS_H
#define DD_LIB_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORD_HEAD = 12 };

void record_head(unsigned char head[RECORD_HEAD], uint32_t place, uint64_t len, bool apart);

struct record {
    const unsigned char *p; /* lent from the input; NULL: there is no record of this member */
    uint64_t len;
    bool apart; /* p is no place to read from */
};

/* Puts the records of n members into v[n]. How many there are, or -EPROTO. */
int records_parse(struct record *v, uint32_t n, const void *p, size_t len);

#endif
