#include "node/numa.h"

#include "base/auto.h"
#include "base/io.h"
#include "node/gpu_numa.h"
#include "node/sysfs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CACHES = 16 };

struct job {
    const struct node_cpus *c;
    const char *root;
    int *numa; /* NUMA node of each GPU, or of each worker if there are no GPUs */
    int n;
    struct dd_err *err;
};

static int no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* Add the CPUs of a NUMA node that are in the mask; return the number of these CPUs. */
static int add_node_cpus(const struct job *j, int node, cpu_set_t *ret)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(NODE_LIST_MAX);
    const char *s = node_sys_read(&b, j->root, "node/node", node, "/cpulist");
    unsigned long from, to;
    int found = 0;
    if (s == NULL && node == 0) { /* the kernel has no NUMA support */
        memcpy(ret, j->c->set, j->c->size);
        return j->c->count;
    }
    while (s != NULL && node_range_next(&s, &from, &to))
        for (; from <= to && from < 8 * j->c->size; from++)
            if (CPU_ISSET_S(from, j->c->size, j->c->set)) {
                CPU_SET_S(from, j->c->size, ret);
                found++;
            }
    return found;
}

static void add_memory(struct node_memory *m, int node)
{
    const int bits = 8 * (int)sizeof(unsigned long);
    if (node >= NODE_NUMA_MAX)
        return;
    m->mask[node / bits] |= 1UL << (node % bits);
    m->n++;
}

static int first_cpu(const struct job *j, const cpu_set_t *set)
{
    for (size_t i = 0; i < 8 * j->c->size; i++)
        if (CPU_ISSET_S(i, j->c->size, set))
            return (int)i;
    return -1;
}

static int first_number(const struct job *j, const char *dir, int n, const char *file,
                        int otherwise)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(NODE_LIST_MAX);
    const char *s = node_sys_read(&b, j->root, dir, n, file);
    unsigned long from, to;
    return s != NULL && node_range_next(&s, &from, &to) && from < INT_MAX ? (int)from : otherwise;
}

/* ---- keys that group CPUs: the lowest CPU of the core, or of the last-level cache ---- */

static int core_of(const struct job *j, int cpu)
{
    return first_number(j, "cpu/cpu", cpu, "/topology/thread_siblings_list", cpu);
}

static int cache_of(const struct job *j, int cpu)
{
    DD_AUTO(buf) struct dd_buf type = DD_BUF_INIT(NODE_LIST_MAX);
    int best = -1;
    int ret = 0; /* unknown: one group for all CPUs */
    for (int i = 0; i < MAX_CACHES; i++) {
        char file[64];
        (void)snprintf(file, sizeof(file), "/cache/index%d/type", i);
        const char *t = node_sys_read(&type, j->root, "cpu/cpu", cpu, file);
        if (t == NULL)
            break;
        (void)snprintf(file, sizeof(file), "/cache/index%d/level", i);
        int level = first_number(j, "cpu/cpu", cpu, file, -1);
        if (strncmp(t, "Instruction", 11) == 0 || level <= best)
            continue;
        best = level;
        (void)snprintf(file, sizeof(file), "/cache/index%d/shared_cpu_list", i);
        ret = first_number(j, "cpu/cpu", cpu, file, ret);
    }
    return ret;
}

struct group {
    int key;
    int count; /* number of CPUs */
};

static int by_key(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Compare by size, the largest group first. */
static int by_count(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return x->count != y->count ? y->count - x->count : by_key(a, b);
}

/* Group the CPUs of `set` by key, and store the key of each CPU in keys[]. Return the number of
 * groups, or -ENOMEM. */
static int make_groups(const struct job *j, const cpu_set_t *set,
                       int (*key_of)(const struct job *, int), struct group **ret, int *keys)
{
    struct group *g = calloc((size_t)j->c->count + 1, sizeof(*g));
    int n = 0;
    if (g == NULL)
        return -ENOMEM;
    for (int cpu = 0, k = 0; cpu < 8 * (int)j->c->size; cpu++) {
        if (!CPU_ISSET_S((size_t)cpu, j->c->size, set))
            continue;
        g[n++] = (struct group){.key = keys[k++] = key_of(j, cpu), .count = 1};
    }
    qsort(g, (size_t)n, sizeof(*g), by_key);
    int out = 0;
    for (int i = 1; i < n; i++)
        if (g[i].key == g[out].key)
            g[out].count++;
        else
            g[++out] = g[i];
    *ret = g;
    return n > 0 ? out + 1 : 0;
}

/* Keep only the CPUs of groups [from, to) in `set`. */
static void keep_groups(const struct job *j, cpu_set_t *set, const struct group *g, int from,
                        int to, const int *keys)
{
    for (int cpu = 0, k = 0; cpu < 8 * (int)j->c->size; cpu++) {
        if (!CPU_ISSET_S((size_t)cpu, j->c->size, set))
            continue;
        bool mine = false;
        for (int i = from; i < to && !mine; i++)
            mine = g[i].key == keys[k];
        k++;
        if (!mine)
            CPU_CLR_S((size_t)cpu, j->c->size, set);
    }
}

/* ---- the modes ---- */

/* Return how many workers share worker i's NUMA node; *ret_before: how many of them precede i. */
static int sharers(const struct job *j, int i, int *ret_before)
{
    int n = 0;
    *ret_before = 0;
    for (int k = 0; k < j->n; k++)
        if (j->numa[k] == j->numa[i]) {
            *ret_before += k < i;
            n++;
        }
    return n;
}

static int divide(const struct job *j, int i, cpu_set_t *cpus, enum node_numa_mode mode)
{
    const bool exclusive = mode == NODE_NUMA_EXCLUSIVE;
    DD_AUTO(free) int *keys = calloc((size_t)j->c->count + 1, sizeof(*keys));
    DD_AUTO(free) struct group *g = NULL;
    int before;
    const int n = sharers(j, i, &before);
    int groups = keys == NULL ? -ENOMEM
                              : make_groups(j, cpus, exclusive ? core_of : cache_of, &g, keys);
    if (groups < 0)
        return no_memory(j->err);
    if (exclusive && groups < n)
        return dd_err_set(
            j->err, -EINVAL,
            "--numa-binding=exclusive: NUMA node %d has only %d usable core%s for %d GPUs or "
            "workers"
            "\n  tip: use --numa-binding=node, or request more CPUs",
            j->numa[i], groups, groups == 1 ? "" : "s", n);
    if (exclusive) { /* the first workers get the remaining cores */
        const int each = groups / n;
        const int extra = groups % n;
        const int from = before * each + (before < extra ? before : extra);
        keep_groups(j, cpus, g, from, from + each + (before < extra), keys);
        return 0;
    }
    qsort(g, (size_t)groups, sizeof(*g), by_count);
    keep_groups(j, cpus, g, before % groups, before % groups + 1, keys);
    return 0;
}

/* Add the other NUMA nodes of the socket. */
static int add_socket(const struct job *j, int node, cpu_set_t *cpus, struct node_memory *memory)
{
    static const char package[] = "/topology/physical_package_id";
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(NODE_LIST_MAX);
    DD_AUTO(free) cpu_set_t *other = calloc(1, j->c->size);
    const int socket = first_number(j, "cpu/cpu", first_cpu(j, cpus), package, 0);
    char path[600];
    int len = snprintf(path, sizeof(path), "%s/sys/devices/system/node/online", j->root);
    const char *s = len < 600 && dd_read_file(path, &b, NULL) == 0 ? dd_buf_str(&b) : NULL;
    unsigned long from, to;
    if (other == NULL)
        return no_memory(j->err);
    while (s != NULL && node_range_next(&s, &from, &to))
        for (; from <= to && from < NODE_NUMA_MAX; from++) {
            CPU_ZERO_S(j->c->size, other);
            if ((int)from == node || add_node_cpus(j, (int)from, other) == 0 ||
                first_number(j, "cpu/cpu", first_cpu(j, other), package, 0) != socket)
                continue;
            CPU_OR_S(j->c->size, cpus, cpus, other);
            add_memory(memory, (int)from);
        }
    return 0;
}

static int place(const struct job *j, enum node_numa_mode mode, int i, cpu_set_t *cpus,
                 struct node_memory *memory)
{
    CPU_ZERO_S(j->c->size, cpus);
    *memory = (struct node_memory){0};
    if (add_node_cpus(j, j->numa[i], cpus) == 0)
        return dd_err_set(
            j->err, -EINVAL,
            "--numa-binding: no CPU of NUMA node %d, on which worker %d is placed, may be used"
            "\n  tip: request CPUs of this NUMA node, or omit --numa-binding",
            j->numa[i], i);
    add_memory(memory, j->numa[i]);
    if (mode == NODE_NUMA_SOCKET)
        return add_socket(j, j->numa[i], cpus, memory);
    return mode == NODE_NUMA_NODE ? 0 : divide(j, i, cpus, mode);
}

/* Without GPUs: distribute the workers over the NUMA nodes that have usable CPUs. */
static int deal_out(struct job *j, int n)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(NODE_LIST_MAX);
    DD_AUTO(free) cpu_set_t *set = calloc(1, j->c->size);
    DD_AUTO(free) int *nodes = calloc(NODE_NUMA_MAX, sizeof(*nodes));
    char path[600];
    unsigned long from, to;
    int found = 0;
    int len = snprintf(path, sizeof(path), "%s/sys/devices/system/node/online", j->root);
    const char *s = len < 600 && dd_read_file(path, &b, NULL) == 0 ? dd_buf_str(&b) : NULL;
    free(j->numa);
    j->numa = calloc((size_t)n, sizeof(*j->numa));
    if (set == NULL || nodes == NULL || j->numa == NULL)
        return no_memory(j->err);
    while (s != NULL && node_range_next(&s, &from, &to))
        for (; from <= to && from < NODE_NUMA_MAX && found < NODE_NUMA_MAX; from++)
            if (add_node_cpus(j, (int)from, set) > 0)
                nodes[found++] = (int)from;
    for (int i = 0; i < n && found > 0; i++)
        j->numa[i] = nodes[(int64_t)i * found / n];
    j->n = n;
    return 0;
}

enum node_numa_mode node_numa_mode(const char *name)
{
    static const char *const names[] = {[NODE_NUMA_NODE] = "node",
                                        [NODE_NUMA_SOCKET] = "socket",
                                        [NODE_NUMA_EXCLUSIVE] = "exclusive",
                                        [NODE_NUMA_CORE_COMPLEX] = "core-complex"};
    for (int i = NODE_NUMA_NODE; name != NULL && i <= NODE_NUMA_CORE_COMPLEX; i++)
        if (strcmp(names[i], name) == 0)
            return (enum node_numa_mode)i;
    return NODE_NUMA_NONE;
}

int node_numa_place(const struct node_numa_query *q, int i, cpu_set_t *cpus,
                    struct node_memory *memory, struct dd_err *err)
{
    struct job j = {.c = q->cpus, .root = q->root, .err = err};
    int rc = node_gpu_numa(&j.numa, &j.n, q->env, q->root, err);
    if (rc == 0 && j.n == 0)
        rc = deal_out(&j, q->nworkers);
    if (rc == 0 && i >= j.n)
        rc = dd_err_set(
            err, -EINVAL,
            "--numa-binding needs a GPU for each of the %d workers, but only %d can be seen on "
            "this node",
            q->nworkers, j.n);
    if (rc == 0)
        rc = place(&j, q->mode, i, cpus, memory);
    free(j.numa);
    return rc;
}
