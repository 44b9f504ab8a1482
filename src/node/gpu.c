#include "node/gpu.h"

#include "base/auto.h"
#include "base/num.h"
#include "base/strv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int node_gpus_count(struct node_gpus *ret, char *const *env, const char *root, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv ids = {0};
    const char *cuda = dd_env_get(env, "CUDA_VISIBLE_DEVICES");
    (void)root;
    *ret = (struct node_gpus){.vendor = ""};
    if (cuda == NULL || strcmp(cuda, "-1") == 0)
        return 0;
    if (dd_strv_split(&ids, cuda, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    ret->count = (int)ids.n;
    (void)snprintf(ret->source, sizeof(ret->source), "CUDA_VISIBLE_DEVICES=%.60s", cuda);
    return 0;
}

int node_nproc(const char *spec, const struct node_gpus *gpus, int ncpus, struct dd_err *err)
{
    int n;
    if (strcmp(spec, "gpu") == 0 && gpus->count == 0)
        return dd_err_set(err, -EINVAL, "'gpu', but this node has no GPU; write a number");
    if (strcmp(spec, "gpu") == 0 || (strcmp(spec, "auto") == 0 && gpus->count > 0))
        return gpus->count;
    if (strcmp(spec, "cpu") == 0 || strcmp(spec, "auto") == 0)
        return ncpus;
    if (dd_num_int(spec, 1, 4096, &n) == 0)
        return n;
    return dd_err_set(err, -EINVAL, "'%s' is not auto, gpu, cpu or a number from 1 to 4096", spec);
}
