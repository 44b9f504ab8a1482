/* The store alone on a loopback port, for tests of the store.
 *
 *     storeserve [--old-clients=1.13|2.1] [--listen=127.0.0.1:PORT] [--max-memory=N] [--profile]
 *
 * Options and the line that reports the port are those of the daemon. */
#include "base/num.h"
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct serve {
    struct event_base *base;
    struct store_server *store;
    int listener;
};

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
    struct serve *sv = arg;
    (void)what;
    int conn;
    while ((conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        (void)store_server_adopt(sv->store, conn, true, NULL, NULL, NULL);
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
                  struct store_limits *limits, bool *profile)
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
            *profile = true;
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
    bool profile = false;
    /* Keep freed memory: values of 64 KiB are allocated and freed all the time. */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
    store_limits_default(&limits);
    parse(argc, argv, &port, &old, &limits, &profile);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (store_server_new(&sv.store, sv.base, &log, &limits, old, &err) < 0 ||
        (profile && store_server_measure(sv.store) < 0)) {
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
    store_server_free(sv.store);
    close(sv.listener);
    event_base_free(sv.base);
    return 0;
}
