#include "pystack/elf_symbols.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
    HEADERS_MAX = 64,    /* program headers */
    DYNAMIC_MAX = 256,   /* entries of a dynamic section */
    LIBRARIES_MAX = 512, /* the interpreter is among the first */
    CHAIN_MAX = 4096,    /* symbols with one hash value */
    NAME_MAX_HERE = 64,
};

/* First members of struct link_map, and offset of r_map in struct r_debug. Src: link.h. */
struct library {
    uint64_t bias, name, dynamic, next;
};
enum { DEBUG_LIST = 8 };

struct tables {
    uint64_t symbols, strings, hash, debug;
};

struct hash_header {
    uint32_t buckets, first, words, shift;
};

static uint64_t auxv_value(const void *auxv, size_t size, uint64_t type)
{
    uint64_t pair[2];
    for (size_t at = 0; at + sizeof(pair) <= size; at += sizeof(pair)) {
        memcpy(pair, (const unsigned char *)auxv + at, sizeof(pair));
        if (pair[0] == type)
            return pair[1];
    }
    return 0;
}

/* Find the dynamic section of the program itself, and the load bias of the program. */
static int program_dynamic(struct py_memory *m, const void *auxv, size_t size, struct library *ret)
{
    const uint64_t headers = auxv_value(auxv, size, AT_PHDR);
    const uint64_t n = auxv_value(auxv, size, AT_PHNUM);
    Elf64_Phdr h;
    if (headers == 0 || n > HEADERS_MAX || auxv_value(auxv, size, AT_PHENT) != sizeof(h))
        return -ENOEXEC;
    for (uint64_t i = 0; i < n; i++) {
        const int rc = py_memory_get(m, headers + i * sizeof(h), &h, sizeof(h));
        if (rc < 0)
            return rc;
        if (h.p_type == PT_PHDR)
            ret->bias = headers - h.p_vaddr;
        else if (h.p_type == PT_DYNAMIC)
            ret->dynamic = h.p_vaddr;
    }
    ret->dynamic += ret->bias;
    return ret->dynamic == ret->bias ? -ENOEXEC : 0;
}

static int read_tables(struct py_memory *m, const struct library *lib, struct tables *ret)
{
    *ret = (struct tables){0};
    for (int i = 0; i < DYNAMIC_MAX; i++) {
        Elf64_Dyn d;
        const int rc = py_memory_get(m, lib->dynamic + (uint64_t)i * sizeof(d), &d, sizeof(d));
        if (rc < 0)
            return rc;
        const uint64_t addr = d.d_un.d_ptr < lib->bias ? d.d_un.d_ptr + lib->bias : d.d_un.d_ptr;
        if (d.d_tag == DT_NULL)
            break;
        if (d.d_tag == DT_SYMTAB)
            ret->symbols = addr;
        else if (d.d_tag == DT_STRTAB)
            ret->strings = addr;
        else if (d.d_tag == DT_GNU_HASH)
            ret->hash = addr;
        else if (d.d_tag == DT_DEBUG)
            ret->debug = d.d_un.d_ptr;
    }
    return 0;
}

static uint32_t hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name != '\0'; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

/* False if the library certainly defines no symbol with this hash, by its Bloom filter. */
static bool may_define(struct py_memory *m, const struct tables *t, const struct hash_header *h,
                       uint32_t hash)
{
    uint64_t word;
    return h->words > 0 &&
           py_memory_u64(m, t->hash + sizeof(*h) + 8 * (uint64_t)(hash / 64 % h->words), &word) ==
               0 &&
           (word >> (hash % 64) & 1) != 0 && (word >> ((hash >> (h->shift % 32)) % 64) & 1) != 0;
}

static bool is_symbol(struct py_memory *m, const struct tables *t, uint32_t index, const char *name,
                      Elf64_Sym *ret)
{
    char text[NAME_MAX_HERE];
    const size_t n = strlen(name) + 1;
    return n <= sizeof(text) &&
           py_memory_get(m, t->symbols + (uint64_t)index * sizeof(*ret), ret, sizeof(*ret)) == 0 &&
           ret->st_shndx != SHN_UNDEF &&
           py_memory_get(m, t->strings + ret->st_name, text, n) == 0 && memcmp(text, name, n) == 0;
}

/* Return the address of a symbol; 0: the library does not define it, or a table cannot be read. */
static uint64_t find_in(struct py_memory *m, const struct library *lib, const struct tables *t,
                        const char *name)
{
    const uint32_t hash = hash_of(name);
    struct hash_header h;
    uint32_t index;
    uint32_t chained = 0;
    Elf64_Sym sym;
    if (t->hash == 0 || py_memory_get(m, t->hash, &h, sizeof(h)) < 0 || h.buckets == 0 ||
        !may_define(m, t, &h, hash))
        return 0;
    const uint64_t buckets = t->hash + sizeof(h) + 8 * (uint64_t)h.words;
    const uint64_t chain = buckets + 4 * (uint64_t)h.buckets;
    if (py_memory_u32(m, buckets + 4 * (uint64_t)(hash % h.buckets), &index) < 0 || index < h.first)
        return 0;
    for (int i = 0; i < CHAIN_MAX && (chained & 1) == 0; i++, index++) {
        if (py_memory_u32(m, chain + 4 * (uint64_t)(index - h.first), &chained) < 0)
            return 0;
        if ((chained | 1) == (hash | 1) && is_symbol(m, t, index, name, &sym))
            return lib->bias + sym.st_value;
    }
    return 0;
}

static int find_all_in(struct py_memory *m, const struct library *lib, struct elf_symbol *v,
                       size_t n)
{
    struct tables t;
    const int rc = read_tables(m, lib, &t);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (v[i].addr == 0)
            v[i].addr = find_in(m, lib, &t, v[i].name);
    return rc;
}

int elf_symbols_find(struct py_memory *m, const void *auxv, size_t size, struct elf_symbol *v,
                     size_t n)
{
    struct library lib = {0};
    struct tables t;
    uint64_t at = 0;
    int rc = program_dynamic(m, auxv, size, &lib);
    if (rc == 0)
        rc = read_tables(m, &lib, &t);
    if (rc == 0 && t.debug == 0)
        rc = -ENOENT; /* linked statically, or not yet started */
    if (rc == 0)
        rc = py_memory_u64(m, t.debug + DEBUG_LIST, &at);
    for (int i = 0; i < LIBRARIES_MAX && at != 0 && rc == 0 && v[0].addr == 0; i++) {
        rc = py_memory_get(m, at, &lib, sizeof(lib));
        if (rc == 0)
            rc = find_all_in(m, &lib, v, n);
        at = lib.next;
    }
    return rc < 0 ? rc : v[0].addr == 0 ? -ENOENT : 0;
}
