/* Validate and repair UTF-8 text from peers. */
#ifndef DD_BASE_UTF8_H
#define DD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Return the length of the well-formed character at p (1 to 4 bytes), or 0. n: available bytes, >=
 * 1. */
size_t dd_utf8_len(const char *p, size_t n);
bool dd_utf8_is(const char *s); /* all of it is well-formed */
/* Replace every byte that is not part of a well-formed character by '?'. Return s. */
char *dd_utf8_clean(char *s);

#endif
