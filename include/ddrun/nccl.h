/* NCCL communicators for the workers of a ddrun job, and RCCL's, which has the same names.
 *
 * Header only, on top of libddrun. NCCL is not linked: the header uses the copy that the process
 * has loaded, else the one that DDRUN_NCCL_LIBRARY names, else the first of libnccl.so.2,
 * librccl.so.1, libnccl.so and librccl.so that can be loaded.
 * <nccl.h> may be included before or after, or not at all: this header declares, under names of its
 * own, only those parts of NCCL's binary interface that have never changed. Programs need -ldl if
 * their libc has no dlopen.
 *
 *     struct ddrun_nccl nccl;
 *     ncclComm_t comm;
 *     if (ddrun_nccl_load(&nccl) < 0 || ddrun_nccl_comm(d, NULL, &nccl, NULL, &comm, 60000) < 0)
 *         errx(1, "%s", nccl.error);
 *
 * Functions return 0 or a negative errno; nccl.error describes the failure.
 */
#ifndef DDRUN_NCCL_H
#define DDRUN_NCCL_H

#include <ddrun/ddrun.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ncclUniqueId: 128 bytes, passed by value. */
struct ddrun_nccl_id {
    char internal[128];
};

/* The functions of one NCCL; a pointer is NULL if this NCCL is too old to have the function. An
 * ncclResult_t is an int, an ncclComm_t a pointer, an ncclConfig_t is passed by pointer. */
struct ddrun_nccl {
    int (*get_version)(int *version);
    int (*get_unique_id)(struct ddrun_nccl_id *id);
    int (*comm_init_rank)(void **comm, int n, struct ddrun_nccl_id id, int rank);
    int (*comm_init_rank_config)(void **comm, int n, struct ddrun_nccl_id id, int rank,
                                 void *config);
    int (*comm_init_rank_scalable)(void **comm, int n, int rank, int nids,
                                   struct ddrun_nccl_id *ids, void *config);
    int (*comm_get_async_error)(void *comm, int *result);
    int (*comm_abort)(void *comm);
    const char *(*get_error_string)(int result);
    int version; /* NCCL's version number, 22602 for 2.26.2; 0: unknown */
    char error[300];
};

/* Options; zero selects the default. */
struct ddrun_nccl_opts {
    void *config;     /* an ncclConfig_t, the same on all ranks; NULL: NCCL's defaults */
    int nonblocking;  /* not 0, without a config: like a config with blocking = 0 */
    int ranks_per_id; /* number of ranks that share a root of NCCL's bootstrap; 0: 128 */
    int tries;        /* attempts, each with new ids, after a failure on any rank; 0: 1 */
};

enum {
    DDRUN_NCCL_SUCCESS = 0,
    DDRUN_NCCL_IN_PROGRESS = 7,
    DDRUN_NCCL_RANKS_PER_ID = 128,
};

/* ---- the library ---- */

static inline int ddrun_nccl_fail_(struct ddrun_nccl *nccl, int rc, const char *what,
                                   const char *why)
{
    (void)snprintf(nccl->error, sizeof(nccl->error), "%s: %s", what, why != NULL ? why : "?");
    return rc;
}

static inline int ddrun_nccl_symbol_(void *lib, const char *name, void *function)
{
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

/* Find a loaded NCCL, in the global scope of the process or in a module, or else load one. */
static inline void *ddrun_nccl_find_(void)
{
    static const char *const names[] = {"libnccl.so.2", "librccl.so.1", "libnccl.so", "librccl.so"};
    const char *named = getenv("DDRUN_NCCL_LIBRARY");
    void *lib = dlopen(NULL, RTLD_NOW);
    size_t i;
    if (lib != NULL && dlsym(lib, "ncclGetUniqueId") != NULL)
        return lib;
    lib = NULL;
    for (i = 0; i < sizeof(names) / sizeof(names[0]) && lib == NULL; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    if (lib == NULL && named != NULL && named[0] != '\0')
        return dlopen(named, RTLD_NOW);
    for (i = 0; i < sizeof(names) / sizeof(names[0]) && lib == NULL; i++)
        lib = dlopen(names[i], RTLD_NOW);
    return lib;
}

/* Fill in *nccl. -ENOENT: no NCCL was found, -EINVAL: the file is not NCCL; see nccl->error. */
static inline int ddrun_nccl_load(struct ddrun_nccl *nccl)
{
    void *lib;
    int all;
    memset(nccl, 0, sizeof(*nccl));
    lib = ddrun_nccl_find_();
    if (lib == NULL)
        return ddrun_nccl_fail_(nccl, -ENOENT, "cannot load NCCL", dlerror());
    all = ddrun_nccl_symbol_(lib, "ncclGetUniqueId", &nccl->get_unique_id);
    all &= ddrun_nccl_symbol_(lib, "ncclCommInitRank", &nccl->comm_init_rank);
    all &= ddrun_nccl_symbol_(lib, "ncclCommAbort", &nccl->comm_abort);
    if (!all)
        return ddrun_nccl_fail_(nccl, -EINVAL, "the loaded library is not NCCL", dlerror());
    (void)ddrun_nccl_symbol_(lib, "ncclGetVersion", &nccl->get_version);
    (void)ddrun_nccl_symbol_(lib, "ncclCommInitRankConfig", &nccl->comm_init_rank_config);
    (void)ddrun_nccl_symbol_(lib, "ncclCommInitRankScalable", &nccl->comm_init_rank_scalable);
    (void)ddrun_nccl_symbol_(lib, "ncclCommGetAsyncError", &nccl->comm_get_async_error);
    (void)ddrun_nccl_symbol_(lib, "ncclGetErrorString", &nccl->get_error_string);
    if (nccl->get_version == NULL || nccl->get_version(&nccl->version) != DDRUN_NCCL_SUCCESS)
        nccl->version = 0;
    return 0;
}

/* ---- which rank creates which id ---- */

static inline int ddrun_nccl_ids_for(int n, int ranks_per_id)
{
    int per = ranks_per_id > 0 ? ranks_per_id : DDRUN_NCCL_RANKS_PER_ID;
    return n / per + (n % per != 0);
}

/* Return the index of the id that this rank creates; -1: none. NCCL divides the ranks into a block
 * of consecutive ranks for each id, the first blocks one rank longer if the division leaves a
 * remainder. The ranks of a block connect to the creator of its id, so that is the first of them.
 */
static inline int ddrun_nccl_id_of(int rank, int n, int nids)
{
    int few = n / nids, larger = n % nids;
    if (rank < larger * (few + 1))
        return rank % (few + 1) == 0 ? rank / (few + 1) : -1;
    rank -= larger * (few + 1);
    return rank % few == 0 ? larger + rank / few : -1;
}

struct ddrun_nccl_id_list {
    struct ddrun_nccl_id *v; /* free() */
    int n;
};

/* One rank's part of the exchange: whether its NCCL accepts several ids, whether it failed, and the
 * id that it has created, if it creates one. */
struct ddrun_nccl_note_ {
    char can_scale, failed;
    struct ddrun_nccl_id id;
};

static inline int ddrun_nccl_read_notes_(struct ddrun_nccl *nccl, const struct ddrun_piece *v,
                                         int n, struct ddrun_nccl_id_list *ret, int *can_scale)
{
    int rank, k;
    char why[80];
    for (rank = 0; rank < n; rank++) {
        const char *note = (const char *)v[rank].data;
        k = ddrun_nccl_id_of(rank, n, ret->n);
        if (v[rank].len != (k < 0 ? 2 : sizeof(struct ddrun_nccl_note_)))
            return ddrun_nccl_fail_(nccl, -EPROTO, "NCCL ids",
                                    "the ranks disagree on which ranks create them (ranks_per_id)");
        *can_scale &= note[0] != 0;
        if (note[1] != 0) {
            (void)snprintf(why, sizeof(why), "member %d failed to create one", rank);
            return ddrun_nccl_fail_(nccl, -EIO, "NCCL ids", why);
        }
        if (k >= 0)
            memcpy(&ret->v[k], note + 2, sizeof(ret->v[k]));
    }
    return 0;
}

/* Exchange the ids of a new communicator, for programs that create it without ddrun_nccl_comm():
 * *ret has one id per ranks_per_id ranks, the same on all; free(ret->v). Each id is valid for one
 * communicator. */
static inline int ddrun_nccl_ids(struct ddrun *d, struct ddrun_group *g, struct ddrun_nccl *nccl,
                                 int ranks_per_id, struct ddrun_nccl_id_list *ret, int timeout_ms)
{
    struct ddrun_nccl_note_ mine;
    struct ddrun_nccl_id_list ids;
    struct ddrun_piece *v = NULL;
    int rank = ddrun_group_rank(d, g), n = ddrun_group_size(d, g), can_scale = 1, rc, k;
    ids.n = ddrun_nccl_ids_for(n, ranks_per_id);
    ids.v = (struct ddrun_nccl_id *)calloc((size_t)ids.n, sizeof(*ids.v));
    memset(&mine, 0, sizeof(mine));
    mine.can_scale = nccl->comm_init_rank_scalable != NULL;
    k = ddrun_nccl_id_of(rank, n, ids.n);
    if (ids.v == NULL || (k >= 0 && nccl->get_unique_id(&mine.id) != DDRUN_NCCL_SUCCESS))
        mine.failed = 1;
    rc = ddrun_allgatherv(d, g, &mine, k >= 0 ? sizeof(mine) : 2, &v, timeout_ms);
    if (rc < 0)
        (void)ddrun_nccl_fail_(nccl, rc, "NCCL ids", ddrun_error());
    else if (ids.v == NULL)
        rc = ddrun_nccl_fail_(nccl, -ENOMEM, "NCCL ids", "out of memory");
    else
        rc = ddrun_nccl_read_notes_(nccl, v, n, &ids, &can_scale);
    free(v);
    if (rc < 0) {
        free(ids.v);
        return rc;
    }
    ret->v = ids.v;
    ret->n = can_scale ? ids.n : 1;
    return 0;
}

/* ---- communicators ---- */

/* ncclConfig_t of NCCL 2.14, the first with one; later versions accept it. */
struct ddrun_nccl_config_ {
    size_t size;
    unsigned magic, version;
    int blocking;
};

static inline long ddrun_nccl_now_ms_(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)(t.tv_sec * 1000 + t.tv_nsec / 1000000);
}

static inline int ddrun_nccl_left_ms_(long end)
{
    long left = end - ddrun_nccl_now_ms_();
    return end < 0 ? DDRUN_FOREVER : left > 0 ? (int)left : 0;
}

/* Wait for a non-blocking NCCL. */
static inline int ddrun_nccl_await_(struct ddrun_nccl *nccl, void *comm, int result, long end)
{
    const struct timespec nap = {0, 1000000};
    while (result == DDRUN_NCCL_IN_PROGRESS && comm != NULL && nccl->comm_get_async_error != NULL) {
        if (end >= 0 && ddrun_nccl_now_ms_() >= end)
            return -1;
        (void)nanosleep(&nap, NULL);
        if (nccl->comm_get_async_error(comm, &result) != DDRUN_NCCL_SUCCESS)
            return -1;
    }
    return result;
}

static inline int ddrun_nccl_start_(struct ddrun_nccl *nccl, const struct ddrun_nccl_opts *opts,
                                    int n, int rank, struct ddrun_nccl_id_list *ids, void **comm)
{
    struct ddrun_nccl_config_ plain;
    void *config = opts->config;
    memset(&plain, 0, sizeof(plain));
    plain.size = sizeof(plain);
    plain.magic = 0xcafebeef;
    plain.version = 21400;
    if (config == NULL && opts->nonblocking)
        config = &plain;
    if (ids->n > 1)
        return nccl->comm_init_rank_scalable(comm, n, rank, ids->n, ids->v, config);
    if (config != NULL && nccl->comm_init_rank_config != NULL)
        return nccl->comm_init_rank_config(comm, n, ids->v[0], rank, config);
    return nccl->comm_init_rank(comm, n, ids->v[0], rank);
}

/* Agree whether all members have succeeded: a communicator is valid for all or for none. */
static inline int ddrun_nccl_agree_(struct ddrun *d, struct ddrun_group *g, struct ddrun_nccl *nccl,
                                    int result, int timeout_ms)
{
    struct ddrun_piece *v = NULL;
    int rank, n = ddrun_group_size(d, g), bad = -1, rc;
    char why[200];
    rc = ddrun_allgatherv(d, g, &result, sizeof(result), &v, timeout_ms);
    if (rc < 0)
        return ddrun_nccl_fail_(nccl, rc, "NCCL communicator", ddrun_error());
    for (rank = 0; rank < n && bad < 0; rank++) {
        if (v[rank].len == sizeof(result))
            memcpy(&result, v[rank].data, sizeof(result));
        if (v[rank].len != sizeof(result) || result != DDRUN_NCCL_SUCCESS)
            bad = rank;
    }
    free(v);
    if (bad < 0)
        return 0;
    (void)snprintf(why, sizeof(why), "member %d: %s", bad,
                   result < 0                       ? "not ready in time, or failed"
                   : nccl->get_error_string != NULL ? nccl->get_error_string(result)
                                                    : "error");
    return ddrun_nccl_fail_(nccl, -EIO, "NCCL communicator", why);
}

static inline int ddrun_nccl_try_(struct ddrun *d, struct ddrun_group *g, struct ddrun_nccl *nccl,
                                  const struct ddrun_nccl_opts *opts, void **comm, int timeout_ms)
{
    struct ddrun_nccl_id_list ids;
    long end = timeout_ms < 0 ? -1 : ddrun_nccl_now_ms_() + timeout_ms;
    int n = ddrun_group_size(d, g), rank = ddrun_group_rank(d, g), rc, result;
    memset(&ids, 0, sizeof(ids));
    *comm = NULL;
    rc = ddrun_nccl_ids(d, g, nccl, opts->ranks_per_id, &ids, timeout_ms);
    if (rc < 0)
        return rc;
    result = ddrun_nccl_start_(nccl, opts, n, rank, &ids, comm);
    result = ddrun_nccl_await_(nccl, *comm, result, end);
    free(ids.v);
    /* a rank that is done waits for the others, which have timeouts of their own */
    rc = ddrun_nccl_agree_(d, g, nccl, result,
                           timeout_ms < 0 ? timeout_ms : ddrun_nccl_left_ms_(end) + 5000);
    if (rc < 0 && *comm != NULL)
        (void)nccl->comm_abort(*comm);
    if (rc < 0)
        *comm = NULL;
    return rc;
}

/* Create a communicator of all members of the group, in its order; NULL: of all workers. All
 * members call it. opts may be NULL. comm points to an ncclComm_t. The timeout applies to the
 * exchange of ids and, for a non-blocking communicator, to NCCL's work. -EIO: NCCL failed on some
 * member; then no member has a communicator. */
static inline int ddrun_nccl_comm(struct ddrun *d, struct ddrun_group *g, struct ddrun_nccl *nccl,
                                  const struct ddrun_nccl_opts *opts, void *comm, int timeout_ms)
{
    struct ddrun_nccl_opts usual;
    void *made = NULL;
    int rc, i;
    memset(&usual, 0, sizeof(usual));
    if (opts == NULL)
        opts = &usual;
    i = 0;
    do
        rc = ddrun_nccl_try_(d, g, nccl, opts, &made, timeout_ms);
    while (rc == -EIO && ++i < opts->tries);
    if (rc == 0)
        memcpy(comm, &made, sizeof(made));
    return rc;
}

#ifdef __cplusplus
}
#endif

#endif
