/* The keys that describe the job and its ranks. Src: libpmix 4.2, measured: node map and process
 * map are sufficient for libpmix 4; other versions need the rest. A rank waits forever for a
 * missing key. */
#include "pmi/helper_inner.h"

#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- asynchronous calls ---- */

struct later {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    pmix_status_t status;
};

struct later *later_new(void)
{
    struct later *l = calloc(1, sizeof(*l));
    if (l != NULL) {
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->changed, NULL);
    }
    return l;
}

void later_done(pmix_status_t status, void *arg)
{
    struct later *l = arg;
    pthread_mutex_lock(&l->lock);
    l->done = true;
    l->status = status;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* Wait for the completion; takes l. */
int later_wait(pmix_status_t rc, struct later *l)
{
    pthread_mutex_lock(&l->lock);
    while (rc == PMIX_SUCCESS && !l->done)
        pthread_cond_wait(&l->changed, &l->lock);
    if (rc == PMIX_SUCCESS)
        rc = l->status;
    pthread_mutex_unlock(&l->lock);
    free(l);
    return rc == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : rc;
}

/* ---- a list of keys ---- */

struct keys {
    pmix_info_t *v;
    size_t n, cap;
    bool failed; /* a key could not be added */
};

static void keys_add(struct keys *k, const char *key, const void *value, pmix_data_type_t type)
{
    if (k->n == k->cap) {
        size_t cap = k->cap > 0 ? 2 * k->cap : 32;
        pmix_info_t *v = realloc(k->v, cap * sizeof(*v));
        if (v == NULL) {
            k->failed = true;
            return;
        }
        memset(v + k->cap, 0, (cap - k->cap) * sizeof(*v));
        k->v = v;
        k->cap = cap;
    }
    if (PMIx_Info_load(&k->v[k->n++], key, value, type) != PMIX_SUCCESS)
        k->failed = true;
}

static void add_number(struct keys *k, const char *key, int value)
{
    uint32_t u = (uint32_t)value;
    keys_add(k, key, &u, PMIX_UINT32);
}

static void add_rank(struct keys *k, const char *key, int value)
{
    pmix_rank_t r = (pmix_rank_t)value;
    keys_add(k, key, &r, PMIX_PROC_RANK);
}

static void add_short(struct keys *k, const char *key, int value)
{
    uint16_t u = (uint16_t)value;
    keys_add(k, key, &u, PMIX_UINT16);
}

static void add_bool(struct keys *k, const char *key, bool value)
{
    keys_add(k, key, &value, PMIX_BOOL);
}

static void keys_done(struct keys *k)
{
    for (size_t i = 0; i < k->n; i++)
        PMIX_INFO_DESTRUCT(&k->v[i]);
    free(k->v);
}

/* ---- the namespace ---- */

int space_node_of(const struct space *s, uint32_t rank)
{
    uint32_t first = 0;
    for (int i = 0; i < s->nnodes; i++) {
        if (rank < first + (uint32_t)s->sizes[i])
            return i;
        first += (uint32_t)s->sizes[i];
    }
    return -1;
}

/* Append the node ranks in has[] as "@0-2,5". */
static int name_ranges(struct dd_buf *ret, const bool *has, int n)
{
    char mark = '@';
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        if (!has[i])
            continue;
        int first = i;
        while (i + 1 < n && has[i + 1])
            i++;
        rc = dd_buf_printf(ret, "%c%d", mark, first);
        if (rc == 0 && i > first)
            rc = dd_buf_printf(ret, "-%d", i);
        mark = ',';
    }
    return rc;
}

int space_nodes_of(const struct space *s, const pmix_proc_t procs[], size_t n, struct dd_buf *ret)
{
    DD_AUTO(free) bool *has = calloc((size_t)s->nnodes, sizeof(*has));
    int count = 0;
    if (has == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(procs[i].nspace, s->name, PMIX_MAX_NSLEN) != 0)
            return -ENOTSUP;
        if (procs[i].rank == PMIX_RANK_WILDCARD)
            return s->nnodes;
        int node = space_node_of(s, procs[i].rank);
        if (node < 0)
            return -ENOTSUP;
        count += !has[node];
        has[node] = true;
    }
    int rc = count < s->nnodes ? name_ranges(ret, has, s->nnodes) : 0;
    return rc < 0 ? rc : count;
}

static int list_ranks(struct dd_buf *out, int first, int n)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = dd_buf_printf(out, "%s%d", i > 0 ? "," : "", first + i);
    return rc;
}

/* Add the maps "a,b" and "0,1;2,3" in libpmix's own encoding. */
static int add_maps(struct keys *k, const struct space *s)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(16 << 20);
    DD_AUTO(buf) struct dd_buf procs = DD_BUF_INIT(64 << 20);
    int rc = 0;
    for (int i = 0, first = 0; i < s->nnodes && rc == 0; first += s->sizes[i++]) {
        rc = dd_buf_printf(&names, "%s%s", i > 0 ? "," : "", s->nodes.v[i]);
        if (rc == 0 && i > 0)
            rc = dd_buf_puts(&procs, ";");
        if (rc == 0)
            rc = list_ranks(&procs, first, s->sizes[i]);
    }
    const char *name_text = rc == 0 ? dd_buf_str(&names) : NULL;
    const char *proc_text = rc == 0 ? dd_buf_str(&procs) : NULL;
    char *node_map = NULL;
    char *proc_map = NULL;
    if (name_text == NULL || proc_text == NULL ||
        PMIx_generate_regex(name_text, &node_map) != PMIX_SUCCESS ||
        PMIx_generate_ppn(proc_text, &proc_map) != PMIX_SUCCESS) {
        free(node_map);
        return -ENOMEM;
    }
    keys_add(k, PMIX_NODE_MAP, node_map, PMIX_REGEX);
    keys_add(k, PMIX_PROC_MAP, proc_map, PMIX_REGEX);
    keys_add(k, PMIX_NODE_LIST, name_text, PMIX_STRING);
    free(node_map);
    free(proc_map);
    return 0;
}

static void add_job(struct keys *k, const struct space *s)
{
    keys_add(k, PMIX_JOBID, s->name, PMIX_STRING);
    add_number(k, PMIX_UNIV_SIZE, s->world_size);
    add_number(k, PMIX_JOB_SIZE, s->world_size);
    add_number(k, PMIX_MAX_PROCS, s->world_size);
    add_number(k, PMIX_NUM_NODES, s->nnodes);
    add_number(k, PMIX_JOB_NUM_APPS, 1);
    add_number(k, PMIX_APP_SIZE, s->world_size);
    add_rank(k, PMIX_APPLDR, 0);
    add_bool(k, PMIX_SPAWNED, false);
    keys_add(k, PMIX_TMPDIR, s->directory, PMIX_STRING);
    keys_add(k, PMIX_NSDIR, s->directory, PMIX_STRING);
    add_bool(k, PMIX_TDIR_RMCLEAN, true);
}

static int add_node(struct keys *k, const struct space *s)
{
    DD_AUTO(buf) struct dd_buf peers = DD_BUF_INIT(1 << 20);
    int rc = list_ranks(&peers, s->first_rank, s->local_size);
    const char *text = rc == 0 ? dd_buf_str(&peers) : NULL;
    if (text == NULL)
        return -ENOMEM;
    add_number(k, PMIX_LOCAL_SIZE, s->local_size);
    add_number(k, PMIX_NODE_SIZE, s->local_size);
    keys_add(k, PMIX_LOCAL_PEERS, text, PMIX_STRING);
    add_rank(k, PMIX_LOCALLDR, s->first_rank);
    keys_add(k, PMIX_HOSTNAME, s->nodes.v[s->node_rank], PMIX_STRING);
    add_number(k, PMIX_NODEID, s->node_rank);
    return 0;
}

/* The rank must be the first key: libpmix requires it. */
static void add_proc(struct keys *k, const struct space *s, int node, int local_rank, int rank)
{
    struct keys p = {0};
    add_rank(&p, PMIX_RANK, rank);
    add_rank(&p, PMIX_GLOBAL_RANK, rank);
    add_rank(&p, PMIX_APP_RANK, rank);
    add_number(&p, PMIX_APPNUM, 0);
    add_short(&p, PMIX_LOCAL_RANK, local_rank);
    add_short(&p, PMIX_NODE_RANK, local_rank);
    add_number(&p, PMIX_NODEID, node);
    keys_add(&p, PMIX_HOSTNAME, s->nodes.v[node], PMIX_STRING);
    add_number(&p, PMIX_REINCARNATION, s->attempt);
    pmix_data_array_t array = {.type = PMIX_INFO, .size = p.n, .array = p.v};
    keys_add(k, PMIX_PROC_DATA, &array, PMIX_DATA_ARRAY); /* makes a copy */
    k->failed = k->failed || p.failed;
    keys_done(&p);
}

static int register_space(const struct space *s, struct keys *k)
{
    int rc = add_maps(k, s);
    add_job(k, s);
    if (rc == 0)
        rc = add_node(k, s);
    for (int node = 0, rank = 0; node < s->nnodes && rc == 0; node++)
        for (int i = 0; i < s->sizes[node]; i++)
            add_proc(k, s, node, i, rank++);
    struct later *l = rc == 0 && !k->failed ? later_new() : NULL;
    if (l == NULL)
        return PMIX_ERR_NOMEM;
    return later_wait(
        PMIx_server_register_nspace(s->name, s->local_size, k->v, k->n, later_done, l), l);
}

static int register_worker(const struct space *s, int local_rank)
{
    pmix_proc_t proc;
    struct later *l = later_new();
    if (l == NULL)
        return PMIX_ERR_NOMEM;
    PMIX_LOAD_PROCID(&proc, s->name, (pmix_rank_t)(s->first_rank + local_rank));
    return later_wait(PMIx_server_register_client(&proc, geteuid(), getegid(), NULL, later_done, l),
                      l);
}

int space_register(const struct space *s, struct dd_err *err)
{
    struct keys k = {0};
    int rc = register_space(s, &k);
    keys_done(&k);
    for (int i = 0; i < s->local_size && rc == PMIX_SUCCESS; i++)
        rc = register_worker(s, i);
    return rc == PMIX_SUCCESS ? 0
                              : dd_err_set(err, -EIO, "libpmix cannot register the ranks: %s",
                                           PMIx_Error_string(rc));
}

void space_done(struct space *s)
{
    free(s->sizes);
    dd_strv_done(&s->nodes);
}
