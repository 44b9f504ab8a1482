/* LD_PRELOAD: a kernel without sock_diag, or a container that forbids it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/netlink.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol)
{
    int (*const real)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    if (domain != AF_NETLINK || protocol != NETLINK_SOCK_DIAG)
        return real(domain, type, protocol);
    errno = EPERM;
    return -1;
}
