/* Load for a c10d store: N connections with one operation in flight each, all driven by one epoll.
 *
 *     storebench --port=P [--conns=64] [--op=get] [--size=16] [--seconds=2] [--floor]
 * [--pid=SERVER]
 *
 * Operations: get, set (a SET and a PING, whose reply confirms the SET), add, check, and mix (get,
 * set, add and check in turn). With --floor, requests and replies have the same lengths, but the
 * server is epollfloor. Prints one JSON line: operations per second, latencies, the server's
 * processor time per operation and its resident memory. */
#include "base/io.h"
#include "base/num.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
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
    KEYS = 1000,
    WARM_UP = 4, /* warm-up: a quarter of the measured time */
    SUB = 32,    /* histogram bins per doubling */
    BINS = 40 * SUB,
};

enum op { GET, SET, ADD, CHECK, OPS };
static const char *const op_names[] = {"get", "set", "add", "check", "mix"};

struct options {
    int port, conns, size, pid;
    enum op op; /* OPS: mix */
    uint64_t ns;
    bool floor;
};

struct conn {
    int fd;
    unsigned number;
    unsigned done; /* operations */
    uint32_t to_read;
    uint32_t to_send, sent; /* of the request in flight */
    uint64_t start;
};

struct bench {
    struct options o;
    int ep;
    struct conn *conns;
    unsigned char *request; /* buffer for one request */
    uint64_t bins[BINS], ops;
    bool counting;
};

static unsigned char scratch[SCRATCH];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- requests ---- */

static unsigned char *put(unsigned char *p, const void *v, size_t n)
{
    memcpy(p, v, n);
    return p + n;
}

static unsigned char *put_str(unsigned char *p, const void *v, uint64_t n)
{
    return put(put(p, &n, 8), v, n);
}

/* Append a key with the length and form of the keys of torch's rendezvous. */
static unsigned char *put_key(unsigned char *p, const char *kind, unsigned number)
{
    char key[64];
    int n = snprintf(key, sizeof(key), "/default_pg/0//cpu//0/%s/%05u", kind, number);
    return put_str(p, key, (uint64_t)n);
}

/* Append a value of `size` bytes; the bytes are left uninitialized. */
static unsigned char *put_value(unsigned char *p, int size)
{
    uint64_t n = (uint64_t)size;
    return put(p, &n, 8) + n;
}

static unsigned char *put_set(unsigned char *p, const char *kind, unsigned number, int size)
{
    *p++ = 0x01;
    p = put_value(put_key(p, kind, number), size);
    return put(p, "\x0d\x01\x02\x03\x04", 5);
}

/* Write the request of the connection's next operation. Return its length; set the reply's. */
static uint32_t make_request(struct bench *b, const struct conn *c, uint32_t *ret_reply)
{
    unsigned char *p = b->request;
    const uint64_t one = 1;
    enum op op = b->o.op == OPS ? (enum op)((c->number + c->done) % OPS) : b->o.op;
    switch (op) {
    case GET:
        *p++ = 0x03;
        p = put_key(p, "blob", (c->number + c->done) % KEYS);
        *ret_reply = 8 + (uint32_t)b->o.size;
        break;
    case SET:
        p = put_set(p, "own", c->number, b->o.size);
        *ret_reply = 4;
        break;
    case ADD:
        *p++ = 0x04;
        p = put(put_key(p, "count", c->number), &one, 8);
        *ret_reply = 8;
        break;
    case CHECK:
        *p++ = 0x05;
        p = put_key(put(p, &one, 8), "blob", (c->number + c->done) % KEYS);
        *ret_reply = 1;
        break;
    case OPS:
        abort();
    }
    uint32_t n = (uint32_t)(p - b->request);
    if (b->o.floor) {
        memcpy(b->request, &n, 4);
        memcpy(b->request + 4, ret_reply, 4);
    }
    return n;
}

/* ---- connections ---- */

/* Connect from 127.0.0.1, which /etc/hosts names: torch's server looks up the name of each peer. */
static int connect_one(const struct options *o)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)o->port)};
    if (fd < 0)
        die("socket");
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
        die("connect");
    return fd;
}

static void read_all(int fd, size_t n)
{
    while (n > 0) {
        ssize_t got = recv(fd, scratch, n < SCRATCH ? n : SCRATCH, 0);
        if (got <= 0)
            die("recv");
        n -= (size_t)got;
    }
}

static void send_all(int fd, const unsigned char *p, size_t n)
{
    if (dd_write_full(fd, p, n) < 0)
        die("send");
}

static void shake_hands(int fd)
{
    send_all(fd, (const unsigned char *)"\x00\xce\xf7\x85\x3c\x0d\x01\x02\x03\x04", 10);
    read_all(fd, 4);
}

static void prepare(struct bench *b)
{
    for (int i = 0; i < b->o.conns; i++) {
        struct conn *c = &b->conns[i];
        *c = (struct conn){.fd = connect_one(&b->o), .number = (unsigned)i};
        if (!b->o.floor)
            shake_hands(c->fd);
    }
    for (unsigned k = 0; !b->o.floor && k < KEYS; k++) {
        unsigned char *end = put_set(b->request, "blob", k, b->o.size);
        send_all(b->conns[0].fd, b->request, (size_t)(end - b->request));
        read_all(b->conns[0].fd, 4);
    }
    for (int i = 0; i < b->o.conns; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &b->conns[i]};
        int fd = b->conns[i].fd;
        if (dd_fd_nonblock(fd) < 0 || epoll_ctl(b->ep, EPOLL_CTL_ADD, fd, &e) < 0)
            die("epoll_ctl");
    }
}

/* ---- operations ---- */

static void want(const struct bench *b, struct conn *c, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(b->ep, EPOLL_CTL_MOD, c->fd, &e) < 0)
        die("epoll_ctl");
}

/* Send the rest of the request, which is built again: connections store no request. */
static void send_some(struct bench *b, struct conn *c)
{
    uint32_t reply;
    bool started = c->sent > 0;
    (void)make_request(b, c, &reply);
    ssize_t n = send(c->fd, b->request + c->sent, c->to_send - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
        die("send");
    c->sent += n > 0 ? (uint32_t)n : 0;
    if (c->sent < c->to_send && !started)
        want(b, c, EPOLLIN | EPOLLOUT);
    else if (c->sent == c->to_send && started)
        want(b, c, EPOLLIN);
}

static void start_one(struct bench *b, struct conn *c, uint64_t now)
{
    c->to_send = make_request(b, c, &c->to_read);
    c->sent = 0;
    c->start = now;
    send_some(b, c);
}

static unsigned bin_of(uint64_t ns)
{
    unsigned log = ns > 0 ? 63 - (unsigned)__builtin_clzll(ns) : 0;
    unsigned sub = log >= 5 ? (unsigned)(ns >> (log - 5)) & (SUB - 1) : 0;
    unsigned bin = log * SUB + sub;
    return bin < BINS ? bin : BINS - 1;
}

static double bin_us(unsigned bin)
{
    return (double)(UINT64_C(1) << bin / SUB) * (1.0 + (bin % SUB) / (double)SUB) / 1000;
}

static void on_reply(struct bench *b, struct conn *c)
{
    ssize_t n = recv(c->fd, scratch, sizeof(scratch), 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0 || (uint32_t)n > c->to_read) {
        fprintf(stderr, "storebench: the server %s\n", n <= 0 ? "has closed" : "says too much");
        exit(1);
    }
    c->to_read -= (uint32_t)n;
    if (c->to_read > 0)
        return;
    uint64_t now = dd_now_ns();
    if (b->counting) {
        b->bins[bin_of(now - c->start)]++;
        b->ops++;
    }
    c->done++;
    start_one(b, c, now);
}

static void run_until(struct bench *b, uint64_t end)
{
    struct epoll_event events[EVENTS];
    while (dd_now_ns() < end) {
        int n = epoll_wait(b->ep, events, EVENTS, 100);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                send_some(b, c);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                on_reply(b, c);
        }
    }
}

/* ---- results ---- */

static double percentile(const struct bench *b, double part)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < BINS; i++) {
        seen += b->bins[i];
        if ((double)seen >= part * (double)b->ops)
            return bin_us(i);
    }
    return bin_us(BINS - 1);
}

/* Return the processor time of the server, user and system, in microseconds. */
static double cpu_us(int pid)
{
    char path[64], text[512] = "";
    unsigned long user = 0, sys = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *p = strrchr(text, ')');
    if (p == NULL ||
        sscanf(p, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys) != 2)
        return 0;
    return (double)(user + sys) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static double rss_mib(int pid)
{
    char path[64];
    unsigned long pages = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%*u %lu", &pages) != 1)
        pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static void measure(struct bench *b)
{
    uint64_t now = dd_now_ns();
    for (int i = 0; i < b->o.conns; i++)
        start_one(b, &b->conns[i], now);
    run_until(b, now + b->o.ns / WARM_UP);
    double cpu = cpu_us(b->o.pid);
    uint64_t start = dd_now_ns();
    b->counting = true;
    run_until(b, start + b->o.ns);
    double seconds = (double)(dd_now_ns() - start) / 1e9;
    printf("{\"conns\": %d, \"op\": \"%s\", \"size\": %d, \"ops\": %.0f, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, \"cpu_us\": %.2f, \"rss_mib\": %.1f}\n",
           b->o.conns, op_names[b->o.op], b->o.size, (double)b->ops / seconds, percentile(b, 0.5),
           percentile(b, 0.99), (cpu_us(b->o.pid) - cpu) / (double)(b->ops > 0 ? b->ops : 1),
           rss_mib(b->o.pid));
}

static bool parse_op(const char *s, enum op *ret)
{
    for (unsigned i = 0; i <= OPS; i++)
        if (strcmp(s, op_names[i]) == 0) {
            *ret = (enum op)i;
            return true;
        }
    return false;
}

static bool parse_one(const char *a, struct options *o)
{
    const struct {
        const char *name;
        int *ret, min, max;
    } numbers[] = {
        {"--port=", &o->port, 1, 65535},
        {"--conns=", &o->conns, 1, 100000},
        {"--size=", &o->size, 0, 1024 * 1024},
        {"--pid=", &o->pid, 1, 1 << 30},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t n = strlen(numbers[i].name);
        if (strncmp(a, numbers[i].name, n) == 0)
            return dd_num_int(a + n, numbers[i].min, numbers[i].max, numbers[i].ret) == 0;
    }
    if (strncmp(a, "--op=", 5) == 0)
        return parse_op(a + 5, &o->op);
    if (strncmp(a, "--seconds=", 10) == 0)
        return dd_num_duration_ns(a + 10, &o->ns) == 0;
    o->floor |= strcmp(a, "--floor") == 0;
    return strcmp(a, "--floor") == 0;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct rlimit files;
    b.o = (struct options){.conns = 64, .op = GET, .size = 16, .ns = 2 * DD_NS_PER_S};
    for (int i = 1; i < argc; i++)
        if (!parse_one(argv[i], &b.o)) {
            fprintf(stderr, "storebench: cannot take '%s'\n", argv[i]);
            return 2;
        }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    b.ep = epoll_create1(EPOLL_CLOEXEC);
    b.conns = calloc((size_t)b.o.conns, sizeof(*b.conns));
    b.request = calloc(1, (size_t)b.o.size + 256);
    if (b.ep < 0 || b.conns == NULL || b.request == NULL)
        die("storebench");
    prepare(&b);
    measure(&b);
    return 0;
}
