/* Src of the declarations and numbers of NVML: docs.nvidia.com/deploy/nvml-api. */
#include "node/nvml.h"

#include "base/auto.h"
#include "base/library.h"
#include "node/gpu_faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DONE = 0,
    NO_PERMISSION = 4,
    TIMED_OUT = 10,
    VOLATILE = 0,
    CORRECTED = 0,
    UNCORRECTED = 1,
    LINK_COUNTERS = 5,
    FIELD_RECOVERY_ACTION = 230,
    EVENT_XID = 8,
    CLOCK_SM = 1,
    XID_WAIT_MS = 60000,
};

typedef struct nvml_device *device_t; /* opaque types of the library */
typedef struct nvml_event_set *event_set_t;

struct pci_info {
    char legacy_bus[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};

struct field_value {
    unsigned field, scope;
    long long timestamp, latency_us;
    unsigned type, rc;
    union {
        double as_double;
        unsigned as_unsigned;
        unsigned long long as_u64;
    } value;
};

struct process_info {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

struct memory_info {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct utilization {
    unsigned gpu, memory; /* percent of the last sample period */
};

struct event_data {
    device_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct api {
    unsigned (*init)(void);
    unsigned (*shutdown)(void);
    unsigned (*count)(unsigned *n);
    unsigned (*handle)(unsigned index, device_t *ret);
    unsigned (*pci)(device_t d, struct pci_info *ret);
    unsigned (*uuid)(device_t d, char *ret, unsigned size);
    unsigned (*fields)(device_t d, int n, struct field_value *values);
    unsigned (*ecc)(device_t d, unsigned type, unsigned counter, unsigned long long *ret);
    unsigned (*rows)(device_t d, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                     unsigned *failed);
    unsigned (*pages)(device_t d, unsigned *pending);
    unsigned (*link_state)(device_t d, unsigned link, unsigned *active);
    unsigned (*link_errors)(device_t d, unsigned link, unsigned counter, unsigned long long *ret);
    unsigned (*clocks)(device_t d, unsigned long long *reasons);
    unsigned (*clocks_old)(device_t d, unsigned long long *reasons);
    unsigned (*processes)(device_t d, unsigned *n, struct process_info *ret);
    unsigned (*memory)(device_t d, struct memory_info *ret);
    unsigned (*utilization)(device_t d, struct utilization *ret);
    unsigned (*clock)(device_t d, unsigned type, unsigned *mhz);
    unsigned (*clock_max)(device_t d, unsigned type, unsigned *mhz);
    unsigned (*set_create)(event_set_t *ret);
    unsigned (*set_add)(device_t d, unsigned long long types, event_set_t set);
    unsigned (*set_wait)(event_set_t set, struct event_data *ret, unsigned ms);
    const char *(*text)(unsigned rc);
};

/* Older drivers lack some OPTIONAL functions, whose pointers then stay NULL. */
#define OPTIONAL(field, name) {{name, offsetof(struct api, field)}, false}
#define REQUIRED(field, name) {{name, offsetof(struct api, field)}, true}
static const struct {
    struct dd_library_row row;
    bool required;
} functions[] = {
    REQUIRED(init, "nvmlInit_v2"),
    REQUIRED(shutdown, "nvmlShutdown"),
    REQUIRED(count, "nvmlDeviceGetCount_v2"),
    REQUIRED(handle, "nvmlDeviceGetHandleByIndex_v2"),
    REQUIRED(pci, "nvmlDeviceGetPciInfo_v3"),
    REQUIRED(text, "nvmlErrorString"),
    OPTIONAL(uuid, "nvmlDeviceGetUUID"),
    OPTIONAL(fields, "nvmlDeviceGetFieldValues"),
    OPTIONAL(ecc, "nvmlDeviceGetTotalEccErrors"),
    OPTIONAL(rows, "nvmlDeviceGetRemappedRows"),
    OPTIONAL(pages, "nvmlDeviceGetRetiredPagesPendingStatus"),
    OPTIONAL(link_state, "nvmlDeviceGetNvLinkState"),
    OPTIONAL(link_errors, "nvmlDeviceGetNvLinkErrorCounter"),
    OPTIONAL(clocks, "nvmlDeviceGetCurrentClocksEventReasons"),
    OPTIONAL(clocks_old, "nvmlDeviceGetCurrentClocksThrottleReasons"),
    OPTIONAL(processes, "nvmlDeviceGetComputeRunningProcesses_v3"),
    OPTIONAL(memory, "nvmlDeviceGetMemoryInfo_v2"),
    OPTIONAL(utilization, "nvmlDeviceGetUtilizationRates"),
    OPTIONAL(clock, "nvmlDeviceGetClockInfo"),
    OPTIONAL(clock_max, "nvmlDeviceGetMaxClockInfo"),
    OPTIONAL(set_create, "nvmlEventSetCreate"),
    OPTIONAL(set_add, "nvmlDeviceRegisterEvents"),
    OPTIONAL(set_wait, "nvmlEventSetWait_v2"),
};

struct nvml {
    struct api api;
    bool open;
};

DD_AUTO_DEFINE(nvml, struct nvml *, nvml_close);

static int bind(struct api *api, void *library, struct dd_err *err)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        const char *missing;
        if (dd_library_bind(api, library, &functions[i].row, 1, &missing) < 0 &&
            functions[i].required)
            return dd_err_set(err, -ENOENT, "NVML has no function %s", missing);
    }
    return 0;
}

int nvml_open(struct nvml **ret, const char *library, struct dd_err *err)
{
    DD_AUTO(nvml) struct nvml *n = calloc(1, sizeof(*n));
    if (n == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    void *handle = dlopen(library != NULL ? library : "libnvidia-ml.so.1",
                          RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *why = dlerror();
        return dd_err_set(err, -ENOENT, "cannot load NVML: %.300s", why != NULL ? why : "");
    }
    int rc = bind(&n->api, handle, err);
    if (rc < 0)
        return rc;
    const unsigned code = n->api.init();
    if (code == NVML_DRIVER_NOT_LOADED)
        return dd_err_set(err, -ENOENT, "the driver of NVIDIA GPUs is not loaded");
    if (code != DONE)
        return dd_err_set(err, -EIO,
                          "the driver of NVIDIA GPUs does not work: NVML reports '%.100s'; "
                          "reboot the node",
                          n->api.text(code));
    n->open = true;
    *ret = DD_TAKE(n);
    return 0;
}

void nvml_close(struct nvml *n)
{
    if (n == NULL)
        return;
    if (n->open)
        (void)n->api.shutdown();
    free(n);
}

int nvml_count(const struct nvml *n)
{
    unsigned count = 0;
    if (n->api.count(&count) != DONE)
        return 0;
    return count < HEALTH_GPUS_MAX ? (int)count : HEALTH_GPUS_MAX;
}

/* ---- facts ---- */

static void read_recovery(const struct api *api, device_t d, struct gpu_facts *f)
{
    struct field_value v = {.field = FIELD_RECOVERY_ACTION};
    if (api->fields == NULL || api->fields(d, 1, &v) != DONE || v.rc != DONE)
        return;
    f->known |= GPU_KNOWS_RECOVERY;
    f->recovery = v.value.as_unsigned;
}

static void read_errors(const struct api *api, device_t d, struct gpu_facts *f)
{
    unsigned long long bad = 0, good = 0;
    unsigned corrected = 0, uncorrected = 0;
    if (api->ecc != NULL && api->ecc(d, UNCORRECTED, VOLATILE, &bad) == DONE) {
        f->known |= GPU_KNOWS_ECC;
        f->ecc_uncorrected = bad;
        if (api->ecc(d, CORRECTED, VOLATILE, &good) == DONE)
            f->ecc_corrected = good;
    }
    if (api->rows != NULL &&
        api->rows(d, &corrected, &uncorrected, &f->rows_pending, &f->rows_failed) == DONE)
        f->known |= GPU_KNOWS_ROWS;
    else
        f->rows_pending = f->rows_failed = 0;
    if (api->pages == NULL || api->pages(d, &f->pages_pending) != DONE)
        f->pages_pending = 0;
}

static void read_links(const struct api *api, device_t d, struct gpu_facts *f)
{
    for (unsigned i = 0; api->link_state != NULL && i < GPU_LINKS_MAX; i++) {
        unsigned active = 0;
        if (api->link_state(d, i, &active) != DONE)
            continue;
        f->known |= GPU_KNOWS_LINKS;
        f->links |= UINT64_C(1) << i;
        f->links_up |= (uint64_t)(active != 0) << i;
        for (unsigned k = 0; api->link_errors != NULL && active != 0 && k < LINK_COUNTERS; k++) {
            unsigned long long errors = 0;
            if (api->link_errors(d, i, k, &errors) == DONE)
                f->link_errors += errors;
        }
    }
}

static uint64_t read_throttle(const struct api *api, device_t d)
{
    unsigned long long reasons = 0;
    return (api->clocks != NULL && api->clocks(d, &reasons) == DONE) ||
                   (api->clocks_old != NULL && api->clocks_old(d, &reasons) == DONE)
               ? reasons
               : 0;
}

/* True in the initial PID namespace: NVML reports the PIDs of that namespace, which are meaningless
 * in another one. Src: PROC_PID_INIT_INO of Linux. */
static bool sees_all_processes(const char *root)
{
    char path[400];
    char to[64] = "";
    (void)snprintf(path, sizeof(path), "%s/proc/self/ns/pid", root);
    return readlink(path, to, sizeof(to) - 1) > 0 && strcmp(to, "pid:[4026531836]") == 0;
}

/* Use kill(2), which also finds the processes of other users where /proc hides them (hidepid). */
static bool is_alive(unsigned pid)
{
    return pid == 0 || pid > INT_MAX || kill((pid_t)pid, 0) == 0 || errno != ESRCH;
}

static void read_memory(const struct api *api, device_t d, const char *root, struct gpu_facts *f)
{
    struct memory_info m = {.version = (unsigned)sizeof(m) | 2U << 24};
    struct process_info p[GPU_PROCESSES_MAX];
    unsigned count = GPU_PROCESSES_MAX;
    if (api->memory != NULL && api->memory(d, &m) == DONE) {
        f->known |= GPU_KNOWS_MEMORY;
        f->memory_total = m.total;
        f->memory_used = m.used;
    }
    if (api->processes == NULL || !sees_all_processes(root) || api->processes(d, &count, p) != DONE)
        return;
    for (unsigned i = 0; i < count && i < GPU_PROCESSES_MAX; i++)
        f->processes[f->nprocesses++] = (struct gpu_process){
            .pid = p[i].pid,
            .bytes = p[i].bytes == ~0ULL ? 0 : p[i].bytes,
            .alive = is_alive(p[i].pid),
        };
}

bool nvml_read(const struct nvml *n, int position, const char *root, struct gpu_facts *ret)
{
    const struct api *api = &n->api;
    struct gpu_facts f = {.index = (unsigned)position};
    struct pci_info pci = {0};
    device_t d = NULL;
    unsigned rc = api->handle((unsigned)position, &d);
    if (rc == NO_PERMISSION)
        return false;
    if (rc == DONE)
        rc = api->pci(d, &pci);
    (void)snprintf(f.bus, sizeof(f.bus), "%.31s", rc == DONE ? pci.bus_id : "unknown");
    if (rc != DONE) {
        f.lost = rc;
    } else {
        unsigned long long bad;
        if (api->uuid != NULL && api->uuid(d, f.uuid, sizeof(f.uuid)) != DONE)
            f.uuid[0] = '\0';
        rc = api->ecc != NULL ? api->ecc(d, UNCORRECTED, VOLATILE, &bad) : DONE;
        f.lost = rc == NVML_GPU_IS_LOST || rc == NVML_RESET_REQUIRED ? rc : 0;
    }
    if (f.lost == 0) {
        read_recovery(api, d, &f);
        read_errors(api, d, &f);
        read_links(api, d, &f);
        f.throttle = read_throttle(api, d);
        read_memory(api, d, root, &f);
    }
    *ret = f;
    return true;
}

/* ---- usage ---- */

static int64_t read_clock(unsigned (*clock)(device_t d, unsigned type, unsigned *mhz), device_t d)
{
    unsigned mhz = 0;
    return clock != NULL && clock(d, CLOCK_SM, &mhz) == DONE ? (int64_t)mhz : -1;
}

bool nvml_read_usage(const struct nvml *n, int position, struct gpu_usage *ret)
{
    const struct api *api = &n->api;
    struct utilization busy = {0};
    struct memory_info m = {.version = (unsigned)sizeof(m) | 2U << 24};
    struct gpu_usage u = {.index = position, .percent = -1, .memory_used = -1, .memory_total = -1};
    device_t d = NULL;
    if (api->handle((unsigned)position, &d) != DONE)
        return false;
    if (api->uuid == NULL || api->uuid(d, u.uuid, sizeof(u.uuid)) != DONE)
        u.uuid[0] = '\0';
    if (api->utilization != NULL && api->utilization(d, &busy) == DONE && busy.gpu <= 100)
        u.percent = busy.gpu;
    if (api->memory != NULL && api->memory(d, &m) == DONE) {
        u.memory_used = (int64_t)m.used;
        u.memory_total = (int64_t)m.total;
    }
    u.clock_mhz = read_clock(api->clock, d);
    u.clock_max_mhz = read_clock(api->clock_max, d);
    u.throttle = read_throttle(api, d);
    *ret = u;
    return true;
}

/* ---- XIDs and clocks ---- */

static void store_xid(const struct api *api, const struct event_data *e,
                      struct health_xid xids[HEALTH_GPUS_MAX])
{
    struct pci_info pci = {0};
    unsigned count = 0;
    (void)api->count(&count);
    if (e->device == NULL || api->pci(e->device, &pci) != DONE)
        return;
    for (unsigned i = 0; i < count && i < HEALTH_GPUS_MAX; i++) {
        struct health_xid *x = &xids[i];
        if (x->xid != 0 && strcmp(x->bus, pci.bus_id) != 0)
            continue;
        (void)snprintf(x->bus, sizeof(x->bus), "%.31s", pci.bus_id);
        x->n++;
        if (!gpu_xid_is_hardware(x->xid) || gpu_xid_is_hardware(e->data))
            x->xid = e->data; /* keep an XID of failed hardware, which often causes others */
        return;
    }
}

static void store_usage(const struct nvml *n, struct health_page *page)
{
    const int count = nvml_count(n);
    int known = 0;
    for (int i = 0; i < count; i++)
        known += nvml_read_usage(n, i, &page->usage[known]);
    page->nusage = known;
    __atomic_add_fetch(&page->readings, 1, __ATOMIC_RELEASE);
}

void nvml_watch(const struct nvml *n, struct health_page *page, unsigned usage_ms)
{
    const struct api *api = &n->api;
    event_set_t set = NULL;
    int watched = 0;
    if (api->set_create == NULL || api->set_add == NULL || api->set_wait == NULL ||
        api->set_create(&set) != DONE)
        return;
    for (int i = 0; i < nvml_count(n); i++) {
        device_t d = NULL;
        watched += api->handle((unsigned)i, &d) == DONE && api->set_add(d, EVENT_XID, set) == DONE;
    }
    while (watched > 0) {
        struct event_data e = {0};
        const unsigned rc = api->set_wait(set, &e, usage_ms > 0 ? usage_ms : XID_WAIT_MS);
        if (rc == DONE)
            store_xid(api, &e, page->xids);
        else if (rc != TIMED_OUT)
            return;
        else if (usage_ms > 0)
            store_usage(n, page);
    }
}
