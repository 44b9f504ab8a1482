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

struct dd_core dd_core_of(pid_t pid)
{
    struct dd_core c = {.text = "0x"};
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/coredump_filter", (int)pid);
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, c.text + 2, sizeof(c.text) - 2); /* hexadecimal */
    c.len = n > 0 ? (size_t)n + 2 : 0;
    return c;
}

void dd_core_apply(const struct dd_core *c)
{
    if (c->len > 0)
        set_filter(c->text, c->len);
}
