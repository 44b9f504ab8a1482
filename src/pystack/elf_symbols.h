/* Finds symbols in a running process, from what its dynamic linker keeps in memory: program
 * headers, the list of loaded libraries, their dynamic symbol tables and GNU hash tables. No file
 * is opened, so a library that was replaced, or whose file system hangs, makes no difference. Pure.
 * Src: elf(5), link.h of glibc 2.36, musl 1.2.3 (which does not relocate the dynamic section). */
#ifndef DD_PYSTACK_ELF_SYMBOLS_H
#define DD_PYSTACK_ELF_SYMBOLS_H

#include "pystack/py_memory.h"

enum { ELF_AUXV_MAX = 4096 };

struct elf_symbol {
    const char *name;
    uint64_t addr; /* 0: not found */
};

/* Find the symbols of the array v, of which v[0] is needed: the search ends with the library that
 * defines it. auxv: the content of /proc/PID/auxv. 0; -ENOENT: no library defines v[0]; or another
 * negative errno. */
int elf_symbols_find(struct py_memory *m, const void *auxv, size_t size, struct elf_symbol *v,
                     size_t n);

#endif
