#include "base/core.h"

#include "base/auto.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Does nothing without /proc. */
static void set_filter(const char *text, size_t n)
{
    DD_AUTO(fd) int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, n) < 0)
        return;
}

void dd_core_empty(void)
{
    set_filter("0", 1);
}

/* Async-signal-safe with glibc, whose snprintf() is so for integers. */
void dd_core_like(pid_t pid)
{
    char path[64];
    char text[16];
    (void)snprintf(path, sizeof(path), "/proc/%d/coredump_filter", (int)pid);
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0
                          ? -1
                          : read(fd, text + 2, sizeof(text) - 2); /* hexadecimal, without prefix */
    if (n <= 0)
        return;
    text[0] = '0';
    text[1] = 'x';
    set_filter(text, (size_t)n + 2);
}
