/* store_server: several connections at once, admitted or not yet, whose bytes arrive in any pieces
 * and which end at any time. The server reports each closed connection once and counts no closed
 * one.
 *
 * Steps of (kind and connection, length, bytes): connect, send, admit, close from either side,
 * read, end the round. */
#include "base/cursor.h"
#include "store/store_server.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PEERS = 4, STEPS_MAX = 200 };
enum step {
    CONNECT,
    CONNECT_ADMITTED,
    SEND,
    SEND_SHAKEN,
    ADMIT,
    LEAVE,
    CLOSE,
    READ,
    RESET,
    END_WAITS,
    SET,
    RUN,
    STEP_MAX
};

struct peer {
    int fd;                  /* -1: none */
    struct store_conn *conn; /* NULL: closed */
};

static struct peer peers[PEERS];

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void on_gone(void *arg)
{
    struct peer *p = arg;
    must(p->conn != NULL);
    p->conn = NULL;
}

static void leave(struct peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

/* Connect the peer, unless an end of its previous connection is still open. */
static void connect_peer(struct store_server *s, struct peer *p, bool admitted)
{
    int pair[2];
    if (p->fd >= 0 || p->conn != NULL)
        return;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    p->fd = pair[0];
    if (store_server_adopt(s, pair[1], admitted, &p->conn, on_gone, p) < 0)
        p->conn = NULL;
}

static void send_bytes(const struct peer *p, struct dd_rd *r, bool shake)
{
    static const unsigned char magic[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    size_t n = dd_rd_u8(r);
    n = n < dd_rd_left(r) ? n : dd_rd_left(r);
    const unsigned char *bytes = dd_rd_bytes(r, n);
    if (p->fd < 0)
        return;
    if (shake)
        (void)send(p->fd, magic, sizeof(magic), MSG_NOSIGNAL);
    (void)send(p->fd, bytes, n, MSG_NOSIGNAL);
}

static void step(struct store_server *s, struct event_base *base, struct dd_rd *r)
{
    char sink[4096];
    const unsigned how = dd_rd_u8(r);
    struct peer *p = &peers[how & (PEERS - 1)];
    const enum step what = (enum step)(how / PEERS % STEP_MAX);
    if (what == CONNECT || what == CONNECT_ADMITTED)
        connect_peer(s, p, what == CONNECT_ADMITTED);
    else if (what == SEND || what == SEND_SHAKEN)
        send_bytes(p, r, what == SEND_SHAKEN);
    else if (what == ADMIT && p->conn != NULL)
        store_conn_admit(p->conn);
    else if (what == CLOSE && p->conn != NULL)
        store_conn_close(p->conn);
    else if (what == LEAVE)
        leave(p);
    else if (what == READ && p->fd >= 0)
        (void)recv(p->fd, sink, sizeof(sink), 0);
    else if (what == RESET)
        store_server_reset(s);
    else if (what == END_WAITS)
        store_server_end_waits(s, "k");
    else if (what == SET)
        (void)store_server_set(s, "k", "value");
    if (what == RUN || what == READ || what == RESET || what == CLOSE)
        (void)event_base_loop(base, EVLOOP_NONBLOCK);
}

static void check(const struct store_server *s)
{
    struct store_stats st;
    size_t n = 0;
    for (size_t i = 0; i < PEERS; i++)
        n += peers[i].conn != NULL;
    store_server_stats(s, &st);
    must(st.conns <= n && st.conns <= st.conns_total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct event_base *base;
    struct dd_rd r = dd_rd_of(data, size);
    struct store_limits limits = {.max_key = 64,
                                  .max_value = 4000,
                                  .max_count = 50,
                                  .max_bytes = 20000,
                                  .max_conns = 3,
                                  .max_request = 8000,
                                  .max_output = 512};
    struct store_server *s = NULL;
    if (base == NULL) {
        (void)signal(SIGPIPE, SIG_IGN);
        base = event_base_new();
    }
    const unsigned old = dd_rd_u8(&r) % 3;
    must(base != NULL &&
         store_server_new(&s, base, NULL, &limits, (enum store_old_clients)old, NULL) == 0);
    for (size_t i = 0; i < PEERS; i++)
        peers[i] = (struct peer){.fd = -1};
    for (int i = 0; i < STEPS_MAX && dd_rd_left(&r) > 0; i++) {
        step(s, base, &r);
        check(s);
    }
    (void)event_base_loop(base, EVLOOP_NONBLOCK);
    store_server_reset(s);
    (void)event_base_loop(base, EVLOOP_NONBLOCK);
    struct store_stats st;
    store_server_stats(s, &st);
    must(st.conns == 0 && st.keys == 0 && st.waiters == 0);
    store_server_free(s);
    for (size_t i = 0; i < PEERS; i++) {
        must(peers[i].conn == NULL);
        leave(&peers[i]);
    }
    return 0;
}
