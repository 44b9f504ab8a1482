/* Frameworks: from the plan to the environment of one worker. Pure.
 *
 * One file per contract, each a row of the table in framework.c, applied in its order. A value
 * that the user has set is kept where the contract leaves a choice (network interfaces, threads);
 * ranks, sizes and addresses are always the plan's.
 */
#ifndef DD_FRAMEWORK_FRAMEWORK_H
#define DD_FRAMEWORK_FRAMEWORK_H

#include "base/err.h"
#include "base/strv.h"
#include "rdzv/plan.h"

#include <stdbool.h>

enum slurm_env { SLURM_ENV_REWRITE, SLURM_ENV_KEEP, SLURM_ENV_STRIP };

/* What has to be asked for. */
enum { FRAMEWORK_JAX = 1, FRAMEWORK_TF = 2, FRAMEWORK_PADDLE = 4, FRAMEWORK_MINDSPORE = 8 };

/* "jax,tensorflow" as bits, none for what needs no asking; or -EINVAL with a sentence. */
int framework_parse(const char *names, struct dd_err *err);
/* Every worker listens on a port of its own: plan->endpoints is needed. */
bool framework_wants_ports(int frameworks);
/* All of them listen with SO_REUSEPORT. */
bool framework_reuses_port(int frameworks);
/* Whether so many workers can be told each other's addresses at all, however short these are:
 * -E2BIG with a sentence. */
int framework_check_size(int frameworks, long workers, struct dd_err *err);
/* What is to go around the commands of some workers for these frameworks, as a rule of
 * worker/rules.h, or NULL. */
const char *framework_wrap(int frameworks);

struct tf_roles;

struct framework_input {
    const struct plan *plan;
    int local_rank;
    const char *run_id;       /* TORCHELASTIC_RUN_ID */
    const char *role;         /* ROLE_NAME */
    const char *node_name;    /* of this node, as in the host list */
    const char *horovod_port; /* of this node's rendezvous server; NULL: there is none */
    bool elastic;             /* HOROVOD_ELASTIC */
    const char *iface;        /* interface that reached the daemon, NULL: not known */
    const char *nccl_iface; /* the same, when NCCL would choose another one by itself, else NULL */
    const char *error_file; /* TORCHELASTIC_ERROR_FILE, "" for none */
    const char *signals_to_handle; /* TORCHELASTIC_SIGNALS_TO_HANDLE, NULL: the default */
    bool virtual_local_rank;       /* each worker sees one GPU and is local rank 0 */
    int gpus;                      /* that the job uses on this node */
    bool one_gpu;                  /* each worker sees one GPU */
    int frameworks; /* bits of FRAMEWORK_*; some need plan->endpoints or plan->coordinator */
    const struct tf_roles *tf_roles; /* NULL: all are workers */
    bool mpi;                        /* ranks and sizes as the launchers of MPI say them */
    bool by_hand; /* no agent is there: nothing that speaks of one, and what the launcher of this
                     process has set stays; run_id and role are not looked at */
    bool nested;  /* found out: another ddrun is around this one */
    enum slurm_env slurm_env;
};

/* Takes away what an outer launcher of MPI programs says of the one process that it has started. 0
 * or -ENOMEM. */
int framework_strip_launcher(struct dd_strv *env);

/* Appends the whole environment of one worker to the empty *out: agent_env (borrowed) and what
 * every contract of the table adds or removes. -ENOTSUP: what the user wants cannot be, however
 * often it is tried. */
int framework_env(struct dd_strv *out, char *const *agent_env, const struct framework_input *in,
                  struct dd_err *err);

#endif
