#include "node/cpu.h"

#include "base/auto.h"
#include "base/io.h"
#include "node/sysfs.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CPUS = 1 << 20, MAX_NUMA = 4096 };

/* A CPU of the mask and its position. */
struct place {
    int numa;
    int core; /* the lowest CPU of the mask among its siblings */
    int cpu;
};

/* The CPUs of the mask in the order of distribution; read at first use. */
struct node_topology {
    char *root; /* NULL: not read yet */
    struct place *v;
    int n;
};

static void topology_clear(struct node_topology *t)
{
    free(t->root);
    free(t->v);
    *t = (struct node_topology){0};
}

static void topology_free(struct node_topology *t)
{
    if (t != NULL)
        topology_clear(t);
    free(t);
}

static int cpus_found(struct node_cpus *ret, cpu_set_t *set, size_t size, struct dd_err *err)
{
    struct node_topology *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        CPU_FREE(set);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int count = CPU_COUNT_S(size, set);
    *ret = (struct node_cpus){.set = set,
                              .size = size,
                              .count = count,
                              .online = online > count ? (int)online : count,
                              .topology = t};
    return 0;
}

int node_cpus_get(struct node_cpus *ret, struct dd_err *err)
{
    for (int n = 1024; n <= MAX_CPUS; n *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)n);
        if (set == NULL)
            return dd_err_set(err, -ENOMEM, "out of memory");
        size_t size = CPU_ALLOC_SIZE((size_t)n);
        CPU_ZERO_S(size, set);
        if (sched_getaffinity(0, size, set) == 0)
            return cpus_found(ret, set, size, err);
        CPU_FREE(set);
        if (errno !=
            EINVAL) /* EINVAL: the set is too small for this machine. Src: sched_setaffinity(2) */
            break;
    }
    return dd_err_set(err, -errno, "cannot get the CPUs of this process: %m");
}

void node_cpus_done(struct node_cpus *c)
{
    CPU_FREE(c->set);
    topology_free(c->topology);
    c->set = NULL;
    c->topology = NULL;
}

static struct place *place_of(struct node_topology *t, unsigned long cpu)
{
    int low = 0, high = t->n; /* v is still sorted by CPU */
    while (low < high) {
        int mid = low + (high - low) / 2;
        if ((unsigned long)t->v[mid].cpu < cpu)
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->n && (unsigned long)t->v[low].cpu == cpu ? &t->v[low] : NULL;
}

static void mark_numa(struct node_topology *t, const char *list, int numa)
{
    unsigned long from, to;
    while (list != NULL && node_range_next(&list, &from, &to))
        for (unsigned long cpu = from; cpu <= to && cpu < MAX_CPUS; cpu++) {
            struct place *p = place_of(t, cpu);
            if (p != NULL)
                p->numa = numa;
        }
}

static void read_numa(struct node_topology *t)
{
    DD_AUTO(buf) struct dd_buf nodes = DD_BUF_INIT(NODE_LIST_MAX);
    DD_AUTO(buf) struct dd_buf cpus = DD_BUF_INIT(NODE_LIST_MAX);
    unsigned long from, to;
    char path[600];
    int len = snprintf(path, sizeof(path), "%s/sys/devices/system/node/online", t->root);
    bool read = len > 0 && (size_t)len < sizeof(path) && dd_read_file(path, &nodes, NULL) == 0;
    const char *s = read ? dd_buf_str(&nodes) : NULL;
    while (s != NULL && node_range_next(&s, &from, &to))
        for (unsigned long n = from; n <= to && n < MAX_NUMA; n++)
            mark_numa(t, node_sys_read(&cpus, t->root, "node/node", (int)n, "/cpulist"), (int)n);
}

/* Read one file per core: all siblings of a CPU have the same list. */
static void read_cores(struct node_topology *t)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(NODE_LIST_MAX);
    unsigned long from, to;
    for (int i = 0; i < t->n; i++) {
        if (t->v[i].core >= 0)
            continue;
        t->v[i].core = t->v[i].cpu;
        const char *s = node_sys_read(&text, t->root, "cpu/cpu", t->v[i].cpu,
                                      "/topology/thread_siblings_list");
        while (s != NULL && node_range_next(&s, &from, &to))
            for (unsigned long cpu = from; cpu <= to && cpu < MAX_CPUS; cpu++) {
                struct place *p = place_of(t, cpu);
                if (p != NULL && p->core < 0)
                    p->core = t->v[i].cpu;
            }
    }
}

static int place_order(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->numa != y->numa)
        return x->numa < y->numa ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

static int topology_read(struct node_topology *t, const struct node_cpus *c, const char *root)
{
    topology_clear(t);
    t->root = strdup(root);
    t->v = calloc((size_t)c->count, sizeof(t->v[0]));
    if (t->root == NULL || t->v == NULL) {
        topology_clear(t);
        return -ENOMEM;
    }
    for (size_t cpu = 0; cpu < 8 * c->size && t->n < c->count; cpu++)
        if (CPU_ISSET_S(cpu, c->size, c->set))
            t->v[t->n++] = (struct place){.core = -1, .cpu = (int)cpu};
    read_numa(t);
    read_cores(t);
    qsort(t->v, (size_t)t->n, sizeof(t->v[0]), place_order);
    return 0;
}

/* Units that are distributed: whole cores, or CPUs if there are fewer cores than workers. Unit k is
 * t->v[start[k]] to t->v[start[k + 1] - 1]. */
struct units {
    const struct node_topology *t;
    int *start;
    int n;
};

static int units_make(struct units *u, const struct node_topology *t, bool cores)
{
    u->t = t;
    u->n = 0;
    u->start = malloc(((size_t)t->n + 1) * sizeof(*u->start));
    if (u->start == NULL)
        return -ENOMEM;
    for (int i = 0; i < t->n; i++)
        if (!cores || i == 0 || t->v[i].core != t->v[i - 1].core ||
            t->v[i].numa != t->v[i - 1].numa)
            u->start[u->n++] = i;
    u->start[u->n] = t->n;
    return 0;
}

struct span {
    int from, to; /* units from `from` to `to` - 1 */
};

/* Return the units of one NUMA node, of which `from` is the first. */
static struct span numa_span(const struct units *u, int from)
{
    int numa = u->t->v[u->start[from]].numa;
    int to = from + 1;
    while (to < u->n && u->t->v[u->start[to]].numa == numa)
        to++;
    return (struct span){from, to};
}

static int scaled(int a, int b, int c)
{
    return (int)((int64_t)a * b / c);
}

/* Compute worker i's units with the workers distributed over the NUMA nodes in proportion to the
 * number of units. Return false if a NUMA node would get no worker, or the share of a worker would
 * be 3/4 of an even share or less. */
static bool share_by_numa(const struct units *u, int i, int n, struct span *ret)
{
    bool found = false;
    for (struct span s = {0}; s.to < u->n;) {
        s = numa_span(u, s.to);
        int first = (int)(((int64_t)s.from * n * 2 + u->n) / ((int64_t)2 * u->n)); /* rounded */
        int last = (int)(((int64_t)s.to * n * 2 + u->n) / ((int64_t)2 * u->n));
        int workers = last - first, size = s.to - s.from;
        if (workers < 1 || (int64_t)4 * (size / workers) * n <= (int64_t)3 * u->n)
            return false;
        if (i < first || i >= last)
            continue;
        ret->from = s.from + scaled(size, i - first, workers);
        ret->to = s.from + scaled(size, i - first + 1, workers);
        found = true;
    }
    return found;
}

static int share_fill(const struct node_cpus *c, const struct node_topology *t, int i, int n,
                      cpu_set_t *ret)
{
    struct units u;
    int rc = units_make(&u, t, true);
    if (rc == 0 && u.n < n) {
        free(u.start);
        rc = units_make(&u, t, false);
    }
    if (rc < 0)
        return rc;
    struct span s;
    if (!share_by_numa(&u, i, n, &s))
        s = (struct span){scaled(u.n, i, n), scaled(u.n, i + 1, n)};
    CPU_ZERO_S(c->size, ret);
    for (int k = u.start[s.from]; k < u.start[s.to]; k++)
        CPU_SET_S((size_t)t->v[k].cpu, c->size, ret);
    free(u.start);
    return 0;
}

int node_cpus_share(const struct node_cpus *c, const char *root, int i, int n, cpu_set_t *ret)
{
    if (n < 1 || i < 0 || i >= n || c->count < n)
        return 1;
    struct node_topology own = {0};
    struct node_topology *t = c->topology == NULL ? &own : c->topology;
    int rc = 0;
    if (t->root == NULL || strcmp(t->root, root) != 0)
        rc = topology_read(t, c, root);
    if (rc == 0)
        rc = share_fill(c, t, i, n, ret);
    topology_clear(&own);
    return rc;
}

bool node_cpus_bound_by_accident(const struct node_cpus *c, int n)
{
    return c->count < n && c->online > c->count;
}
