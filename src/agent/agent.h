/* The agent: ddrun on one node. Finds or starts the daemon, joins, runs the workers of each round,
 * reports their ends and leaves with the job's exit code. */
#ifndef DD_AGENT_AGENT_H
#define DD_AGENT_AGENT_H

#include "agent/error_names.h"
#include "alloc/alloc.h"
#include "base/log.h"
#include "base/scratch.h"
#include "framework/framework.h"
#include "net/key.h"
#include "node/numa.h"
#include "rdzv/machine.h"
#include "worker/output.h"
#include "web/etcd_url.h"
#include "worker/terminal.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct agent_health_cfg {
    int checks; /* bits of node/health.h */
    int gpus;   /* that the job uses here */
    const char *tmpdir;
    const char *command; /* NULL: none */
    uint64_t limit_ns;   /* for the command */
};

enum { STDIN_NONE = -1, STDIN_ALL = -2 };
enum { AGENT_MPI_PMI1 = 1, AGENT_MPI_PMIX = 2 };
enum { HANG_SIGN_OUTPUT = 1, HANG_SIGN_FILE = 2 };

/* All borrowed for the agent's life. */
struct agent_cfg {
    const struct alloc *alloc;
    const char *node_name;
    pid_t guardian; /* the process that runs guardian_run() */
    char *const *env;
    const char *cannot; /* why this node cannot run workers: join only to tell all; NULL */
    const struct dd_strv *program; /* resolved argument list of a worker */
    const char *folder;            /* in which the workers run, absolute; NULL: this process's */
    int slots;                     /* workers of this node */
    struct rdzv_cfg rdzv;          /* for the daemon, without .nodes, .epoch and .tie */
    uint64_t heartbeat_ns;
    uint64_t rdzv_timeout_ns;
    uint64_t timeout_ns; /* the job may take so long; 0: for ever */
    unsigned grace_ms;   /* from the stop signal to SIGKILL */
    struct {
        int sig; /* 0: none */
        uint64_t ns;
    } before_end; /* this signal, so long before the allocation ends */
    struct {
        uint64_t timeout_ns; /* 0: nobody is watched */
        int signs;           /* bits of HANG_SIGN_* */
        const char *command; /* NULL: SIGABRT */
    } hang;
    int requeue_on;                  /* bits of REQUEUE_*, agent/requeue.h */
    int stdin_rank;                  /* who has ddrun's stdin: a rank, STDIN_ALL, STDIN_NONE */
    int pty_rank;                    /* who has a terminal, and so stdin; -1: nobody */
    const struct terminal *terminal; /* stdin's, as it was at the start */
    struct output_spec output;
    const struct dd_scratch *tmp, *shm; /* private directories, for MPI; their path may be NULL */
    const struct error_names *error_names;
    struct agent_health_cfg health;
    const char *report; /* file for the job's report, when this node is the one that tells; NULL */
    const char *role;
    enum slurm_env slurm_env;
    const char *signals_to_handle;  /* for the workers' environment */
    const sigset_t *ending_signals; /* of SIGUSR1 and SIGUSR2, those that end the job; NULL: none */
    bool virtual_local_rank;
    char *const *env_rules, *const *wrap_rules,
                                *const *preload_rules; /* worker/rules.h, checked; NULL: none */
    int frameworks;       /* bits of FRAMEWORK_*; for some a port is held for each worker */
    bool horovod_elastic; /* HOROVOD_ELASTIC for the workers */
    const struct tf_roles *tf_roles; /* NULL: all are workers */
    int mpi;                         /* bits of AGENT_MPI_* */
    const struct etcd_url *etcd;     /* where the nodes find each other; NULL: not through etcd */
    const char *etcd_password;       /* NULL: none was said */
    const char *notify;              /* URL of a web hook for the job's events; NULL */
    const char *web_helper;          /* path of ddrun-web, where it is needed */
    const char *pmix_helper;         /* with AGENT_MPI_PMIX: path of ddrun-pmix */
    bool bind_cpus;
    enum node_numa_mode numa; /* goes before bind_cpus */
    const char *listen_addr; /* the host listens here only; NULL: everywhere (one node: loopback) */
    const char *source_addr; /* outgoing connections come from here; NULL */
    const char *iface;       /* the workers' network; NULL: the one that the link uses */
    struct net_key_input key_in;
    const char *ddrund; /* path of the daemon's program */
    const struct dd_log *log;
    uint64_t start_ns; /* dd_now_ns() when the program started */
};

/* Runs until the job is over on this node; the program's exit code. Messages have been printed. */
int agent_run(const struct agent_cfg *cfg);

#endif
