#include "framework/framework.h"

#include "framework/rows.h"

#include <errno.h>
#include <string.h>

/* Applied in this order: each row sees the variables of the previous ones. */
static framework_env_f *const contracts[] = {
    framework_own_variables, /* DDRUN_ROUND, DDRUN_NODES; removes secrets and PMI_* of an outer
                                launcher */
    framework_torch,         /* RANK, WORLD_SIZE, MASTER_ADDR, … */
    framework_deepspeed,     /* CROSS_RANK, CROSS_SIZE */
    framework_horovod,       /* HOROVOD_RANK, …, the address of the rendezvous server */
    framework_slurm,         /* SLURM_PROCID, …, as if srun had started one task per worker */
    framework_tensorflow,    /* --tf: TF_CONFIG, TF_GRPC_REUSE_PORT, one GPU per worker */
    framework_mpi,           /* --mpi: PMI_RANK, OMPI_COMM_WORLD_RANK, … */
    framework_jax,    /* JAX_COORDINATOR_ADDRESS, JAX_LOCAL_DEVICE_IDS, five variables of Slurm */
    framework_oneccl, /* CCL_PROCESS_LAUNCHER */
    framework_paddle, /* --framework=paddle: PADDLE_MASTER, PADDLE_TRAINER_ID, … */
    framework_mindspore, /* --framework=mindspore: MS_ROLE, MS_WORKER_NUM, … */
};

int framework_env(struct dd_strv *out, char *const *agent_env, const struct framework_input *in,
                  struct dd_err *err)
{
    struct framework_input found = *in;
    found.nested = dd_env_get(agent_env, "DDRUN_ROUND") != NULL;
    int rc = dd_strv_copy(out, agent_env);
    for (size_t i = 0; i < sizeof(contracts) / sizeof(contracts[0]) && rc == 0; i++)
        rc = contracts[i](out, &found, err);
    return rc == -ENOMEM ? dd_err_set(err, rc, "out of memory for a worker's environment") : rc;
}

static const struct {
    const char *name;
    int bit; /* bit of FRAMEWORK_*; 0: always on, needs no request */
} names[] = {
    {"torch", 0},
    {"deepspeed", 0},
    {"horovod", 0},
    {"oneccl", 0},
    {"jax", FRAMEWORK_JAX},
    {"tensorflow", FRAMEWORK_TF},
    {"paddle", FRAMEWORK_PADDLE},
    {"mindspore", FRAMEWORK_MINDSPORE},
};

int framework_parse(const char *text, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv list = {0};
    int bits = 0;
    if (dd_strv_split(&list, text, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < list.n; i++) {
        const size_t n = sizeof(names) / sizeof(names[0]);
        size_t k = 0;
        while (k < n && strcmp(list.v[i], names[k].name) != 0)
            k++;
        if (k == n)
            return dd_err_set(
                err, -EINVAL,
                "unknown framework '%s': expected jax, tensorflow, paddle or mindspore (PyTorch, "
                "DeepSpeed, Horovod and oneCCL need no option)",
                list.v[i]);
        bits |= names[k].bit;
    }
    return bits;
}

bool framework_wants_ports(int frameworks)
{
    return (frameworks & (FRAMEWORK_TF | FRAMEWORK_PADDLE)) != 0;
}

bool framework_reuses_port(int frameworks)
{
    return (frameworks & (FRAMEWORK_PADDLE | FRAMEWORK_MINDSPORE)) == 0;
}

int framework_check_size(int frameworks, long workers, struct dd_err *err)
{
    static const struct {
        int bit;
        const char *variable, *shortest; /* shortest text per worker; ports have five digits */
    } rows[] = {
        {FRAMEWORK_TF, "TF_CONFIG", "\"1.1.1.1:32768\", "},
        {FRAMEWORK_PADDLE, "PADDLE_TRAINER_ENDPOINTS", "1.1.1.1:32768,"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const long most = FRAMEWORK_STRING_MAX / (long)strlen(rows[i].shortest);
        if ((frameworks & rows[i].bit) != 0 && workers > most)
            return dd_err_set(
                err, -E2BIG,
                "%s can hold the addresses of at most %ld workers (Linux limits a variable to %d "
                "bytes), but the job has %ld"
                "\n  tip: start fewer workers, for example --nproc-per-node=1",
                rows[i].variable, most, FRAMEWORK_STRING_MAX, workers);
    }
    return 0;
}

const char *framework_wrap(int frameworks)
{
    return (frameworks & FRAMEWORK_MINDSPORE) != 0 ? framework_mindspore_wrap : NULL;
}
