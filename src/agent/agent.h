/* The agent: ddrun on one node. It finds or starts the daemon, joins the job, runs the workers of
 * each round, reports their exits and exits with the job's exit code. */
#ifndef DD_AGENT_AGENT_H
#define DD_AGENT_AGENT_H

#include "agent/error_names.h"
#include "agent/signal_before_end.h"
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
    int gpus;   /* GPUs of this node that the job uses */
    const char *tmpdir;
    const char *command; /* NULL: none */
    uint64_t limit_ns;   /* time limit of the command */
};

enum { STDIN_NONE = -1, STDIN_ALL = -2 };
enum { AGENT_MPI_PMI1 = 1, AGENT_MPI_PMIX = 2 };
enum { HANG_SIGN_OUTPUT = 1, HANG_SIGN_FILE = 2 };

/* All pointers are borrowed for the agent's life. */
struct agent_cfg {
    const struct alloc *alloc;
    const char *node_name;
    pid_t guardian; /* the process that runs guardian_run() */
    char *const *env;
    const char *cannot; /* why this node cannot run workers; the agent joins only to report it;
                           NULL: it can */
    const struct dd_strv *program; /* resolved argument list of a worker */
    const char *directory;         /* of the workers, absolute; NULL: that of this process */
    int slots;                     /* workers of this node */
    struct rdzv_cfg
        rdzv; /* configuration of the daemon's round machine, without .nodes, .epoch and .tie */
    uint64_t heartbeat_ns;
    uint64_t rdzv_timeout_ns;
    uint64_t timeout_ns; /* --timeout; 0: none */
    unsigned grace_ms;   /* from the stop signal to SIGKILL */
    /* send the signal to the workers this long before the allocation ends */
    struct signal_before_end_cfg before_end;
    struct {
        uint64_t timeout_ns; /* 0: no hang watch */
        int signs;           /* bits of HANG_SIGN_* */
        const char *command; /* run for a hung worker; NULL: send SIGABRT */
    } hang;
    int requeue_on; /* bits of REQUEUE_*, agent/requeue.h */
    int stdin_rank; /* rank that reads ddrun's stdin, or STDIN_ALL, STDIN_NONE */
    int pty_rank;   /* rank with a pseudo-terminal, which also reads stdin; -1: none */
    const struct terminal *terminal; /* state of stdin's terminal when ddrun started */
    struct output_spec output;
    const struct dd_scratch *tmp, *shm; /* private directories, for MPI; their path may be NULL */
    const struct error_names *error_names;
    struct agent_health_cfg health;
    const char *report;  /* --report: file that the reporting node writes; NULL: none */
    bool profile;        /* --profile: print a profile of the store at the end */
    const char *metrics; /* --metrics: file that the leader writes; NULL: none */
    const char *role;
    enum slurm_env slurm_env;
    const char *signals_to_handle;  /* for the workers' environment */
    const sigset_t *ending_signals; /* which of SIGUSR1 and SIGUSR2 end the job; NULL: none */
    bool virtual_local_rank;
    char *const *env_rules, *const *wrap_rules,
                                *const *preload_rules; /* worker/rules.h, checked; NULL: none */
    int frameworks;                  /* bits of FRAMEWORK_*; some need a reserved port per worker */
    bool horovod_elastic;            /* set HOROVOD_ELASTIC for the workers */
    const struct tf_roles *tf_roles; /* NULL: all tasks have the role "worker" */
    int mpi;                         /* bits of AGENT_MPI_* */
    const struct etcd_url *etcd;     /* rendezvous through etcd; NULL: not used */
    const char *etcd_password;       /* NULL: none was given */
    const char *notify;              /* URL of a web hook for the job's events; NULL */
    const char *timeline;            /* --timeline: file that the daemon writes; NULL: none */
    const char *web_helper;          /* path of ddrun-web; NULL: not needed */
    const char *pmix_helper;         /* with AGENT_MPI_PMIX: path of ddrun-pmix */
    bool bind_cpus;
    enum node_numa_mode numa; /* takes precedence over bind_cpus */
    const char *listen_addr;  /* the daemon listens on this address only; NULL: on all (one node:
                                 loopback) */
    const char *source_addr; /* source address of outgoing connections; NULL: the kernel's choice */
    const char *iface; /* network interface of the workers; NULL: the one that the link uses */
    struct net_key_input key_in;
    const char *ddrund; /* path of the daemon's program */
    const struct dd_log *log;
    uint64_t start_ns;    /* dd_now_ns() when the program started */
    uint64_t launched_ns; /* when a launcher started this node, before start_ns; 0: none did */
};

/* Run the job on this node until it ends. Returns ddrun's exit code; errors have been logged. */
int agent_run(const struct agent_cfg *cfg);

#endif
