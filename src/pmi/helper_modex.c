/* Direct modex: data that a rank has published, requested by a rank of another node. Each node
 * sends the first data of its ranks to all others once all of them have published; requests wait
 * until the data of all nodes have arrived. */
#include "pmi/helper_inner.h"

#include "base/auto.h"
#include "base/cursor.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct asker {
    LIST_ENTRY(asker) entry;
    uint32_t rank;
    pmix_modex_cbfunc_t done;
    void *arg;
};

struct modex {
    const struct space *space;
    void (*on_complete)(const void *part, size_t len);
    pthread_mutex_t lock;
    LIST_HEAD(, asker) askers;
    int missing;        /* ranks of this node that have not published yet */
    struct dd_buf part; /* part of this node; per rank: u32_le rank | u32_le bytes | data */
    struct dd_buf all;  /* the parts of all nodes, in the same format */
    bool complete;
};

/* One rank of this node, passed through libpmix. */
struct source {
    struct modex *modex;
    uint32_t rank;
};

/* Find the entry of a rank; NULL: none. */
static const unsigned char *modex_find(const struct dd_buf *all, uint32_t rank, size_t *ret_len)
{
    struct dd_rd r = dd_rd_of(all->data, all->len);
    while (dd_rd_left(&r) > 0 && !r.failed) {
        uint32_t of = dd_rd_u32(&r);
        uint32_t n = dd_rd_u32(&r);
        const unsigned char *p = dd_rd_bytes(&r, n);
        if (p != NULL && of == rank) {
            *ret_len = n;
            return p;
        }
    }
    return NULL;
}

static void modex_answer(const struct modex *m, uint32_t rank, pmix_modex_cbfunc_t done, void *arg)
{
    size_t n = 0;
    const unsigned char *p = modex_find(&m->all, rank, &n);
    char *copy = p != NULL ? malloc(n > 0 ? n : 1) : NULL;
    if (copy != NULL)
        memcpy(copy, p, n);
    done(copy != NULL ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND, copy, n, arg, free, copy);
}

/* Add what a rank of this node has published; on libpmix's thread. A failure status: the rank has
 * exited. */
static void on_published(pmix_status_t status, char *data, size_t len, void *arg)
{
    struct source *s = arg;
    struct modex *m = s->modex;
    pthread_mutex_lock(&m->lock);
    if (status == PMIX_SUCCESS) {
        int rc = dd_wr_le(&m->part, s->rank, 4);
        if (rc == 0)
            rc = dd_wr_le(&m->part, len, 4);
        if (rc == 0 && len > 0)
            rc = dd_buf_append(&m->part, data, len);
        m->missing -= rc == 0;
    }
    bool last = status == PMIX_SUCCESS && m->missing == 0;
    pthread_mutex_unlock(&m->lock);
    free(s);
    if (last) /* the part is final now */
        m->on_complete(m->part.data, m->part.len);
}

int modex_new(struct modex **ret, const struct space *s,
              void (*on_complete)(const void *part, size_t len))
{
    struct modex *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return -ENOMEM;
    m->space = s;
    m->on_complete = on_complete;
    pthread_mutex_init(&m->lock, NULL);
    LIST_INIT(&m->askers);
    m->part = DD_BUF_INIT(MODEX_MAX);
    m->all = DD_BUF_INIT(MODEX_MAX);
    m->missing = s->local_size;
    *ret = m;
    return 0;
}

void modex_begin(struct modex *m)
{
    for (int i = 0; i < m->space->local_size; i++) {
        pmix_proc_t proc;
        struct source *s = calloc(1, sizeof(*s));
        if (s == NULL)
            return;
        s->modex = m;
        s->rank = (uint32_t)(m->space->first_rank + i);
        PMIX_LOAD_PROCID(&proc, m->space->name, s->rank);
        if (PMIx_server_dmodex_request(&proc, on_published, s) != PMIX_SUCCESS)
            free(s);
    }
}

void modex_complete(struct modex *m, const void *parts, size_t len)
{
    pthread_mutex_lock(&m->lock);
    m->complete = dd_buf_append(&m->all, parts, len) == 0;
    while (m->complete && !LIST_EMPTY(&m->askers)) {
        struct asker *a = LIST_FIRST(&m->askers);
        LIST_REMOVE(a, entry);
        modex_answer(m, a->rank, a->done, a->arg);
        free(a);
    }
    pthread_mutex_unlock(&m->lock);
}

pmix_status_t modex_ask(struct modex *m, uint32_t rank, pmix_modex_cbfunc_t done, void *arg)
{
    struct asker *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return PMIX_ERR_NOMEM;
    a->rank = rank;
    a->done = done;
    a->arg = arg;
    pthread_mutex_lock(&m->lock);
    if (m->complete) {
        modex_answer(m, rank, done, arg);
        free(a);
    } else {
        LIST_INSERT_HEAD(&m->askers, a, entry);
    }
    pthread_mutex_unlock(&m->lock);
    return PMIX_SUCCESS;
}

void modex_free(struct modex *m)
{
    while (!LIST_EMPTY(&m->askers)) {
        struct asker *a = LIST_FIRST(&m->askers);
        LIST_REMOVE(a, entry);
        free(a);
    }
    dd_buf_done(&m->part);
    dd_buf_done(&m->all);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
