/* DeepSpeed: two variables beyond torch's. Do not set LOCAL_SIZE: with it, the CPU backend leaves
 * 66 MB per rank in /dev/shm after every run. Src: DeepSpeed 0.19.8, measured. */
#include "framework/rows.h"

int framework_deepspeed(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    (void)err;
    int rc = dd_env_setf(env, "CROSS_RANK", "%d", in->plan->node_rank);
    return rc < 0 ? rc : dd_env_setf(env, "CROSS_SIZE", "%d", in->plan->nnodes);
}
