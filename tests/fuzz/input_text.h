#ifndef INPUT_TEXT_H
#define INPUT_TEXT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Return a copy of SIZE bytes at DATA with a NUL after them, of exactly that size, so that the
 * address sanitizer finds each read behind it; NULL if there is no memory. The caller frees it. */
static inline char *input_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return NULL;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#endif
