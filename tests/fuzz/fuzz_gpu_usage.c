/* node: any text, its first line as CUDA_VISIBLE_DEVICES, and the rest as the output of the child
 * that asks NVML. What is read can be written, and reads as the same. */
#include "base/auto.h"
#include "base/buf.h"
#include "node/gpu_usage.h"
#include "tests/fuzz/input_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void must_read_again(const struct gpu_usage *u)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 12);
    struct gpu_usage again[GPU_USAGE_MAX];
    must(gpu_usage_write(u, &text) == 0);
    must(gpu_usage_read(dd_buf_str(&text), again) == 1);
    must(again[0].index == u->index && again[0].percent == u->percent);
    must(again[0].memory_used == u->memory_used && again[0].clock_mhz == u->clock_mhz);
    must(strcmp(again[0].uuid, u->uuid) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = input_text(data, size);
    struct gpu_usage v[GPU_USAGE_MAX];
    const struct gpu_usage *used[GPU_USAGE_MAX];
    if (text == NULL)
        return 0;
    char *rest = text + strcspn(text, "\n");
    const int n = gpu_usage_read(rest, v);
    must(n >= 0 && n <= GPU_USAGE_MAX);
    for (int i = 0; i < n; i++)
        must_read_again(&v[i]);
    *rest = '\0';
    for (int shared = 0; shared < 2; shared++) {
        const int found = gpu_usage_of_worker(v, n, text, shared, 7, used);
        must(found >= 0 && found <= (shared ? 1 : GPU_USAGE_MAX));
        for (int i = 0; i < found; i++)
            must(used[i] >= v && used[i] < v + n);
    }
    return 0;
}
