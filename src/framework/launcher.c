/* Ourselves: what a worker may know about ddrun, and what must not reach it: the job's key, and the
 * claims of an outer launcher about one process, which all workers of a node would share. */
#include "framework/rows.h"

#include <errno.h>

int framework_default(struct dd_strv *env, const char *name, const char *value)
{
    return dd_env_get(env->v, name) != NULL ? 0 : dd_env_set(env, name, value);
}

/* Src: facts on frameworks, section 0 and 9: one task's PMI rank would be claimed by all children. */
static const char *const outer_launcher[] = {"PMI_", "PMIX_", "SLURM_PMI", "SLURM_MPI_TYPE"};

static int launcher_env(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    (void)err;
    dd_env_unset(env, "DDRUN_KEY");
    for (size_t i = 0; i < sizeof(outer_launcher) / sizeof(outer_launcher[0]); i++)
        dd_env_unset_prefix(env, outer_launcher[i]);
    int rc = dd_env_setf(env, "DDRUN_ROUND", "%d", in->plan->round);
    return rc < 0 ? rc : dd_env_setf(env, "DDRUN_NODES", "%s", in->plan->nodes);
}

const struct framework_ops framework_launcher = {
    .name = "ddrun",
    .doc = "DDRUN_ROUND and DDRUN_NODES; the job's key and an outer launcher's PMI_* and PMIX_* are taken away",
    .env = launcher_env,
};
