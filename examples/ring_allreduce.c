/* Ring all-reduce over plain sockets: a distributed program that needs no framework.
 *
 *     ddrun --nproc-per-node=4 examples/ring_allreduce [NUMBERS]
 *     srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 ddrun --nproc-per-node=4 ./ring_allreduce
 *
 * It uses only the environment that ddrun sets: RANK and WORLD_SIZE, and the store at
 * MASTER_ADDR:MASTER_PORT, in which the workers publish their addresses. The store's protocol is
 * PyTorch's c10d; this program implements three of its operations. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OP_VALIDATE = 0, OP_SET = 1, OP_GET = 3, OP_WAIT = 6 };
enum { TIMEOUT_MS = 60000, TEXT_MAX = 256 };

static void __attribute__((format(printf, 1, 2), noreturn)) die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "ring_allreduce: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    if (value == NULL)
        die("%s is not set; start this program with ddrun", name);
    return value;
}

static void put(int fd, const void *data, size_t size)
{
    const char *p = data;
    while (size > 0) {
        ssize_t n = send(fd, p, size, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            die("cannot send: %s", strerror(errno));
        p += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
}

static void get(int fd, void *data, size_t size)
{
    char *p = data;
    while (size > 0) {
        ssize_t n = recv(fd, p, size, 0);
        if (n == 0)
            die("the other end has closed the connection");
        if (n < 0 && errno != EINTR)
            die("cannot receive: %s", strerror(errno));
        p += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
}

static int connect_to(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int one = 1;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0)
        die("cannot resolve %s: %s", host, gai_strerror(rc));
    int fd = -1;
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        die("cannot connect to %s port %s: %s", host, port, strerror(errno));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

/* The store. Numbers are little-endian; a text is its length in 8 bytes, then the bytes. Keys of
 * PyTorch's own clients begin with '/'. Src: recorded from torch 2.13.0 */

static void store_text(int fd, const char *text)
{
    uint64_t n = strlen(text);
    put(fd, &n, sizeof(n));
    put(fd, text, n);
}

static int store_open(void)
{
    static const uint8_t hello[5] = {OP_VALIDATE, 0xce, 0xf7, 0x85, 0x3c};
    int fd = connect_to(variable("MASTER_ADDR"), variable("MASTER_PORT"));
    put(fd, hello, sizeof(hello));
    return fd;
}

static void store_set(int fd, const char *key, const char *value)
{
    const uint8_t op = OP_SET;
    put(fd, &op, 1);
    store_text(fd, key);
    store_text(fd, value);
}

/* Waits until the key is there. */
static void store_get(int fd, const char *key, char value[TEXT_MAX])
{
    const uint8_t ops[] = {OP_WAIT, OP_GET};
    uint64_t n = 1;
    uint8_t done;
    put(fd, &ops[0], 1);
    put(fd, &n, sizeof(n));
    store_text(fd, key);
    get(fd, &done, 1);
    put(fd, &ops[1], 1);
    store_text(fd, key);
    get(fd, &n, sizeof(n));
    if (n >= TEXT_MAX)
        die("the value of %s is too long", key);
    get(fd, value, n);
    value[n] = '\0';
}

/* The ring: each rank sends to the next one and receives from the one before. */

struct ring {
    int rank, world;
    int to_next, from_previous;
};

/* Listens on the address by which this rank reached the store, and returns it as "ADDRESS PORT". */
static int listen_beside(int store, char text[TEXT_MAX])
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    char host[INET6_ADDRSTRLEN], port[16];
    if (getsockname(store, (struct sockaddr *)&addr, &len) < 0)
        die("getsockname: %s", strerror(errno));
    if (addr.ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)&addr)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)(void *)&addr)->sin6_port = 0;
    int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, 8) < 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
        die("cannot listen: %s", strerror(errno));
    if (getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        die("cannot name my address");
    (void)snprintf(text, TEXT_MAX, "%s %s", host, port);
    return fd;
}

/* Accepts until the rank before is there: it says its number first. */
static int accept_from(int listener, int rank)
{
    for (;;) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        int32_t said = -1;
        if (poll(&p, 1, TIMEOUT_MS) != 1)
            die("rank %d does not come", rank);
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        get(fd, &said, sizeof(said));
        if (said == rank)
            return fd;
        close(fd);
    }
}

static void ring_open(struct ring *r)
{
    char key[TEXT_MAX], mine[TEXT_MAX], next[TEXT_MAX];
    const char *attempt = getenv("TORCHELASTIC_RESTART_COUNT");
    r->rank = atoi(variable("RANK"));
    r->world = atoi(variable("WORLD_SIZE"));
    int store = store_open();
    int listener = listen_beside(store, mine);
    attempt = attempt != NULL ? attempt : "0";
    (void)snprintf(key, sizeof(key), "/ring/%s/%d", attempt, r->rank);
    store_set(store, key, mine);
    (void)snprintf(key, sizeof(key), "/ring/%s/%d", attempt, (r->rank + 1) % r->world);
    store_get(store, key, next);
    char *port = strchr(next, ' ');
    if (port == NULL)
        die("'%s' is no address", next);
    *port++ = '\0';
    int32_t rank = r->rank;
    r->to_next = connect_to(next, port);
    put(r->to_next, &rank, sizeof(rank));
    r->from_previous = accept_from(listener, (r->rank + r->world - 1) % r->world);
    close(listener);
    close(store);
}

/* Sends and receives at the same time, so that no two ranks wait for each other. */
static void exchange(const struct ring *r, const double *out, size_t n_out, double *in, size_t n_in)
{
    const char *to = (const char *)out;
    char *from = (char *)in;
    size_t send_left = n_out * sizeof(*out);
    size_t recv_left = n_in * sizeof(*in);
    while (send_left > 0 || recv_left > 0) {
        struct pollfd p[2] = {{.fd = send_left > 0 ? r->to_next : -1, .events = POLLOUT},
                              {.fd = recv_left > 0 ? r->from_previous : -1, .events = POLLIN}};
        if (poll(p, 2, TIMEOUT_MS) <= 0)
            die("nothing moves any more");
        const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
        ssize_t n = p[0].revents == 0 ? 0 : send(r->to_next, to, send_left, flags);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            die("cannot send to the next rank: %s", strerror(errno));
        to += n > 0 ? n : 0;
        send_left -= n > 0 ? (size_t)n : 0;
        n = p[1].revents == 0 ? 0 : recv(r->from_previous, from, recv_left, MSG_DONTWAIT);
        if (p[1].revents != 0 && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)))
            die("the rank before is gone");
        from += n > 0 ? n : 0;
        recv_left -= n > 0 ? (size_t)n : 0;
    }
}

/* Adds up x over all ranks. x falls into one piece per rank; in world - 1 steps each piece goes
 * once round and is summed on the way, in world - 1 more the sums go round. */
static void all_reduce(const struct ring *r, double *x, size_t n)
{
    size_t piece = (n + (size_t)r->world - 1) / (size_t)r->world;
    double *in = malloc((piece > 0 ? piece : 1) * sizeof(*in));
    if (in == NULL)
        die("out of memory");
    for (int step = 0; step < 2 * (r->world - 1); step++) {
        bool summing = step < r->world - 1;
        int shift = summing ? step : step - r->world;
        size_t out_piece = (size_t)((r->rank - shift + 2 * r->world) % r->world);
        size_t in_piece = (size_t)((r->rank - shift - 1 + 2 * r->world) % r->world);
        size_t out_at = out_piece * piece < n ? out_piece * piece : n;
        size_t in_at = in_piece * piece < n ? in_piece * piece : n;
        size_t n_out = n - out_at < piece ? n - out_at : piece;
        size_t n_in = n - in_at < piece ? n - in_at : piece;
        exchange(r, x + out_at, n_out, summing ? in : x + in_at, n_in);
        for (size_t i = 0; summing && i < n_in; i++)
            x[in_at + i] += in[i];
    }
    free(in);
}

static double now_s(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    struct ring r;
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    double *x = calloc(n > 0 ? n : 1, sizeof(*x));
    if (x == NULL)
        die("out of memory");
    ring_open(&r);
    for (size_t i = 0; i < n; i++)
        x[i] = (double)(r.rank + 1) * (double)(i % 1000);
    double start = now_s();
    all_reduce(&r, x, n);
    double seconds = now_s() - start;
    double sum_of_ranks = (double)r.world * (r.world + 1) / 2;
    for (size_t i = 0; i < n; i++)
        if (x[i] != sum_of_ranks * (double)(i % 1000))
            die("rank %d: number %zu is %g instead of %g", r.rank, i, x[i],
                sum_of_ranks * (double)(i % 1000));
    free(x);
    if (r.rank == 0)
        printf("%d ranks added up %zu numbers in %.1f ms; the sums are right\n", r.world, n,
               seconds * 1e3);
    return 0;
}
