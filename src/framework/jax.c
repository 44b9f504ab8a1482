/* JAX: variables for jax.distributed.initialize() without arguments. JAX has no variables of its
 * own for rank and size; it takes them from five variables of Slurm, all of which must be set. In a
 * Slurm job, slurm_variables.c has set them; elsewhere they are set only on request, since they
 * make other programs call Slurm's commands. Src: JAX 0.10.2, measured. */
#include "framework/rows.h"

#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* True if the user has set the variable, and not another ddrun around this one. */
static bool is_users(const struct dd_strv *env, const struct framework_input *in, const char *name)
{
    return !in->nested && dd_env_get_nonempty(env->v, name) != NULL;
}

/* Set JAX_COORDINATOR_ADDRESS. JAX_COORDINATOR_PORT takes precedence over the port that ddrun
 * holds, as in JAX. */
static int coordinator(struct dd_strv *env, const struct framework_input *in)
{
    const char *ours = in->plan->coordinator;
    const char *port = dd_env_get_nonempty(env->v, "JAX_COORDINATOR_PORT");
    if (is_users(env, in, "JAX_COORDINATOR_ADDRESS"))
        return 0;
    if (ours == NULL) {
        dd_env_unset(env, "JAX_COORDINATOR_ADDRESS");
        return 0;
    }
    return port == NULL ? dd_env_set(env, "JAX_COORDINATOR_ADDRESS", ours)
                        : dd_env_setf(env, "JAX_COORDINATOR_ADDRESS", "%.*s:%s",
                                      (int)(strrchr(ours, ':') - ours), ours, port);
}

/* Set JAX_LOCAL_DEVICE_IDS, positions among the visible GPUs: all positions for the only worker of
 * a node, otherwise one for each worker. */
static int devices(struct dd_strv *env, const struct framework_input *in)
{
    DD_AUTO(buf) struct dd_buf ids = DD_BUF_INIT(1 << 16);
    const int local = in->plan->local_size;
    const bool masked = in->by_hand &&
                        in->gpus == 1; /* the scheduler shows each task its own GPU */
    const int first = in->one_gpu || masked ? 0 : in->local_rank;
    const int n = local == 1 && !in->one_gpu ? in->gpus : 1;
    if (is_users(env, in, "JAX_LOCAL_DEVICE_IDS"))
        return 0;
    dd_env_unset(env, "JAX_LOCAL_DEVICE_IDS");
    if (in->gpus == 0 || (local > in->gpus && !masked))
        return 0;
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = dd_buf_printf(&ids, "%s%d", i > 0 ? "," : "", first + i);
    const char *text = rc == 0 ? dd_buf_str(&ids) : NULL;
    return text == NULL ? -ENOMEM : dd_env_set(env, "JAX_LOCAL_DEVICE_IDS", text);
}

/* JAX requires all five variables, but uses the first two only without JAX_COORDINATOR_ADDRESS, to
 * derive the coordinator's host and port. */
static int as_if_slurm(struct dd_strv *env, const struct framework_input *in)
{
    const struct plan *p = in->plan;
    int rc = framework_default(env, "SLURM_JOB_ID", "1");
    if (rc == 0)
        rc = framework_default(env, "SLURM_STEP_NODELIST", p->nodes);
    if (rc == 0)
        rc = dd_env_setf(env, "SLURM_NTASKS", "%d", p->world_size);
    if (rc == 0)
        rc = dd_env_setf(env, "SLURM_PROCID", "%d", p->first_rank + in->local_rank);
    return rc < 0 ? rc : dd_env_setf(env, "SLURM_LOCALID", "%d", in->local_rank);
}

int framework_jax(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    (void)err;
    if (!in->by_hand)
        dd_env_unset(env, "OMPI_MCA_orte_hnp_uri"); /* set by an mpirun that has started ddrun: all
                                                       workers would take the one rank of ddrun */
    int rc = coordinator(env, in);
    if (rc == 0)
        rc = devices(env, in);
    return rc < 0 || (in->frameworks & FRAMEWORK_JAX) == 0 ? rc : as_if_slurm(env, in);
}
