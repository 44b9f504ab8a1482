/* Preloaded: the NOMEMORY_AT-th allocation of each process named NOMEMORY_IN fails, and with
 * NOMEMORY_FOR the next ones, too. A fork continues the count; a process that takes the name by
 * prctl(), as ddrund does, begins with 1. With NOMEMORY_WHILE instead, every
 * allocation fails in the process of that name whose pid the file NOMEMORY_WHILE contains. With
 * NOMEMORY_FROM, every allocation fails in a process of that name after its first connect() by TCP
 * ("connect"), or once it has opened a link ("link"). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static long count, first = -1, last;
static const char *file;

static int exhausted;

static int is_from(const char *what)
{
    const char *in = getenv("NOMEMORY_IN"), *from = getenv("NOMEMORY_FROM");
    return in != NULL && from != NULL && strcmp(in, program_invocation_short_name) == 0 &&
           strcmp(from, what) == 0;
}

/* Src: prctl(2); the C library passes the arguments on in the same way. */
int prctl(int option, ...)
{
    int (*real)(int, ...) = dlsym(RTLD_NEXT, "prctl");
    va_list args;
    unsigned long v[4];
    va_start(args, option);
    for (int i = 0; i < 4; i++)
        v[i] = va_arg(args, unsigned long);
    va_end(args);
    if (option == PR_SET_NAME && getenv("NOMEMORY_IN") != NULL &&
        strcmp(getenv("NOMEMORY_IN"), program_invocation_short_name) != 0) {
        program_invocation_short_name = strdup((const char *)v[0]);
        first = -1;
        count = 0;
    }
    return real(option, v[0], v[1], v[2], v[3]);
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    int rc = real(fd, addr, len), e = errno;
    if (addr->sa_family != AF_UNIX && is_from("connect"))
        exhausted = 1;
    errno = e;
    return rc;
}

/* A link, over which the agent then joins. */
int bufferevent_enable(void *link, short what)
{
    int (*real)(void *, short) = dlsym(RTLD_NEXT, "bufferevent_enable");
    int rc = real(link, what);
    if (is_from("link"))
        exhausted = 1;
    return rc;
}

static int is_named(void)
{
    char text[16] = "";
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    return n > 0 && atol(text) == (long)getpid();
}

static int fails(void)
{
    const char *in, *at, *how_long;
    if (first < 0) {
        first = 0;
        in = getenv("NOMEMORY_IN");
        at = getenv("NOMEMORY_AT");
        how_long = getenv("NOMEMORY_FOR");
        if (in != NULL && at != NULL && strcmp(in, program_invocation_short_name) == 0)
            first = atol(at);
        last = first + (how_long != NULL ? atol(how_long) : 1);
        if (in != NULL && strcmp(in, program_invocation_short_name) == 0)
            file = getenv("NOMEMORY_WHILE");
    }
    if (file != NULL && is_named()) {
        errno = ENOMEM;
        return 1;
    }
    if (exhausted) {
        errno = ENOMEM;
        return 1;
    }
    if (first == 0 || ++count < first || count >= last)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}
