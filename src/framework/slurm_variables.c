/* Slurm's own variables, corrected for each worker. For Slurm the agent is the only task of the
 * node, so its children would all read the node index as rank. Programs that read SLURM_PROCID
 * (JAX, TensorFlow's resolver, submitit, idr_torch) need the values that srun would set with one
 * task per worker. Src: submitit 1.5.4, idr_torch 2.4.0, TensorFlow's resolver of 2.5. */
#include "framework/rows.h"

#include "base/buf.h"

#include <errno.h>

static int gtids(struct dd_strv *env, const struct plan *p)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    int rc = 0;
    for (int i = 0; i < p->local_size && rc == 0; i++)
        rc = dd_buf_printf(&out, "%s%d", i > 0 ? "," : "", p->first_rank + i);
    const char *text = rc == 0 ? dd_buf_str(&out) : NULL;
    return text == NULL ? -ENOMEM : dd_env_set(env, "SLURM_GTIDS", text);
}

static int tasks_per_node(struct dd_strv *env, const struct plan *p)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    int rc = plan_sizes_format(&out, p->sizes, p->nnodes);
    const char *text = rc == 0 ? dd_buf_str(&out) : NULL;
    if (text == NULL)
        return -ENOMEM;
    rc = dd_env_set(env, "SLURM_TASKS_PER_NODE", text);
    return rc < 0 ? rc : dd_env_set(env, "SLURM_STEP_TASKS_PER_NODE", text);
}

static int rewrite(struct dd_strv *env, const struct framework_input *in)
{
    const struct plan *p = in->plan;
    const struct framework_number rows[] = {
        {"SLURM_PROCID", p->first_rank + in->local_rank},
        {"SLURM_LOCALID", in->local_rank},
        {"SLURM_NODEID", p->node_rank},
        {"SLURM_NTASKS", p->world_size},
        {"SLURM_NPROCS", p->world_size},
        {"SLURM_STEP_NUM_TASKS", p->world_size},
        {"SLURM_NTASKS_PER_NODE", p->local_size},
        {"SLURM_NNODES", p->nnodes},
        {"SLURM_STEP_NUM_NODES", p->nnodes},
    };
    int rc = framework_numbers(env, rows, sizeof(rows) / sizeof(rows[0]));
    dd_env_unset(env, "SLURM_TASK_PID");
    if (rc == 0) /* a batch script without srun has no step */
        rc = framework_default(env, "SLURM_STEP_NODELIST", p->nodes);
    if (rc == 0)
        rc = gtids(env, p);
    return rc < 0 ? rc : tasks_per_node(env, p);
}

int framework_slurm(struct dd_strv *env, const struct framework_input *in, struct dd_err *err)
{
    (void)err;
    if (in->by_hand || in->slurm_env == SLURM_ENV_KEEP ||
        dd_env_get(env->v, "SLURM_JOB_ID") == NULL)
        return 0;
    if (in->slurm_env == SLURM_ENV_STRIP) {
        dd_env_unset_prefix(env, "SLURM_");
        return 0;
    }
    return rewrite(env, in);
}
