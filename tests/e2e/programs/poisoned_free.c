/* LD_PRELOAD: overwrites memory that is freed, so that a later use of it does not go unnoticed. */
#include <malloc.h>
#include <string.h>

extern void __libc_free(void *memory); /* of glibc */

void free(void *memory)
{
    if (memory != NULL)
        memset(memory, 0xa5, malloc_usable_size(memory));
    __libc_free(memory);
}
