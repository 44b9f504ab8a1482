#include "agent/spec.h"

#include "agent/agent.h"
#include "worker/program.h"
#include "worker/rules.h"

#include <errno.h>

int spec_make(struct dd_strv *argv, struct dd_strv *env, const struct spec_input *s,
              struct dd_err *err)
{
    const struct agent_cfg *cfg = s->cfg;
    const int rank = s->plan->first_rank + s->local_rank;
    const struct framework_input in = {
        .plan = s->plan,
        .local_rank = s->local_rank,
        .run_id = cfg->alloc->run_id,
        .role = cfg->worker.role,
        .node_name = cfg->node_name,
        .horovod_port = s->horovod_port,
        .store_addr = s->store_addr,
        .store_port = s->store_port,
        .elastic = cfg->worker.horovod_elastic,
        .iface = s->iface,
        .nccl_iface = s->nccl_iface,
        .nccl_host = cfg->source_addr,
        .error_file = s->error_file,
        .signals_to_handle = cfg->worker.signals_to_handle,
        .virtual_local_rank = cfg->worker.virtual_local_rank,
        .gpus = cfg->health.gpus,
        .one_gpu = cfg->worker.virtual_local_rank ||
                   ((cfg->frameworks & FRAMEWORK_TF) != 0 && s->plan->local_size > 1),
        .frameworks = cfg->frameworks,
        .tf_roles = cfg->tf_roles,
        .mpi = cfg->mpi.protocols != 0,
        .slurm_env = cfg->worker.slurm_env,
    };
    int rc = framework_env(env, cfg->env, &in, err);
    if (rc < 0)
        return rc;
    DD_AUTO(strv) struct dd_strv wrap = {0};
    const char *own_wrap = framework_wrap(cfg->frameworks);
    if (own_wrap != NULL && dd_strv_push(&wrap, own_wrap) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (s->unbuffered && dd_env_get(env->v, "PYTHONUNBUFFERED") == NULL &&
        dd_env_set(env, "PYTHONUNBUFFERED", "1") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if ((cfg->directory != NULL && dd_env_set(env, "PWD", cfg->directory) < 0) ||
        rules_env(env, cfg->worker.env_rules, rank) < 0 ||
        rules_preload(env, cfg->worker.preload_rules, rank) < 0 ||
        program_for_rank(argv, cfg->worker.program->v, s->local_rank) < 0 ||
        rules_wrap(argv, wrap.v, rank) < 0 || rules_wrap(argv, cfg->worker.wrap_rules, rank) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return 0;
}
