#include "base/io.h"
#include "base/num.h"
#include "doctor/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 256 << 10 };

int pair_set_up(int fd)
{
    const struct timeval limit = dd_timeval(PAIR_CALL_MS * DD_NS_PER_MS);
    const int one = 1;
    const int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 ||
                   setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
                   setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
                   setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0
               ? -errno
               : 0;
}

int pair_offer_parse(struct pair_offer *ret, const char *text)
{
    char number[8];
    int port = 0;
    const size_t n = strcspn(text, "/");
    memset(ret, 0, sizeof(*ret));
    if (n >= sizeof(ret->address))
        return -EINVAL;
    memcpy(ret->address, text, n);
    if (text[n] == '\0')
        return 0;
    const char *at = text + n + 1;
    const size_t digits = strcspn(at, "/");
    if (digits >= sizeof(number) || at[digits] != '/' || strlen(at + digits + 1) != PAIR_TOKEN)
        return -EINVAL;
    (void)snprintf(number, sizeof(number), "%.*s", (int)digits, at);
    if (dd_num_int(number, 1, UINT16_MAX, &port) < 0)
        return -EINVAL;
    ret->port = (uint16_t)port;
    memcpy(ret->token, at + digits + 1, PAIR_TOKEN);
    return 0;
}

static int pair_by_time(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Return the error of a send() or recv() that returned n. 0: the peer has closed the connection;
 * EAGAIN: the time limit of the call is over. */
static int pair_errno(ssize_t n)
{
    return n == 0 ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
}

static int pair_measure_latency(int fd, struct pair_result *ret)
{
    DD_AUTO(free) uint64_t *took = calloc(PAIR_ECHOES_MAX, sizeof(*took));
    const uint64_t until = dd_now_ns() + PAIR_ECHO_MS * DD_NS_PER_MS;
    size_t n = 0;
    if (took == NULL)
        return -ENOMEM;
    for (uint64_t began; n < PAIR_ECHOES_MAX && (began = dd_now_ns()) < until; n++) {
        char byte = PAIR_ECHO;
        ssize_t k = send(fd, &byte, 1, MSG_NOSIGNAL);
        if (k == 1)
            k = recv(fd, &byte, 1, 0);
        if (k != 1)
            return pair_errno(k);
        took[n] = dd_now_ns() - began;
    }
    if (n == 0)
        return -ETIMEDOUT;
    qsort(took, n, sizeof(*took), pair_by_time);
    ret->round_trips = (int)n;
    ret->latency_ns = took[n / 2];
    return 0;
}

/* Send for a fixed time. Bytes that the peer has not acknowledged at the end do not count. */
static int pair_measure_bandwidth(int fd, struct pair_result *ret)
{
    DD_AUTO(free) char *piece = calloc(1, PIECE);
    const char go = PAIR_STREAM;
    const uint64_t most = (uint64_t)PAIR_STREAM_MIB_MAX << 20;
    const uint64_t began = dd_now_ns();
    const uint64_t until = began + PAIR_STREAM_MS * DD_NS_PER_MS;
    uint64_t sent = 0;
    int queued = 0;
    if (piece == NULL)
        return -ENOMEM;
    ssize_t n = send(fd, &go, 1, MSG_NOSIGNAL);
    while (n > 0 && sent < most && dd_now_ns() < until) {
        n = send(fd, piece, PIECE, MSG_NOSIGNAL);
        sent += n > 0 ? (uint64_t)n : 0;
    }
    if (n < 0 && errno != EAGAIN)
        return -errno;
    if (ioctl(fd, SIOCOUTQ, &queued) < 0)
        return -errno;
    ret->took_ns = dd_now_ns() - began;
    ret->bytes = (uint64_t)queued < sent ? sent - (uint64_t)queued : 0;
    return ret->bytes > 0 ? 0 : -ETIMEDOUT;
}

/* Send the token; on close, discard the data that is still queued. */
static int pair_begin(int fd, const char *token)
{
    const struct linger at_once = {.l_onoff = 1};
    int rc = pair_set_up(fd);
    if (rc == 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) < 0)
        rc = -errno;
    if (rc < 0)
        return rc;
    const ssize_t n = send(fd, token, PAIR_TOKEN, MSG_NOSIGNAL);
    if (n > 0) /* the time limit was over before the rest */
        return n == PAIR_TOKEN ? 0 : -ETIMEDOUT;
    return pair_errno(n);
}

int pair_measure(struct pair_result *ret, const struct net_addr *to, const char *iface,
                 const char *token, struct dd_err *err)
{
    char text[NET_ADDR_TEXT + 8];
    DD_AUTO(fd) int fd = net_iface_connect(iface, to, PAIR_CONNECT_MS);
    memset(ret, 0, sizeof(*ret));
    if (fd < 0)
        return dd_err_set(err, fd, "cannot connect to %s: %s", net_addr_text(to, text),
                          strerror(-fd));
    int rc = pair_begin(fd, token);
    if (rc == 0)
        rc = pair_measure_latency(fd, ret);
    if (rc == 0)
        rc = pair_measure_bandwidth(fd, ret);
    if (rc == -ENOMEM)
        return dd_err_set(err, rc, "out of memory for measuring the connection to %s",
                          net_addr_text(to, text));
    return rc == 0 ? 0
                   : dd_err_set(err, rc, "the connection to %s failed: %s", net_addr_text(to, text),
                                strerror(-rc));
}
