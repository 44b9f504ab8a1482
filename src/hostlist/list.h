/* The representation of a host list; private to this directory. */
#ifndef DD_HOSTLIST_LIST_H
#define DD_HOSTLIST_LIST_H

#include "hostlist/hostlist.h"

#include <stdint.h>

enum { HOSTLIST_NAME_MAX = 255 };

struct hostlist {
    struct dd_buf text; /* NUL-terminated names in one block, instead of one malloc per name */
    uint32_t *start;    /* offset of name i in text */
    size_t count;
    size_t cap;
};

/* Append n bytes that are known to be a valid name. -E2BIG, -ENOMEM. */
int hostlist_append(struct hostlist *h, const char *name, size_t n);

/* True if c is allowed in a host name. */
bool hostlist_char_ok(char c);

static inline bool hostlist_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

#endif
