#include "cmd/ddctl_meet.h"

#include "net/addr.h"
#include "net/loop.h"
#include "net/resolve.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RESOLVE_MS = 5000 };

struct best {
    struct event_base *base;
    struct net_addr addr; /* len 0: no address yet */
};

static bool ddctl_meet_is_link_local(const struct net_addr *a)
{
    return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr);
}

/* Prefer IPv4 to IPv6. Skip loopback and link-local addresses: on Debian, a node's own name
 * resolves to 127.0.1.1. */
static void ddctl_meet_on_addrs(void *arg, const struct net_addr *addrs, size_t n, const char *why)
{
    struct best *b = arg;
    (void)why;
    for (size_t i = 0; i < n; i++) {
        const bool better = b->addr.len == 0 ||
                            (b->addr.sa.sa_family == AF_INET6 && addrs[i].sa.sa_family == AF_INET);
        if (better && !net_addr_is_loopback(&addrs[i]) && !ddctl_meet_is_link_local(&addrs[i]))
            b->addr = addrs[i];
    }
    (void)event_base_loopbreak(b->base);
}

static void ddctl_meet_look_up(struct best *b, const char *name, bool slurm)
{
    struct net_resolve *r = NULL;
    const struct net_resolve_cfg cfg = {.name = name,
                                        .slurm = slurm ? NET_RESOLVE_SLURM_ELSE
                                                       : NET_RESOLVE_SLURM_NEVER,
                                        .timeout_ms = RESOLVE_MS,
                                        .done = ddctl_meet_on_addrs,
                                        .arg = b};
    b->base = net_loop_new();
    if (b->base == NULL)
        return;
    if (net_resolve_start(&r, b->base, &cfg, NULL) == 0)
        (void)event_base_dispatch(b->base);
    net_resolve_free(r);
    event_base_free(b->base);
}

/* On the first node, if its name does not resolve to a usable address: use the first address of its
 * interfaces. */
static void ddctl_meet_own_addr(struct best *b)
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    size_t n = 0;
    if (net_ifaces(&ifs, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n && b->addr.len == 0; i++)
        if (ifs[i].up && !ifs[i].loopback)
            (void)net_iface_addr(ifs, n, ifs[i].name, &b->addr);
}

int meet_find_addr(char **ret, const struct task_layout *p, const struct alloc *a,
                   const char *given, struct dd_err *err)
{
    struct best b = {0};
    char text[NET_ADDR_TEXT];
    const char *name = hostlist_nth(p->nodes, 0);
    const char *addr = given != NULL ? given : p->plan.nnodes == 1 ? "127.0.0.1" : NULL;
    if (addr == NULL) {
        ddctl_meet_look_up(&b, name, a->on_slurm);
        if (b.addr.len == 0 && a->index == 0)
            ddctl_meet_own_addr(&b);
        addr = b.addr.len > 0 ? net_addr_host(&b.addr, text) : name;
    }
    *ret = strdup(addr);
    return *ret == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

/* Return the local address for connections to `to`. connect() on a datagram socket sends nothing.
 */
static int ddctl_meet_source_of(const struct net_addr *to, struct net_addr *ret)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    DD_AUTO(fd) int fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, &to->sa, to->len) < 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return -errno;
    return net_addr_from_sockaddr(ret, (const struct sockaddr *)&sa, len);
}

void meet_find_ifaces(struct net_worker_ifaces *ret, const struct plan *p)
{
    struct net_addr to;
    struct net_addr from;
    char own[16];
    memset(ret, 0, sizeof(*ret));
    if (net_addr_parse(&to, p->master_addr, p->master_port > 0 ? p->master_port : 1) < 0)
        return;
    /* only the first node has an interface with the first node's address */
    const bool here = net_addr_is_loopback(&to) || net_iface_of(&to, own) == 0;
    if (here || ddctl_meet_source_of(&to, &from) == 0)
        net_worker_ifaces_find(ret, NULL, here ? &to : &from, p->nnodes == 1);
}
