#include "stage/stage_reader.h"

#include "stage/stage_pack.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct stage_reader {
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct stage_pool *pool;
    char *const *sources;
    int wake_fd;
    struct stage_list list;
    unsigned char digest[STAGE_DIGEST];
    enum stage_reader_state state;
    uint64_t files;
    uint32_t chunks;
    unsigned in_flight;
    struct dd_err err;
};

static void wake(const struct stage_reader *r)
{
    const uint64_t one = 1;
    const ssize_t n = write(r->wake_fd, &one, sizeof(one));
    (void)n;
}

static void reader_enter(struct stage_reader *r, enum stage_reader_state state)
{
    (void)pthread_mutex_lock(&r->lock);
    r->state = state;
    (void)pthread_mutex_unlock(&r->lock);
    wake(r);
}

static int emit(void *arg, enum stage_phase phase, struct dd_buf *raw)
{
    struct stage_reader *r = arg;
    struct stage_chunk *c = calloc(1, sizeof(*c));
    if (c == NULL || r->chunks >= STAGE_CHUNKS_MAX) {
        dd_buf_done(raw);
        free(c);
        return dd_err_set(&r->err, -ENOMEM, "--stage: out of memory");
    }
    *c = (struct stage_chunk){.seq = r->chunks, .phase = phase, .raw = *raw};
    (void)pthread_mutex_lock(&r->lock);
    while (r->in_flight >= STAGE_WINDOW)
        (void)pthread_cond_wait(&r->change, &r->lock);
    r->in_flight++;
    r->chunks++;
    (void)pthread_mutex_unlock(&r->lock);
    stage_pool_add(r->pool, c);
    return 0;
}

static int list_all(struct stage_reader *r)
{
    int rc = 0;
    for (int i = 0; r->sources[i] != NULL && rc == 0; i++)
        rc = stage_walk(&r->list, r->sources[i], i, &r->err);
    if (rc == 0 && stage_list_digest(&r->list, r->digest) < 0)
        rc = dd_err_set(&r->err, -EIO, "--stage: cannot compute a digest");
    for (size_t i = 0; i < r->list.n; i++)
        r->files += r->list.items[i].kind == STAGE_FILE;
    return rc;
}

static void *run_reader(void *arg)
{
    struct stage_reader *r = arg;
    int rc = list_all(r);
    if (rc == 0) {
        reader_enter(r, STAGE_READER_LISTED);
        (void)pthread_mutex_lock(&r->lock);
        while (r->state == STAGE_READER_LISTED)
            (void)pthread_cond_wait(&r->change, &r->lock);
        (void)pthread_mutex_unlock(&r->lock);
        const struct stage_pack_cfg cfg = {
            .list = &r->list, .sources = r->sources, .emit = emit, .arg = r};
        rc = stage_pack(&cfg, &r->err);
    }
    reader_enter(r, rc < 0 ? STAGE_READER_FAILED : STAGE_READER_FINISHED);
    return NULL;
}

int stage_reader_start(struct stage_reader **ret, struct stage_pool *pool, char *const *sources,
                       int wake_fd, struct dd_err *err)
{
    pthread_t id;
    struct stage_reader *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    *r = (struct stage_reader){.pool = pool, .sources = sources, .wake_fd = wake_fd};
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->change, NULL);
    const int rc = pthread_create(&id, NULL, run_reader, r);
    if (rc != 0) {
        free(r);
        return dd_err_set(err, -rc, "--stage: cannot create a thread");
    }
    (void)pthread_detach(id);
    *ret = r;
    return 0;
}

void stage_reader_go(struct stage_reader *r)
{
    (void)pthread_mutex_lock(&r->lock);
    r->state = STAGE_READER_READING;
    (void)pthread_cond_broadcast(&r->change);
    (void)pthread_mutex_unlock(&r->lock);
}

void stage_reader_release(struct stage_reader *r)
{
    (void)pthread_mutex_lock(&r->lock);
    r->in_flight--;
    (void)pthread_cond_broadcast(&r->change);
    (void)pthread_mutex_unlock(&r->lock);
}

void stage_reader_look(struct stage_reader *r, struct stage_reader_view *ret)
{
    (void)pthread_mutex_lock(&r->lock);
    *ret = (struct stage_reader_view){.state = r->state, .why = r->err.text};
    if (r->state != STAGE_READER_LISTING) {
        ret->bytes = r->list.bytes;
        ret->entries = r->list.n;
        ret->files = r->files;
        ret->digest = r->digest;
        ret->skipped = r->list.skipped;
        ret->first_skipped = r->list.first_skipped;
        ret->chunks = r->chunks;
    }
    (void)pthread_mutex_unlock(&r->lock);
}
