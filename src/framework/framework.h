/* Derives the environment of one worker from the plan, for all frameworks. Pure.
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

/* Frameworks that a user must request. */
enum { FRAMEWORK_JAX = 1, FRAMEWORK_TF = 2, FRAMEWORK_PADDLE = 4, FRAMEWORK_MINDSPORE = 8 };

/* Parse "jax,tensorflow" to bits (0 for names that need no request), or return -EINVAL with a
 * message. */
int framework_parse(const char *names, struct dd_err *err);
/* True if every worker listens on its own port: plan->endpoints is needed. */
bool framework_wants_ports(int frameworks);
/* True if the listeners of all these frameworks set SO_REUSEPORT. */
bool framework_reuses_port(int frameworks);
/* Check that a variable can hold the addresses of this number of workers, if all are as short as
 * possible. -E2BIG with a message. */
int framework_check_size(int frameworks, long workers, struct dd_err *err);
/* Return a rule of worker/rules.h that wraps the commands of some workers for these frameworks, or
 * NULL. */
const char *framework_wrap(int frameworks);

struct tf_roles;

struct framework_input {
    const struct plan *plan;
    int local_rank;
    const char *run_id;                  /* TORCHELASTIC_RUN_ID */
    const char *role;                    /* ROLE_NAME */
    const char *node_name;               /* name of this node in the host list */
    const char *horovod_port;            /* port of this node's rendezvous server; NULL: none */
    const char *store_addr, *store_port; /* where this node's workers reach the store; NULL: at the
                                            master address and port of the plan */
    bool elastic;                        /* HOROVOD_ELASTIC */
    const char *iface;                   /* interface that reached the daemon; NULL: unknown */
    const char *nccl_iface; /* iface, if NCCL would choose another interface by itself; NULL: NCCL
                               needs none */
    const char *nccl_host;  /* address of a simulated node, by which NCCL takes the node for a host
                               of its own, so that nodes may share a GPU; NULL: a real node */
    const char *error_file; /* TORCHELASTIC_ERROR_FILE, "" for none */
    const char *signals_to_handle; /* TORCHELASTIC_SIGNALS_TO_HANDLE, NULL: the default */
    bool virtual_local_rank;       /* each worker sees one GPU, and its LOCAL_RANK is 0 */
    int gpus;                      /* number of GPUs that the job uses on this node */
    bool one_gpu;                  /* each worker sees one GPU */
    int frameworks; /* bits of FRAMEWORK_*; some need plan->endpoints or plan->coordinator */
    const struct tf_roles *tf_roles; /* NULL: all tasks are workers */
    bool mpi;                        /* set ranks and sizes as MPI launchers do */
    bool by_hand; /* the user starts the workers without an agent: omit variables about the agent,
                     and keep those that the launcher of this process has set; run_id and role are
                     unused */
    bool nested;  /* set by framework_env(): another ddrun has started this one */
    enum slurm_env slurm_env;
};

/* Remove the variables with which an MPI launcher describes the one process that it has started.
 * Return 0 or -ENOMEM. */
int framework_strip_launcher(struct dd_strv *env);

/* Append the environment of one worker to the empty *out: agent_env (borrowed), with the changes of
 * every contract in the table. -ENOTSUP: the request can never be fulfilled. */
int framework_env(struct dd_strv *out, char *const *agent_env, const struct framework_input *in,
                  struct dd_err *err);

#endif
