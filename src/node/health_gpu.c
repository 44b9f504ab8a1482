/* GPUs: check that the PCI devices of any vendor respond, and that NVML reports no fault of NVIDIA
 * GPUs. */
#include "node/health_inner.h"

#include "base/auto.h"
#include "node/gpu_faults.h"
#include "node/nvml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FREEING_MS = 3000, FREEING_STEP_MS = 100 };

/* ---- PCI ---- */

/* The directory of a driver lists its devices. Src: Documentation/PCI, sysfs-bus-pci. */
static const char *const drivers[] = {"sys/bus/pci/drivers/nvidia", "sys/bus/pci/drivers/amdgpu",
                                      "sys/bus/pci/drivers/xe", "sys/bus/pci/drivers/i915"};

/* True for "0000:17:00.0": domain, bus, device, function. */
static bool is_device(const char *name)
{
    return name[strspn(name, "0123456789abcdef:.")] == '\0' && strchr(name, ':') != NULL;
}

/* Store all devices of the first driver that has any: a display chip may have another driver. */
int health_gpu_note(struct node_health *h)
{
    int rc = 0;
    for (size_t m = 0;
         m < sizeof(drivers) / sizeof(drivers[0]) && h->gpus.n == 0 && h->cfg.gpus > 0; m++) {
        DD_AUTO(strv) struct dd_strv all = {0};
        rc = health_list(h, drivers[m], &all);
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
    return health_read(h, h->driver, device, "config", id, sizeof(id)) &&
           memcmp(id, lost, sizeof(lost)) != 0;
}

/* Return the number of GPUs that must work; at most all, as the job may count partitions of a GPU
 * as several GPUs. */
static int needed_of(const struct node_health *h, int there)
{
    return h->cfg.gpus < there ? h->cfg.gpus : there;
}

/* On a shared node, a lost GPU may belong to another job: check only that enough are left. */
static int pci_check(const struct node_health *h, struct dd_err *why)
{
    int there = (int)h->gpus.n;
    const int needed = needed_of(h, there);
    const char *lost = NULL;
    for (size_t i = 0; i < h->gpus.n; i++) {
        health_page_begin(h->page, "GPU %.100s", h->gpus.v[i]);
        if (!answers(h, h->gpus.v[i])) {
            lost = h->gpus.v[i];
            there--;
        }
    }
    if (there >= needed)
        return 0;
    if (h->gpus.n == 1)
        return dd_err_set(why, 1, "GPU %s cannot be read, or has fallen off the bus", lost);
    (void)dd_err_set(why, 1,
                     "only %d of %d GPUs respond; %s cannot be read, or has fallen off the bus",
                     there, (int)h->gpus.n, lost);
    return 1;
}

/* ---- NVML ---- */

/* The GPUs that the job may use. */
struct tally {
    struct gpu_facts gpus[HEALTH_GPUS_MAX];
    int n;
    int most_links; /* active links of the GPU that has the most */
    int seen, failed;
    bool listed[HEALTH_GPUS_MAX]; /* GPUs of the page that the driver still lists */
    char why[GPU_SENTENCE + 1];   /* why the first faulty GPU failed */
};

/* Find the GPU of that bus, or the first free entry. NULL: the page is full. */
static struct health_gpu *entry_of(struct health_page *page, const char *bus)
{
    for (int i = 0; i < HEALTH_GPUS_MAX; i++)
        if (!page->gpus[i].seen || strcmp(page->gpus[i].bus, bus) == 0)
            return &page->gpus[i];
    return NULL;
}

static const struct health_xid *xid_of(const struct health_page *page, const char *bus)
{
    for (int i = 0; i < HEALTH_GPUS_MAX; i++)
        if (page->xids[i].xid != 0 && strcmp(page->xids[i].bus, bus) == 0)
            return &page->xids[i];
    return NULL;
}

/* Read the facts of a GPU. Repeat this for up to FREEING_MS while the driver frees the memory of
 * processes that have ended. */
static bool read_settled(const struct node_health *h, const struct nvml *n, int i,
                         struct gpu_facts *f)
{
    static const struct timespec step = {.tv_nsec = FREEING_STEP_MS * 1000000L};
    for (int waited = 0; nvml_read(n, i, h->cfg.root, f); waited += FREEING_STEP_MS) {
        if (!gpu_faults_frees_memory(f) || waited >= FREEING_MS)
            return true;
        (void)nanosleep(&step, NULL);
    }
    return false;
}

static void read_all(const struct node_health *h, const struct nvml *n, struct tally *t)
{
    const int count = nvml_count(n);
    for (int i = 0; i < count; i++) {
        struct gpu_facts *f = &t->gpus[t->n];
        health_page_begin(h->page, "GPU %d (NVML)", i);
        if (!read_settled(h, n, i, f) || !gpu_is_visible(h->cfg.visible, f))
            continue;
        t->n++;
        if (gpu_active_links(f) > t->most_links)
            t->most_links = gpu_active_links(f);
    }
    health_page_begin(h->page, "the driver of the GPUs (NVML)");
}

static void count_fault(struct tally *t, const char *why)
{
    if (t->failed++ == 0)
        (void)snprintf(t->why, sizeof(t->why), "%s", why);
}

static void judge(const struct node_health *h, const struct gpu_facts *f, struct tally *t)
{
    struct health_gpu *entry = entry_of(h->page, f->bus);
    struct health_gpu before = {0};
    char why[GPU_SENTENCE + 1] = "";
    if (entry != NULL) {
        before = *entry;
        t->listed[entry - h->page->gpus] = true;
        if (f->lost == 0)
            gpu_faults_note(entry, f);
    }
    const struct gpu_case c = {.now = f,
                               .before = before.seen ? &before : NULL,
                               .xid = xid_of(h->page, f->bus),
                               .most_links = t->most_links};
    t->seen++;
    if (gpu_faults_judge(&c, h->page, why))
        count_fault(t, why);
}

/* Count as faulty each GPU of an earlier check that the driver no longer lists. */
static void count_missing(const struct node_health *h, struct tally *t)
{
    for (int i = 0; i < HEALTH_GPUS_MAX && h->page->gpus[i].seen; i++) {
        char why[GPU_SENTENCE + 1];
        if (t->listed[i])
            continue;
        (void)snprintf(why, sizeof(why),
                       "GPU %s is no longer listed by its driver; reboot the node",
                       h->page->gpus[i].bus);
        t->seen++;
        count_fault(t, why);
    }
}

static int nvml_check(const struct node_health *h, struct dd_err *why)
{
    DD_AUTO(free) struct tally *t = calloc(1, sizeof(*t));
    struct nvml *n = NULL;
    struct dd_err err = {0};
    health_page_begin(h->page, "the driver of the GPUs (NVML)");
    int rc = t == NULL ? -ENOMEM : nvml_open(&n, h->cfg.nvml, &err);
    if (rc == -EIO)
        return dd_err_set(why, 1, "%s", err.text);
    if (rc < 0) {
        health_page_note(h->page, "GPUs are not checked with NVML: %.300s",
                         t == NULL ? "out of memory" : err.text);
        return 0;
    }
    read_all(h, n, t);
    nvml_close(n);
    for (int i = 0; i < t->n; i++)
        judge(h, &t->gpus[i], t);
    count_missing(h, t);
    if (t->failed == 0)
        return 0;
    if (t->seen - t->failed < needed_of(h, t->seen))
        return dd_err_set(why, 1, "%s", t->why);
    health_page_warn(h->page, "%s", t->why); /* the job has enough other GPUs of this node */
    return 0;
}

bool health_gpu_idle(const struct node_health *h)
{
    return h->cfg.gpus == 0;
}

int health_gpu_check(const struct node_health *h, const struct node_health_target *t,
                     struct dd_err *why)
{
    (void)t;
    if (health_gpu_idle(h))
        return 0;
    const int rc = pci_check(h, why);
    return rc != 0 ? rc : nvml_check(h, why);
}

void health_gpu_watch(const struct node_health *h)
{
    struct nvml *n = NULL;
    if (nvml_open(&n, h->cfg.nvml, NULL) < 0)
        return;
    nvml_watch(n, h->page, h->cfg.usage_ms);
    nvml_close(n);
}
