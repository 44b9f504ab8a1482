/* LD_PRELOAD: a home directory that does not respond: a file with charges can be opened for reading
 * only when the file named by HELD_CHARGES does not exist any more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wait_for(const char *name, int flags)
{
    const char *held = getenv("HELD_CHARGES");
    const char *dot = strrchr(name, '.');
    while (held != NULL && dot != NULL && strcmp(dot, ".charges") == 0 &&
           (flags & O_ACCMODE) == O_RDONLY && access(held, F_OK) == 0)
        (void)usleep(10000);
}

#define OPENAT(name)                                                                               \
    int name(int dir, const char *path, int flags, ...)                                            \
    {                                                                                              \
        int (*const real)(int, const char *, int,                                                  \
                          ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name);    \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;                     \
        va_end(more);                                                                              \
        wait_for(path, flags);                                                                     \
        return real(dir, path, flags, mode);                                                       \
    }

OPENAT(openat)
OPENAT(openat64)

int __openat_2(int dir, const char *path, int flags)
{
    return openat(dir, path, flags);
}

int __openat64_2(int dir, const char *path, int flags)
{
    return openat64(dir, path, flags);
}
