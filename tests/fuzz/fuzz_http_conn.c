/* http_conn: connections of a node's Horovod workers over time: several at once, each with a
 * request in any pieces, which wait for values of other workers, read slowly or not at all, close
 * early or send nothing while time passes. Each gets at most one complete reply, and each ends in
 * time.
 *
 * Steps of (kind and connection, arguments). */
#include "base/cursor.h"
#include "fake_clock.h"
#include "http/http_conn_inner.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PEERS = 4, STEPS_MAX = 200, END_S = 70, VALUE = 300000 };
enum step { CONNECT, SEND, REQUEST, READ, LEAVE, PASS_TIME, TAKE, DROP_OLDEST, STEP_MAX };

static struct {
    struct event_base *base;
    struct http_server *server;
    int fd[PEERS]; /* -1: none */
    struct dd_buf in[PEERS];
} world;

static const char *const requests[] = {
    "GET /global/rank_0 HTTP/1.1\r\n\r\n",
    "PUT /global/0 HTTP/1.1\r\nContent-Length: 4\r\n\r\n",
    "GET /global/0 HTTP/1.1\r\n\r\n",
    "PUT /global/1 HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
    "DELETE /global/0 HTTP/1.1\r\n\r\n",
    "PUT /x/y HTTP/1.1\r\nContent-Length: 300000\r\n\r\n",
    "GET /x/y HTTP/1.1\r\n\r\n",
    "PUT /x/y HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
    "GET /local_a/0 HTTP/1.1\r\nHost: a\r\n",
    "PUT /cross_0/0 HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "GET /cross_1/0 HTTP/1.1\r\n\r\n",
};
enum { REQUESTS = sizeof(requests) / sizeof(requests[0]) };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static int on_exchange(void *arg, const char *name, const void *part, size_t len,
                       struct dd_err *err)
{
    (void)arg;
    (void)part;
    must(name[0] != '\0');
    return len % 7 == 6 ? dd_err_set(err, -EIO, "it cannot be sent") : 0;
}

static void pass_time(uint64_t ms)
{
    fake_clock_pass(ms);
    (void)event_base_loop(world.base, EVLOOP_NONBLOCK);
}

/* ---- the workers ---- */

static void connect_peer(size_t i)
{
    int pair[2];
    if (world.fd[i] >= 0)
        return;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    world.fd[i] = pair[0];
    http_conn_new(world.server, pair[1]);
}

static void leave(size_t i)
{
    if (world.fd[i] >= 0)
        close(world.fd[i]);
    world.fd[i] = -1;
    dd_buf_done(&world.in[i]);
    world.in[i] = DD_BUF_INIT(2 * VALUE);
}

static void send_bytes(size_t i, const void *bytes, size_t n)
{
    if (world.fd[i] >= 0 && n > 0)
        (void)send(world.fd[i], bytes, n, MSG_NOSIGNAL);
}

/* A reply is never longer than its Content-Length, and nothing follows it. */
static void check_reply(struct dd_buf *in, bool at_end)
{
    static const char start[] = "HTTP/1.1 ", length[] = "Content-Length: ";
    must(dd_buf_append(in, "", 1) == 0);
    in->len--; /* the NUL stays behind the text */
    const char *text = (const char *)in->data;
    const char *body = strstr(text, "\r\n\r\n");
    const char *said = strstr(text, length);
    must(strncmp(text, start, in->len < strlen(start) ? in->len : strlen(start)) == 0);
    must(body == NULL || (said != NULL && said < body));
    if (body == NULL)
        return;
    const size_t all = (size_t)(body - text) + 4 + strtoul(said + strlen(length), NULL, 10);
    must(in->len <= all && (!at_end || in->len == all));
}

static void read_some(size_t i, size_t most)
{
    static unsigned char chunk[1 << 16];
    ssize_t n = world.fd[i] >= 0
                    ? recv(world.fd[i], chunk, most < sizeof(chunk) ? most : sizeof(chunk), 0)
                    : -1;
    if (n > 0)
        must(dd_buf_append(&world.in[i], chunk, (size_t)n) == 0);
    if (n > 0)
        check_reply(&world.in[i], false);
    if (n == 0)
        leave(i);
}

static void send_some(size_t i, struct dd_rd *r)
{
    size_t n = dd_rd_u8(r);
    n = n < dd_rd_left(r) ? n : dd_rd_left(r);
    send_bytes(i, dd_rd_bytes(r, n), n);
}

/* Send a prewritten request, whole or only its first n bytes; or zeros as a part of a body. */
static void send_request(size_t i, struct dd_rd *r)
{
    static const char zeros[1 << 16];
    const unsigned which = dd_rd_u8(r);
    const size_t n = dd_rd_u8(r);
    const char *text = requests[which % REQUESTS];
    if (which >= 0x80)
        send_bytes(i, zeros, n << 8);
    else
        send_bytes(i, text, n > 0 && n < strlen(text) ? n : strlen(text));
}

static void step(struct dd_rd *r)
{
    const unsigned how = dd_rd_u8(r);
    const size_t i = how % PEERS;
    const enum step what = (enum step)(how / PEERS % STEP_MAX);
    if (what == CONNECT)
        connect_peer(i);
    else if (what == SEND)
        send_some(i, r);
    else if (what == REQUEST)
        send_request(i, r);
    else if (what == READ)
        read_some(i, (size_t)dd_rd_u8(r) << 8 | 1);
    else if (what == LEAVE)
        leave(i);
    else if (what == DROP_OLDEST)
        (void)http_conn_drop_oldest(world.server);
    else if (what == TAKE && dd_rd_u8(r) % 2 == 0)
        http_server_news_over(world.server);
    else if (what == TAKE)
        http_server_asked(world.server, "?hvd/0");
    if (what != PASS_TIME)
        pass_time(0);
    else
        pass_time(100 * (uint64_t)dd_rd_u8(r));
    must(world.server->nconns <= PEERS);
}

/* ---- the server ---- */

static void start(void)
{
    static const int sizes[] = {2, 1};
    const struct http_server_cfg cfg = {
        .rendezvous = {.nnodes = 2, .node_rank = 0, .world_size = 3, .sizes = sizes},
        .exchange = on_exchange};
    must(http_server_new(&world.server, world.base, &cfg, NULL) == 0);
    http_server_asked(world.server,
                      "?hvd/0"); /* creates the rendezvous, as the first accept() does */
    http_server_news_over(world.server);
    for (size_t i = 0; i < PEERS; i++) {
        world.fd[i] = -1;
        world.in[i] = DD_BUF_INIT(2 * VALUE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dd_rd r = dd_rd_of(data, size);
    if (world.base == NULL) {
        (void)signal(SIGPIPE, SIG_IGN);
        world.base = event_base_new();
        must(world.base != NULL);
    }
    start();
    for (int i = 0; i < STEPS_MAX && dd_rd_left(&r) > 0; i++)
        step(&r);
    for (int s = 0; s < END_S && world.server->nconns > 0; s++)
        pass_time(1000);
    must(world.server->nconns == 0);
    http_server_free(world.server);
    for (size_t i = 0; i < PEERS; i++)
        leave(i);
    must(event_base_get_num_events(world.base, EVENT_BASE_COUNT_ADDED) == 0);
    return 0;
}
