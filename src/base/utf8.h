/* Text that others wrote, made fit for those who take UTF-8 only. */
#ifndef DD_BASE_UTF8_H
#define DD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the well-formed character at p (1 to 4 bytes), or 0. n: bytes that are there, >= 1. */
size_t dd_utf8_len(const char *p, size_t n);
bool dd_utf8_is(const char *s); /* all of it is well-formed */
/* Puts '?' in the place of every byte that belongs to no well-formed character. Returns s. */
char *dd_utf8_clean(char *s);

#endif
