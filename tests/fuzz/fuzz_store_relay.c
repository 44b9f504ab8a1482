/* Relays of the store: requests and bytes of clients, messages that are delivered late, clients
 * that leave, rounds that end, and messages of a hostile node or daemon.
 *
 * Steps of a byte with the kind and the client, then a request (operation, key, value), bytes after
 * their number, or nothing. */
#include "../unit/relay_world.h"
#include "base/cursor.h"
#include "store/c10d_ops.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 400, BYTES_MAX = 64 };
enum step { REQUEST, REQUEST_TOO, RAW, UP, DOWN, LEAVE, FORGE, SETTLE, STEPS };

static void put_text(struct dd_buf *b, unsigned n)
{
    static const char text[] = "ab1-5 ddrun/0/";
    const size_t len = n % 4 == 3 ? 9 : n % 4;
    (void)dd_wr_le(b, len, 8);
    (void)dd_buf_append(b, text + (len == 9 ? 5 : n % 3), len);
}

/* A request whose fields follow from two bytes. */
static void send_request(struct world *w, int i, struct dd_rd *r)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(4096);
    const int op = dd_rd_u8(r) % C10D_OPS;
    const unsigned with = dd_rd_u8(r);
    const char *args = c10d_ops[op].args;
    unsigned times = 1;
    (void)dd_wr_u8(&b, (uint8_t)op);
    if (*args == '#') {
        times = 1 + (with & 1);
        (void)dd_wr_le(&b, times, 8);
        args++;
    }
    for (unsigned k = 0; k < times; k++)
        for (const char *a = args; *a != '\0'; a++) {
            if (*a == 'k' || *a == 'v')
                put_text(&b, (with >> (a == args ? 1 : 4)) + k);
            else
                (void)dd_wr_le(&b, with & 7, *a == 'u' ? 4 : 8);
        }
    (void)world_send(w, i, b.data, b.len);
}

static void take_step(struct world *w, struct dd_rd *r)
{
    const unsigned what = dd_rd_u8(r);
    const enum step kind = what % STEPS;
    const int i = (int)(what / STEPS % WORLD_CLIENTS), node = i % WORLD_NODES;
    if (kind == REQUEST || kind == REQUEST_TOO) {
        send_request(w, i, r);
    } else if (kind == RAW || kind == FORGE) {
        const size_t n = dd_rd_u8(r) % BYTES_MAX;
        const unsigned char *p = dd_rd_bytes(r, n);
        if (p != NULL && kind == RAW)
            (void)world_send(w, i, p, n);
        else if (p != NULL)
            world_forge(w, node, i > 2, p, n);
    } else if (kind == UP || kind == DOWN) {
        (void)world_deliver(w, node, kind == UP);
    } else if (kind == LEAVE) {
        world_close(w, i);
        world_open(w, i);
    } else if (i == 0) {
        world_next_round(w);
    } else {
        world_settle(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    struct dd_rd r = dd_rd_of(data, size);
    const struct store_limits limits = {.max_key = 16,
                                        .max_value = 2000,
                                        .max_count = 50,
                                        .max_bytes = 1 << 20,
                                        .max_conns = 100,
                                        .max_request = 100000,
                                        .max_output = 64};
    world_start(&w, &limits);
    for (int n = 0; n < STEPS_MAX && dd_rd_left(&r) > 0; n++)
        take_step(&w, &r);
    world_end(&w);
    return 0;
}
