/* alloc: any bytes as Torque's list of GPUs. An accepted one is a list of numbers for each node. */
#include "alloc/alloc_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    DD_AUTO(strv) struct dd_strv gpus = {0};
    struct dd_err err = {.text = ""};
    if (hostlist_parse(&nodes, "node[1-2].site,node-gpu1", NULL) < 0)
        return 0;
    int rc = alloc_gpufile_parse(&gpus, nodes, "f", (const char *)data, size, &err);
    if (rc < 0 ? rc != -EINVAL || strncmp(err.text, "f:", 2) != 0 || gpus.n > 0
               : gpus.n != 0 && gpus.n != 3)
        abort();
    for (size_t i = 0; i < gpus.n; i++)
        if (gpus.v[i][strspn(gpus.v[i], "0123456789,")] != '\0')
            abort();
    return 0;
}
