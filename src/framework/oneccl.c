/* oneCCL expects an MPI launcher by default: let it take rank and size on the node from PyTorch's
 * variables. Src: oneCCL's source of March 2025. */
#include "framework/rows.h"

int framework_oneccl(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    (void)err;
    if (dd_env_get(env->v, "CCL_PROCESS_LAUNCHER") != NULL)
        return 0;
    if (!in->virtual_local_rank)
        return dd_env_set(env, "CCL_PROCESS_LAUNCHER", "torchrun");
    int rc = dd_env_set(env, "CCL_PROCESS_LAUNCHER", "none"); /* LOCAL_RANK is 0 for all workers */
    if (rc == 0)
        rc = dd_env_setf(env, "CCL_LOCAL_RANK", "%d", in->local_rank);
    return rc < 0 ? rc : dd_env_setf(env, "CCL_LOCAL_SIZE", "%d", in->plan->local_size);
}
