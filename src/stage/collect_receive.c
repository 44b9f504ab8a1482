/* The receiving side of --collect: accepts many nodes, a few of which send at a time. */
#include "base/auto.h"
#include "base/num.h"
#include "net/handshake_pool.h"
#include "net/listen.h"
#include "stage/collect_inner.h"
#include "stage/collect_write.h"
#include "stage/compile_dir.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { UNPROVEN_MAX = 256, NODES_MAX = 256, ACTIVE_MAX = 8 };

struct receive_node {
    struct receive *receive;
    struct link *link; /* NULL: this entry is unused */
    uint64_t order;    /* number of the HELLO of this node, in order of arrival; 0: not received */
    bool active;       /* may send files */
    char folder[STAGE_NAME_MAX + 1];
    uint32_t number; /* number of the file that is being written; 0: none */
    uint64_t pieces; /* number of pieces of that file that have been written */
    struct collect_file file;
};

struct receive {
    struct collect *c;
    int listen_fd;
    struct handshake_pool *handshakes;
    struct receive_node nodes[NODES_MAX];
    int cache;           /* descriptor of DIR of --compile-cache; -1: not open */
    bool cache_refused;  /* a cache file could not be written: no further warning is sent */
    uint64_t cache_left; /* bytes of cache files that may still be received */
    uint64_t hellos;
    unsigned char *raw; /* [COLLECT_PIECE_MAX] */
    ZSTD_DCtx *unpack;
};

static void receive_answer(struct receive_node *n, uint32_t number, enum collect_verdict verdict,
                           const char *why)
{
    struct collect_frame f = {.type = COLLECT_ANSWER, .number = number, .verdict = verdict};
    (void)snprintf(f.text, sizeof(f.text), "%.*s", COLLECT_REASON_MAX, why);
    if (!collect_send_frame(n->link, &f))
        link_fail(n->link, "ANSWER", -ENOBUFS);
}

/* Admit the nodes that have waited longest. */
static void receive_admit(struct receive *r)
{
    int active = 0;
    for (int i = 0; i < NODES_MAX; i++)
        active += r->nodes[i].active;
    for (; active < ACTIVE_MAX; active++) {
        struct receive_node *next = NULL;
        for (int i = 0; i < NODES_MAX; i++) {
            struct receive_node *n = &r->nodes[i];
            if (n->link != NULL && n->order > 0 && !n->active &&
                (next == NULL || n->order < next->order))
                next = n;
        }
        if (next == NULL)
            return;
        next->active = true;
        receive_answer(next, COLLECT_HELLO_NUMBER, COLLECT_WANT, "");
    }
}

/* ---- files ---- */

static void receive_end_file(struct receive_node *n, const char *why)
{
    const uint32_t number = n->number;
    collect_file_drop(&n->file);
    n->number = 0;
    if (why != NULL)
        receive_answer(n, number, COLLECT_REFUSED, why);
}

/* Warn only of the first cache file that cannot be written: the job does not need the cache. */
static void receive_refuse_cache(struct receive_node *n, const struct collect_frame *f,
                                 const char *why)
{
    struct receive *r = n->receive;
    char text[COLLECT_REASON_MAX + 60];
    (void)snprintf(text, sizeof(text), "new entries are not saved: %.*s", COLLECT_REASON_MAX, why);
    if (!r->cache_refused)
        collect_tell(r->c, STAGE_MSG_WARNING, text);
    r->cache_refused = true;
    receive_answer(n, f->number, COLLECT_REFUSED, "");
}

static void receive_offer_cache(struct receive_node *n, const struct collect_frame *f)
{
    struct receive *r = n->receive;
    struct dd_err err = {0};
    const struct compile_dir dir = {.dir = r->c->setup.texts.v[STAGE_COLLECT_CACHE]};
    if (r->cache < 0 && !r->cache_refused && dir.dir[0] != '\0')
        r->cache = compile_dir_open(&dir, NULL);
    if (r->cache < 0) { /* the ddrun-stage that has read DIR has reported why */
        r->cache_refused = true;
        receive_answer(n, f->number, COLLECT_REFUSED, "");
        return;
    }
    const struct collect_target target = {.dir = dir.dir, .cache = true, .top = r->cache};
    enum collect_verdict v = collect_file_begin(&n->file, &target, f, &err);
    if (v == COLLECT_WANT && f->size > r->cache_left) {
        collect_file_drop(&n->file);
        (void)dd_err_set(&err, -EFBIG, "they exceed --compile-cache-max");
        v = COLLECT_REFUSED;
    }
    if (v == COLLECT_REFUSED) {
        receive_refuse_cache(n, f, err.text);
        return;
    }
    r->cache_left -= v == COLLECT_WANT ? f->size : 0;
    n->number = v == COLLECT_WANT ? f->number : 0;
    receive_answer(n, f->number, v, "");
}

static void receive_offer(struct receive_node *n, const struct collect_frame *f)
{
    struct dd_err err = {0};
    const struct stage_msg *setup = &n->receive->c->setup;
    collect_file_drop(&n->file);
    n->number = 0;
    n->pieces = 0;
    if (f->verdict == COLLECT_CACHE) {
        receive_offer_cache(n, f);
        return;
    }
    if (f->verdict >= setup->texts.n - STAGE_COLLECT_RULES) {
        receive_answer(n, f->number, COLLECT_REFUSED, "the nodes have different --collect options");
        return;
    }
    const struct collect_target target = {.dir = setup->texts.v[STAGE_COLLECT_RULES + f->verdict],
                                          .folder = n->folder};
    const enum collect_verdict v = collect_file_begin(&n->file, &target, f, &err);
    n->number = v == COLLECT_WANT ? f->number : 0;
    receive_answer(n, f->number, v, err.text);
}

static void receive_piece(struct receive_node *n, const struct collect_frame *f)
{
    struct dd_err err = {0};
    const struct receive *r = n->receive;
    struct collect_frame taken = {.type = COLLECT_TAKEN, .number = f->number};
    const size_t got = ZSTD_decompressDCtx(r->unpack, r->raw, COLLECT_PIECE_MAX, f->data, f->len);
    if (ZSTD_isError(got) || got != f->size) {
        receive_end_file(n, "the receiver got malformed data");
        return;
    }
    if (collect_file_write(&n->file, r->raw, got, &err) < 0) {
        receive_end_file(n, err.text);
        return;
    }
    taken.size = ++n->pieces;
    if (!collect_send_frame(n->link, &taken))
        link_fail(n->link, "TAKEN", -ENOBUFS);
}

static void receive_commit(struct receive_node *n)
{
    struct dd_err err = {0};
    const uint32_t number = n->number;
    if (collect_file_commit(&n->file, &err) < 0) {
        receive_end_file(n, err.text);
        return;
    }
    n->number = 0;
    receive_answer(n, number, COLLECT_HAVE, "");
}

/* ---- links ---- */

static void receive_hello(struct receive_node *n, const struct collect_frame *f)
{
    if (n->order > 0)
        return;
    (void)snprintf(n->folder, sizeof(n->folder), "%.*s", STAGE_NAME_MAX, f->text);
    n->order = ++n->receive->hellos;
    receive_admit(n->receive);
}

static void receive_bye(struct receive_node *n, const struct collect_frame *f)
{
    char text[sizeof(n->folder) + 20];
    (void)snprintf(text, sizeof(text), "%016" PRIx64 " %s", f->size, n->folder);
    collect_tell(n->receive->c, STAGE_MSG_CAME, text);
    receive_answer(n, f->number, COLLECT_HAVE, "");
}

static void receive_frame(struct receive_node *n, const struct collect_frame *f)
{
    if (f->type == COLLECT_HELLO)
        receive_hello(n, f);
    else if (!n->active)
        return;
    else if (f->type == COLLECT_OFFER)
        receive_offer(n, f);
    else if (f->type == COLLECT_BYE)
        receive_bye(n, f);
    else if (n->number == 0 || f->number != n->number)
        return; /* this side has refused the file meanwhile */
    else if (f->type == COLLECT_PIECE)
        receive_piece(n, f);
    else if (f->type == COLLECT_COMMIT)
        receive_commit(n);
    else if (f->type == COLLECT_DROP)
        receive_end_file(n, NULL);
}

static void receive_free(struct receive_node *n)
{
    collect_file_drop(&n->file);
    link_free(n->link);
    *n = (struct receive_node){.receive = n->receive, .file = COLLECT_FILE_NONE};
}

static void receive_on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct receive_node *n = arg;
    struct collect_frame cf;
    if (f->type != FRAME_STAGE)
        return;
    if (collect_frame_decode(&cf, f->data, f->len) < 0)
        link_fail(l, "a malformed frame", -EPROTO);
    else
        receive_frame(n, &cf);
}

static void receive_on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct receive_node *n = arg;
    struct receive *r = n->receive;
    (void)l;
    (void)clean;
    (void)why; /* the sender reports the missing files */
    receive_free(n);
    receive_admit(r);
}

static void receive_on_link(void *arg, struct link *l)
{
    struct receive *r = arg;
    const struct collect_frame busy = {.type = COLLECT_ANSWER, .verdict = COLLECT_BUSY};
    for (int i = 0; i < NODES_MAX; i++) {
        struct receive_node *n = &r->nodes[i];
        if (n->link != NULL)
            continue;
        n->link = l;
        link_set_cb(l, &(struct link_cb){
                           .on_frame = receive_on_frame, .on_close = receive_on_close, .arg = n});
        (void)link_set_heartbeat(l, COLLECT_SILENCE_MS);
        return;
    }
    (void)collect_send_frame(l, &busy);
    link_bye(l);
}

static void receive_drop_all(void *arg)
{
    struct receive *r = arg;
    for (int i = 0; i < NODES_MAX; i++)
        collect_file_drop(&r->nodes[i].file);
}

int collect_receive(struct collect *c, struct dd_err *err)
{
    static struct receive r;
    const uint16_t any = 0;
    uint16_t port;
    char text[16];
    char *const *setup = c->setup.texts.v;
    const char *addr = setup[STAGE_COLLECT_LISTEN];
    r = (struct receive){.c = c,
                         .raw = malloc(COLLECT_PIECE_MAX),
                         .unpack = ZSTD_createDCtx(),
                         .listen_fd = -1,
                         .cache = -1};
    if (r.raw == NULL || r.unpack == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < NODES_MAX; i++)
        r.nodes[i] = (struct receive_node){.receive = &r, .file = COLLECT_FILE_NONE};
    if (dd_num_u64(setup[STAGE_COLLECT_MOST], 0, UINT64_MAX, &r.cache_left) < 0)
        return dd_err_set(err, -EPROTO, "malformed message from the agent");
    c->drop = receive_drop_all;
    c->drop_arg = &r;
    r.listen_fd = net_listen(addr[0] != '\0' ? addr : NULL, &any, 1, &port, err);
    if (r.listen_fd < 0)
        return r.listen_fd;
    const struct handshake_pool_cfg cfg = {.base = c->base,
                                           .accept = {.job_id = setup[STAGE_COLLECT_JOB],
                                                      .key = &c->key,
                                                      .key_in = &c->key_in,
                                                      .timeout_ms = COLLECT_HELLO_MS},
                                           .fd = r.listen_fd,
                                           .most = UNPROVEN_MAX,
                                           .on_link = receive_on_link,
                                           .arg = &r};
    const int rc = handshake_pool_new(&r.handshakes, &cfg, err);
    (void)snprintf(text, sizeof(text), "%u", port);
    if (rc == 0)
        collect_tell(c, STAGE_MSG_PORT, text);
    return rc;
}
