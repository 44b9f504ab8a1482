/* The store's part of init_process_group() of many ranks, replayed: the requests that torch 2.13
 * with gloo makes, in their order, on one connection for each rank of this node.
 *
 *     storeinit RANKS PEERS BYTES
 *
 * A worker of ddrun, one for each node: it plays RANKS / WORLD_SIZE ranks. Each of them sends
 * VALIDATE, PING, ADD init/ and SET of a value of BYTES bytes, and then WAIT, WAIT and GET for the
 * values of PEERS ranks (gloo: of all). Prints "BEGIN END REQUESTS", the times in ns, and stays
 * until it is stopped. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, SCRATCH = 1 << 20, KEY = 64 };

struct rank {
    int fd;
    unsigned number;
    long step;      /* 0: PING, 1: ADD, then three for each peer */
    size_t to_read; /* bytes of the reply that are still to come */
};

static long ranks, peers, bytes;
static unsigned char scratch[SCRATCH];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- requests ---- */

static size_t put(unsigned char *p, const void *v, size_t n)
{
    memcpy(p, v, n);
    return n;
}

static size_t put_key(unsigned char *p, unsigned number)
{
    char key[KEY];
    const uint64_t n = (uint64_t)snprintf(key, sizeof(key), "/default_pg/0//cpu//0/%u", number);
    return put(p, &n, 8) + put(p + 8, key, n);
}

static void send_all(int fd, const unsigned char *p, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            die("send");
        if (sent > 0) {
            p += sent;
            n -= (size_t)sent;
        }
    }
}

/* Send the request of the rank's next step; 0: there is none. */
static int next(struct rank *r)
{
    static const uint64_t one = 1;
    static unsigned char b[SCRATCH];
    const long at = r->step - 2, peer = at / 3 * (ranks / peers);
    const uint64_t size = (uint64_t)bytes;
    size_t n = 0;
    if (r->step == 0) {
        n += put(b, "\x00\xce\xf7\x85\x3c\x0d\x01\x02\x03\x04", 10);
        r->to_read = 4;
    } else if (r->step == 1) {
        const uint64_t len = 5;
        b[n++] = 0x04;
        n += put(b + n, &len, 8);
        n += put(b + n, "init/", 5);
        n += put(b + n, &one, 8);
        r->to_read = 8;
    } else if (at >= 3 * peers) {
        return 0;
    } else {
        if (at == 0) {
            b[n++] = 0x01;
            n += put_key(b + n, r->number);
            n += put(b + n, &size, 8) + size;
        }
        b[n++] = at % 3 < 2 ? 0x06 : 0x03;
        if (at % 3 < 2)
            n += put(b + n, &one, 8);
        n += put_key(b + n, (unsigned)peer);
        r->to_read = at % 3 < 2 ? 1 : 8 + (size_t)bytes;
    }
    r->step++;
    send_all(r->fd, b, n);
    return 1;
}

/* Read what has come; true once the reply is complete. */
static int is_answered(struct rank *r)
{
    ssize_t n = recv(r->fd, scratch, r->to_read < SCRATCH ? r->to_read : SCRATCH, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        die("recv");
    r->to_read -= n > 0 ? (size_t)n : 0;
    return r->to_read == 0;
}

/* ---- connections ---- */

static int connect_one(void)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(getenv("MASTER_PORT")))};
    if (inet_pton(AF_INET, getenv("MASTER_ADDR"), &to.sin_addr) != 1 || fd < 0 ||
        connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
        die("connect");
    return fd;
}

int main(int argc, char **argv)
{
    const struct rlimit files = {65536, 65536};
    struct epoll_event events[EVENTS];
    const int ep = epoll_create1(EPOLL_CLOEXEC), node = atoi(getenv("RANK"));
    if (argc != 4)
        return 2;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    ranks = atol(argv[1]);
    peers = atol(argv[2]);
    bytes = atol(argv[3]);
    const long here = ranks / atol(getenv("WORLD_SIZE"));
    struct rank *v = calloc((size_t)here, sizeof(*v));
    const uint64_t begin = now();
    uint64_t requests = 0;
    for (long i = 0; i < here; i++) {
        v[i] = (struct rank){.fd = connect_one(), .number = (unsigned)(node * here + i)};
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &v[i]};
        if (epoll_ctl(ep, EPOLL_CTL_ADD, v[i].fd, &e) < 0)
            die("epoll_ctl");
        requests += (unsigned)next(&v[i]);
    }
    for (long busy = here; busy > 0;) {
        const int n = epoll_wait(ep, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct rank *r = events[i].data.ptr;
            if (!is_answered(r))
                continue;
            if (next(r))
                requests++;
            else
                busy--;
        }
    }
    printf("%llu %llu %llu\n", (unsigned long long)begin, (unsigned long long)now(),
           (unsigned long long)requests);
    fflush(stdout);
    for (;;)
        pause();
}
