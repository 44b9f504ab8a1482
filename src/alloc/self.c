/* Determines which host of a list is this machine: by full name, then by address, then by name up
 * to the first dot. Names of the scheduler, the resolver and gethostname() often differ after it.
 */
#include "alloc/alloc_inner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

struct addr {
    int family; /* 0: not an address */
    unsigned char bytes[16];
};

static struct addr addr_of(const char *text)
{
    struct addr a = {0};
    char host[INET6_ADDRSTRLEN];
    size_t n = strcspn(text, "%"); /* skip the zone of fe80::1%eth0 */
    if (n >= sizeof(host))
        return a;
    memcpy(host, text, n);
    host[n] = '\0';
    if (inet_pton(AF_INET, host, a.bytes) == 1)
        a.family = AF_INET;
    else if (inet_pton(AF_INET6, host, a.bytes) == 1)
        a.family = AF_INET6;
    return a;
}

static bool is_loopback(const struct addr *a)
{
    static const unsigned char v6[16] = {[15] = 1};
    return (a->family == AF_INET && a->bytes[0] == 127) ||
           (a->family == AF_INET6 && memcmp(a->bytes, v6, sizeof(v6)) == 0);
}

static bool is_local(const struct alloc_input *in, const char *host)
{
    struct addr a = addr_of(host);
    if (a.family == 0)
        return strcasecmp(host, "localhost") == 0;
    char *const *at = in->local_addrs != NULL ? in->local_addrs(in->machine) : NULL;
    for (; at != NULL && *at != NULL; at++) {
        struct addr mine = addr_of(*at);
        if (mine.family == a.family && memcmp(mine.bytes, a.bytes, sizeof(a.bytes)) == 0)
            return true;
    }
    return is_loopback(&a);
}

static bool is_name(const struct alloc_input *in, const char *host)
{
    return strcasecmp(host, in->hostname) == 0;
}

static bool is_short_name(const struct alloc_input *in, const char *host)
{
    size_t n = strcspn(host, ".");
    return addr_of(host).family == 0 && n == strcspn(in->hostname, ".") &&
           strncasecmp(host, in->hostname, n) == 0;
}

bool alloc_is_me(const struct alloc_input *in, const char *host)
{
    return is_name(in, host) || is_local(in, host) || is_short_name(in, host);
}

int alloc_find_me(const struct alloc_input *in, const struct hostlist *nodes)
{
    static bool (*const tests[])(const struct alloc_input *, const char *) = {is_name, is_local,
                                                                              is_short_name};
    for (size_t t = 0; t < sizeof(tests) / sizeof(tests[0]); t++) {
        int found = -ENOENT;
        for (size_t i = 0; i < hostlist_count(nodes); i++) {
            if (!tests[t](in, hostlist_nth(nodes, i)))
                continue;
            if (found >= 0)
                return -ENOTUNIQ;
            found = (int)i;
        }
        if (found >= 0)
            return found;
    }
    return -ENOENT;
}
