#include "net/addr.h"

#include "base/num.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

static void set_in(struct net_addr *a, struct in_addr ip, uint16_t port_be)
{
    *a = (struct net_addr){.len = sizeof(a->in)};
    a->in.sin_family = AF_INET;
    a->in.sin_addr = ip;
    a->in.sin_port = port_be;
}

static void set_in6(struct net_addr *a, const struct in6_addr *ip, uint16_t port_be, uint32_t scope)
{
    if (IN6_IS_ADDR_V4MAPPED(ip)) {
        struct in_addr v4;
        memcpy(&v4, ip->s6_addr + 12, sizeof(v4));
        set_in(a, v4, port_be);
        return;
    }
    *a = (struct net_addr){.len = sizeof(a->in6)};
    a->in6.sin6_family = AF_INET6;
    a->in6.sin6_addr = *ip;
    a->in6.sin6_port = port_be;
    a->in6.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(ip) ? scope : 0;
}

static int parse_scope(const char *text, uint32_t *ret)
{
    uint64_t n;
    *ret = if_nametoindex(text);
    if (*ret != 0)
        return 0;
    if (dd_num_u64(text, 1, UINT32_MAX, &n) < 0)
        return -EINVAL;
    *ret = (uint32_t)n;
    return 0;
}

int net_addr_parse(struct net_addr *ret, const char *numeric, uint16_t port)
{
    struct in_addr v4;
    struct in6_addr v6;
    char text[NET_ADDR_TEXT];
    uint32_t scope = 0;
    if (inet_pton(AF_INET, numeric, &v4) == 1) {
        set_in(ret, v4, htons(port));
        return 0;
    }
    size_t len = strcspn(numeric, "%");
    if (len >= sizeof(text))
        return -EINVAL;
    memcpy(text, numeric, len);
    text[len] = '\0';
    if (inet_pton(AF_INET6, text, &v6) != 1)
        return -EINVAL;
    if (numeric[len] == '%' && parse_scope(numeric + len + 1, &scope) < 0)
        return -EINVAL;
    set_in6(ret, &v6, htons(port), scope);
    return 0;
}

int net_addr_from_sockaddr(struct net_addr *ret, const struct sockaddr *sa, socklen_t len)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    if (sa->sa_family == AF_INET && len >= sizeof(in)) {
        memcpy(&in, sa, sizeof(in));
        set_in(ret, in.sin_addr, in.sin_port);
        return 0;
    }
    if (sa->sa_family == AF_INET6 && len >= sizeof(in6)) {
        memcpy(&in6, sa, sizeof(in6));
        set_in6(ret, &in6.sin6_addr, in6.sin6_port, in6.sin6_scope_id);
        return 0;
    }
    return -EAFNOSUPPORT;
}

const char *net_addr_host(const struct net_addr *a, char out[NET_ADDR_TEXT])
{
    out[0] = '\0';
    if (a->len == 0)
        return out;
    if (a->sa.sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &a->in.sin_addr, out, NET_ADDR_TEXT);
        return out;
    }
    (void)inet_ntop(AF_INET6, &a->in6.sin6_addr, out, NET_ADDR_TEXT);
    if (a->in6.sin6_scope_id == 0)
        return out;
    char name[IF_NAMESIZE];
    size_t len = strlen(out);
    if (if_indextoname(a->in6.sin6_scope_id, name) != NULL)
        (void)snprintf(out + len, NET_ADDR_TEXT - len, "%%%s", name);
    else
        (void)snprintf(out + len, NET_ADDR_TEXT - len, "%%%u", a->in6.sin6_scope_id);
    return out;
}

const char *net_addr_text(const struct net_addr *a, char out[NET_ADDR_TEXT + 8])
{
    char host[NET_ADDR_TEXT];
    bool v6 = a->len != 0 && a->sa.sa_family == AF_INET6;
    (void)snprintf(out, NET_ADDR_TEXT + 8, v6 ? "[%s]:%u" : "%s:%u", net_addr_host(a, host),
                   net_addr_port(a));
    return out;
}

uint16_t net_addr_port(const struct net_addr *a)
{
    if (a->len == 0)
        return 0;
    return ntohs(a->sa.sa_family == AF_INET ? a->in.sin_port : a->in6.sin6_port);
}

void net_addr_set_port(struct net_addr *a, uint16_t port)
{
    if (a->len == 0)
        return;
    if (a->sa.sa_family == AF_INET)
        a->in.sin_port = htons(port);
    else
        a->in6.sin6_port = htons(port);
}

bool net_addr_is_loopback(const struct net_addr *a)
{
    if (a->len == 0)
        return false;
    if (a->sa.sa_family == AF_INET)
        return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

bool net_addr_same_host(const struct net_addr *a, const struct net_addr *b)
{
    if (a->len == 0 || b->len == 0 || a->sa.sa_family != b->sa.sa_family)
        return false;
    if (a->sa.sa_family == AF_INET)
        return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
    uint32_t sa = a->in6.sin6_scope_id;
    uint32_t sb = b->in6.sin6_scope_id;
    return IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr) &&
           (sa == sb || sa == 0 || sb == 0);
}

int net_split_hostport(const char *text, char *host, size_t host_size, uint16_t *port,
                       struct dd_err *err)
{
    const char *start = text;
    const char *end;
    const char *colon = NULL;
    uint64_t n = 0;
    if (text[0] == '[') {
        start = text + 1;
        end = strchr(start, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return dd_err_set(err, -EINVAL,
                              "invalid address '%s': expected [ADDRESS] or [ADDRESS]:PORT", text);
        colon = end[1] == ':' ? end + 1 : NULL;
    } else {
        const char *first = strchr(text, ':');
        bool bare_v6 = first != NULL && strchr(first + 1, ':') != NULL;
        colon = bare_v6 ? NULL : first;
        end = colon != NULL ? colon : text + strlen(text);
    }
    size_t len = (size_t)(end - start);
    if (len == 0)
        return dd_err_set(err, -EINVAL, "'%s' has no host name", text);
    if (len >= host_size)
        return dd_err_set(err, -EINVAL, "the host name in '%.80s...' is longer than %zu bytes",
                          text, host_size - 1);
    if (colon != NULL && dd_num_u64(colon + 1, 1, 65535, &n) < 0)
        return dd_err_set(err, -EINVAL, "invalid port '%s' in '%s': expected 1 to 65535", colon + 1,
                          text);
    memcpy(host, start, len);
    host[len] = '\0';
    *port = (uint16_t)n;
    return 0;
}
