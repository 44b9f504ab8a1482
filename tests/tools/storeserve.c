/* The store alone on a loopback port, for tests of the store.
 *
 *     storeserve [--relay] [--old-clients=1.13|2.1] [--listen=127.0.0.1:PORT] [--max-memory=N]
 * [--profile]
 *
 * With --relay clients are connected to a relay, which is a node of the store, as with
 * ddrun --store=relay. Options and the line that reports the port are those of the daemon. */
#include "base/num.h"
#include "store/carried.h"
#include "store/store_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct flags {
    bool profile, relay;
};

struct message {
    STAILQ_ENTRY(message) link;
    bool up;
    size_t n;
    unsigned char p[];
};

struct serve {
    struct event_base *base;
    struct store_server *store;
    struct store_server *front; /* what clients are connected to: the store, or its relay */
    struct store_carrier *carrier;
    STAILQ_HEAD(, message) messages; /* between the two */
    struct event *deliver;
    int listener;
};

/* ---- the relay ---- */

static void post(struct serve *sv, bool up, const void *p, size_t n)
{
    struct message *m = malloc(sizeof(*m) + n);
    if (m == NULL || p == NULL)
        abort();
    m->up = up;
    m->n = n;
    memcpy(m->p, p, n);
    STAILQ_INSERT_TAIL(&sv->messages, m, link);
    event_active(sv->deliver, EV_TIMEOUT, 0);
}

static void to_store(void *arg, const void *p, size_t n)
{
    post(arg, true, p, n);
}

static void to_relay(void *arg, const void *p, size_t n)
{
    post(arg, false, p, n);
}

static void on_deliver(evutil_socket_t fd, short what, void *arg)
{
    struct serve *sv = arg;
    struct message *m;
    struct dd_err err;
    (void)fd;
    (void)what;
    while ((m = STAILQ_FIRST(&sv->messages)) != NULL) {
        STAILQ_REMOVE_HEAD(&sv->messages, link);
        int rc = m->up ? store_carrier_take(sv->carrier, 0, m->p, m->n, &err)
                       : store_server_take(sv->front, m->p, m->n, &err);
        if (rc < 0)
            fprintf(stderr, "storeserve: %s\n", err.text);
        free(m);
    }
}

static int start_relay(struct serve *sv, const struct dd_log *log, const struct store_limits *l,
                       enum store_old_clients old, struct dd_err *err)
{
    const struct store_carrier_cfg cfg = {.send = to_relay, .arg = sv};
    sv->deliver = evtimer_new(sv->base, on_deliver, sv);
    int rc = store_server_new(&sv->front, sv->base, log, l, old, err);
    if (rc == 0)
        rc = store_server_carrier(sv->store, &sv->carrier, &cfg);
    return rc == 0 ? store_server_relay(sv->front, 0, to_store, sv) : rc;
}

/* ---- clients ---- */

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
    struct serve *sv = arg;
    (void)what;
    int conn;
    while ((conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        (void)store_server_adopt(sv->front, conn, true, NULL, NULL, NULL);
}

static void on_term(evutil_socket_t sig, short what, void *arg)
{
    struct serve *sv = arg;
    (void)sig;
    (void)what;
    event_base_loopbreak(sv->base);
}

static int listen_on(int port)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    socklen_t len = sizeof(a);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0) {
        perror("storeserve: cannot listen");
        exit(1);
    }
    printf("ddrund: listening on 127.0.0.1:%d\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

static void parse(int argc, char **argv, int *port, enum store_old_clients *old,
                  struct store_limits *limits, struct flags *flags)
{
    for (int i = 1; i < argc; i++) {
        uint64_t n;
        const char *a = argv[i];
        if (strncmp(a, "--listen=127.0.0.1:", 19) == 0 && dd_num_int(a + 19, 0, 65535, port) == 0)
            continue;
        if (strcmp(a, "--old-clients=1.13") == 0)
            *old = STORE_OLD_113;
        else if (strcmp(a, "--old-clients=2.1") == 0)
            *old = STORE_OLD_21;
        else if (strncmp(a, "--max-memory=", 13) == 0 && dd_num_bytes(a + 13, &n) == 0)
            limits->max_bytes = n;
        else if (strcmp(a, "--profile") == 0)
            flags->profile = true;
        else if (strcmp(a, "--relay") == 0)
            flags->relay = true;
        else if (strcmp(a, "--insecure") != 0) {
            fprintf(stderr, "storeserve: '%s' is not an option of it\n", a);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct serve sv = {.base = event_base_new()};
    struct dd_log log = {.level = DD_LOG_WARN, .fd = STDERR_FILENO, .who = "storeserve"};
    struct store_limits limits;
    enum store_old_clients old = STORE_OLD_REFUSE;
    struct rlimit files;
    struct dd_err err;
    int port = 0;
    struct flags flags = {0};
    /* Keep freed memory: values of 64 KiB are allocated and freed all the time. */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
    store_limits_default(&limits);
    parse(argc, argv, &port, &old, &limits, &flags);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (store_server_new(&sv.store, sv.base, &log, &limits, old, &err) < 0 ||
        (flags.profile && store_server_measure(sv.store) < 0)) {
        fprintf(stderr, "storeserve: %s\n", err.text);
        return 1;
    }
    sv.front = sv.store;
    STAILQ_INIT(&sv.messages);
    if (flags.relay && start_relay(&sv, &log, &limits, old, &err) < 0) {
        fprintf(stderr, "storeserve: %s\n", err.text);
        return 1;
    }
    sv.listener = listen_on(port);
    struct event *conns = event_new(sv.base, sv.listener, EV_READ | EV_PERSIST, on_connect, &sv);
    struct event *term = evsignal_new(sv.base, SIGTERM, on_term, &sv);
    event_add(conns, NULL);
    event_add(term, NULL);
    event_base_dispatch(sv.base);
    event_free(conns);
    event_free(term);
    if (flags.relay) {
        store_server_free(sv.front);
        on_deliver(-1, 0, &sv);
        store_carrier_free(sv.carrier);
        event_free(sv.deliver);
    }
    store_server_free(sv.store);
    close(sv.listener);
    event_base_free(sv.base);
    return 0;
}
