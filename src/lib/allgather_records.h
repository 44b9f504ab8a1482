/* Records of a collective, stored under one key: one record per member, in order of arrival. Pure.
 *
 *     u32 place in the group | u64 length, bit 63: the data is under a key of its own | data
 *
 * Records come from other processes and are validated: exactly one record per member. */
#ifndef DD_LIB_ALLGATHER_RECORDS_H
#define DD_LIB_ALLGATHER_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORD_HEAD = 12 };

void record_head(unsigned char head[RECORD_HEAD], uint32_t place, uint64_t len, bool apart);

struct record {
    const unsigned char *p; /* points into the input; NULL: no record of this member */
    uint64_t len;
    bool apart; /* the data is stored under its own key; p must not be read */
};

/* Parse the records of n members into v[n]. Return the number of records, or -EPROTO. */
int records_parse(struct record *v, uint32_t n, const void *p, size_t len);

#endif
