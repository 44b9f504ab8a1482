/* peer: any bytes as the kernel's reply about a socket, and any text as /proc/net/tcp.
 *
 * The first byte: 0x01 = IPv6, 0x02 = text. Then a local and a remote address with their ports; the
 * rest is the reply, or the lines. */
#include "base/cursor.h"
#include "net/peer_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IPV6 = 1, TEXT = 2, UNTOUCHED = 4242 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static struct net_addr take_addr(struct dd_rd *r, int family)
{
    struct net_addr a = {0};
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    const size_t n = family == AF_INET6 ? 16 : 4;
    const uint16_t port = (uint16_t)dd_rd_u32(r);
    const unsigned char *p = dd_rd_bytes(r, n);
    if (family == AF_INET6) {
        if (p != NULL)
            memcpy(&in6.sin6_addr, p, n);
        in6.sin6_addr.s6_addr[0] = 0xfd; /* never an IPv4-mapped address */
        must(net_addr_from_sockaddr(&a, (struct sockaddr *)&in6, sizeof(in6)) == 0);
    } else {
        if (p != NULL)
            memcpy(&in.sin_addr, p, n);
        must(net_addr_from_sockaddr(&a, (struct sockaddr *)&in, sizeof(in)) == 0);
    }
    net_addr_set_port(&a, port);
    return a;
}

static void read_answer(struct dd_rd *r, int family, const struct net_addr ends[2])
{
    struct peer_request asked;
    uid_t uid = UNTOUCHED;
    peer_request_make(&asked, family, &ends[0], &ends[1]);
    const int rc = peer_answer_read(r->p, dd_rd_left(r), &asked, &uid);
    must(rc <= 0 && rc >= -4095);
    must(rc == 0 || uid == UNTOUCHED);
    must(rc < 0 || dd_rd_left(r) >= sizeof(struct nlmsghdr) + sizeof(struct inet_diag_msg));
    must(!peer_answer_probed(r->p, dd_rd_left(r)) || rc < 0);
}

/* A line in the kernel's format is found, unless its inode is 0. */
static void find_own(const struct peer_line *want, unsigned owner, unsigned long inode)
{
    char line[512];
    uid_t uid = UNTOUCHED;
    (void)snprintf(
        line, sizeof(line),
        "  17: %s00000000:00000000 02:000A7214 00000000 %5u        0 %lu 2 ffff 20 4 30\n",
        want->text, owner, inode);
    const int rc = peer_line_read(want, line, &uid);
    must(inode != 0 ? rc == 0 && uid == owner : rc == -ENOENT);
}

static void read_lines(struct dd_rd *r, int family, const struct net_addr ends[2])
{
    struct peer_line want;
    char line[512];
    peer_line_make(&want, family, &ends[0], &ends[1]);
    must(want.len == strlen(want.text) && want.len < sizeof(want.text));
    const unsigned owner = dd_rd_u32(r);
    find_own(&want, owner, dd_rd_u32(r));
    while (!r->failed && dd_rd_left(r) > 0) {
        const size_t left = dd_rd_left(r), most = sizeof(line) - 1;
        const unsigned char *end = memchr(r->p, '\n', left);
        size_t n = end != NULL ? (size_t)(end - r->p) + 1 : left;
        n = n < most ? n : most;
        memcpy(line, dd_rd_bytes(r, n), n);
        line[n] = '\0';
        uid_t uid = UNTOUCHED;
        const int rc = peer_line_read(&want, line, &uid);
        must(rc == 1 || rc == 0 || rc == -ENOENT);
        must(rc == 1 ? uid == UNTOUCHED : strstr(line, want.text) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dd_rd r = dd_rd_of(data, size);
    const unsigned how = dd_rd_u8(&r);
    const int family = how & IPV6 ? AF_INET6 : AF_INET;
    struct net_addr ends[2];
    ends[0] = take_addr(&r, family);
    ends[1] = take_addr(&r, family);
    if (r.failed)
        return 0;
    if (how & TEXT)
        read_lines(&r, family, ends);
    else
        read_answer(&r, family, ends);
    return 0;
}
