/* PyTorch: the environment that torchrun sets for its workers (Src: torch 2.13.0). ddrund serves
 * the store of the round, so every rank is a client. */
#include "framework/rows.h"

#include "base/auto.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int ranks(struct dd_strv *env, const struct framework_input *in)
{
    const struct plan *p = in->plan;
    const struct framework_number rows[] = {
        {"RANK", p->first_rank + in->local_rank},
        {"LOCAL_RANK", in->virtual_local_rank ? 0 : in->local_rank},
        {"WORLD_SIZE", p->world_size},
        {"LOCAL_WORLD_SIZE", p->local_size},
        {"GROUP_RANK", p->node_rank},
        {"GROUP_WORLD_SIZE", p->nnodes},
        {"MASTER_PORT", p->master_port},
        {"ROLE_RANK",
         p->first_rank + in->local_rank}, /* only torchrun sets the variables from here on */
        {"ROLE_WORLD_SIZE", p->world_size},
        {"TORCHELASTIC_RESTART_COUNT", p->restart_count},
        {"TORCHELASTIC_MAX_RESTARTS", p->max_restarts},
    };
    const size_t n = sizeof(rows) / sizeof(rows[0]);
    int rc = dd_env_set(env, "MASTER_ADDR",
                        in->store_addr != NULL ? in->store_addr : p->master_addr);
    if (rc == 0)
        rc = framework_numbers(env, rows, in->by_hand ? n - 4 : n);
    return rc == 0 && in->store_port != NULL ? dd_env_set(env, "MASTER_PORT", in->store_port) : rc;
}

/* Set OMP_NUM_THREADS as torchrun does: the user's value, or 1 if several workers share the node.
 * PBS always sets this variable to the CPUs of the whole chunk: divide that number among the
 * workers of the node. Src: OpenPBS 23.06, measured. */
static int threads(struct dd_strv *env, int nlocal)
{
    const char *omp = dd_env_get_nonempty(env->v, "OMP_NUM_THREADS");
    const char *ncpus = dd_env_get(env->v, "NCPUS");
    uint64_t n;
    if (nlocal <= 1)
        return 0;
    if (omp == NULL)
        return dd_env_set(env, "OMP_NUM_THREADS", "1");
    if (dd_env_get(env->v, "PBS_JOBID") == NULL || ncpus == NULL || strcmp(omp, ncpus) != 0 ||
        dd_num_u64(omp, 0, 1 << 20, &n) < 0)
        return 0;
    n /= (uint64_t)nlocal;
    return dd_env_setf(env, "OMP_NUM_THREADS", "%d", n > 0 ? (int)n : 1);
}

static int interfaces(struct dd_strv *env, const struct framework_input *in)
{
    int rc = 0;
    if (in->iface != NULL)
        rc = framework_default(env, "GLOO_SOCKET_IFNAME", in->iface);
    if (rc == 0 && in->iface != NULL)
        rc = framework_default(env, "TP_SOCKET_IFNAME", in->iface);
    if (rc == 0 && in->nccl_iface != NULL && dd_env_get(env->v, "NCCL_SOCKET_IFNAME") == NULL)
        rc = dd_env_setf(env, "NCCL_SOCKET_IFNAME", "=%s", in->nccl_iface);
    if (rc == 0 && in->nccl_host != NULL && dd_env_get(env->v, "NCCL_HOSTID") == NULL)
        rc = dd_env_set(env, "NCCL_HOSTID", in->nccl_host);
    return rc;
}

int framework_one_gpu(struct dd_strv *env, int n)
{
    const char *p = dd_env_get(env->v, "CUDA_VISIBLE_DEVICES");
    if (p == NULL)
        return dd_env_setf(env, "CUDA_VISIBLE_DEVICES", "%d", n);
    for (int i = 0; i < n && *p != '\0'; i++)
        p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',');
    DD_AUTO(free) char *mine = strndup(p, strcspn(p, ","));
    return mine == NULL ? -ENOMEM : dd_env_set(env, "CUDA_VISIBLE_DEVICES", mine);
}

static const char default_signals[] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

/* Set the variables by which a worker recognizes that an agent serves the store and restarts
 * workers. */
static int elastic(struct dd_strv *env, const struct framework_input *in)
{
    if (in->by_hand) { /* rank 0 must serve the store itself */
        dd_env_unset_prefix(env, "TORCHELASTIC_");
        return 0;
    }
    int rc = dd_env_set(env, "ROLE_NAME", in->role);
    if (rc == 0)
        rc = dd_env_set(env, "TORCHELASTIC_RUN_ID", in->run_id);
    if (rc == 0)
        rc = dd_env_set(env, "TORCHELASTIC_USE_AGENT_STORE", "True");
    if (rc == 0)
        rc = dd_env_set(env, "TORCHELASTIC_ERROR_FILE", in->error_file);
    return rc < 0 ? rc
                  : dd_env_set(env, "TORCHELASTIC_SIGNALS_TO_HANDLE",
                               in->signals_to_handle != NULL ? in->signals_to_handle
                                                             : default_signals);
}

int framework_torch(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    (void)err;
    int rc = ranks(env, in);
    if (rc == 0)
        rc = elastic(env, in);
    if (rc == 0 && in->virtual_local_rank)
        rc = framework_one_gpu(env, in->local_rank);
    if (rc == 0)
        rc = framework_default(env, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (rc == 0)
        rc = threads(env, in->plan->local_size);
    return rc < 0 ? rc : interfaces(env, in);
}
