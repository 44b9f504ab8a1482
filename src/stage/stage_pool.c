#include "stage/stage_pool.h"

#include "base/auto.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

enum {
    LEVEL = 1, /* 400 MB/s on a core of 2020; level 3 saves 6 % of a venv and takes twice as long */
    READERS = 16,
};

struct stage_pool {
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct stage_chunks waiting, done;
    enum stage_phase phase; /* phase of the chunks that threads work on */
    int running;
    int wanted, threads; /* number of threads to be started, and of running ones */
    int error;           /* of the last pthread_create() that failed; 0: none has */
    int wake_fd;
    const struct stage_unpack_cfg *unpack;
    bool compress;
    struct stage_pack *pack;
    uint32_t numbered; /* chunks that have been read */
};

/* Buffers and contexts that a thread reuses. */
struct tools {
    ZSTD_CCtx *pack;
    ZSTD_DCtx *unpack;
    unsigned char *raw;
};

static int digest(unsigned char out[STAGE_DIGEST], const void *p, size_t n)
{
    return EVP_Digest(p, n, out, NULL, EVP_sha256(), NULL) == 1 ? 0 : -EIO;
}

/* ---- one chunk ---- */

static int make_frame(struct stage_chunk *c, const struct dd_buf *raw, const struct tools *t)
{
    const size_t most = ZSTD_compressBound(raw->len);
    DD_AUTO(free) unsigned char *packed = malloc(most);
    if (packed == NULL)
        return -ENOMEM;
    const size_t n = ZSTD_compressCCtx(t->pack, packed, most, raw->data, raw->len, LEVEL);
    if (ZSTD_isError(n))
        return -EIO;
    c->frame = DD_BUF_INIT(2 * STAGE_RAW_MAX);
    return stage_frame_encode(&c->frame, &(struct stage_frame){.type = STAGE_CHUNK,
                                                               .seq = c->seq,
                                                               .phase = c->phase,
                                                               .raw = (uint32_t)raw->len,
                                                               .data = packed,
                                                               .len = n});
}

static int open_frame(const struct stage_chunk *c, const struct tools *t, size_t *ret)
{
    struct stage_frame f;
    if (stage_frame_decode(&f, c->frame.data, c->frame.len) < 0 || f.type != STAGE_CHUNK)
        return -EPROTO;
    *ret = ZSTD_decompressDCtx(t->unpack, t->raw, STAGE_RAW_MAX, f.data, f.len);
    return ZSTD_isError(*ret) || *ret != f.raw ? -EPROTO : 0;
}

static void work_on(const struct stage_pool *p, struct stage_chunk *c, const unsigned char *raw,
                    size_t n)
{
    c->bytes = n;
    /* a node without children sends no chunk that it reads, so no other node compares its digest */
    c->rc = c->read && !p->compress ? 0 : digest(c->digest, raw, n);
    if (c->rc < 0)
        (void)dd_err_set(&c->err, c->rc, "--stage: cannot compute the SHA-256 digest of a chunk");
    else if (p->unpack != NULL)
        c->rc = stage_unpack(p->unpack, c->phase, raw, n, &c->err);
}

static void work_received(const struct stage_pool *p, struct stage_chunk *c, const struct tools *t)
{
    size_t n = 0;
    c->rc = open_frame(c, t, &n);
    if (c->rc == 0)
        work_on(p, c, t->raw, n);
}

static void work_read(struct stage_pool *p, struct stage_chunk *c, const struct tools *t)
{
    DD_AUTO(buf) struct dd_buf raw = c->raw;
    c->raw = (struct dd_buf){0};
    if (raw.len == 0)
        c->rc = stage_pack_read(p->pack, &c->part, &raw, &c->err);
    c->empty = c->rc == 0 && raw.len == 0;
    if (c->rc < 0 || c->empty)
        return;
    (void)pthread_mutex_lock(&p->lock);
    c->seq = p->numbered++;
    (void)pthread_mutex_unlock(&p->lock);
    if (p->compress && (c->rc = make_frame(c, &raw, t)) < 0)
        (void)dd_err_set(&c->err, c->rc, "--stage: cannot compress a chunk: %s", strerror(-c->rc));
    else
        work_on(p, c, raw.data, raw.len);
}

/* ---- threads ---- */

static struct stage_chunk *next_chunk(struct stage_pool *p)
{
    for (;;) {
        struct stage_chunk *c = TAILQ_FIRST(&p->waiting);
        if (c != NULL && (p->running == 0 || c->phase == p->phase)) {
            TAILQ_REMOVE(&p->waiting, c, entry);
            p->phase = c->phase;
            p->running++;
            return c;
        }
        (void)pthread_cond_wait(&p->change, &p->lock);
    }
}

/* Threads run until the process exits. */
static void *run_thread(void *arg)
{
    struct stage_pool *p = arg;
    struct tools t = {
        .pack = ZSTD_createCCtx(), .unpack = ZSTD_createDCtx(), .raw = malloc(STAGE_RAW_MAX)};
    const bool ready = t.pack != NULL && t.unpack != NULL && t.raw != NULL;
    for (;;) {
        (void)pthread_mutex_lock(&p->lock);
        struct stage_chunk *c = next_chunk(p);
        (void)pthread_mutex_unlock(&p->lock);
        if (ready && c->read)
            work_read(p, c, &t);
        else if (ready)
            work_received(p, c, &t);
        else
            c->rc = dd_err_set(&c->err, -ENOMEM, "--stage: out of memory");
        (void)pthread_mutex_lock(&p->lock);
        TAILQ_INSERT_TAIL(&p->done, c, entry);
        if (--p->running == 0) /* the next phase may begin */
            (void)pthread_cond_broadcast(&p->change);
        (void)pthread_mutex_unlock(&p->lock);
        const uint64_t one = 1;
        const ssize_t n = write(p->wake_fd, &one, sizeof(one));
        (void)n;
    }
    return NULL;
}

/* Start the wanted threads. The caller holds the lock. */
static void start_threads(struct stage_pool *p)
{
    for (; p->wanted > 0; p->wanted--) {
        pthread_t id;
        const int error = pthread_create(&id, NULL, run_thread, p);
        if (error == 0) {
            (void)pthread_detach(id);
            p->threads++;
        } else {
            p->error = error;
        }
    }
}

int stage_pool_new(struct stage_pool **ret, int threads, int wake_fd, struct dd_err *err)
{
    struct stage_pool *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->change, NULL);
    TAILQ_INIT(&p->waiting);
    TAILQ_INIT(&p->done);
    p->wake_fd = wake_fd;
    p->wanted = threads;
    *ret = p;
    return 0;
}

void stage_pool_read_from(struct stage_pool *p, struct stage_pack *pack)
{
    (void)pthread_mutex_lock(&p->lock);
    p->pack = pack;
    p->wanted += READERS;
    (void)pthread_mutex_unlock(&p->lock);
}

void stage_pool_unpack_to(struct stage_pool *p, const struct stage_unpack_cfg *unpack)
{
    (void)pthread_mutex_lock(&p->lock);
    p->unpack = unpack;
    (void)pthread_mutex_unlock(&p->lock);
}

void stage_pool_compress(struct stage_pool *p, bool on)
{
    (void)pthread_mutex_lock(&p->lock);
    p->compress = on;
    (void)pthread_mutex_unlock(&p->lock);
}

int stage_pool_add(struct stage_pool *p, struct stage_chunk *c)
{
    (void)pthread_mutex_lock(&p->lock);
    start_threads(p);
    const int rc = p->threads > 0 ? 0 : -p->error;
    TAILQ_INSERT_TAIL(&p->waiting, c, entry);
    (void)pthread_cond_signal(&p->change);
    (void)pthread_mutex_unlock(&p->lock);
    return rc;
}

void stage_pool_take(struct stage_pool *p, struct stage_chunks *done)
{
    (void)pthread_mutex_lock(&p->lock);
    TAILQ_CONCAT(done, &p->done, entry);
    (void)pthread_mutex_unlock(&p->lock);
}

void stage_chunk_free(struct stage_chunk *c)
{
    dd_buf_done(&c->raw);
    dd_buf_done(&c->frame);
    free(c);
}
