#include "node/gpu_faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum severity { FINE, WARNS, FAILS };

typedef enum severity rule_f(const struct gpu_case *c, char *text, size_t n);

#define RESET "reset it with 'nvidia-smi --gpu-reset', or reboot the node"
#define FABRIC "check its NVLinks with 'nvidia-smi nvlink --status'"

static const double gib = 1 << 30;

/* ---- the GPU as a whole ---- */

static enum severity lost(const struct gpu_case *c, char *text, size_t n)
{
    if (c->now->lost == 0)
        return FINE;
    (void)snprintf(text, n, "%s",
                   c->now->lost == NVML_RESET_REQUIRED
                       ? "needs a reset before it can be used; " RESET
                       : "has fallen off the bus or does not respond; reboot the node, and replace "
                         "the GPU if this happens again");
    return FAILS;
}

/* Src: docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, Error Recovery and Response Flags;
 * nvmlDeviceGpuRecoveryAction_t. */
static enum severity recovery(const struct gpu_case *c, char *text, size_t n)
{
    static const char *const actions[] = {
        NULL,
        "needs a reset, according to its driver; " RESET,
        "needs a reboot of the node, according to its driver; reboot the node",
        "must not be used with other GPUs, according to its driver; end all jobs of the node, then " RESET,
        "needs a reset, according to its driver; end all jobs of the node, then " RESET,
        "needs a recovery of its IMEX domain, according to its driver; restart the IMEX service",
        "needs a reset of its bus, according to its driver; reboot the node",
        "needs a reboot of the system, according to its driver; reboot the node",
    };
    const unsigned a = c->now->recovery;
    if (!(c->now->known & GPU_KNOWS_RECOVERY) || a == 0)
        return FINE;
    if (a < sizeof(actions) / sizeof(actions[0]))
        (void)snprintf(text, n, "%s", actions[a]);
    else
        (void)snprintf(text, n, "needs recovery action %u, according to its driver; " RESET, a);
    return FAILS;
}

/* True if the driver states that the GPU can be used as it is: that overrides the counters. */
static bool is_cleared(const struct gpu_case *c)
{
    return (c->now->known & GPU_KNOWS_RECOVERY) != 0 && c->now->recovery == 0;
}

/* ---- memory ---- */

static enum severity ecc(const struct gpu_case *c, char *text, size_t n)
{
    if (!(c->now->known & GPU_KNOWS_ECC) || c->now->ecc_uncorrected == 0)
        return FINE;
    (void)snprintf(
        text, n, "has had %llu uncorrectable memory error%s since its driver was loaded; %s",
        (unsigned long long)c->now->ecc_uncorrected, c->now->ecc_uncorrected == 1 ? "" : "s",
        is_cleared(c) ? "according to its driver, it can be used" : RESET);
    return is_cleared(c) ? WARNS : FAILS;
}

static enum severity ecc_corrected(const struct gpu_case *c, char *text, size_t n)
{
    if (c->before == NULL || c->now->ecc_corrected <= c->before->ecc_corrected)
        return FINE;
    const unsigned long long more = c->now->ecc_corrected - c->before->ecc_corrected;
    (void)snprintf(text, n, "has corrected %llu memory error%s since the last check", more,
                   more == 1 ? "" : "s");
    return WARNS;
}

static enum severity rows_failed(const struct gpu_case *c, char *text, size_t n)
{
    if (c->now->rows_failed == 0)
        return FINE;
    (void)snprintf(text, n, "could not remap a faulty row of its memory; replace the GPU");
    return FAILS;
}

/* Only warn: "Even with the flag set, unaffected applications can continue running …, and new
 * workloads can be launched." Src: the first source of recovery(). */
static enum severity rows_pending(const struct gpu_case *c, char *text, size_t n)
{
    if (c->now->rows_pending == 0)
        return FINE;
    (void)snprintf(text, n, "will remap a faulty row of its memory at the next reset");
    return WARNS;
}

static enum severity pages_pending(const struct gpu_case *c, char *text, size_t n)
{
    if (c->now->pages_pending == 0)
        return FINE;
    (void)snprintf(text, n, "will retire faulty pages of its memory at the next reset");
    return WARNS;
}

/* Format "1.5 GiB of " or "20 MiB of "; "" if the size is unknown. Return out. */
static const char *size_of(char out[32], uint64_t bytes)
{
    const unsigned mib = (unsigned)((bytes + (1 << 20) - 1) >> 20);
    out[0] = '\0';
    if ((double)bytes >= gib)
        (void)snprintf(out, 32, "%.1f GiB of ", (double)bytes / gib);
    else if (bytes > 0)
        (void)snprintf(out, 32, "%u MiB of ", mib);
    return out;
}

static enum severity held_by_the_dead(const struct gpu_case *c, char *text, size_t n)
{
    for (int i = 0; i < c->now->nprocesses; i++) {
        const struct gpu_process *p = &c->now->processes[i];
        char size[32];
        if (p->alive)
            continue;
        (void)snprintf(text, n, "has %smemory held by process %u, which has ended; " RESET,
                       size_of(size, p->bytes), p->pid);
        return FAILS;
    }
    return FINE;
}

/* Warn of memory that other processes hold. No worker of this job runs during a check, so each
 * process that holds memory is a foreign one. */
static enum severity held_by_others(const struct gpu_case *c, char *text, size_t n)
{
    for (int i = 0; i < c->now->nprocesses; i++) {
        const struct gpu_process *p = &c->now->processes[i];
        if (!p->alive || (double)p->bytes < gib)
            continue;
        (void)snprintf(text, n,
                       "has %.1f GiB of memory held by process %u, which is not a worker of this "
                       "job",
                       (double)p->bytes / gib, p->pid);
        return WARNS;
    }
    return FINE;
}

/* Warn of memory that no known process holds. Compare with the start of the job: where the
 * processor shares the memory of the GPU, part of the memory is always in use. */
static enum severity held_by_nobody(const struct gpu_case *c, char *text, size_t n)
{
    const uint64_t start = c->before != NULL ? c->before->memory_used : c->now->memory_used;
    if (c->now->nprocesses > 0 || c->now->memory_used <= start ||
        (double)(c->now->memory_used - start) < gib)
        return FINE;
    (void)snprintf(text, n,
                   "has %.1f of %.1f GiB of memory in use, %.1f GiB more than when the job started",
                   (double)c->now->memory_used / gib, (double)c->now->memory_total / gib,
                   (double)(c->now->memory_used - start) / gib);
    return WARNS;
}

/* ---- NVLink ---- */

int gpu_active_links(const struct gpu_facts *f)
{
    return __builtin_popcountll(f->links_up);
}

static enum severity links_lost(const struct gpu_case *c, char *text, size_t n)
{
    const uint64_t gone = c->before == NULL ? 0 : c->before->links_up & ~c->now->links_up;
    if (!(c->now->known & GPU_KNOWS_LINKS) || gone == 0)
        return FINE;
    (void)snprintf(text, n, "has lost NVLink %d, which was active when the job started; " RESET,
                   __builtin_ctzll(gone));
    return FAILS;
}

static enum severity links_down(const struct gpu_case *c, char *text, size_t n)
{
    const int active = gpu_active_links(c->now);
    if (active >= c->most_links)
        return FINE;
    (void)snprintf(text, n, "has %d active NVLink%s, but another GPU of the node has %d; " FABRIC,
                   active, active == 1 ? "" : "s", c->most_links);
    return WARNS;
}

static enum severity link_errors(const struct gpu_case *c, char *text, size_t n)
{
    if (c->before == NULL || c->now->link_errors <= c->before->link_errors)
        return FINE;
    const unsigned long long more = c->now->link_errors - c->before->link_errors;
    (void)snprintf(text, n, "has had %llu error%s on its NVLinks since the last check; " FABRIC,
                   more, more == 1 ? "" : "s");
    return WARNS;
}

/* ---- clocks ---- */

/* HW_SLOWDOWN is set together with the specific reasons, so it is tested last. Src:
 * nvmlDeviceGetCurrentClocksEventReasons. */
static enum severity throttle(const struct gpu_case *c, char *text, size_t n)
{
    static const struct {
        uint64_t bit;
        const char *what;
    } reasons[] = {
        {NVML_CLOCKS_HW_THERMAL, "it is too hot; check the cooling of the node"},
        {NVML_CLOCKS_POWER_BRAKE,
         "an external power brake acts on it; check the power supply of the node"},
        {NVML_CLOCKS_SW_THERMAL, "it is too hot; check the cooling of the node"},
        {NVML_CLOCKS_HW_SLOWDOWN, "its hardware has slowed it down"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (!(c->now->throttle & reasons[i].bit))
            continue;
        (void)snprintf(text, n, "runs at reduced clocks because %s", reasons[i].what);
        return WARNS;
    }
    return FINE;
}

/* ---- XIDs ---- */

enum xid_kind { BY_PROGRAM, BY_CLEANUP, CORRECTED, HARDWARE, LOST_HARDWARE };

/* Src: docs.nvidia.com/deploy/xid-errors. */
static const struct xid_row {
    uint64_t xid;
    enum xid_kind kind;
    const char *what;
} xids[] = {
    {13, BY_PROGRAM, "an exception in a program"},
    {31, BY_PROGRAM, "an invalid memory access by a program"},
    {43, BY_PROGRAM, "a program was stopped after an error"},
    {45, BY_CLEANUP, "the end of a program"},
    {48, HARDWARE, "an uncorrectable memory error"},
    {62, HARDWARE, "a halt of its internal controller"},
    {63, CORRECTED, "a faulty memory row was remapped"},
    {64, HARDWARE, "a memory row that could not be remapped"},
    {74, HARDWARE, "an NVLink error"},
    {79, LOST_HARDWARE, "it has fallen off the bus"},
    {94, CORRECTED, "a memory error that ended one program"},
    {95, HARDWARE, "an uncontained memory error"},
    {119, HARDWARE, "its GSP firmware processor does not respond"},
    {120, HARDWARE, "an error of its GSP firmware processor"},
    {140, HARDWARE, "an unrecovered memory error"},
};

static const struct xid_row *xid_row(uint64_t number)
{
    for (size_t i = 0; i < sizeof(xids) / sizeof(xids[0]); i++)
        if (xids[i].xid == number)
            return &xids[i];
    return NULL;
}

bool gpu_xid_is_hardware(uint64_t number)
{
    const struct xid_row *row = xid_row(number);
    return row != NULL && row->kind >= HARDWARE;
}

static enum severity xid(const struct gpu_case *c, char *text, size_t n)
{
    const uint64_t number = c->xid != NULL ? c->xid->xid : 0;
    const struct xid_row *row = xid_row(number);
    if (number == 0 || (row != NULL && row->kind == BY_CLEANUP))
        return FINE;
    const bool fails = row != NULL &&
                       (row->kind == LOST_HARDWARE || (row->kind == HARDWARE && !is_cleared(c)));
    (void)snprintf(text, n, "has reported XID %llu (%s) since the start of the job%s",
                   (unsigned long long)number, row != NULL ? row->what : "see the kernel log",
                   fails ? "; " RESET : "");
    return fails ? FAILS : WARNS;
}

/* ---- the table: all warnings and the first fault are reported ---- */

static rule_f *const rules[] = {lost,
                                recovery,
                                rows_failed,
                                ecc,
                                xid,
                                links_lost,
                                held_by_the_dead,
                                held_by_others,
                                held_by_nobody,
                                rows_pending,
                                pages_pending,
                                ecc_corrected,
                                links_down,
                                link_errors,
                                throttle};

bool gpu_faults_judge(const struct gpu_case *c, struct health_page *page,
                      char why[GPU_SENTENCE + 1])
{
    bool failed = false;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        char what[300];
        const enum severity s = rules[i](c, what, sizeof(what));
        if (s == FAILS && !failed)
            (void)snprintf(why, GPU_SENTENCE + 1, "GPU %u (%s) %s", c->now->index, c->now->bus,
                           what);
        else if (s == WARNS)
            health_page_warn(page, "GPU %u (%s) %s", c->now->index, c->now->bus, what);
        failed = failed || s == FAILS;
        if (c->now->lost != 0)
            return failed; /* nothing else is known */
    }
    return failed;
}

bool gpu_faults_frees_memory(const struct gpu_facts *f)
{
    for (int i = 0; i < f->nprocesses; i++)
        if (!f->processes[i].alive)
            return true;
    return false;
}

bool gpu_is_visible(const char *visible, const struct gpu_facts *f)
{
    if (visible == NULL || strstr(visible, "MIG") != NULL)
        return true;
    for (const char *p = visible; *p != '\0'; p += *p == ',') {
        const size_t n = strcspn(p, ",");
        const bool number = n > 0 && strspn(p, "0123456789") == n;
        if (number ? strtoul(p, NULL, 10) == f->index
                   : n > 4 && strncmp(p, f->uuid, n) == 0) /* a prefix is enough */
            return true;
        p += n;
    }
    return false;
}

void gpu_faults_note(struct health_gpu *to, const struct gpu_facts *f)
{
    const struct health_gpu first = *to;
    *to = (struct health_gpu){.seen = true,
                              .links_up = first.seen ? first.links_up : f->links_up,
                              .memory_used = first.seen ? first.memory_used : f->memory_used,
                              .link_errors = f->link_errors,
                              .ecc_corrected = f->ecc_corrected};
    (void)snprintf(to->bus, sizeof(to->bus), "%s", f->bus);
}
