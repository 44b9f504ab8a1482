/* Lower bound for servers of many connections: reads requests from epoll and writes replies,
 * without looking at their content.
 *
 * A request begins with two 32-bit numbers: its length and the length of the reply. Prints
 * "floor: listening on 127.0.0.1:PORT". */
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
#include <unistd.h>

enum {
    EVENTS = 512,
    SCRATCH = 1 << 20,
    VALUES = 1000, /* as many as the keys that storebench requests in turn */
    STORED = 64 << 20,
    REPLY_MOST = 2 << 20,
};

struct conn {
    int fd;
    unsigned char head[8];
    uint32_t got;  /* bytes received of the request */
    uint32_t need; /* length of the request; 0: not known yet */
    uint32_t left; /* bytes of the reply not sent yet */
    uint32_t done; /* requests served; starts at the connection's number */
    const unsigned char *reply;
};

/* Large enough that long replies come from memory rather than from the processor's cache, as in a
 * store. */
static unsigned char scratch[SCRATCH], stored[STORED + REPLY_MOST];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void want(int ep, struct conn *c, uint32_t events, int how)
{
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(ep, how, c->fd, &e) < 0)
        die("epoll_ctl");
}

static void answer(int ep, struct conn *c, int again)
{
    ssize_t n = send(c->fd, c->reply, c->left, MSG_NOSIGNAL);
    c->left -= n > 0 ? (uint32_t)n : 0;
    c->reply += n > 0 ? n : 0;
    if (c->left > 0 && !again)
        want(ep, c, EPOLLOUT, EPOLL_CTL_MOD);
    else if (c->left == 0 && again)
        want(ep, c, EPOLLIN, EPOLL_CTL_MOD);
}

/* A client has at most one request in flight: nothing is read beyond its end. */
static void take(int ep, struct conn *c)
{
    ssize_t n = recv(c->fd, scratch, sizeof(scratch), 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        close(c->fd);
        free(c);
        return;
    }
    for (ssize_t i = 0; i < n && c->got + (uint32_t)i < 8; i++)
        c->head[c->got + (uint32_t)i] = scratch[i];
    c->got += (uint32_t)n;
    if (c->got >= 8)
        memcpy(&c->need, c->head, 4);
    if (c->need == 0 || c->got < c->need)
        return;
    memcpy(&c->left, c->head + 4, 4);
    c->got = c->need = 0;
    c->reply = stored + (uint64_t)(c->done++ % VALUES) * c->left % STORED;
    answer(ep, c, 0);
}

static void greet(int ep, int listener)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct conn *c = calloc(1, sizeof(*c));
        if (c == NULL)
            die("calloc");
        c->fd = fd;
        c->done = (uint32_t)fd;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        want(ep, c, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static int listen_somewhere(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        die("listen");
    printf("floor: listening on 127.0.0.1:%d\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

int main(void)
{
    struct rlimit files;
    struct epoll_event events[EVENTS];
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    memset(stored, 'v', sizeof(stored));
    int listener = listen_somewhere(), ep = epoll_create1(EPOLL_CLOEXEC);
    struct conn door = {.fd = listener};
    want(ep, &door, EPOLLIN, EPOLL_CTL_ADD);
    for (;;) {
        int n = epoll_wait(ep, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (c == &door)
                greet(ep, listener);
            else if (events[i].events & EPOLLOUT)
                answer(ep, c, 1);
            else
                take(ep, c);
        }
    }
}
