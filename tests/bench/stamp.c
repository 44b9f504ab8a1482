/* A worker that only records its start: appends CLOCK_MONOTONIC in ns to the file $STAMP. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
    struct timespec t;
    char line[64];
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    const char *path = getenv("STAMP");
    int fd = path != NULL ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    int n = snprintf(line, sizeof(line), "%lld\n", t.tv_sec * 1000000000LL + t.tv_nsec);
    return fd < 0 || write(fd, line, (size_t)n) != n;
}
