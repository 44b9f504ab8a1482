/* ddrun's own variables for workers. Removes what workers must not get: the job's key, and the
 * variables with which an outer launcher describes one process, since all workers of a node would
 * share them. */
#include "framework/rows.h"

#include <errno.h>
#include <string.h>

int framework_default(struct dd_strv *env, const char *name, const char *value)
{
    return dd_env_get(env->v, name) != NULL ? 0 : dd_env_set(env, name, value);
}

int framework_numbers(struct dd_strv *env, const struct framework_number *v, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = dd_env_setf(env, v[i].name, "%d", v[i].value);
    return rc;
}

/* Prefixes of the variables of an outer launcher, with which all workers would claim the rank of
 * one task. Settings of users for the libraries remain: PMIX_MCA_*, PMIX_DEBUG, all other
 * OMPI_MCA_*. Src: Open MPI 4.1.4 and Hydra 4.0.2 measured. */
static const char *const outer_launcher[] = {
    "PMI_",
    "PMI2_",
    "PMIX_",
    "SLURM_PMI",
    "SLURM_MPI_TYPE",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_SIZE=",
    "OMPI_NUM_APP_CTX=",
    "OMPI_APP_CTX_NUM_PROCS=",
    "OMPI_FIRST_RANKS=",
    "OMPI_COMMAND=",
    "OMPI_ARGV=",
    "OMPI_FILE_LOCATION=",
    "OMPI_MCA_ess=",
    "OMPI_MCA_ess_base_",
    "OMPI_MCA_orte_",
    "OMPI_MCA_pmix=",
    "OMPI_MCA_schizo=",
    "OMPI_MCA_initial_wdir=",
    "MV2_COMM_WORLD_",
    "MPI_LOCALRANKID=",
    "MPI_LOCALNRANKS=",
    "HYDI_",
};

static const char *const for_libraries[] = {"PMIX_MCA_", "PMIX_DEBUG"};

int framework_strip_launcher(struct dd_strv *env)
{
    DD_AUTO(strv) struct dd_strv kept = {0};
    int rc = 0;
    for (size_t i = 0; i < env->n && rc == 0; i++)
        for (size_t k = 0; k < sizeof(for_libraries) / sizeof(for_libraries[0]) && rc == 0; k++)
            if (strncmp(env->v[i], for_libraries[k], strlen(for_libraries[k])) == 0)
                rc = dd_strv_push(&kept, env->v[i]);
    for (size_t i = 0; i < sizeof(outer_launcher) / sizeof(outer_launcher[0]); i++)
        dd_env_unset_prefix(env, outer_launcher[i]);
    return rc == 0 && kept.n > 0 ? dd_strv_copy(env, kept.v) : rc;
}

int framework_own_variables(struct dd_strv *env, const struct framework_input *in,
                            struct dd_err *err)
{
    (void)err;
    if (in->by_hand)
        return 0;
    static const char *const secrets[] = {"DDRUN_KEY", "DDRUN_PORT_SEED", "DDRUN_ETCD_PASSWORD",
                                          "DDRUN_NOTIFY", "DDRUN_NOTIFY_TOKEN"};
    static const char *const endpoints[] = {"DDRUN_RDZV_ENDPOINT", "PET_RDZV_ENDPOINT"};
    for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++)
        dd_env_unset(env, secrets[i]);
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
        const char *url = dd_env_get_nonempty(env->v, endpoints[i]);
        if (url != NULL &&
            strchr(url, '@') != NULL) /* the URL contains a user name, and perhaps a password */
            dd_env_unset(env, endpoints[i]);
    }
    int rc = framework_strip_launcher(env);
    if (rc == 0)
        rc = dd_env_setf(env, "DDRUN_ROUND", "%d", in->plan->round);
    return rc < 0 ? rc : dd_env_setf(env, "DDRUN_NODES", "%s", in->plan->nodes);
}
