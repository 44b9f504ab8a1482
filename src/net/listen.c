#include "net/listen.h"

#include "base/auto.h"
#include "base/buf.h"
#include "net/port_owner_inner.h"

#include <errno.h>

/* Bind a new socket to the address with `option`, SO_REUSEADDR or SO_REUSEPORT. 0 or -errno. */
static int try_bind(const struct net_addr *a, int option, bool listening, int *ret_fd)
{
    static const int on = 1;
    static const int off = 0;
    DD_AUTO(fd) int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (a->sa.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (setsockopt(fd, SOL_SOCKET, option, &on, sizeof(on)) < 0 || bind(fd, &a->sa, a->len) < 0 ||
        (listening && listen(fd, SOMAXCONN) < 0))
        return -errno;
    *ret_fd = DD_TAKE_FD(fd);
    return 0;
}

static bool no_ipv6(int rc)
{
    return rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL || rc == -EPROTONOSUPPORT;
}

static int try_everywhere(uint16_t port, int option, bool listening, int *ret_fd)
{
    struct net_addr a;
    (void)net_addr_parse(&a, "::", port);
    int rc = try_bind(&a, option, listening, ret_fd);
    if (!no_ipv6(rc))
        return rc;
    (void)net_addr_parse(&a, "0.0.0.0", port);
    return try_bind(&a, option, listening, ret_fd);
}

static int listen_try_port(const struct net_addr *given, uint16_t port, int *ret_fd)
{
    struct net_addr a = *given;
    if (a.len != 0) {
        net_addr_set_port(&a, port);
        return try_bind(&a, SO_REUSEADDR, true, ret_fd);
    }
    return try_everywhere(port, SO_REUSEADDR, true, ret_fd);
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage ss;
    struct net_addr a;
    socklen_t len = sizeof(ss);
    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0 ||
        net_addr_from_sockaddr(&a, (struct sockaddr *)&ss, len) < 0)
        return 0;
    return net_addr_port(&a);
}

enum { SHOWN = 16 };

static int none_free(const uint16_t *ports, size_t n, int rc, struct dd_err *err)
{
    char holder[96] = "";
    if (n == 1 && rc == -EADDRINUSE) {
        net_port_holder(ports[0], holder, sizeof(holder));
        return holder[0] != '\0' ? dd_err_set(err, rc, "port %u is in use by %s", ports[0], holder)
                                 : dd_err_set(err, rc, "port %u is in use", ports[0]);
    }
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(400);
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        char who[96] = "";
        if (i < 4 && rc == -EADDRINUSE)
            net_port_holder(ports[i], who, sizeof(who));
        if (dd_buf_printf(&list, "%s%u", i > 0 ? ", " : "", ports[i]) < 0 ||
            (who[0] != '\0' && dd_buf_printf(&list, " (held by %s)", who) < 0))
            break;
    }
    if (n > SHOWN)
        (void)dd_buf_printf(&list, " and %zu more", n - SHOWN);
    const char *text = dd_buf_str(&list);
    errno = -rc;
    return dd_err_set(err, rc, "cannot listen on port%s %s: %m", n > 1 ? "s" : "",
                      text != NULL ? text : "");
}

int net_listen(const char *addr, const uint16_t *ports, size_t n, uint16_t *ret_port,
               struct dd_err *err)
{
    struct net_addr given = {.len = 0};
    int rc = -EADDRINUSE;
    if (addr != NULL && addr[0] != '\0' && net_addr_parse(&given, addr, 0) < 0)
        return dd_err_set(err, -EINVAL, "cannot listen on '%s': not a numeric address", addr);
    if (n == 0)
        return dd_err_set(err, -EINVAL, "no port to listen on");
    for (size_t i = 0; i < n; i++) {
        int fd = -1;
        int now = listen_try_port(&given, ports[i], &fd);
        if (now == 0) {
            *ret_port = bound_port(fd);
            return fd;
        }
        if (now == -EADDRNOTAVAIL) {
            errno = -now;
            return dd_err_set(err, now, "cannot listen on address '%s': %m", addr);
        }
        if (i == 0 || now != -EADDRINUSE)
            rc = now;
    }
    return none_free(ports, n, rc, err);
}

int net_reserve(enum net_reserve how, int *ret_fd, uint16_t *ret_port)
{
    DD_AUTO(fd) int fd = -1;
    int rc = try_everywhere(0, how == NET_RESERVE_PORT ? SO_REUSEPORT : SO_REUSEADDR, false, &fd);
    if (rc < 0)
        return rc;
    *ret_port = bound_port(fd);
    if (*ret_port == 0)
        return -EIO;
    *ret_fd = DD_TAKE_FD(fd);
    return 0;
}
