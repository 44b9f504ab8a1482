/* Optional libraries, loaded at run time so that they need not be installed. A list macro of a
 * library's functions, LIST(X) with X(function) for each, generates both the structure of their
 * addresses (DD_LIBRARY_FIELD) and its table (DD_LIBRARY_ROW). */
#ifndef DD_BASE_LIBRARY_H
#define DD_BASE_LIBRARY_H

#include "base/err.h"

#include <stddef.h>

#define DD_LIBRARY_FIELD(function) __typeof__(function) *function;
#define DD_LIBRARY_ROW(type, function) {#function, offsetof(type, function)}

struct dd_library_row {
    const char *name;
    size_t at; /* offset of the field for the function's address */
};

/* Load the library and store the addresses of its functions. The library stays loaded; loading it
 * again needs no file. -ELIBACC: the library does not exist, or cannot be loaded into this program;
 * -ELIBBAD: a function is missing. err names the library. */
int dd_library_load(void *functions, const char *soname, const struct dd_library_row *rows,
                    size_t n, struct dd_err *err);
/* Store the addresses of the functions of an open library. -ELIBBAD: the library lacks the function
 * *missing. */
int dd_library_bind(void *functions, void *library, const struct dd_library_row *rows, size_t n,
                    const char **missing);

#endif
