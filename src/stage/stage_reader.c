#include "stage/stage_reader.h"

#include "stage/stage_archive.h"
#include "stage/stage_pack.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct stage_reader {
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct stage_pool *pool;
    const struct stage_sources *sources;
    struct compile_dir cache; /* no texts: no cache */
    char cache_path[COMPILE_DIR_SOURCE], warning[COMPILE_DIR_WARNING];
    char *cache_paths[2];
    struct stage_source cache_source;
    struct stage_sources cache_sources;
    int wake_fd;
    struct stage_list list;
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

/* Give a part to the pool, once fewer than STAGE_WINDOW chunks are in flight. raw: bytes of the
 * part, taken; NULL: not read yet. */
static int reader_add(struct stage_reader *r, const struct stage_part *part, struct dd_buf *raw)
{
    struct stage_chunk *c = calloc(1, sizeof(*c));
    if (c == NULL || r->chunks >= STAGE_CHUNKS_MAX) {
        free(c);
        if (raw != NULL)
            dd_buf_done(raw);
        return r->chunks >= STAGE_CHUNKS_MAX
                   ? dd_err_set(&r->err, -E2BIG,
                                "--stage: the sources are too large: expected at most %d blocks of "
                                "%d KiB",
                                STAGE_CHUNKS_MAX, STAGE_RAW_MAX >> 10)
                   : dd_err_set(&r->err, -ENOMEM, "--stage: out of memory");
    }
    *c = (struct stage_chunk){.phase = part->phase, .part = *part, .read = true};
    if (raw != NULL)
        c->raw = *raw;
    (void)pthread_mutex_lock(&r->lock);
    while (r->in_flight >= STAGE_WINDOW)
        (void)pthread_cond_wait(&r->change, &r->lock);
    r->in_flight++;
    r->chunks++;
    (void)pthread_mutex_unlock(&r->lock);
    const int rc = stage_pool_add(r->pool, c);
    return rc == 0
               ? 0
               : dd_err_set(&r->err, rc, "--stage: cannot create a thread to read the sources: %s",
                            strerror(-rc));
}

static int list_cache(struct stage_reader *r)
{
    r->cache_paths[0] = r->cache_path;
    r->cache_source.path = r->cache_source.name = r->cache_path;
    r->cache_sources = (struct stage_sources){
        .v = &r->cache_source, .n = 1, .paths = r->cache_paths, .names = r->cache_paths};
    r->sources = &r->cache_sources;
    const int rc = compile_dir_list(&r->list, &r->cache, r->cache_path, r->warning);
    r->list.skipped = 0;          /* r->warning reports skipped entries */
    if (r->cache_path[0] == '\0') /* the cache cannot be used */
        r->cache_paths[0] = NULL;
    return rc == 0 ? 0
                   : dd_err_set(&r->err, rc, "--stage: cannot list '%s': %s", r->cache.dir,
                                rc == -E2BIG ? "too many entries" : strerror(-rc));
}

static int list_source(struct stage_reader *r, const struct stage_source *s, int number)
{
    return (s->archive ? stage_walk_archive
            : s->image ? stage_walk_image
                       : stage_walk)(&r->list, s->path, number, &r->err);
}

static int list_all(struct stage_reader *r)
{
    int rc = r->cache.dir != NULL ? list_cache(r) : 0;
    for (int i = 0; r->cache.dir == NULL && i < r->sources->n && rc == 0; i++)
        rc = list_source(r, &r->sources->v[i], i);
    for (size_t i = 0; i < r->list.n; i++)
        r->files += r->list.items[i].kind == STAGE_FILE;
    return rc;
}

static int add_raw(void *arg, enum stage_phase phase, struct dd_buf *raw)
{
    return reader_add(arg, &(struct stage_part){.phase = phase}, raw);
}

/* Give all parts to the pool. The pack is not freed: the pool reads until the process exits. */
static int read_all(struct stage_reader *r)
{
    const struct stage_pack_cfg cfg = {.list = &r->list, .sources = r->sources->paths};
    struct stage_pack *pack;
    struct stage_part part;
    int rc = stage_pack_new(&pack, &cfg, &r->err);
    if (rc < 0)
        return rc;
    stage_pool_read_from(r->pool, pack);
    while (rc == 0 && stage_pack_next(pack, &part))
        rc = reader_add(r, &part, NULL);
    for (int i = 0; i < r->sources->n && rc == 0; i++)
        if (r->sources->v[i].archive)
            rc = stage_archive_read(&r->sources->v[i], i, add_raw, r, &r->err);
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
        rc = read_all(r);
    }
    reader_enter(r, rc < 0 ? STAGE_READER_FAILED : STAGE_READER_FINISHED);
    return NULL;
}

int stage_reader_start(struct stage_reader **ret, struct stage_pool *pool,
                       const struct stage_sources *sources, const struct compile_dir *cache,
                       int wake_fd, struct dd_err *err)
{
    pthread_t id;
    struct stage_reader *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    *r = (struct stage_reader){.pool = pool, .sources = sources, .wake_fd = wake_fd};
    if (cache != NULL)
        r->cache = *cache;
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->change, NULL);
    const int rc = pthread_create(&id, NULL, run_reader, r);
    if (rc != 0) {
        free(r);
        return dd_err_set(err, -rc, "--stage: cannot create a thread: %s", strerror(rc));
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
        ret->skipped = r->list.skipped;
        ret->first_skipped = r->list.first_skipped;
        ret->warning = r->warning;
        ret->chunks = r->chunks;
    }
    (void)pthread_mutex_unlock(&r->lock);
}

int stage_reader_digest(const struct stage_reader *r, unsigned char out[STAGE_DIGEST])
{
    return stage_list_digest(&r->list, out);
}
