/* Reads strings and bytes objects of CPython. Pure. */
#ifndef DD_PYSTACK_PY_TEXT_H
#define DD_PYSTACK_PY_TEXT_H

#include "base/buf.h"
#include "pystack/py_layout.h"

enum { PY_TEXT_MAX = 4 * 4096 + 1 }; /* bytes of UTF-8 */

/* Addresses of the types str and bytes, with which the types of objects are compared. */
struct py_types {
    uint64_t text, bytes;
};

/* Append the string at addr as UTF-8, at most 4096 characters of it, control characters as '?'.
 * -EAGAIN: there is no string at addr. */
int py_text_read(struct py_memory *m, const struct py_layout *at, const struct py_types *types,
                 uint64_t addr, struct dd_buf *out);
/* Append the content of the bytes object at addr. -EAGAIN: there is none, or it is too large. */
int py_bytes_read(struct py_memory *m, const struct py_layout *at, const struct py_types *types,
                  uint64_t addr, struct dd_buf *out);

#endif
