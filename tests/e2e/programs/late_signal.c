/* LD_PRELOAD: SIGINT arrives between the program's last look at its signals and its first
 * epoll_wait(). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>

int epoll_wait(int fd, struct epoll_event *events, int size, int timeout)
{
    static bool sent;
    int (*const real)(int, struct epoll_event *, int, int) = (int (*)(
        int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    if (!sent) {
        sent = true;
        (void)raise(SIGINT);
    }
    return real(fd, events, size, timeout);
}
