/* What a host list is made of; private to this room. */
#ifndef DD_HOSTLIST_LIST_H
#define DD_HOSTLIST_LIST_H

#include "hostlist/hostlist.h"

#include <stdint.h>

enum { HOSTLIST_NAME_MAX = 255 };

struct hostlist {
    struct dd_buf text; /* the names, a NUL after each: one block instead of one malloc a name */
    uint32_t *start;    /* where name i begins in text */
    size_t count;
    size_t cap;
};

/* Appends n bytes that are known to be a good name. -E2BIG, -ENOMEM. */
int hostlist_append(struct hostlist *h, const char *name, size_t n);

/* Whether c may stand in a host name. */
bool hostlist_char_ok(char c);

static inline bool hostlist_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

#endif
