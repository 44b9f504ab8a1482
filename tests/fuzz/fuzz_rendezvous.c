/* rendezvous: requests of workers and parts of other nodes, in any order, as any bytes. No waiter
 * is left once its value exists, and a packed value is unpacked to the same bytes. */
#include "http/delta.h"
#include "http/rendezvous.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const unsigned char seed[KV_SEED] = {1};
static const int sizes[] = {2, 1, 3};
static const char *const names[] = {"global/0",
                                    "global/1",
                                    "global/2",
                                    "global/rank_0",
                                    "global/rank_3",
                                    "cross_0/0",
                                    "cross_1/0",
                                    "cross_0/1",
                                    "cross_2/0",
                                    "local_a/0",
                                    "local_a/1",
                                    "global/77",
                                    "rank_and_size/a:1",
                                    "worker_addresses/a:0",
                                    "x/y"};
enum { NAMES = sizeof(names) / sizeof(names[0]), WAITERS = 4 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_delta(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf packed = DD_BUF_INIT(1 << 20);
    DD_AUTO(free) unsigned char *out = malloc(size + 1);
    const size_t stride = size > 0 ? data[0] : 0;
    must(out != NULL && delta_pack(&packed, data, size, stride) == 0);
    must(delta_unpack(out, size, packed.data, packed.len) == 0 && memcmp(out, data, size) == 0);
    (void)delta_unpack(out, size, data, size); /* any bytes as a packed value, too */
}

static void answer_ready(struct kv *kv)
{
    struct kv_waiter *w;
    while ((w = kv_ready(kv)) != NULL) {
        must(w->value != NULL && w->entry == NULL);
        kv_value_unref(DD_TAKE(w->value));
    }
}

static void act(struct rendezvous *r, struct kv_waiter *w, const uint8_t **at, size_t *left)
{
    struct rendezvous_part part = {.data = {0}};
    struct kv_value *v = NULL;
    struct kv_name name;
    const char *text = names[(*at)[1] % NAMES];
    const uint8_t op = **at;
    size_t len = (*at)[2];
    *at += 3;
    *left -= 3;
    len = len < *left ? len : *left;
    must(kv_name_parse(&name, text, strlen(text)));
    if (op % 5 == 0 && kv_value_new(&v, rendezvous_kv(r), len) == 0) {
        memcpy(v->data, *at, len);
        (void)rendezvous_put(r, name, v);
    } else if (op % 5 == 1) {
        kv_wait_end(rendezvous_kv(r), w);
        int rc = rendezvous_get(r, name, w, &v);
        must((rc == 200) == (v != NULL) && (rc == 0) == (w->entry != NULL));
        kv_value_unref(v);
        len = 0;
    } else if (op % 5 == 2) {
        must(rendezvous_delete(r, name) == 200);
        len = 0;
    } else if (op % 5 == 3) {
        (void)rendezvous_take_part(r, *at, len, NULL);
    } else if (rendezvous_next_part(r, &part) == 1) {
        must(rendezvous_take_part(r, part.data.data, part.data.len, NULL) == -EPROTO ||
             part.data.len == 0);
        dd_buf_done(&part.data); /* no other node may send this node's values */
        len = 0;
    }
    answer_ready(rendezvous_kv(r));
    *at += len;
    *left -= len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct rendezvous_cfg cfg = {
        .nnodes = 3, .node_rank = size > 0 ? data[0] % 3 : 0, .world_size = 6, .sizes = sizes};
    struct rendezvous_cfg mine = cfg;
    struct kv_waiter waiters[WAITERS] = {0};
    struct rendezvous *r = NULL;
    for (int i = 0; i < cfg.node_rank; i++)
        mine.first_rank += sizes[i];
    check_delta(data, size);
    must(rendezvous_new(&r, &mine, seed, NULL) == 0);
    for (size_t n = 0; size >= 3; n++)
        act(r, &waiters[n % WAITERS], &data, &size);
    for (int i = 0; i < WAITERS; i++)
        kv_wait_end(rendezvous_kv(r), &waiters[i]);
    rendezvous_free(r);
    return 0;
}
