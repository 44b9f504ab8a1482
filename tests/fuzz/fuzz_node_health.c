/* node: any text as the list of --health, and as CUDA_VISIBLE_DEVICES. */
#include "base/auto.h"
#include "node/gpu_faults.h"
#include "node/health.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    const struct gpu_facts gpu = {.index = 1, .uuid = "GPU-0000000a-aaaa"};
    struct node_health_list l;
    struct dd_err err = {.text = ""};
    if (text == NULL)
        return 0;
    const int rc = node_health_parse(&l, text, &err);
    must(rc == 0 || (rc == -EINVAL && err.text[0] != '\0'));
    must(l.n >= 0 && l.n <= NODE_HEALTH_TARGETS);
    for (int i = 0; i < l.n && rc == 0; i++) {
        const struct node_health_target *t = &l.targets[i];
        must(memchr(t->path, '\0', sizeof(t->path)) != NULL);
        must(t->path[0] == '/' || (t->path[0] == '\0' && t->bytes > 0));
    }
    must(gpu_is_visible(NULL, &gpu));
    (void)gpu_is_visible(text, &gpu);
    return 0;
}
