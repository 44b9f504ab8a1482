/* The allocation: the job, its nodes, and the index of this node.
 *
 * Each source (options, Slurm, PBS, host file, this machine) has a file with a struct alloc_ops.
 * alloc_find() tries the sources in the order of one table. No source calls getenv or opens a
 * socket: struct alloc_input contains all inputs, so that tests can use recorded environments.
 */
#ifndef DD_ALLOC_ALLOC_H
#define DD_ALLOC_ALLOC_H

#include "base/auto.h"
#include "base/err.h"
#include "base/strv.h"
#include "hostlist/hostlist.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* What the agents have exchanged through an outer launcher. */
struct alloc_peers {
    char *const *names;       /* host names of the agents, by rank */
    int n, index;             /* index: this agent */
    const char *job, *secret; /* the same for all agents */
};

struct alloc_input {
    char *const *env;     /* environment block */
    const char *hostname; /* from gethostname() */
    /* Return the numeric addresses of this machine's interfaces, NULL-terminated, or NULL. Called
     * if a host is given by its address. NULL: none is known. */
    char *const *(*local_addrs)(void *machine);
    void *machine;
    /* Reads a file (node files, host files): dd_read_file(), or a function of a test. */
    int (*read_file)(const char *path, struct dd_buf *out, struct dd_err *err);
    /* Options of the user; texts: NULL if not given. */
    int min_nodes, max_nodes;  /* --nnodes=N or MIN:MAX; 0: not given */
    bool spares;               /* MIN:MAX: there may be more nodes than take part at once */
    int node_rank;             /* --node-rank; -1: not given */
    const char *master_addr;   /* --master-addr */
    int master_port;           /* --master-port; 0: not given */
    const char *rdzv_endpoint; /* --rdzv-endpoint=HOST[:PORT], "[v6]:port" */
    const char *rdzv_id;       /* --rdzv-id */
    const char *hosts;         /* --hosts: a host list expression */
    const char *hostfile;      /* --hostfile: "name [slots=N]" lines, '#' comments */
    bool have_nproc;           /* --nproc-per-node was given */
    bool list_only; /* the caller only asks for the nodes: allowed in a batch script on one of
                       several nodes, and in each of several tasks of a node */
    bool whole_job; /* name the job without its step, so that the batch script and its steps use the
                       same name, and ignore the ports of the step */
    const struct alloc_peers *peers; /* NULL: none */
    char *const *command;            /* of the workers, for requeue_id; NULL: unknown */
    uint64_t nonce;                  /* random, for the name of a job without one */
};

enum { ALLOC_MAX_PORTS = 16 };

struct alloc {
    const char *source; /* name of the row that applied: "slurm-step", "pbs", "local" … */
    char *job_id;       /* names this run for all its agents: "slurm.1234.0.r1", "pbs.12[3].srv" */
    char *requeue_id;   /* job_id without what differs between the runs of a job that the scheduler
                           requeues, with a hash of the command if ddruns of the job are not
                           numbered; NULL: the job is not requeued */
    bool requeued;      /* the scheduler has run the job before, or may have: PBS counts no runs */
    char *run_id;       /* what workers see as TORCHELASTIC_RUN_ID */
    struct hostlist
        *nodes; /* in rank order, one entry per agent (a host with two agents occurs twice); entry 0
                   is the first node. May contain one name only: that of the first node with
                   --rdzv-endpoint, that of this node with etcd; then nnodes > count */
    int nnodes; /* number of agents that will join */
    int index;  /* index of this node; -1: assigned at join (endpoint without rank, etcd), or with
                   list_only: not a node of the job */
    bool first_by_address; /* index is 0 because the endpoint is this host: other agents on this
                              host may conclude the same */
    char *host_addr; /* address or name of the first node from an option; NULL: use nodes[0] */
    uint16_t ports[ALLOC_MAX_PORTS]; /* candidates in order, from the user or the scheduler */
    int nports;                      /* 0: elect them (rdzv/elect.h) */
    bool port_is_fixed;              /* chosen by the user: use no other port */
    struct dd_strv gpus; /* for each node the numbers of the job's GPUs, in the order of the PCI
                            addresses: "0,2"; empty: unknown */
    char *psk;           /* secret of this job with at least 128 bits; NULL: none */
    char *cookie;        /* PBS_JOBCOOKIE, which differs between runs of a job, but other users can
                            compute it; NULL: none */
    bool script;         /* with list_only: this process is the job's script or shell, not a task */
    bool on_slurm;       /* the commands of Slurm (scontrol) can be used */
    uint64_t end_time;   /* end of the allocation in seconds since 1970; 0: unknown */
    struct dd_strv warnings; /* messages for the user, such as ignored stale variables */
};

/* Find the allocation. Errors have messages for the user: -EINVAL (contradiction, invalid list,
 * host not in it, empty node file …). The caller owns *ret. */
int alloc_find(struct alloc **ret, const struct alloc_input *in, struct dd_err *err);
/* Copy the allocation for the node at index, without warnings. The caller owns *ret; -ENOMEM. */
int alloc_copy(struct alloc **ret, const struct alloc *a, int index);
/* Name the run as --rdzv-id does, and extend job_id and requeue_id by the name, or by a hash of it.
 * 0; -EINVAL: id is empty; -ENOMEM. */
int alloc_name_run(struct alloc *a, const char *id, struct dd_err *err);
void alloc_free(struct alloc *a);
bool alloc_is_pbs(const struct alloc *a); /* true if the source is PBS */
/* True if a source with precedence over peers applies: options of the user, or a scheduler. */
bool alloc_is_told(const struct alloc_input *in);

/* An error that every process of the step or MPI job finds, so that one of them can report it for
 * all. */
enum { ALLOC_WRONG_FOR_ALL = -EUSERS };

/* Result of detect: the variables of the source belong to a job of another machine, as a warning
 * reports. Other sources are tried; if no source but this machine alone is left, that is an error.
 */
enum { ALLOC_STALE = 2 };

enum { ALLOC_ID_SIZE = 256 };

struct alloc_ops {
    const char *name;      /* "slurm-step" */
    const char *doc;       /* one line for readers of the table, not printed */
    const char *variables; /* variables of a scheduler's jobs: "SLURM_*"; NULL: not a scheduler */
    const char *start;     /* tip: how to start ddrun in such a job */
    const char *ask;       /* tip: how to start ddctl in such a job */
    /* Return 1 if this source applies to this process, 0 if not (perhaps with a warning),
     * ALLOC_STALE, or -errno if it applies but is unusable. */
    int (*detect)(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err);
    int (*fill)(struct alloc *a, const struct alloc_input *in, struct dd_err *err);
    /* Return the job that the variables name, as a part of alloc.job_id ("1234", "12[3].srv",
     * "9.3"); false: none. Works on every node of the job. NULL: the source has no variables, or
     * another row has the same ones. */
    bool (*own)(char *const *env, char ret[ALLOC_ID_SIZE]);
};

/* NULL-terminated, in the order of detection: complete options of the user, the scheduler's step or
 * job of this process, an outer launcher with PMI-1, incomplete options, this machine alone. */
extern const struct alloc_ops *const alloc_table[];

DD_AUTO_DEFINE(alloc, struct alloc *, alloc_free);

#endif
