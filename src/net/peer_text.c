#include "net/peer_text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <string.h>

enum { TCP_IS_ESTABLISHED = 1 }; /* Src: include/net/tcp_states.h */

static void put_addr(uint32_t out[4], const struct net_addr *a, int family)
{
    memset(out, 0, 16);
    if (a->sa.sa_family == AF_INET6) {
        memcpy(out, &a->in6.sin6_addr, 16);
    } else if (family == AF_INET) {
        out[0] = a->in.sin_addr.s_addr;
    } else { /* ::ffff:a.b.c.d */
        out[2] = htonl(0xffff);
        out[3] = a->in.sin_addr.s_addr;
    }
}

void peer_request_make(struct peer_request *r, int family, const struct net_addr *local,
                       const struct net_addr *remote)
{
    *r = (struct peer_request){
        .head = {.nlmsg_len = sizeof(*r),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = (uint8_t)family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = 1U << TCP_IS_ESTABLISHED},
    };
    struct inet_diag_sockid *id = &r->body.id;
    id->idiag_sport = htons(net_addr_port(local));
    id->idiag_dport = htons(net_addr_port(remote));
    put_addr(id->idiag_src, local, family);
    put_addr(id->idiag_dst, remote, family);
    if (local->sa.sa_family == AF_INET6)
        id->idiag_if = local->in6.sin6_scope_id;
    id->idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

void peer_request_probe(struct peer_request *r)
{
    *r = (struct peer_request){
        .head = {.nlmsg_len = sizeof(*r),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP},
    };
}

static int read_error(const unsigned char *body, size_t n)
{
    struct nlmsgerr e;
    if (n < sizeof(e.error))
        return -EPROTO;
    memcpy(&e.error, body, sizeof(e.error));
    return e.error < 0 && e.error >= -4095 ? e.error : -EPROTO; /* Src: linux/err.h, MAX_ERRNO */
}

/* Accept only an established socket with an inode. The kernel's look-up falls back to a listener on
 * that port, and reports uid 0 for a socket that its program has closed (Src: Linux
 * inet_diag_find_one_icsk, sock_i_uid). */
int peer_answer_read(const void *bytes, size_t n, const struct peer_request *asked, uid_t *ret)
{
    const struct inet_diag_sockid *id = &asked->body.id;
    const unsigned char *body = (const unsigned char *)bytes + sizeof(struct nlmsghdr);
    struct nlmsghdr head;
    struct inet_diag_msg sock;
    if (n < sizeof(head))
        return -EPROTO;
    memcpy(&head, bytes, sizeof(head));
    n -= sizeof(head);
    if (head.nlmsg_type == NLMSG_ERROR)
        return read_error(body, n);
    if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY || n < sizeof(sock))
        return -EPROTO;
    memcpy(&sock, body, sizeof(sock));
    if (sock.idiag_state != TCP_IS_ESTABLISHED || sock.idiag_inode == 0 ||
        sock.id.idiag_sport != id->idiag_sport || sock.id.idiag_dport != id->idiag_dport)
        return -ENOENT;
    *ret = sock.idiag_uid;
    return 0;
}

bool peer_answer_is_of(const void *bytes, size_t n, const struct peer_request *asked)
{
    struct nlmsghdr head;
    if (n < sizeof(head))
        return false;
    memcpy(&head, bytes, sizeof(head));
    return head.nlmsg_seq == asked->head.nlmsg_seq;
}

bool peer_answer_probed(const void *bytes, size_t n)
{
    struct nlmsghdr head;
    int done;
    if (n < sizeof(head) + sizeof(done))
        return false;
    memcpy(&head, bytes, sizeof(head));
    memcpy(&done, (const unsigned char *)bytes + sizeof(head), sizeof(done));
    return head.nlmsg_type == NLMSG_DONE && done == 0;
}

/* Addresses are native-endian words in hexadecimal; state 01 is ESTABLISHED. */
void peer_line_make(struct peer_line *ret, int family, const struct net_addr *local,
                    const struct net_addr *remote)
{
    const struct net_addr *ends[] = {local, remote};
    const size_t words = family == AF_INET ? 1 : 4;
    size_t len = 0;
    for (size_t e = 0; e < 2; e++) {
        uint32_t addr[4];
        put_addr(addr, ends[e], family);
        for (size_t i = 0; i < words; i++)
            len += (size_t)snprintf(ret->text + len, sizeof(ret->text) - len, "%08X", addr[i]);
        len += (size_t)snprintf(ret->text + len, sizeof(ret->text) - len, ":%04X ",
                                net_addr_port(ends[e]));
    }
    ret->len = len + (size_t)snprintf(ret->text + len, sizeof(ret->text) - len, "01 ");
}

int peer_line_read(const struct peer_line *want, const char *line, uid_t *ret)
{
    const char *at = strstr(line, want->text);
    unsigned uid;
    unsigned long inode;
    if (at == NULL || sscanf(at + want->len, "%*x:%*x %*x:%*x %*x %u %*d %lu", &uid, &inode) != 2)
        return 1;
    *ret = uid;
    return inode != 0 ? 0 : -ENOENT;
}
