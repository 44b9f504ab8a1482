#include "node/health.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/io.h"
#include "base/strv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SHM_LEAST = 16 << 20, DISK_PROBE = 65536, DEVICES_MAX = 256 };

struct node_health {
    struct node_health_cfg cfg;
    const char *driver;   /* directory of the GPU driver */
    struct dd_strv gpus;  /* PCI devices of the driver at the start, "0000:17:00.0" */
    struct dd_strv ports; /* InfiniBand ports that were active at the start, "mlx5_0/ports/1" */
};

/* ---- files ---- */

/* Read the start of root/dir/name/file; false: it cannot be read. */
static bool read_start(const struct node_health *h, const char *dir, const char *name,
                       const char *file, void *to, size_t n)
{
    DD_AUTO(free) char *path = NULL;
    if (asprintf(&path, "%s/%s/%s/%s", h->cfg.root, dir, name, file) < 0)
        return false;
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    memset(to, 0, n);
    return fd >= 0 && read(fd, to, n) > 0;
}

/* List the names in root/dir that do not begin with a dot. */
static int list(const struct node_health *h, const char *dir, struct dd_strv *out)
{
    DD_AUTO(free) char *path = NULL;
    if (asprintf(&path, "%s/%s", h->cfg.root, dir) < 0)
        return -ENOMEM;
    DIR *d = opendir(path);
    int rc = 0;
    for (struct dirent *e;
         rc == 0 && d != NULL && (e = readdir(d)) != NULL && out->n < DEVICES_MAX;)
        if (e->d_name[0] != '.')
            rc = dd_strv_push(out, e->d_name);
    if (d != NULL)
        closedir(d);
    return rc;
}

/* ---- GPUs ---- */

/* The directory of a driver lists its devices. Src: Documentation/PCI, sysfs-bus-pci. */
static const char *const drivers[] = {"sys/bus/pci/drivers/nvidia", "sys/bus/pci/drivers/amdgpu",
                                      "sys/bus/pci/drivers/xe", "sys/bus/pci/drivers/i915"};

/* True for "0000:17:00.0": domain, bus, device, function. */
static bool is_device(const char *name)
{
    return name[strspn(name, "0123456789abcdef:.")] == '\0' && strchr(name, ':') != NULL;
}

/* Note all devices of the first driver that has any; this skips a display chip with another driver.
 */
static int gpu_note(struct node_health *h)
{
    int rc = 0;
    for (size_t m = 0;
         m < sizeof(drivers) / sizeof(drivers[0]) && h->gpus.n == 0 && h->cfg.gpus > 0; m++) {
        DD_AUTO(strv) struct dd_strv all = {0};
        rc = list(h, drivers[m], &all);
        h->driver = drivers[m];
        for (size_t i = 0; i < all.n && rc == 0; i++)
            if (is_device(all.v[i]))
                rc = dd_strv_push(&h->gpus, all.v[i]);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* A device that has fallen off the bus reads as all ones. Src: PCI Express, completion time-outs.
 */
static bool answers(const struct node_health *h, const char *device)
{
    static const unsigned char lost[4] = {0xff, 0xff, 0xff, 0xff};
    unsigned char id[4];
    return read_start(h, h->driver, device, "config", id, sizeof(id)) &&
           memcmp(id, lost, sizeof(lost)) != 0;
}

/* On a shared node, a lost GPU may belong to another job: check only that enough are left. */
static int gpu_check(const struct node_health *h, struct dd_err *why)
{
    int there = (int)h->gpus.n;
    int needed = h->cfg.gpus < there ? h->cfg.gpus
                                     : there; /* GPU partitions count as several GPUs */
    const char *lost = NULL;
    for (size_t i = 0; i < h->gpus.n; i++)
        if (!answers(h, h->gpus.v[i])) {
            lost = h->gpus.v[i];
            there--;
        }
    if (there >= needed)
        return 0;
    (void)dd_err_set(why, 1, "only %d of %d GPUs respond; %s has fallen off the bus", there,
                     (int)h->gpus.n, lost);
    return 1;
}

/* ---- InfiniBand ---- */

static const char ib[] = "sys/class/infiniband";

/* "4: ACTIVE". Src: Documentation/ABI/stable/sysfs-class-infiniband. */
static bool port_state(const struct node_health *h, const char *port, char state[32])
{
    if (!read_start(h, ib, port, "state", state, 31))
        return false;
    state[strcspn(state, "\n")] = '\0';
    return true;
}

static int ib_note(struct node_health *h)
{
    DD_AUTO(strv) struct dd_strv cards = {0};
    int rc = list(h, ib, &cards);
    for (size_t i = 0; i < cards.n && rc == 0; i++) {
        DD_AUTO(strv) struct dd_strv ports = {0};
        DD_AUTO(free) char *dir = NULL;
        if (asprintf(&dir, "%s/%s/ports", ib, cards.v[i]) < 0)
            return -ENOMEM;
        rc = list(h, dir, &ports);
        for (size_t k = 0; k < ports.n && rc == 0; k++) {
            DD_AUTO(free) char *port = NULL;
            char state[32];
            if (asprintf(&port, "%s/ports/%s", cards.v[i], ports.v[k]) < 0)
                return -ENOMEM;
            if (port_state(h, port, state) && strstr(state, "ACTIVE") != NULL)
                rc = dd_strv_push(&h->ports, port);
        }
    }
    return rc;
}

static int ib_check(const struct node_health *h, struct dd_err *why)
{
    for (size_t i = 0; i < h->ports.n; i++) {
        char state[32] = "";
        bool there = port_state(h, h->ports.v[i], state);
        if (there && strstr(state, "ACTIVE") != NULL)
            continue;
        const char *word = strchr(state, ' ');
        (void)dd_err_set(why, 1, "InfiniBand port %s is %s, but was ACTIVE when the job started",
                         h->ports.v[i], !there || word == NULL ? "gone" : word + 1);
        return 1;
    }
    return 0;
}

/* ---- memory and disk ---- */

static int nothing_to_note(struct node_health *h)
{
    (void)h;
    return 0;
}

static int shm_check(const struct node_health *h, struct dd_err *why)
{
    DD_AUTO(free) char *path = NULL;
    struct statvfs s;
    if (asprintf(&path, "%s/dev/shm", h->cfg.root) < 0 || statvfs(path, &s) < 0)
        return 0; /* without /dev/shm, no program relies on it */
    double left = (double)s.f_bavail * (double)s.f_frsize;
    if (left >= SHM_LEAST)
        return 0;
    (void)dd_err_set(why, 1, "/dev/shm has only %.1f MiB left", left / (1 << 20));
    return 1;
}

static int disk_check(const struct node_health *h, struct dd_err *why)
{
    static const char zeros[DISK_PROBE];
    DD_AUTO(fd) int fd = open(h->cfg.tmpdir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 &&
        (errno == EOPNOTSUPP || errno == EISDIR)) { /* the file system does not support O_TMPFILE */
        DD_AUTO(free) char *name = NULL;
        if (asprintf(&name, "%s/ddrun.XXXXXX", h->cfg.tmpdir) < 0)
            return 0;
        fd = mkostemp(name, O_CLOEXEC);
        if (fd >= 0)
            (void)unlink(name);
    }
    int rc = fd < 0 ? -errno : dd_write_full(fd, zeros, sizeof(zeros));
    if (rc == 0)
        return 0;
    (void)dd_err_set(why, 1, "cannot write a temporary file in %s: %s", h->cfg.tmpdir,
                     strerror(-rc));
    return 1;
}

/* ---- the table ---- */

static const struct check {
    const char *name;
    int bit;
    int (*note)(struct node_health *h); /* 0 or -ENOMEM */
    int (*check)(const struct node_health *h, struct dd_err *why);
} checks[] = {
    {"gpu", NODE_HEALTH_GPU, gpu_note, gpu_check},
    {"ib", NODE_HEALTH_IB, ib_note, ib_check},
    {"shm", NODE_HEALTH_SHM, nothing_to_note, shm_check},
    {"disk", NODE_HEALTH_DISK, nothing_to_note, disk_check},
};

enum { CHECKS = sizeof(checks) / sizeof(checks[0]) };

int node_health_parse(const char *text, struct dd_err *err)
{
    int all = 0;
    int bits = 0;
    if (strcmp(text, "none") == 0)
        return 0;
    for (size_t i = 0; i < CHECKS; i++)
        all |= checks[i].bit;
    if (strcmp(text, "all") == 0)
        return all;
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        int bit = 0;
        for (size_t i = 0; i < CHECKS; i++)
            if (strlen(checks[i].name) == len && strncmp(checks[i].name, p, len) == 0)
                bit = checks[i].bit;
        if (bit == 0)
            return dd_err_set(err, -EINVAL,
                              "invalid value '%.*s': expected gpu, ib, shm, disk, all or none",
                              (int)len, p);
        bits |= bit;
        p += len;
        if (*p == '\0')
            return bits;
    }
}

int node_health_new(struct node_health **ret, const struct node_health_cfg *cfg, struct dd_err *err)
{
    struct node_health *h = calloc(1, sizeof(*h));
    int rc = h == NULL ? -ENOMEM : 0;
    if (rc == 0)
        h->cfg = *cfg;
    for (size_t i = 0; i < CHECKS && rc == 0; i++)
        if (cfg->checks & checks[i].bit)
            rc = checks[i].note(h);
    if (rc < 0) {
        node_health_free(h);
        return dd_err_set(err, rc, "out of memory");
    }
    *ret = h;
    return 0;
}

int node_health_check(const struct node_health *h, struct dd_err *why)
{
    for (size_t i = 0; i < CHECKS; i++)
        if ((h->cfg.checks & checks[i].bit) && checks[i].check(h, why) != 0)
            return 1;
    return 0;
}

void node_health_free(struct node_health *h)
{
    if (h == NULL)
        return;
    dd_strv_done(&h->gpus);
    dd_strv_done(&h->ports);
    free(h);
}
