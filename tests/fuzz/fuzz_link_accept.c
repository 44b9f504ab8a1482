/* link_accept: any bytes of a caller, in any pieces, up to and into the TLS handshake. No caller
 * without the key gets a link.
 *
 * The first byte: 0x01 = --insecure, which admits every caller that sends this job's hello. Then
 * pieces of (length, bytes); length 0xff: the rest. */
#include "base/cursor.h"
#include "net/link.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INSECURE = 1 };

static struct {
    struct link_accept *accept;
    struct link *link;
    int done;
} world;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void on_done(void *arg, struct link_accept *a, struct link *l, const char *why)
{
    (void)arg;
    must(a == world.accept && ++world.done == 1 && (l == NULL) == (why != NULL));
    world.link = l;
    link_accept_free(a);
    world.accept = NULL;
}

static void send_pieces(struct event_base *base, int fd, struct dd_rd *r)
{
    char sink[4096];
    while (dd_rd_left(r) > 0) {
        size_t n = dd_rd_u8(r);
        n = n < dd_rd_left(r) && n != 0xff ? n : dd_rd_left(r);
        (void)send(fd, dd_rd_bytes(r, n), n, MSG_NOSIGNAL);
        (void)event_base_loop(base, EVLOOP_NONBLOCK);
        (void)recv(fd, sink, sizeof(sink), 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct event_base *base;
    static struct link_shared shared;
    static char *env[] = {NULL};
    const struct net_key_input in = {.env = env, .job_id = "job.1"};
    struct dd_rd r = dd_rd_of(data, size);
    const bool insecure = (dd_rd_u8(&r) & INSECURE) != 0;
    const struct net_key key = {.method = insecure ? NET_KEY_NONE : NET_KEY_SHARED,
                                .bytes = {1, 2, 3}};
    const struct link_accept_cfg cfg = {
        .job_id = "job.1", .key = &key, .key_in = &in, .timeout_ms = 10000, .shared = &shared};
    int pair[2];
    if (base == NULL) {
        (void)signal(SIGPIPE, SIG_IGN);
        base = event_base_new();
    }
    must(base != NULL &&
         socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    memset(&world, 0, sizeof(world));
    must(link_accept_start(&world.accept, base, pair[1], &cfg,
                           &(struct link_accept_cb){.done = on_done}, NULL) == 0);
    send_pieces(base, pair[0], &r);
    close(pair[0]);
    (void)event_base_loop(base, EVLOOP_NONBLOCK);
    must(world.link == NULL || insecure);
    link_free(world.link);
    link_accept_free(world.accept);
    (void)event_base_loop(base, EVLOOP_NONBLOCK);
    return 0;
}
