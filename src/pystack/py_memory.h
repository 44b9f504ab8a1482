/* Reads memory of another process page by page through a callback. Pure.
 *
 * The process runs on meanwhile and may have written anything: every address and length that comes
 * from its memory is untrusted. Pages are kept until py_memory_forget(), so that what lies in one
 * page was read at one time; the number of pages that are read is bounded. */
#ifndef DD_PYSTACK_PY_MEMORY_H
#define DD_PYSTACK_PY_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct py_memory;

enum {
    PY_PAGE = 4096,
    PY_PAGES_READ = 4096, /* number of pages that one py_memory may read */
    PY_BYTES_MAX = 1 << 20,
};

/* Read n bytes, all of one page. 0; -EFAULT: not mapped; -ESRCH: the process has ended; or another
 * negative errno. */
typedef int py_read_f(void *arg, uint64_t addr, void *to, size_t n);

/* arg is borrowed until py_memory_free(). NULL: out of memory. */
struct py_memory *py_memory_new(py_read_f *read, void *arg);
void py_memory_free(struct py_memory *m); /* NULL is allowed */
/* Drop the pages read so far: later reads see the current memory. */
void py_memory_forget(struct py_memory *m);

/* Copy n bytes at addr. 0 or -errno; -E2BIG: more than PY_PAGES_READ pages or PY_BYTES_MAX bytes.
 * On failure, `to` may be written in part. */
int py_memory_get(struct py_memory *m, uint64_t addr, void *to, size_t n);
int py_memory_u64(struct py_memory *m, uint64_t addr, uint64_t *ret);
int py_memory_u32(struct py_memory *m, uint64_t addr, uint32_t *ret);

static inline void dd_auto_py_memory(struct py_memory *const *m)
{
    py_memory_free(*m);
}

#endif
