/* Scope-bound cleanup: DD_AUTO(kind) frees a local at the end of its scope, DD_TAKE transfers
 * ownership out of it. */
#ifndef DD_BASE_AUTO_H
#define DD_BASE_AUTO_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DD_AUTO(kind) __attribute__((cleanup(dd_auto_##kind)))

/* Define DD_AUTO(kind) for variables of `type`; free_fn must accept NULL. */
#define DD_AUTO_DEFINE(kind, type, free_fn)                                                        \
    static inline void dd_auto_##kind(type *p)                                                     \
    {                                                                                              \
        free_fn(*p);                                                                               \
    }                                                                                              \
    struct dd_auto_##kind##_semicolon

/* Return p and set it to NULL, so that its cleanup does nothing. */
#define DD_TAKE(p)                                                                                 \
    __extension__({                                                                                \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

/* Return the file descriptor and set the variable to -1. */
#define DD_TAKE_FD(fd)                                                                             \
    __extension__({                                                                                \
        int taken_ = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        taken_;                                                                                    \
    })

static inline void dd_auto_free(void *p)
{
    free(*(void **)p);
}

static inline void dd_auto_fd(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void dd_auto_file(FILE **f)
{
    if (*f != NULL)
        fclose(*f);
}

#endif
