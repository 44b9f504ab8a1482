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
    LEVEL = 1
}; /* 400 MB/s on a core of 2020; level 3 saves 6 % of a venv and takes twice as long */

struct stage_pool {
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct stage_chunks waiting, done;
    enum stage_phase phase; /* of the running chunks */
    int running;
    int wake_fd;
    const struct stage_unpack_cfg *unpack;
    bool compress;
};

/* What a thread reuses. */
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

static int make_frame(struct stage_chunk *c, const struct tools *t)
{
    const size_t most = ZSTD_compressBound(c->raw.len);
    DD_AUTO(free) unsigned char *packed = malloc(most);
    if (packed == NULL)
        return -ENOMEM;
    const size_t n = ZSTD_compressCCtx(t->pack, packed, most, c->raw.data, c->raw.len, LEVEL);
    if (ZSTD_isError(n))
        return -EIO;
    c->frame = DD_BUF_INIT(2 * STAGE_RAW_MAX);
    return stage_frame_encode(&c->frame, &(struct stage_frame){.type = STAGE_CHUNK,
                                                               .seq = c->seq,
                                                               .phase = c->phase,
                                                               .raw = (uint32_t)c->raw.len,
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

static void work(const struct stage_pool *p, struct stage_chunk *c, const struct tools *t)
{
    const bool received = c->raw.len == 0;
    const unsigned char *raw = received ? t->raw : c->raw.data;
    size_t n = c->raw.len;
    c->rc = received ? open_frame(c, t, &n) : p->compress ? make_frame(c, t) : 0;
    if (c->rc == 0)
        c->rc = digest(c->digest, raw, n);
    if (c->rc < 0)
        (void)dd_err_set(&c->err, c->rc, "--stage: cannot process the data: %s", strerror(-c->rc));
    else if (p->unpack != NULL)
        c->rc = stage_unpack(p->unpack, c->phase, raw, n, &c->err);
    dd_buf_done(&c->raw);
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
        if (ready)
            work(p, c, &t);
        else
            c->rc = dd_err_set(&c->err, -ENOMEM, "--stage: out of memory");
        (void)pthread_mutex_lock(&p->lock);
        p->running--;
        TAILQ_INSERT_TAIL(&p->done, c, entry);
        (void)pthread_cond_broadcast(&p->change);
        (void)pthread_mutex_unlock(&p->lock);
        const uint64_t one = 1;
        const ssize_t n = write(p->wake_fd, &one, sizeof(one));
        (void)n;
    }
    return NULL;
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
    *ret = p;
    int started = 0;
    for (int i = 0; i < threads; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, run_thread, p) == 0) {
            (void)pthread_detach(id);
            started++;
        }
    }
    return started > 0 ? 0 : dd_err_set(err, -EAGAIN, "--stage: cannot create a thread");
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

void stage_pool_add(struct stage_pool *p, struct stage_chunk *c)
{
    (void)pthread_mutex_lock(&p->lock);
    TAILQ_INSERT_TAIL(&p->waiting, c, entry);
    (void)pthread_cond_broadcast(&p->change);
    (void)pthread_mutex_unlock(&p->lock);
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
