/* Offsets of the members of CPython's structures that make up a stack, for each minor version, on
 * machines with 64-bit pointers and little-endian numbers. Pure.
 *
 * The offsets of versions up to 3.12 are in a table. Src: offsetof() with the headers of CPython
 * 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1; patch releases of a minor version keep them. From
 * 3.13 on, the interpreter publishes its offsets (_Py_DebugOffsets). */
#ifndef DD_PYSTACK_PY_LAYOUT_H
#define DD_PYSTACK_PY_LAYOUT_H

#include "base/err.h"
#include "pystack/py_memory.h"

#include <stdbool.h>

/* How a code object maps instructions to lines. */
enum py_lines_kind {
    PY_LINES_LNOTAB,    /* up to 3.9 */
    PY_LINES_RANGES,    /* 3.10 */
    PY_LINES_LOCATIONS, /* from 3.11 on */
};

enum { PY_NONE = UINT32_MAX }; /* offset of a field that does not exist */

struct py_layout {
    unsigned minor; /* minor version: 11 of 3.11 */
    enum py_lines_kind lines;
    uint32_t interpreters, main_thread;         /* of _PyRuntime */
    uint32_t interpreter_next, threads;         /* of an interpreter */
    uint32_t thread_next, thread_id, native_id; /* of a thread */
    uint32_t frame, cframe;                     /* of a thread; one of them is PY_NONE */
    uint32_t cframe_frame;                      /* of the structure to which cframe points */
    uint32_t back, code, last, owner;           /* of a frame */
    unsigned owners;                            /* frames of this owner and above have no code */
    uint32_t file, name, first_line, table, instructions;    /* of a code object */
    uint32_t text_length, text_state, text_ascii, text_wide; /* of a string; _ascii, _wide: its
                                                                characters */
    uint32_t bytes_length, bytes;                            /* of a bytes object */
    uint32_t type;                                           /* of any object */
};

/* Addresses of _PyRuntime and Py_Version. */
struct py_version_at {
    uint64_t runtime;
    uint64_t version;          /* 0: no such symbol, before 3.11 */
    bool is_38, is_39, is_310; /* symbols added in 3.8, 3.9, 3.10 exist */
};

/* Determine the offsets of the interpreter in the process. 0; -ENOTSUP with a message: an unknown
 * version or build; another negative errno has no message. */
int py_layout_read(struct py_memory *m, const struct py_version_at *at, struct py_layout *ret,
                   struct dd_err *err);

#endif
