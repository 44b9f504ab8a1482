/* Reads line tables of CPython's code objects. Pure. Src: Objects/lnotab_notes.txt of CPython 3.9
 * and 3.10, Objects/locations.md of 3.11 (the same in 3.15). */
#ifndef DD_PYSTACK_PY_LINES_H
#define DD_PYSTACK_PY_LINES_H

#include "pystack/py_layout.h"

#include <stddef.h>
#include <stdint.h>

/* Return the line of the instruction at this offset, in bytes from the first instruction; 0:
 * unknown. A negative offset means that execution has not begun. */
int py_lines_find(enum py_lines_kind kind, const unsigned char *table, size_t size, int first_line,
                  int64_t offset);

#endif
