#include "lib_world.h"

#include <assert.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct order {
    enum { STATS, SET, END_WAITS, RESET, LEAVE } what;
    struct store_stats *stats;
    const char *key, *text;
};

struct world {
    struct event_base *base;
    struct store_server *server;
    int listener, port, n;
    int orders[2], done[2];
    pthread_t thread;
    struct ddrun **d;
};

static const struct dd_log quiet;

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct world *w = arg;
    int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (conn >= 0)
        (void)store_server_adopt(w->server, conn, true, NULL, NULL, NULL);
}

static void on_order(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct world *w = arg;
    struct order *o;
    assert(read(fd, &o, sizeof(o)) == sizeof(o));
    switch (o->what) {
    case STATS:
        store_server_stats(w->server, o->stats);
        break;
    case SET:
        assert(store_server_set(w->server, o->key, o->text) == 0);
        break;
    case END_WAITS:
        store_server_end_waits(w->server, "ddrun/");
        break;
    case RESET:
        store_server_reset(w->server);
        break;
    case LEAVE:
        event_base_loopbreak(w->base);
        break;
    }
    assert(write(w->done[1], "", 1) == 1);
}

static void *serve(void *arg)
{
    struct world *w = arg;
    struct event *conns = event_new(w->base, w->listener, EV_READ | EV_PERSIST, on_connect, w);
    struct event *orders = event_new(w->base, w->orders[0], EV_READ | EV_PERSIST, on_order, w);
    event_add(conns, NULL);
    event_add(orders, NULL);
    event_base_dispatch(w->base);
    event_free(conns);
    event_free(orders);
    store_server_free(w->server);
    return NULL;
}

static void give(struct world *w, struct order *o)
{
    char done;
    assert(write(w->orders[1], &o, sizeof(o)) == sizeof(o));
    assert(read(w->done[0], &done, 1) == 1);
}

void world_stats(struct world *w, struct store_stats *ret)
{
    give(w, &(struct order){.what = STATS, .stats = ret});
}

void world_set(struct world *w, const char *key, const char *text)
{
    give(w, &(struct order){.what = SET, .key = key, .text = text});
}

void world_end_waits(struct world *w)
{
    give(w, &(struct order){.what = END_WAITS});
}

void world_reset(struct world *w)
{
    give(w, &(struct order){.what = RESET});
}

void world_hang_up(struct world *w)
{
    assert(shutdown(w->listener, SHUT_RDWR) == 0);
}

int world_port(const struct world *w)
{
    return w->port;
}

void world_env(int rank, int size, int port)
{
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "GROUP_RANK",
                                        "GROUP_WORLD_SIZE",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "DDRUN_ROUND",
                                        "MASTER_PORT",
                                        "MASTER_ADDR",
                                        "DDRUN_HEARTBEAT_FILE",
                                        "DDRUN_HEARTBEAT_FD"};
    const int values[] = {rank, size, rank % 2, 2, rank / 2, (size + 1) / 2, 1, 4, port};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    for (size_t i = 0; port != 0 && i < sizeof(values) / sizeof(values[0]); i++) {
        char text[20];
        (void)snprintf(text, sizeof(text), "%d", values[i]);
        setenv(names[i], text, 1);
    }
    if (port != 0)
        setenv("MASTER_ADDR", "127.0.0.1", 1);
}

struct world *world_new(int n, struct ddrun **d)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    struct store_limits limits;
    struct world *w = calloc(1, sizeof(*w));
    assert(w != NULL && pipe(w->orders) == 0 && pipe(w->done) == 0);
    w->n = n;
    w->d = d;
    w->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert(bind(w->listener, (struct sockaddr *)(void *)&a, len) == 0 &&
           listen(w->listener, 1024) == 0);
    assert(getsockname(w->listener, (struct sockaddr *)(void *)&a, &len) == 0);
    w->port = ntohs(a.sin_port);
    w->base = event_base_new();
    store_limits_default(&limits);
    assert(store_server_new(&w->server, w->base, &quiet, &limits, STORE_OLD_REFUSE, NULL) == 0);
    assert(pthread_create(&w->thread, NULL, serve, w) == 0);
    for (int i = 0; i < n; i++) {
        world_env(i, n, w->port);
        int rc = ddrun_init(&d[i], LIMIT_MS);
        if (rc < 0)
            fprintf(stderr, "rank %d: %s\n", i, ddrun_error());
        assert(rc == 0);
    }
    return w;
}

void world_free(struct world *w)
{
    for (int i = 0; i < w->n; i++)
        ddrun_free(w->d[i]);
    give(w, &(struct order){.what = LEAVE});
    pthread_join(w->thread, NULL);
    event_base_free(w->base);
    const int fds[] = {w->listener, w->orders[0], w->orders[1], w->done[0], w->done[1]};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
    free(w);
}

struct worker {
    pthread_t thread;
    struct ddrun *d;
    void (*fn)(struct ddrun *d, void *arg);
    void *arg;
};

static void *work(void *arg)
{
    struct worker *k = arg;
    k->fn(k->d, k->arg);
    return NULL;
}

void world_run(struct ddrun **d, int n, void (*fn)(struct ddrun *d, void *arg), void *arg,
               size_t size)
{
    struct worker *v = calloc((size_t)n, sizeof(*v));
    assert(v != NULL);
    for (int i = 0; i < n; i++) {
        v[i] = (struct worker){
            .d = d[i], .fn = fn, .arg = arg == NULL ? NULL : (char *)arg + (size_t)i * size};
        assert(pthread_create(&v[i].thread, NULL, work, &v[i]) == 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(v[i].thread, NULL);
    free(v);
}
