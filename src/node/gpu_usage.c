#include "node/gpu_usage.h"

#include "node/gpu_facts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int gpu_usage_write(const struct gpu_usage *u, struct dd_buf *out)
{
    return dd_buf_printf(out,
                         "gpu %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s\n",
                         u->index, u->percent, u->memory_used, u->memory_total, u->clock_mhz,
                         u->clock_max_mhz, u->uuid[0] != '\0' ? u->uuid : "-");
}

/* Read a number and the blank behind it. */
static bool usage_read_number(const char **text, int64_t *ret)
{
    char *end;
    if (**text != '-' && (**text < '0' || **text > '9'))
        return false;
    errno = 0;
    *ret = strtoll(*text, &end, 10);
    if (errno != 0 || *end != ' ')
        return false;
    *text = end + 1;
    return true;
}

static bool usage_read_line(const char *line, struct gpu_usage *u)
{
    int64_t v[6] = {0};
    if (strncmp(line, "gpu ", 4) != 0)
        return false;
    line += 4;
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (!usage_read_number(&line, &v[i]))
            return false;
    const size_t n = strcspn(line, "\n");
    if (v[0] < 0 || v[0] > INT32_MAX || v[1] > 100 || n == 0 || n >= sizeof(u->uuid))
        return false;
    *u = (struct gpu_usage){.index = (int)v[0],
                            .percent = v[1],
                            .memory_used = v[2],
                            .memory_total = v[3],
                            .clock_mhz = v[4],
                            .clock_max_mhz = v[5]};
    if (*line != '-')
        memcpy(u->uuid, line, n);
    return true;
}

int gpu_usage_read(const char *text, struct gpu_usage ret[GPU_USAGE_MAX])
{
    int n = 0;
    while (*text != '\0' && n < GPU_USAGE_MAX) {
        n += usage_read_line(text, &ret[n]);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return n;
}

/* Return the GPU that an entry of CUDA_VISIBLE_DEVICES names, or NULL. */
static const struct gpu_usage *usage_named(const struct gpu_usage *v, int n, const char *name,
                                           size_t len)
{
    const bool number = len > 0 && strspn(name, "0123456789") == len;
    for (int i = 0; i < n; i++)
        if (number ? strtoul(name, NULL, 10) == (unsigned long)v[i].index
                   : len > 4 && strncmp(name, v[i].uuid, len) == 0) /* a prefix is enough */
            return &v[i];
    return NULL;
}

/* Find the GPUs that the list selects; it ends at the first invalid entry. Src: CUDA C++
 * Programming Guide. */
static int usage_visible(const struct gpu_usage *v, int n, const char *visible,
                         const struct gpu_usage *ret[GPU_USAGE_MAX])
{
    int found = 0;
    if (visible == NULL)
        for (; found < n; found++)
            ret[found] = &v[found];
    while (visible != NULL && *visible != '\0' && found < GPU_USAGE_MAX) {
        visible += strspn(visible, " ");
        ret[found] = usage_named(v, n, visible, strcspn(visible, ", "));
        if (ret[found] == NULL)
            break;
        found++;
        visible += strcspn(visible, ",");
        visible += *visible == ',';
    }
    return found;
}

int gpu_usage_of_worker(const struct gpu_usage *v, int n, const char *visible, bool shared,
                        int local_rank, const struct gpu_usage *ret[GPU_USAGE_MAX])
{
    const int found = usage_visible(v, n, visible, ret);
    if (!shared || found == 0)
        return found;
    ret[0] = ret[local_rank % found];
    return 1;
}

enum { WORK_PERCENT = 50 };

static bool usage_has_work(const struct gpu_usage *u)
{
    return u->percent >= WORK_PERCENT && u->clock_mhz > 0 && u->clock_max_mhz > 0 &&
           !(u->throttle & NVML_CLOCKS_IDLE);
}

const struct gpu_usage *gpu_usage_slowest(const struct gpu_usage *const *v, int n)
{
    const struct gpu_usage *slowest = NULL;
    for (int i = 0; i < n; i++)
        if (usage_has_work(v[i]) &&
            (slowest == NULL || (double)v[i]->clock_mhz / (double)v[i]->clock_max_mhz <
                                    (double)slowest->clock_mhz / (double)slowest->clock_max_mhz))
            slowest = v[i];
    return slowest;
}
