/* A stand-in for libnvidia-ml.so.1, with faults that a test chooses.
 *
 * STANDIN_NVML, and the file that STANDIN_NVML_FILE names, are lists of WHAT:GPU=NUMBER, separated
 * by commas or newlines; the file counts first. Without GPU, the entry is for the library:
 * "gpus=2,init=18". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DONE = 0, NOT_SUPPORTED = 3, TIMED_OUT = 10, LOST = 15, GPUS_MAX = 16, LINKS = 4 };

struct device {
    unsigned n;
};
static struct device devices[GPUS_MAX];

static int find(const char *list, const char *key, uint64_t *ret)
{
    const size_t n = strlen(key);
    for (const char *p = list; p != NULL && *p != '\0';) {
        if (strncmp(p, key, n) == 0 && p[n] == '=') {
            *ret = strtoull(p + n + 1, NULL, 0);
            return 1;
        }
        p = strpbrk(p, ",\n");
        p = p != NULL ? p + 1 : NULL;
    }
    return 0;
}

static uint64_t value(const char *key, uint64_t otherwise)
{
    char text[4096] = "";
    const char *path = getenv("STANDIN_NVML_FILE");
    FILE *f = path != NULL ? fopen(path, "re") : NULL;
    uint64_t v = otherwise;
    if (f != NULL) {
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        fclose(f);
    }
    if (!find(text, key, &v))
        (void)find(getenv("STANDIN_NVML"), key, &v);
    return v;
}

static uint64_t of(const struct device *d, const char *what, uint64_t otherwise)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "%s:%u", what, d->n);
    return value(key, otherwise);
}

static unsigned lost(const struct device *d)
{
    return (unsigned)of(d, "lost", DONE);
}

unsigned nvmlInit_v2(void);
unsigned nvmlInit_v2(void)
{
    while (value("hang", 0) != 0)
        pause();
    return (unsigned)value("init", DONE);
}

unsigned nvmlShutdown(void);
unsigned nvmlShutdown(void)
{
    return DONE;
}

const char *nvmlErrorString(unsigned rc);
const char *nvmlErrorString(unsigned rc)
{
    return rc == 18 ? "Driver/library version mismatch" : "Unknown Error";
}

unsigned nvmlDeviceGetCount_v2(unsigned *n);
unsigned nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = (unsigned)value("gpus", 2);
    return DONE;
}

unsigned nvmlDeviceGetHandleByIndex_v2(unsigned i, struct device **ret);
unsigned nvmlDeviceGetHandleByIndex_v2(unsigned i, struct device **ret)
{
    if (i >= GPUS_MAX)
        return LOST;
    devices[i].n = i;
    *ret = &devices[i];
    while (of(*ret, "hang", 0) != 0)
        pause();
    return (unsigned)of(*ret, "handle", DONE);
}

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

unsigned nvmlDeviceGetPciInfo_v3(struct device *d, struct pci_info *p);
unsigned nvmlDeviceGetPciInfo_v3(struct device *d, struct pci_info *p)
{
    memset(p, 0, sizeof(*p));
    (void)snprintf(p->bus_id, sizeof(p->bus_id), "00000000:%02X:00.0", 0x17 + d->n);
    return DONE;
}

unsigned nvmlDeviceGetUUID(struct device *d, char *to, unsigned n);
unsigned nvmlDeviceGetUUID(struct device *d, char *to, unsigned n)
{
    (void)snprintf(to, n, "GPU-%08x-aaaa-bbbb-cccc-dddddddddddd", d->n);
    return DONE;
}

struct field_value {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, rc;
    union {
        unsigned as_unsigned;
        unsigned long long as_u64;
    } value;
};

unsigned nvmlDeviceGetFieldValues(struct device *d, int n, struct field_value *v);
unsigned nvmlDeviceGetFieldValues(struct device *d, int n, struct field_value *v)
{
    for (int i = 0; i < n; i++) {
        const uint64_t action = of(d, "recovery", 0);
        v[i].rc = v[i].field == 230 && action != 99 ? DONE : NOT_SUPPORTED;
        v[i].value.as_u64 = action;
    }
    return DONE;
}

unsigned nvmlDeviceGetTotalEccErrors(struct device *d, unsigned type, unsigned counter,
                                     unsigned long long *ret);
unsigned nvmlDeviceGetTotalEccErrors(struct device *d, unsigned type, unsigned counter,
                                     unsigned long long *ret)
{
    (void)counter;
    *ret = of(d, type == 1 ? "ecc" : "corrected", 0);
    return lost(d);
}

unsigned nvmlDeviceGetRemappedRows(struct device *d, unsigned *good, unsigned *bad,
                                   unsigned *pending, unsigned *failed);
unsigned nvmlDeviceGetRemappedRows(struct device *d, unsigned *good, unsigned *bad,
                                   unsigned *pending, unsigned *failed)
{
    *good = *bad = 0;
    *pending = (unsigned)of(d, "rows-pending", 0);
    *failed = (unsigned)of(d, "rows-failed", 0);
    return DONE;
}

unsigned nvmlDeviceGetRetiredPagesPendingStatus(struct device *d, unsigned *pending);
unsigned nvmlDeviceGetRetiredPagesPendingStatus(struct device *d, unsigned *pending)
{
    *pending = (unsigned)of(d, "pages", 0);
    return DONE;
}

unsigned nvmlDeviceGetNvLinkState(struct device *d, unsigned link, unsigned *active);
unsigned nvmlDeviceGetNvLinkState(struct device *d, unsigned link, unsigned *active)
{
    if (link >= LINKS)
        return NOT_SUPPORTED;
    *active = (of(d, "links-down", 0) >> link & 1) == 0;
    return DONE;
}

unsigned nvmlDeviceGetNvLinkErrorCounter(struct device *d, unsigned link, unsigned counter,
                                         unsigned long long *ret);
unsigned nvmlDeviceGetNvLinkErrorCounter(struct device *d, unsigned link, unsigned counter,
                                         unsigned long long *ret)
{
    *ret = link == 0 && counter == 0 ? of(d, "link-errors", 0) : 0;
    return DONE;
}

unsigned nvmlDeviceGetCurrentClocksEventReasons(struct device *d, unsigned long long *reasons);
unsigned nvmlDeviceGetCurrentClocksEventReasons(struct device *d, unsigned long long *reasons)
{
    *reasons = of(d, "throttle", 0);
    return DONE;
}

struct process_info {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

unsigned nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, unsigned *n,
                                                 struct process_info *ret);
unsigned nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, unsigned *n,
                                                 struct process_info *ret)
{
    static unsigned reads;
    const uint64_t last = of(d, "frees-after", 0);
    const uint64_t pid = last > 0 && ++reads > last ? 0 : of(d, "pid", 0);
    *n = pid != 0;
    if (pid != 0)
        ret[0] = (struct process_info){.pid = (unsigned)pid, .bytes = of(d, "bytes", 0)};
    return DONE;
}

struct memory_info {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

unsigned nvmlDeviceGetMemoryInfo_v2(struct device *d, struct memory_info *m);
unsigned nvmlDeviceGetMemoryInfo_v2(struct device *d, struct memory_info *m)
{
    if (m->version != 0x02000028)
        return 25;
    m->total = 80ULL << 30;
    m->used = of(d, "used", 0);
    return DONE;
}

struct utilization {
    unsigned gpu, memory;
};

unsigned nvmlDeviceGetUtilizationRates(struct device *d, struct utilization *u);
unsigned nvmlDeviceGetUtilizationRates(struct device *d, struct utilization *u)
{
    u->gpu = (unsigned)of(d, "busy", 0);
    u->memory = 0;
    return DONE;
}

unsigned nvmlDeviceGetClockInfo(struct device *d, unsigned type, unsigned *mhz);
unsigned nvmlDeviceGetClockInfo(struct device *d, unsigned type, unsigned *mhz)
{
    *mhz = (unsigned)of(d, "clock", 0);
    return type == 1 && *mhz != 0 ? DONE : NOT_SUPPORTED;
}

unsigned nvmlDeviceGetMaxClockInfo(struct device *d, unsigned type, unsigned *mhz);
unsigned nvmlDeviceGetMaxClockInfo(struct device *d, unsigned type, unsigned *mhz)
{
    (void)d;
    *mhz = 1980;
    return type == 1 ? DONE : NOT_SUPPORTED;
}

/* ---- XIDs: each new value of xid:GPU is an event ---- */

struct event_data {
    struct device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct event_set {
    uint64_t reported[GPUS_MAX];
};
static struct event_set the_set;

unsigned nvmlEventSetCreate(struct event_set **ret);
unsigned nvmlEventSetCreate(struct event_set **ret)
{
    *ret = &the_set;
    return value("no-events", 0) != 0 ? NOT_SUPPORTED : DONE;
}

unsigned nvmlDeviceRegisterEvents(struct device *d, unsigned long long types,
                                  struct event_set *set);
unsigned nvmlDeviceRegisterEvents(struct device *d, unsigned long long types, struct event_set *set)
{
    (void)d;
    (void)set;
    return types == 8 ? DONE : NOT_SUPPORTED;
}

/* Write the name of STANDIN_NVML_HEARD once an event was delivered and the next is waited for, so
 * that a test can wait for this. */
unsigned nvmlEventSetWait_v2(struct event_set *set, struct event_data *e, unsigned ms);
unsigned nvmlEventSetWait_v2(struct event_set *set, struct event_data *e, unsigned ms)
{
    static const struct timespec step = {.tv_nsec = 20000000};
    static int delivered;
    const char *heard = getenv("STANDIN_NVML_HEARD");
    FILE *f = delivered > 0 && heard != NULL ? fopen(heard, "we") : NULL;
    if (f != NULL)
        fclose(f);
    for (unsigned waited = 0; waited < ms; waited += 20) {
        for (unsigned i = 0; i < GPUS_MAX; i++) {
            devices[i].n = i;
            const uint64_t xid = of(&devices[i], "xid", 0);
            if (xid == set->reported[i])
                continue;
            set->reported[i] = xid;
            *e = (struct event_data){.device = &devices[i], .type = 8, .data = xid};
            delivered++;
            return DONE;
        }
        (void)nanosleep(&step, NULL);
    }
    return TIMED_OUT;
}
