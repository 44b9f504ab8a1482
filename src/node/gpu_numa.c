#include "node/gpu_numa.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"
#include "base/strv.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_DEVICES = 4096, TEXT_MAX = 1 << 16 };

/* A GPU: PCI address "0000:3b:00.0", and UUID if known. */
struct device {
    char pci[24];
    char uuid[64];
    bool closed; /* its file in /dev cannot be opened: it belongs to another job */
};

struct devices {
    struct device *v;
    int n;
};

static struct device *device_new(struct devices *d)
{
    struct device *v = d->n < MAX_DEVICES ? reallocarray(d->v, (size_t)d->n + 1, sizeof(*v)) : NULL;
    if (v == NULL)
        return NULL;
    d->v = v;
    d->v[d->n] = (struct device){0};
    return &d->v[d->n++];
}

static const char *read_text(struct dd_buf *b, const char *root, const char *dir, const char *name,
                             const char *file)
{
    char path[600];
    int n = snprintf(path, sizeof(path), "%s/%s%s%s", root, dir, name, file);
    dd_buf_clear(b);
    return n > 0 && n < 600 && dd_read_file(path, b, NULL) == 0 ? dd_buf_str(b) : NULL;
}

/* Read "GPU UUID: GPU-1234..." and "Device Minor: 3" from
 * /proc/driver/nvidia/gpus/ADDRESS/information. /proc lists all GPUs, but the indices of
 * CUDA_VISIBLE_DEVICES count only GPUs that the cgroup permits to open. */
static void read_information(struct device *d, const char *root, const char *name)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(TEXT_MAX);
    static const char minor_is[] = "Device Minor:";
    char path[600];
    const char *text = read_text(&b, root, "proc/driver/nvidia/gpus/", name, "/information");
    const char *at = text != NULL ? strstr(text, "GPU-") : NULL;
    if (at != NULL)
        (void)snprintf(d->uuid, sizeof(d->uuid), "%.*s", (int)strcspn(at, " \t\r\n"), at);
    at = text != NULL ? strstr(text, minor_is) : NULL;
    if (at == NULL)
        return;
    int n = snprintf(path, sizeof(path), "%s/dev/nvidia%lu", root,
                     strtoul(at + sizeof(minor_is) - 1, NULL, 10));
    d->closed = n > 0 && n < 600 && access(path, R_OK | W_OK) < 0;
}

/* Drop the devices that cannot be opened. If none can, the driver has not created the files yet:
 * keep all devices. */
static void drop_closed(struct devices *d)
{
    int open = 0;
    for (int i = 0; i < d->n; i++)
        if (!d->v[i].closed)
            d->v[open++] = d->v[i];
    if (open > 0)
        d->n = open;
}

static int nvidia(struct devices *d, const char *root, const char *name)
{
    struct device *v = device_new(d);
    if (v == NULL)
        return -ENOMEM;
    (void)snprintf(v->pci, sizeof(v->pci), "%.20s", name);
    for (char *p = v->pci; *p != '\0'; p++)
        *p = (char)tolower((unsigned char)*p);
    read_information(v, root, name);
    return 0;
}

static unsigned long property(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = text; p != NULL; p = strchr(p, '\n'), p = p != NULL ? p + 1 : NULL)
        if (strncmp(p, name, n) == 0 && p[n] == ' ')
            return strtoul(p + n + 1, NULL, 10);
    return 0;
}

/* Src: Linux amdkfd: location_id is bus << 8 | device << 3 | function; CPUs have gpu_id 0. */
static int amd(struct devices *d, const char *root, const char *name)
{
    static const char dir[] = "sys/class/kfd/kfd/topology/nodes/";
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(TEXT_MAX);
    const char *id = read_text(&b, root, dir, name, "/gpu_id");
    if (id == NULL || strtoul(id, NULL, 10) == 0)
        return 0;
    const char *text = read_text(&b, root, dir, name, "/properties");
    struct device *v = text != NULL ? device_new(d) : NULL;
    if (v == NULL)
        return text != NULL ? -ENOMEM : 0;
    const unsigned long at = property(text, "location_id");
    (void)snprintf(v->pci, sizeof(v->pci), "%04lx:%02lx:%02lx.%lx",
                   property(text, "domain") & 0xffff, at >> 8 & 0xff, at >> 3 & 0x1f, at & 7);
    return 0;
}

static int each_entry(struct devices *d, const char *root, const char *dir,
                      int (*take)(struct devices *d, const char *root, const char *name))
{
    char path[600];
    int n = snprintf(path, sizeof(path), "%s/%s", root, dir);
    DIR *h = n > 0 && n < 600 ? opendir(path) : NULL;
    int rc = 0;
    for (struct dirent *e; h != NULL && rc == 0 && (e = readdir(h)) != NULL;)
        rc = e->d_name[0] == '.' ? 0 : take(d, root, e->d_name);
    if (h != NULL)
        closedir(h);
    return rc;
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const struct device *)a)->pci, ((const struct device *)b)->pci);
}

/* Return the NUMA node of a device; 0: unknown. On a machine with one NUMA node, the kernel reports
 * -1. */
static int numa_of(const struct device *d, const char *root)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(TEXT_MAX);
    const char *text = read_text(&b, root, "sys/bus/pci/devices/", d->pci, "/numa_node");
    long n = text != NULL ? strtol(text, NULL, 10) : 0;
    return n > 0 && n < 4096 ? (int)n : 0;
}

/* Return the device that an entry of a list of visible devices names; NULL: none, which ends the
 * list. */
static const struct device *find_visible(const struct devices *d, const char *word)
{
    int index;
    if (dd_num_int(word, 0, d->n - 1, &index) == 0)
        return &d->v[index];
    for (int i = 0; i < d->n && strncmp(word, "GPU-", 4) == 0; i++)
        if (strncasecmp(d->v[i].uuid, word, strlen(word)) == 0)
            return &d->v[i];
    return NULL;
}

static const char *visible_list(char *const *env)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                                        "ROCR_VISIBLE_DEVICES"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (dd_env_get(env, names[i]) != NULL)
            return dd_env_get(env, names[i]);
    return NULL;
}

static int fill(int *ret, int *ret_n, const struct devices *d, char *const *env, const char *root)
{
    const char *list = visible_list(env);
    DD_AUTO(strv) struct dd_strv words = {0};
    if (list != NULL && dd_strv_split(&words, list, ", ") < 0)
        return -ENOMEM;
    for (int i = 0; i < (list != NULL ? (int)words.n : d->n) && *ret_n < d->n; i++) {
        const struct device *v = list != NULL ? find_visible(d, words.v[i]) : &d->v[i];
        if (v == NULL)
            break;
        ret[(*ret_n)++] = numa_of(v, root);
    }
    return 0;
}

int node_gpu_numa(int **ret, int *ret_n, char *const *env, const char *root, struct dd_err *err)
{
    struct devices d = {0};
    int rc = each_entry(&d, root, "proc/driver/nvidia/gpus", nvidia);
    if (rc == 0 && d.n == 0)
        rc = each_entry(&d, root, "sys/class/kfd/kfd/topology/nodes", amd);
    drop_closed(&d);
    if (d.n > 0)
        qsort(d.v, (size_t)d.n, sizeof(d.v[0]), by_address);
    *ret_n = 0;
    *ret = calloc(MAX_DEVICES + 1, sizeof(**ret));
    rc = rc < 0 || *ret == NULL ? -ENOMEM : fill(*ret, ret_n, &d, env, root);
    free(d.v);
    if (rc == 0)
        return 0;
    free(*ret);
    *ret = NULL;
    return dd_err_set(err, rc, "out of memory");
}
