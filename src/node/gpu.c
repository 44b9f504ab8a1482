#include "node/gpu.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"
#include "base/strv.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_GPUS = 4096, MAX_NPROC = 4096, UNKNOWN = -1 };

/* --- devices: count those of one vendor; set *where to the path that lists them, if any --- */

static bool path_of(char path[600], const char *root, const char *dir, const char *name,
                    const char *file)
{
    int n = snprintf(path, 600, "%s/%s%s%s", root, dir, name, file);
    return n > 0 && n < 600;
}

static bool digits_only(const char *s)
{
    return *s != '\0' && s[strspn(s, "0123456789")] == '\0';
}

/* Count the entries of a directory that `is` accepts. */
static int count_entries(const char *root, const char *dir,
                         bool (*is)(const char *root, const char *name))
{
    char path[600];
    DIR *d = path_of(path, root, dir, "", "") ? opendir(path) : NULL;
    int n = 0;
    if (d == NULL)
        return 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        n += e->d_name[0] != '.' && is(root, e->d_name);
    closedir(d);
    return n;
}

static bool is_nvidia_node(const char *root, const char *name)
{
    (void)root;
    return strncmp(name, "nvidia", 6) == 0 && digits_only(name + 6);
}

/* access(2) checks the devices cgroup, too, and unlike open(2) does not wake the driver. Src:
 * devcgroup_inode_permission() in Linux, called by inode_permission(). */
static bool is_nvidia_usable(const char *root, const char *name)
{
    char path[600];
    return is_nvidia_node(root, name) && path_of(path, root, "dev/", name, "") &&
           access(path, R_OK | W_OK) == 0;
}

static bool is_any(const char *root, const char *name)
{
    (void)root;
    (void)name;
    return true;
}

/* Src: /proc/driver/nvidia/gpus/<PCI address>/ and /dev/nvidia<minor>, NVIDIA driver README. /proc
 * lists GPUs of other cgroups, too; the files in /dev may be missing until the first use of the
 * driver. */
static int nvidia_devices(const char *root, const char **where)
{
    int nodes = count_entries(root, "dev", is_nvidia_node);
    if (nodes > 0) {
        int usable = count_entries(root, "dev", is_nvidia_usable);
        *where = usable > 0 ? "/dev/nvidia[0-9]*"
                            : "/dev/nvidia[0-9]*, none of which may be opened";
        return usable;
    }
    int known = count_entries(root, "proc/driver/nvidia/gpus", is_any);
    if (known > 0)
        *where = "/proc/driver/nvidia/gpus";
    return known;
}

/* Src: Linux amdkfd: gpu_id is 0 for CPU nodes, and unreadable if the cgroup forbids the device. */
static bool is_amd_gpu(const char *root, const char *name)
{
    char path[600];
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(4096);
    if (!path_of(path, root, "sys/class/kfd/kfd/topology/nodes/", name, "/gpu_id") ||
        dd_read_file(path, &b, NULL) < 0)
        return false;
    const char *id = dd_buf_str(&b);
    return id != NULL && strtoul(id, NULL, 10) != 0;
}

static int amd_devices(const char *root, const char **where)
{
    char path[600];
    if (!path_of(path, root, "dev/", "kfd", "") || access(path, F_OK) < 0)
        return 0;
    *where = "/sys/class/kfd/kfd/topology/nodes";
    return count_entries(root, "sys/class/kfd/kfd/topology/nodes", is_amd_gpu);
}

static bool has_line(const char *text, const char *line)
{
    size_t n = strlen(line);
    for (const char *p = strstr(text, line); p != NULL; p = strstr(p + 1, line))
        if ((p == text || p[-1] == '\n') && (p[n] == '\n' || p[n] == '\0'))
            return true;
    return false;
}

/* True for a GPU of Intel, except the graphics unit of the processor, which is always device 2 of
 * PCI bus 0. */
static bool is_intel_gpu(const char *root, const char *name)
{
    char path[600];
    DD_AUTO(buf) struct dd_buf vendor = DD_BUF_INIT(4096);
    DD_AUTO(buf) struct dd_buf uevent = DD_BUF_INIT(65536);
    if (strncmp(name, "renderD", 7) != 0 || !digits_only(name + 7) ||
        !path_of(path, root, "sys/class/drm/", name, "/device/vendor") ||
        dd_read_file(path, &vendor, NULL) < 0 ||
        !path_of(path, root, "sys/class/drm/", name, "/device/uevent") ||
        dd_read_file(path, &uevent, NULL) < 0)
        return false;
    const char *v = dd_buf_str(&vendor), *u = dd_buf_str(&uevent);
    return v != NULL && u != NULL && strtoul(v, NULL, 16) == 0x8086 &&
           (has_line(u, "DRIVER=xe") || has_line(u, "DRIVER=i915")) &&
           !has_line(u, "PCI_SLOT_NAME=0000:00:02.0");
}

static int intel_devices(const char *root, const char **where)
{
    int n = count_entries(root, "sys/class/drm", is_intel_gpu);
    if (n > 0)
        *where = "/sys/class/drm";
    return n;
}

/* --- variables --- */

/* Return the number of devices that the value makes visible; UNKNOWN: ignore the variable, as if it
 * were not set; or -ENOMEM. ndev: number of devices, UNKNOWN if it is not known. */
typedef int visible_f(const char *value, int ndev);

/* CUDA's rules, also used by ROCm: indices or UUIDs; the list ends at the first invalid entry, and
 * is void if an entry occurs twice. Src: CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES;
 * torch.cuda's device_count() of torch 2.13.0. */
static int visible_cuda(const char *value, int ndev)
{
    DD_AUTO(strv) struct dd_strv seen = {0};
    const char *prefix = strncmp(value, "GPU-", 4) == 0   ? "GPU-"
                         : strncmp(value, "MIG-", 4) == 0 ? "MIG-"
                                                          : "";
    for (;; value++) {
        value += strspn(value, " ");
        size_t n = *prefix == '\0' ? strspn(value, "0123456789") : strcspn(value, ", ");
        bool valid = n > 0 && strncmp(value, prefix, strlen(prefix)) == 0;
        if (valid && *prefix == '\0' && ndev != UNKNOWN)
            valid = n < 9 && strtol(value, NULL, 10) < ndev;
        if (!valid || seen.n >= MAX_GPUS)
            return (int)seen.n;
        for (size_t i = 0; i < seen.n; i++)
            if (strncmp(seen.v[i], value, n) == 0 && seen.v[i][n] == '\0')
                return 0;
        if (dd_strv_pushn(&seen, value, n) < 0)
            return -ENOMEM;
        value += strcspn(value, ",");
        if (*value == '\0')
            return (int)seen.n;
    }
}

/* Count devices; "0.1" is tile 1 of device 0. An empty value means the same as an unset variable.
 * Src: Level Zero specification, ZE_AFFINITY_MASK. */
static int visible_level_zero(const char *value, int ndev)
{
    bool seen[MAX_GPUS] = {false};
    int n = 0;
    if (*value == '\0')
        return UNKNOWN;
    for (;; value++) {
        char *end;
        value += strspn(value, " ");
        if (*value < '0' || *value > '9')
            return n;
        unsigned long device = strtoul(value, &end, 10);
        if (device >= MAX_GPUS || (ndev != UNKNOWN && device >= (unsigned long)ndev))
            return n;
        n += !seen[device];
        seen[device] = true;
        value = end + strcspn(end, ",");
        if (*value == '\0')
            return n;
    }
}

/* Count the devices of Slurm's list, "0,1" or "0-3". Its numbers are those of the machine, so they
 * may exceed ndev. */
static int visible_slurm_list(const char *value, int ndev)
{
    long n = 0;
    while (*value >= '0' && *value <= '9') {
        char *end;
        unsigned long from = strtoul(value, &end, 10), to = from;
        if (*end == '-')
            to = strtoul(end + 1, &end, 10);
        if (to < from || to - from >= MAX_GPUS || n >= MAX_GPUS)
            break;
        n += (long)(to - from + 1);
        value = *end == ',' ? end + 1 : end;
    }
    n = n < MAX_GPUS ? n : MAX_GPUS;
    return ndev == UNKNOWN || n < ndev ? (int)n : ndev;
}

static int visible_number(const char *value, int ndev)
{
    int n;
    if (dd_num_int(value, 0, MAX_GPUS, &n) < 0)
        return UNKNOWN;
    return ndev == UNKNOWN || n < ndev ? n : ndev;
}

struct variable {
    const char *name;
    visible_f *visible;
};

/* Devices and variables of a vendor. Each variable selects from the devices that the previous
 * variables leave, as in the vendor's libraries. */
struct vendor {
    const char *name;
    int (*devices)(const char *root, const char **where);
    struct variable vars[4];
};

static const struct vendor vendors[] = {
    {.name = "nvidia", .devices = nvidia_devices, .vars = {{"CUDA_VISIBLE_DEVICES", visible_cuda}}},
    {.name = "amd",
     .devices = amd_devices,
     .vars = {{"ROCR_VISIBLE_DEVICES", visible_cuda},
              {"HIP_VISIBLE_DEVICES", visible_cuda},
              {"CUDA_VISIBLE_DEVICES", visible_cuda}}},
    {.name = "intel", .devices = intel_devices, .vars = {{"ZE_AFFINITY_MASK", visible_level_zero}}},
};

/* Variables used if no variable of a vendor is set. With --gpus-per-task, the vendor's variable
 * lists the GPUs of the task, but these list the GPUs of the step. Src: Slurm 22.05, measured
 * 2026-11-21. */
static const struct variable slurm_vars[] = {
    {"SLURM_STEP_GPUS", visible_slurm_list},
    {"SLURM_GPUS_ON_NODE", visible_number},
};

/* Variables used if no device is found; the first valid one counts. */
static const struct variable lone_vars[] = {
    {"CUDA_VISIBLE_DEVICES", visible_cuda},  {"ROCR_VISIBLE_DEVICES", visible_cuda},
    {"HIP_VISIBLE_DEVICES", visible_cuda},   {"ZE_AFFINITY_MASK", visible_level_zero},
    {"SLURM_STEP_GPUS", visible_slurm_list}, {"SLURM_GPUS_ON_NODE", visible_number},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void source_set(struct node_gpus *g, const char *name, const char *value)
{
    int n = snprintf(g->source, sizeof(g->source), "%s%s%s", name, value == NULL ? "" : "=",
                     value == NULL ? "" : value);
    if (n >= (int)sizeof(g->source))
        memcpy(g->source + sizeof(g->source) - 4, "...", 4);
}

/* Apply a variable. Return 1 if it is set and valid, 0 if not, or -ENOMEM. */
static int apply(struct node_gpus *g, const struct variable *var, char *const *env, int ndev)
{
    const char *value = dd_env_get(env, var->name);
    int n = value == NULL ? UNKNOWN : var->visible(value, ndev);
    if (n == -ENOMEM)
        return n;
    if (n < 0)
        return 0;
    g->count = n;
    source_set(g, var->name, value);
    return 1;
}

/* Apply the variables of a vendor whose devices exist. A launcher may set all of them to the same
 * numbers of the machine: apply equal values only once. Src: Slurm 22.05 sets CUDA_ and
 * ROCR_VISIBLE_DEVICES. */
static int apply_vendor(struct node_gpus *g, const struct vendor *v, char *const *env)
{
    const char *before = NULL;
    int applied = 0;
    for (size_t i = 0; i < COUNT(v->vars) && v->vars[i].name != NULL; i++) {
        const char *value = dd_env_get(env, v->vars[i].name);
        if (value == NULL || (before != NULL && strcmp(value, before) == 0))
            continue;
        int rc = apply(g, &v->vars[i], env, g->count);
        if (rc < 0)
            return rc;
        applied += rc;
        before = value;
    }
    return applied;
}

static int apply_first(struct node_gpus *g, const struct variable *vars, size_t n, char *const *env,
                       int ndev)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = apply(g, &vars[i], env, ndev);
    return rc;
}

int node_gpus_count(struct node_gpus *ret, char *const *env, const char *root, struct dd_err *err)
{
    struct node_gpus g = {.vendor = ""};
    const char *where = NULL;
    source_set(&g, "CUDA_VISIBLE_DEVICES, /proc/driver/nvidia/gpus, /dev/kfd, /sys/class/drm",
               NULL);
    int rc = 0;
    for (size_t i = 0; i < COUNT(vendors) && g.count == 0; i++) {
        g.count = vendors[i].devices(root, &where);
        if (g.count == 0 && where != NULL)
            source_set(&g, where, NULL);
        if (g.count == 0)
            continue;
        g.vendor = vendors[i].name;
        source_set(&g, where, NULL);
        rc = apply_vendor(&g, &vendors[i], env);
        if (rc == 0)
            rc = apply_first(&g, slurm_vars, COUNT(slurm_vars), env, g.count);
        break;
    }
    if (*g.vendor == '\0')
        rc = apply_first(&g, lone_vars, COUNT(lone_vars), env, UNKNOWN);
    if (rc < 0)
        return dd_err_set(err, rc, "out of memory");
    *ret = g;
    return 0;
}

/* --- --nproc-per-node --- */

static int number_of(const char *spec, struct dd_err *err)
{
    DD_AUTO(free) char *s = strdup(spec + strspn(spec, " "));
    int n;
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t len = strlen(s); len > 0 && s[len - 1] == ' '; len--)
        s[len - 1] = '\0';
    int rc = dd_num_int(s, 1, MAX_NPROC, &n);
    if (rc == 0)
        return n;
    if (rc == -ERANGE)
        return dd_err_set(err, -EINVAL, "invalid value '%s': expected 1 to %d", spec, MAX_NPROC);
    return dd_err_set(err, -EINVAL, "invalid value '%s': expected a number, 'gpu', 'cpu' or 'auto'",
                      spec);
}

int node_nproc(const char *spec, const struct node_gpus *gpus, int ncpus, struct dd_err *err)
{
    static const char *const gpu_words[] = {"gpu", "cuda", "xpu"};
    for (size_t i = 0; i < COUNT(gpu_words); i++) {
        if (strcmp(spec, gpu_words[i]) != 0)
            continue;
        if (gpus->count > 0)
            return gpus->count;
        return dd_err_set(
            err, -EINVAL,
            "--nproc-per-node=%s, but no GPU was found on this node (searched: %s)"
            "\n  tip: request GPUs from the scheduler, or use a number, 'cpu' or 'auto'",
            spec, gpus->source);
    }
    if (strcmp(spec, "auto") == 0)
        return gpus->count > 0 ? gpus->count : ncpus;
    return strcmp(spec, "cpu") == 0 ? ncpus : number_of(spec, err);
}
