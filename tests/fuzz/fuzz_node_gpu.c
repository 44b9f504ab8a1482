/* node: any text as the environment variables that select GPUs (one "NAME=value" per line), the
 * first line also as the value of --nproc-per-node. */
#include "base/auto.h"
#include "base/strv.h"
#include "node/gpu.h"

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
    DD_AUTO(strv) struct dd_strv env = {0};
    struct node_gpus g;
    struct dd_err err = {.text = ""};
    if (text == NULL || dd_strv_split(&env, text, "\n") < 0)
        return 0;
    must(node_gpus_count(&g, env.v, "/nonexistent", &err) == 0);
    must(g.count >= 0 && g.count <= 4096 && strlen(g.source) < sizeof(g.source));
    must(strcmp(g.vendor, "") == 0);
    text[strcspn(text, "\n")] = '\0';
    int n = node_nproc(text, &g, 2, &err);
    must((n >= 1 && n <= 4096) || (n == -EINVAL && err.text[0] != '\0'));
    return 0;
}
