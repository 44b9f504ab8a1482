/* Network interfaces of this machine, and the one that workers use. */
#include "net/addr.h"

#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool iface_take(struct net_iface *to, const struct ifaddrs *from)
{
    struct net_iface i = {0};
    if (from->ifa_addr == NULL)
        return false;
    socklen_t len = from->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                         : sizeof(struct sockaddr_in6);
    if (net_addr_from_sockaddr(&i.addr, from->ifa_addr, len) < 0)
        return false;
    (void)snprintf(i.name, sizeof(i.name), "%s", from->ifa_name);
    i.up = (from->ifa_flags & IFF_UP) != 0 && (from->ifa_flags & IFF_RUNNING) != 0;
    i.loopback = (from->ifa_flags & IFF_LOOPBACK) != 0;
    *to = i;
    return true;
}

int net_ifaces(struct net_iface **ret, size_t *ret_n, struct dd_err *err)
{
    struct ifaddrs *list = NULL;
    size_t n = 0;
    if (getifaddrs(&list) < 0)
        return dd_err_set(err, -errno, "cannot list the network interfaces: %m");
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next)
        n++;
    struct net_iface *ifs = calloc(n + 1, sizeof(*ifs));
    if (ifs == NULL) {
        freeifaddrs(list);
        return dd_err_set(err, -ENOMEM, "out of memory for the network interfaces");
    }
    n = 0;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next)
        n += iface_take(&ifs[n], i);
    freeifaddrs(list);
    *ret = ifs;
    *ret_n = n;
    return 0;
}

int net_iface_of(const struct net_addr *a, char out[16])
{
    struct net_iface *ifs = NULL;
    size_t n = 0;
    int rc = net_ifaces(&ifs, &n, NULL);
    if (rc < 0)
        return rc;
    rc = -ENOENT;
    for (size_t i = 0; i < n && rc < 0; i++)
        if (net_addr_same_host(&ifs[i].addr, a)) {
            memcpy(out, ifs[i].name, sizeof(ifs[i].name));
            rc = 0;
        }
    free(ifs);
    return rc;
}

static bool iface_is_link_local(const struct net_addr *a)
{
    if (a->sa.sa_family == AF_INET6)
        return IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr);
    return ntohl(a->in.sin_addr.s_addr) >> 16 == 0xa9fe; /* 169.254/16 */
}

int net_iface_addr(const struct net_iface *ifs, size_t n, const char *name, struct net_addr *ret)
{
    const struct net_iface *best = NULL;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(ifs[i].name, name) != 0 || ifs[i].addr.len == 0 ||
            iface_is_link_local(&ifs[i].addr))
            continue;
        if (best == NULL ||
            (best->addr.sa.sa_family == AF_INET6 && ifs[i].addr.sa.sa_family == AF_INET))
            best = &ifs[i];
    }
    if (best == NULL)
        return -ENOENT;
    *ret = best->addr;
    return 0;
}

int net_iface_check(const char *name, struct dd_err *err)
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    struct net_addr addr;
    size_t n = 0;
    if (if_nametoindex(name) > 0) {
        int rc = net_ifaces(&ifs, &n, err);
        return rc == 0 && net_iface_addr(ifs, n, name, &addr) < 0
                   ? dd_err_set(err, -EINVAL, "--iface=%s has no address that other nodes can use",
                                name)
                   : rc;
    }
    if (errno != ENODEV)
        return dd_err_set(err, -errno, "--iface=%s: cannot look up the interface: %m", name);
    DD_AUTO(buf) struct dd_buf there = DD_BUF_INIT(1 << 16);
    struct if_nameindex *all = if_nameindex();
    for (const struct if_nameindex *i = all; i != NULL && i->if_index > 0; i++)
        (void)dd_buf_printf(&there, "%s%s", i == all ? "" : ", ", i->if_name);
    if (all != NULL)
        if_freenameindex(all);
    const char *names = there.len > 0 ? dd_buf_str(&there) : NULL;
    return dd_err_set(err, -EINVAL, "--iface=%s: no such interface on this node; available: %.400s",
                      name, names != NULL ? names : "unknown");
}

/* SO_BINDTODEVICE is unprivileged since Linux 5.7; on older kernels, bind the source address. */
static int bind_to_iface(int fd, const char *name, int family)
{
    struct net_iface *ifs = NULL;
    size_t n = 0;
    if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)strlen(name)) == 0)
        return 0;
    int rc = errno == EPERM ? net_ifaces(&ifs, &n, NULL) : -errno;
    if (rc < 0)
        return rc;
    rc = -EADDRNOTAVAIL;
    for (size_t i = 0; i < n && rc < 0; i++)
        if (strcmp(ifs[i].name, name) == 0 && ifs[i].addr.sa.sa_family == family)
            rc = bind(fd, &ifs[i].addr.sa, ifs[i].addr.len) < 0 ? -errno : 0;
    free(ifs);
    return rc;
}

int net_iface_connect(const char *name, const struct net_addr *to, unsigned limit_ms)
{
    DD_AUTO(fd) int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = fd < 0 ? -errno : name != NULL ? bind_to_iface(fd, name, to->sa.sa_family) : 0;
    if (rc < 0)
        return rc;
    if (connect(fd, &to->sa, to->len) == 0)
        return DD_TAKE_FD(fd);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int e = errno;
    socklen_t len = sizeof(e);
    if (e != EINPROGRESS)
        return -e;
    if (poll(&p, 1, (int)limit_ms) <= 0)
        return -ETIMEDOUT;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
        return -errno;
    return e != 0 ? -e : DD_TAKE_FD(fd);
}

int net_iface_reaches(const char *name, const struct net_addr *to, unsigned limit_ms)
{
    DD_AUTO(fd) int fd = net_iface_connect(name, to, limit_ms);
    return fd < 0 ? fd : 0;
}

static bool starts(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Src: NCCL 2.23-2.30, findInterfaces: prefixes in this order, running interfaces only; ::1 is
 * ignored. */
static bool of_class(const char *name, int class)
{
    static const char *const last[] = {"docker", "lo", "virbr"};
    if (class == 0)
        return starts(name, "ib");
    if (class >= 2)
        return starts(name, last[class - 2]);
    return !starts(name, last[0]) && !starts(name, last[1]) && !starts(name, last[2]);
}

int net_iface_nccl_choice(const struct net_iface *ifs, size_t n, char out[16])
{
    for (int class = 0; class < 5; class ++)
        for (size_t i = 0; i < n; i++) {
            const struct net_iface *f = &ifs[i];
            bool v6_loopback = f->addr.len != 0 && f->addr.sa.sa_family == AF_INET6 &&
                               net_addr_is_loopback(&f->addr);
            if (!f->up || v6_loopback || !of_class(f->name, class))
                continue;
            memcpy(out, f->name, sizeof(f->name));
            return 0;
        }
    return -ENOENT;
}

void net_worker_ifaces_find(struct net_worker_ifaces *ret, const char *named,
                            const struct net_addr *local, bool alone)
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    size_t n = 0;
    char choice[16];
    memset(ret, 0, sizeof(*ret));
    if (named != NULL)
        (void)snprintf(ret->used, sizeof(ret->used), "%s", named);
    else if (net_addr_is_loopback(
                 local)) /* every address in 127/8 belongs to lo, but only 127.0.0.1 is listed */
        memcpy(ret->used, "lo", 3);
    else if (net_iface_of(local, ret->used) < 0)
        ret->used[0] = '\0';
    if (ret->used[0] != '\0' && !alone && net_ifaces(&ifs, &n, NULL) == 0 &&
        net_iface_nccl_choice(ifs, n, choice) == 0 && strcmp(choice, ret->used) != 0)
        memcpy(ret->nccl, ret->used, sizeof(ret->nccl));
}
