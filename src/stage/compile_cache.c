#include "stage/compile_cache.h"

#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ABANDONED_S = 86400 }; /* age at which an incomplete snapshot is considered abandoned */

/* Src: torch 2.13 (_inductor/runtime/cache_dir_utils.py), Triton 3 (knobs.py), JAX's page
 * "Persistent compilation cache", CUDA C++ Programming Guide (environment variables), MIOpen's
 * pages "Kernel cache" and "Find and tuning databases", Numba's page "Environment variables" */
const struct compile_cache_var compile_cache_vars[] = {
    {"TORCHINDUCTOR_CACHE_DIR", "inductor", NULL},
    /* Inductor keeps this header in TMPDIR and would recompile it on a new node, which costs
     * more time than the cache saves. */
    {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", NULL, "0"},
    {"TRITON_CACHE_DIR", "triton", NULL},
    {"JAX_COMPILATION_CACHE_DIR", "jax", NULL},
    {"CUDA_CACHE_PATH", "cuda/" COMPILE_CACHE_NOW, NULL},
    {"MIOPEN_USER_DB_PATH", "miopen/" COMPILE_CACHE_NOW "/db", NULL},
    {"MIOPEN_CUSTOM_CACHE_DIR", "miopen/" COMPILE_CACHE_NOW "/cache", NULL},
    {"NUMBA_CACHE_DIR", "numba/" COMPILE_CACHE_NOW, NULL},
    {NULL, NULL, NULL},
};

const char *const compile_cache_snapshots[] = {"cuda", "miopen", "numba", NULL};

/* ---- paths ---- */

static bool is_below(const char *path, const char *tool)
{
    const size_t n = strlen(tool);
    return strncmp(path, tool, n) == 0 && path[n] == '/';
}

bool compile_cache_in_snapshot(const char *path)
{
    for (size_t i = 0; compile_cache_snapshots[i] != NULL; i++)
        if (is_below(path, compile_cache_snapshots[i]))
            return true;
    return false;
}

size_t compile_cache_unit(const char *path)
{
    const char *slash = strchr(path, '/');
    const char *end = slash != NULL ? strchr(slash + 1, '/') : NULL;
    if (end == NULL || (!is_below(path, "triton") && !compile_cache_in_snapshot(path)))
        return strlen(path);
    return (size_t)(end - path);
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool compile_cache_is_last(const char *path)
{
    const char *name = name_of(path);
    return strcmp(name, COMPILE_CACHE_COMPLETE) == 0 || strncmp(name, "__grp__", 7) == 0;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s);
    const size_t k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* Src: FileLock in torch ("locks/KEY.lock") and JAX (".lockfile"), Triton ("tmp.pid_N_…/"), torch
 * (".N.N.tmp"), Numba ("NAME.tmp.N"), and the files of collect_write.h */
bool compile_cache_is_temporary(const char *path)
{
    const char *name = name_of(path);
    return ends_with(name, ".lock") || ends_with(name, ".lockfile") || ends_with(name, ".tmp") ||
           strstr(name, ".tmp.") != NULL || strstr(path, "/tmp.pid_") != NULL ||
           (strncmp(name, ".ddrun-", 7) == 0 && strcmp(name, COMPILE_CACHE_COMPLETE) != 0);
}

int compile_cache_order(const char *a, const char *b)
{
    const size_t n = compile_cache_unit(a);
    const size_t k = compile_cache_unit(b);
    int rc = strncmp(a, b, n < k ? n : k);
    if (rc == 0)
        rc = (n > k) - (n < k);
    if (rc == 0)
        rc = compile_cache_is_last(a) - compile_cache_is_last(b);
    return rc != 0 ? rc : strcmp(a, b);
}

/* ---- trimming ---- */

struct unit {
    size_t first, n; /* index of the first file, and number of files */
    size_t tool;     /* length of the name of the tool */
    uint64_t size;
    int64_t used;
    bool snapshot, complete;
    enum compile_cache_fate fate;
};

static size_t find_units(struct unit *units, const struct compile_cache_file *v, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t len = compile_cache_unit(v[i].path);
        struct unit *u = count > 0 ? &units[count - 1] : NULL;
        if (u == NULL || compile_cache_unit(v[u->first].path) != len ||
            strncmp(v[u->first].path, v[i].path, len) != 0) {
            u = &units[count++];
            *u = (struct unit){.first = i,
                               .tool = strcspn(v[i].path, "/"),
                               .used = v[i].used,
                               .snapshot = compile_cache_in_snapshot(v[i].path)};
        }
        u->n++;
        u->size += v[i].size;
        u->used = v[i].used > u->used ? v[i].used : u->used;
        u->complete |= u->snapshot && compile_cache_is_last(v[i].path);
    }
    return count;
}

/* True if b is a complete snapshot of the same tool with a greater name, which is a newer one. */
static bool is_newer(const struct compile_cache_file *v, const struct unit *a, const struct unit *b)
{
    return b->complete && a->tool == b->tool &&
           strncmp(v[a->first].path, v[b->first].path, a->tool + 1) == 0 &&
           compile_cache_order(v[a->first].path, v[b->first].path) < 0;
}

static void judge_snapshot(const struct compile_cache_file *v, struct unit *units, size_t at,
                           size_t n, int64_t now)
{
    struct unit *u = &units[at];
    for (size_t i = at + 1; i < n && u->complete; i++) /* units of a tool are adjacent */
        if (units[i].snapshot && is_newer(v, u, &units[i]))
            u->fate = COMPILE_CACHE_REMOVE;
    if (!u->complete)
        u->fate = now - u->used > ABANDONED_S ? COMPILE_CACHE_REMOVE : COMPILE_CACHE_LEAVE;
}

static int by_use(const void *a, const void *b)
{
    const struct unit *x = a;
    const struct unit *y = b;
    if (x->used != y->used)
        return x->used > y->used ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

int compile_cache_trim(struct compile_cache_file *v, size_t n, uint64_t most, int64_t now)
{
    DD_AUTO(free) struct unit *units = calloc(n > 0 ? n : 1, sizeof(*units));
    uint64_t sum = 0;
    bool full = false; /* a unit did not fit: remove all less recently used ones, even small ones */
    if (units == NULL)
        return -ENOMEM;
    const size_t count = find_units(units, v, n);
    for (size_t i = 0; i < count; i++)
        if (units[i].snapshot)
            judge_snapshot(v, units, i, count, now);
    qsort(units, count, sizeof(*units), by_use);
    for (size_t i = 0; i < count; i++) {
        struct unit *u = &units[i];
        const bool fits = u->size <= most - sum && !full;
        full |= !fits && u->size <= most && u->fate == COMPILE_CACHE_USE;
        if (u->fate == COMPILE_CACHE_USE && !fits)
            u->fate = COMPILE_CACHE_REMOVE;
        if (u->fate == COMPILE_CACHE_USE)
            sum += u->size;
        for (size_t k = u->first; k < u->first + u->n; k++)
            v[k].fate = u->fate;
    }
    return 0;
}
