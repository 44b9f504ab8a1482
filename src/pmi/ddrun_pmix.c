/* ddrun-pmix: serves PMIx to the workers of one node for one round, and exits when its agent's
 * connection closes. If the agent has died, it removes the directories of the run. The main thread
 * reads messages of the agent; libpmix's thread calls the functions of the module, which write to
 * the agent under a lock. */
#include "pmi/helper_inner.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/io.h"
#include "base/num.h"
#include "base/scratch.h"
#include "hostlist/hostlist.h"
#include "pmi/hmsg.h"
#include "rdzv/exchange.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <time.h>

enum { END_TRIES = 200, NAME_MAX_ = EXCHANGE_NAME_MAX + 2, MODEX_ID = 0 };

/* A fence, or the construction or destruction of a group, that waits for other nodes. */
struct fence {
    LIST_ENTRY(fence) entry;
    uint32_t id;
    pmix_modex_cbfunc_t done;      /* callback of a fence */
    pmix_info_cbfunc_t group_done; /* callback of a group */
    pmix_data_array_t *members;    /* members of a group under construction; NULL: none */
    void *arg;
};

static struct fence *fence_new(pmix_modex_cbfunc_t done, pmix_info_cbfunc_t group_done, void *arg)
{
    struct fence *f = calloc(1, sizeof(*f));
    if (f != NULL)
        *f = (struct fence){.done = done, .group_done = group_done, .arg = arg};
    return f;
}

static void fence_free(struct fence *f)
{
    if (f != NULL && f->members != NULL)
        PMIX_DATA_ARRAY_FREE(f->members);
    free(f);
}

/* Number of fences among a set of processes, or of operations on a group. */
struct among {
    LIST_ENTRY(among) entry;
    uint64_t hash;
    unsigned n;
};

/* Global, because libpmix passes no argument of ours to the module's functions. */
static struct helper {
    struct space space;
    pthread_mutex_t lock; /* protects the members below, and writing */
    LIST_HEAD(, fence) fences;
    LIST_HEAD(, among) amongs;
    uint32_t last_id;    /* last id of a fence; never MODEX_ID */
    unsigned groups;     /* number of group identifiers that this node has proposed */
    struct modex *modex; /* NULL: only one node */
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- to the agent ---- */

/* Send a message; call with the lock held. The agent always reads; the main thread detects the end
 * of its connection. */
static void tell_locked(const struct hmsg *m)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HMSG_MAX + HMSG_HEAD);
    if (hmsg_encode(&out, m) == 0)
        (void)dd_write_full(HMSG_FD, out.data, out.len);
}

static void helper_tell(const struct hmsg *m)
{
    pthread_mutex_lock(&helper.lock);
    tell_locked(m);
    pthread_mutex_unlock(&helper.lock);
}

static void tell_of(enum hmsg_type type, const pmix_proc_t *proc, int code)
{
    uint32_t local = proc->rank - (uint32_t)helper.space.first_rank;
    if (local < (uint32_t)helper.space.local_size)
        helper_tell(&(struct hmsg){.type = type, .id = local, .code = code});
}

/* ---- the module: called on libpmix's thread ---- */

static pmix_status_t helper_on_connected(const pmix_proc_t *proc, void *object, pmix_info_t info[],
                                         size_t n, pmix_op_cbfunc_t done, void *arg)
{
    (void)object;
    (void)info;
    (void)n;
    tell_of(HMSG_CONNECTED, proc, 0);
    if (done != NULL)
        done(PMIX_SUCCESS, arg);
    return PMIX_SUCCESS;
}

/* The message is sent before the worker can continue, and therefore before the worker exits. */
static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                                  void *arg)
{
    (void)object;
    tell_of(HMSG_FINALIZED, proc, 0);
    if (done == NULL)
        return PMIX_OPERATION_SUCCEEDED;
    done(PMIX_SUCCESS, arg);
    return PMIX_SUCCESS;
}

static pmix_status_t helper_on_abort(const pmix_proc_t *proc, void *object, int status,
                                     const char text[], pmix_proc_t procs[], size_t n,
                                     pmix_op_cbfunc_t done, void *arg)
{
    (void)object;
    (void)text;
    (void)procs;
    (void)n;
    tell_of(HMSG_ABORTED, proc, status);
    if (done == NULL)
        return PMIX_OPERATION_SUCCEEDED;
    done(PMIX_SUCCESS, arg);
    return PMIX_SUCCESS;
}

/* Return a hash that does not depend on the order of the processes. */
static uint64_t helper_hash_of(const pmix_proc_t procs[], size_t n)
{
    uint64_t all = n;
    for (size_t i = 0; i < n; i++) {
        uint64_t h = (procs[i].rank + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
        h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
        all += h ^ h >> 32;
    }
    return all;
}

/* Call with the lock held. 0: out of memory. */
static unsigned count_among(uint64_t hash)
{
    struct among *a;
    LIST_FOREACH (a, &helper.amongs, entry)
        if (a->hash == hash)
            return ++a->n;
    a = calloc(1, sizeof(*a));
    if (a == NULL)
        return 0;
    a->hash = hash;
    LIST_INSERT_HEAD(&helper.amongs, a, entry);
    return ++a->n;
}

/* Send this node's part; call with the lock held. where: the participating nodes, as in the name of
 * an exchange. */
static int gather_locked(struct fence *f, uint64_t hash, const char *where,
                         const struct dd_buf *part)
{
    char name[NAME_MAX_];
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HMSG_MAX);
    unsigned count = count_among(hash);
    int n = snprintf(name, sizeof(name), "pmix.%016llx.%u%s", (unsigned long long)hash, count,
                     where);
    if (n < 0 || n > EXCHANGE_NAME_MAX)
        return -EMSGSIZE;
    int rc = count > 0 ? hmsg_put_text(&out, name) : -ENOMEM;
    if (rc == 0 && part->len > 0)
        rc = dd_buf_append(&out, part->data, part->len);
    if (rc < 0)
        return rc;
    f->id = ++helper.last_id;
    LIST_INSERT_HEAD(&helper.fences, f, entry);
    tell_locked(&(struct hmsg){.type = HMSG_GATHER, .id = f->id, .data = out.data, .len = out.len});
    return 0;
}

/* Start the exchange; takes f. */
static pmix_status_t helper_gather(struct fence *f, uint64_t hash, struct dd_buf *where,
                                   const struct dd_buf *part)
{
    const char *nodes = dd_buf_str(where);
    int rc = -ENOMEM;
    pthread_mutex_lock(&helper.lock);
    if (f != NULL && nodes != NULL)
        rc = gather_locked(f, hash, nodes, part);
    pthread_mutex_unlock(&helper.lock);
    if (rc == 0)
        return PMIX_SUCCESS;
    fence_free(f);
    return rc == -EMSGSIZE ? PMIX_ERR_NOT_SUPPORTED : PMIX_ERR_NOMEM;
}

/* Called for fences with processes of other nodes; libpmix itself handles those within a node. */
static pmix_status_t on_fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                              size_t ninfo, char *data, size_t n, pmix_modex_cbfunc_t done,
                              void *arg)
{
    (void)info;
    (void)ninfo;
    DD_AUTO(buf) struct dd_buf where = DD_BUF_INIT(HMSG_MAX);
    const struct dd_buf part = {.data = (unsigned char *)data, .len = n};
    int nodes = space_nodes_of(&helper.space, procs, nprocs, &where);
    if (nodes < 0)
        return nodes == -ENOMEM ? PMIX_ERR_NOMEM : PMIX_ERR_NOT_SUPPORTED;
    return helper_gather(fence_new(done, NULL, arg), helper_hash_of(procs, nprocs), &where, &part);
}

static uint64_t hash_of_group(const char *name, pmix_group_operation_t op, uint64_t among)
{
    uint64_t h = among ^ (uint64_t)op;
    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h;
}

static pmix_status_t on_group(pmix_group_operation_t op, char name[], const pmix_proc_t procs[],
                              size_t nprocs, const pmix_info_t info[], size_t n,
                              pmix_info_cbfunc_t done, void *arg)
{
    DD_AUTO(buf) struct dd_buf where = DD_BUF_INIT(HMSG_MAX);
    DD_AUTO(buf) struct dd_buf part = DD_BUF_INIT(HMSG_MAX);
    int nodes = space_nodes_of(&helper.space, procs, nprocs, &where);
    if (nodes < 0)
        return nodes == -ENOMEM ? PMIX_ERR_NOMEM : PMIX_ERR_NOT_SUPPORTED;
    const uint64_t hash = hash_of_group(name, op, helper_hash_of(procs, nprocs));
    if (op != PMIX_GROUP_CONSTRUCT)
        return nodes > 1 ? helper_gather(fence_new(NULL, done, arg), hash, &where, &part)
                         : PMIX_OPERATION_SUCCEEDED;
    struct fence *f = fence_new(NULL, done, arg);
    if (f == NULL || (f->members = group_members(procs, nprocs)) == NULL ||
        group_part(&part, &helper.space, helper.groups++, info, n) < 0) {
        fence_free(f);
        return PMIX_ERR_NOMEM;
    }
    if (nodes > 1)
        return helper_gather(f, hash, &where, &part);
    group_formed(part.data, part.len, f->members, done, arg);
    fence_free(f);
    return PMIX_SUCCESS;
}

static pmix_status_t on_direct_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t n,
                                     pmix_modex_cbfunc_t done, void *arg)
{
    (void)info;
    (void)n;
    return helper.modex != NULL ? modex_ask(helper.modex, proc->rank, done, arg)
                                : PMIX_ERR_NOT_FOUND;
}

static void on_all_published(const void *part, size_t len)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HMSG_MAX);
    if (hmsg_put_text(&out, "pmix.modex") == 0 && dd_buf_append(&out, part, len) == 0)
        helper_tell(
            &(struct hmsg){.type = HMSG_GATHER, .id = MODEX_ID, .data = out.data, .len = out.len});
}

/* A newer libpmix at run time may copy more functions than existed at compile time. */
static struct {
    pmix_server_module_t known;
    void *later[32];
} module = {.known = {
                .client_connected2 = helper_on_connected,
                .client_finalized = on_finalized,
                .abort = helper_on_abort,
                .fence_nb = on_fence,
                .direct_modex = on_direct_modex,
                .group = on_group,
            }};

/* Return the major version of the loaded libpmix: "OpenPMIx 4.2.2 (...)". */
static int libpmix_major(void)
{
    const char *text = PMIx_Get_version();
    char digits[8];
    text += strcspn(text, "0123456789");
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)strspn(text, "0123456789"), text);
    int major = 0;
    (void)dd_num_int(digits, 0, 999, &major);
    return major;
}

/* ---- from the agent ---- */

static struct fence *take_fence(uint32_t id)
{
    struct fence *f;
    pthread_mutex_lock(&helper.lock);
    LIST_FOREACH (f, &helper.fences, entry)
        if (f->id == id)
            break;
    if (f != NULL)
        LIST_REMOVE(f, entry);
    pthread_mutex_unlock(&helper.lock);
    return f;
}

static void complete_fence(const struct fence *f, const struct hmsg *m)
{
    char *copy = malloc(m->len > 0 ? m->len : 1);
    if (copy != NULL && m->len > 0)
        memcpy(copy, m->data, m->len);
    if (f->done != NULL)
        f->done(m->code == 0 && copy != NULL ? PMIX_SUCCESS : PMIX_ERROR, copy,
                copy != NULL ? m->len : 0, f->arg, free, copy);
}

static void complete_group(const struct fence *f, const struct hmsg *m)
{
    if (m->code == 0 && f->members != NULL)
        group_formed(m->data, m->len, f->members, f->group_done, f->arg);
    else
        f->group_done(m->code == 0 ? PMIX_SUCCESS : PMIX_ERROR, NULL, 0, f->arg, NULL, NULL);
}

static void on_gathered(const struct hmsg *m)
{
    if (m->id == MODEX_ID && helper.modex != NULL && m->code == 0) {
        modex_complete(helper.modex, m->data, m->len);
        return;
    }
    struct fence *f = take_fence(m->id);
    if (f == NULL)
        return;
    if (f->group_done != NULL)
        complete_group(f, m);
    else
        complete_fence(f, m);
    fence_free(f);
}

/* Read a message; *m points into buf until the next call. */
static bool read_message(struct dd_buf *buf, struct hmsg *m)
{
    unsigned char head[HMSG_HEAD];
    if (dd_read_full(HMSG_FD, head, sizeof(head)) < 0) /* the agent has exited */
        return false;
    int size = hmsg_size(head, sizeof(head));
    dd_buf_clear(buf);
    if (size <= 0 || dd_buf_append(buf, head, sizeof(head)) < 0 ||
        dd_buf_reserve(buf, (size_t)size - sizeof(head)) < 0 ||
        dd_read_full(HMSG_FD, buf->data + sizeof(head), (size_t)size - sizeof(head)) < 0)
        return false;
    buf->len = (size_t)size;
    return hmsg_decode(m, buf->data, buf->len) == size;
}

/* ---- life ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Shorten names to their host part, as libpmix may do; make duplicates distinct. */
static int name_nodes(struct space *s, const struct hostlist *nodes)
{
    int rc = 0;
    for (size_t i = 0; i < hostlist_count(nodes) && rc == 0; i++) {
        const char *name = hostlist_nth(nodes, i);
        rc = dd_strv_pushn(&s->nodes, name, strcspn(name, "."));
    }
    DD_AUTO(free) char **sorted = calloc(s->nodes.n + 1, sizeof(*sorted));
    if (rc < 0 || sorted == NULL)
        return -ENOMEM;
    memcpy(sorted, s->nodes.v, s->nodes.n * sizeof(*sorted));
    qsort(sorted, s->nodes.n, sizeof(*sorted), compare_names);
    bool same = false;
    for (size_t i = 1; i < s->nodes.n && !same; i++)
        same = strcmp(sorted[i - 1], sorted[i]) == 0;
    if (!same)
        return 0;
    size_t n = s->nodes.n;
    dd_strv_done(&s->nodes);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = dd_strv_pushf(&s->nodes, "ddnode%zu", i);
    return rc;
}

static int space_read(struct space *s, const struct hmsg *m, struct dd_err *err)
{
    const char *t[HMSG_SETUP_MAX];
    size_t at = 0;
    for (int i = 0; i < HMSG_SETUP_MAX; i++)
        if (m->type != HMSG_SETUP || (t[i] = hmsg_text(m, &at)) == NULL)
            return dd_err_set(err, -EPROTO,
                              "the configuration from the agent is missing or incomplete");
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    int rc = hostlist_parse(&nodes, t[HMSG_NODES], err);
    if (rc == 0)
        rc = plan_sizes_parse(&s->sizes, &s->nnodes, t[HMSG_SIZES], err);
    if (rc < 0)
        return rc;
    if ((size_t)s->nnodes != hostlist_count(nodes) ||
        dd_num_int(t[HMSG_NODE_RANK], 0, s->nnodes - 1, &s->node_rank) < 0 ||
        dd_num_int(t[HMSG_ATTEMPT], 0, INT32_MAX, &s->attempt) < 0)
        return dd_err_set(
            err, -EPROTO,
            "inconsistent configuration from the agent: number of nodes %zu, of sizes %d, node rank "
            "'%s', attempt '%s'",
            hostlist_count(nodes), s->nnodes, t[HMSG_NODE_RANK], t[HMSG_ATTEMPT]);
    PMIX_LOAD_NSPACE(s->name, t[HMSG_NSPACE]);
    s->directory = t[HMSG_DIRECTORY];
    s->shm = t[HMSG_SHM];
    s->local_size = s->sizes[s->node_rank];
    s->first_rank = plan_first_rank(s->sizes, s->node_rank);
    s->world_size = plan_first_rank(s->sizes, s->nnodes);
    return name_nodes(s, nodes) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

static int helper_serve(const struct space *s, struct dd_err *err)
{
    pmix_info_t info[5];
    pmix_rank_t rank = (pmix_rank_t)s->node_rank;
    memset(info, 0, sizeof(info));
    (void)PMIx_Info_load(&info[0], PMIX_SERVER_TMPDIR, s->directory, PMIX_STRING);
    (void)PMIx_Info_load(&info[1], PMIX_SYSTEM_TMPDIR, s->directory, PMIX_STRING);
    (void)PMIx_Info_load(&info[2], PMIX_SERVER_NSPACE, "ddrun-agents", PMIX_STRING);
    (void)PMIx_Info_load(&info[3], PMIX_SERVER_RANK, &rank, PMIX_PROC_RANK);
    (void)PMIx_Info_load(&info[4], PMIX_HOSTNAME, s->nodes.v[s->node_rank], PMIX_STRING);
    /* Clients of version 5, the only ones that use groups, misinterpret an older server's reply. */
    if (libpmix_major() < 5)
        module.known.group = NULL;
    pmix_status_t rc = PMIx_server_init(&module.known, info, sizeof(info) / sizeof(info[0]));
    for (size_t i = 0; i < sizeof(info) / sizeof(info[0]); i++)
        PMIX_INFO_DESTRUCT(&info[i]);
    if (rc != PMIX_SUCCESS)
        return dd_err_set(err, -EIO, "libpmix %s cannot start its server: %s", PMIx_Get_version(),
                          PMIx_Error_string(rc));
    int ret = space_register(s, err);
    if (ret == 0 && s->nnodes > 1 && (ret = modex_new(&helper.modex, s, on_all_published)) < 0)
        return dd_err_set(err, ret, "out of memory");
    if (ret == 0 && s->nnodes > 1)
        modex_begin(helper.modex);
    return ret;
}

static int put_env(struct dd_buf *out, const struct space *s, int local_rank)
{
    pmix_proc_t proc;
    char **env = calloc(1, sizeof(*env));
    PMIX_LOAD_PROCID(&proc, s->name, (pmix_rank_t)(s->first_rank + local_rank));
    int rc = env != NULL && PMIx_server_setup_fork(&proc, &env) == PMIX_SUCCESS ? 0 : -EIO;
    for (char **e = env; e != NULL && *e != NULL; e++) {
        if (rc == 0)
            rc = hmsg_put_text(out, *e);
        free(*e);
    }
    free(env);
    return rc < 0 ? rc : hmsg_put_text(out, "");
}

static int tell_ready(const struct space *s, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HMSG_MAX);
    int rc = 0;
    for (int i = 0; i < s->local_size && rc == 0; i++)
        rc = put_env(&out, s, i);
    if (rc < 0)
        return dd_err_set(err, rc,
                          rc == -EIO ? "libpmix does not report the environment of the ranks"
                                     : "cannot collect the environment of the ranks: %s",
                          strerror(-rc));
    helper_tell(&(struct hmsg){.type = HMSG_READY, .data = out.data, .len = out.len});
    return 0;
}

/* Open the private directory that contains the round's directory, if there is one. */
static struct dd_scratch open_run(const char *directory)
{
    struct dd_scratch s = DD_SCRATCH_NONE;
    const char *slash = directory != NULL ? strrchr(directory, '/') : NULL;
    DD_AUTO(free) char *path = slash != NULL ? strndup(directory, (size_t)(slash - directory))
                                             : NULL;
    if (path != NULL)
        (void)dd_scratch_open(&s, path, NULL);
    return s;
}

/* Remove the run's directory; the guardian does the same unless it was killed. Retry, because dying
 * ranks may still create files. */
static void remove_run(const struct dd_scratch *s)
{
    for (int i = 0; i < END_TRIES && dd_scratch_remove(s) < 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* --check: test whether libpmix is available; print the reason if not. */
static int helper_check(void)
{
    struct dd_err err = {0};
    if (libpmix_load(&err) == 0)
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--check") == 0)
        return helper_check();
    DD_AUTO(buf) struct dd_buf first = DD_BUF_INIT(HMSG_MAX + HMSG_HEAD);
    DD_AUTO(buf) struct dd_buf buf = DD_BUF_INIT(HMSG_MAX + HMSG_HEAD);
    struct hmsg m;
    struct dd_err err = {0};
    int type;
    socklen_t len = sizeof(type);
    if (getsockopt(HMSG_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0) {
        fprintf(
            stderr,
            "ddrun-pmix: descriptor %d is not a socket: only ddrun starts this program (--mpi)\n",
            HMSG_FD);
        return 2;
    }
    if (!read_message(&first, &m))
        return 1;
    int rc = space_read(&helper.space, &m, &err);
    DD_AUTO(scratch) struct dd_scratch tmp = open_run(helper.space.directory);
    DD_AUTO(scratch) struct dd_scratch shm = open_run(helper.space.shm);
    bool ended = false;
    if (rc == 0)
        rc = libpmix_load(&err);
    if (rc == 0)
        rc = helper_serve(&helper.space, &err);
    if (rc == 0)
        rc = tell_ready(&helper.space, &err);
    if (rc < 0)
        helper_tell(&(struct hmsg){.type = HMSG_FAILED,
                                   .data = (const unsigned char *)err.text,
                                   .len = strlen(err.text) + 1});
    while (!ended && read_message(&buf, &m)) {
        ended = m.type == HMSG_END;
        if (m.type == HMSG_GATHERED)
            on_gathered(&m);
    }
    if (!ended) {
        remove_run(&tmp);
        remove_run(&shm);
    }
    _exit(rc < 0); /* skip atexit handlers: libpmix's thread is still running */
}
