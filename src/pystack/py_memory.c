#include "pystack/py_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64 };

struct py_page {
    uint64_t addr;
    bool is_read;
    unsigned char bytes[PY_PAGE];
};

struct py_memory {
    py_read_f *read;
    void *arg;
    int left; /* pages that may still be read */
    struct py_page pages[SLOTS];
};

struct py_memory *py_memory_new(py_read_f *read, void *arg)
{
    struct py_memory *m = malloc(sizeof(*m));
    if (m == NULL)
        return NULL;
    m->read = read;
    m->arg = arg;
    m->left = PY_PAGES_READ;
    py_memory_forget(m);
    return m;
}

void py_memory_free(struct py_memory *m)
{
    free(m);
}

void py_memory_forget(struct py_memory *m)
{
    for (size_t i = 0; i < SLOTS; i++)
        m->pages[i].is_read = false;
}

static int py_memory_page(struct py_memory *m, uint64_t addr, const struct py_page **ret)
{
    struct py_page *page = &m->pages[addr / PY_PAGE % SLOTS];
    if (!page->is_read || page->addr != addr) {
        if (m->left == 0)
            return -E2BIG;
        m->left--;
        page->is_read = false;
        const int rc = m->read(m->arg, addr, page->bytes, PY_PAGE);
        if (rc < 0)
            return rc;
        page->addr = addr;
        page->is_read = true;
    }
    *ret = page;
    return 0;
}

int py_memory_get(struct py_memory *m, uint64_t addr, void *to, size_t n)
{
    unsigned char *out = to;
    const struct py_page *page;
    if (n > PY_BYTES_MAX)
        return -E2BIG;
    while (n > 0) {
        const size_t at = addr % PY_PAGE;
        const size_t part = n < PY_PAGE - at ? n : PY_PAGE - at;
        const int rc = py_memory_page(m, addr - at, &page);
        if (rc < 0)
            return rc;
        memcpy(out, page->bytes + at, part);
        out += part;
        addr += part;
        n -= part;
    }
    return 0;
}

int py_memory_u64(struct py_memory *m, uint64_t addr, uint64_t *ret)
{
    return py_memory_get(m, addr, ret, sizeof(*ret));
}

int py_memory_u32(struct py_memory *m, uint64_t addr, uint32_t *ret)
{
    return py_memory_get(m, addr, ret, sizeof(*ret));
}
