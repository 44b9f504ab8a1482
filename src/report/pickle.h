/* Decodes the pickles that PyTorch writes in C++: dictionaries with string keys, lists, flat
 * tuples, strings and numbers. The decoder creates no objects of Python and calls nothing; it
 * refuses a pickle with any other instruction. Pure.
 *
 * Src: pickle protocol 2, Python's pickletools; torch/csrc/jit/serialization/pickler.cpp of torch
 * 2.11. */
#ifndef DD_REPORT_PICKLE_H
#define DD_REPORT_PICKLE_H

#include <jansson.h>
#include <stddef.h>

enum {
    PICKLE_MAX = 4 << 20,       /* bytes of input */
    PICKLE_MAX_KEY = 100,       /* bytes of a key */
    PICKLE_MAX_DEPTH = 12,      /* containers within each other */
    PICKLE_MAX_STACK = 1 << 16, /* values that wait for their container */
    PICKLE_MAX_CONTAINERS = 1 << 17
};

/* Decode the n bytes at p; the caller frees *ret with json_decref(). Tuples become arrays. -EPROTO:
 * invalid, or another kind of pickle; -EMSGSIZE: beyond a limit; -ENOMEM. */
int pickle_decode(json_t **ret, const void *p, size_t n);

#endif
