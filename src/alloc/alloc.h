/* The allocation: which job is this, on which nodes, and which of them am I.
 *
 * One file per source of that knowledge (explicit options, Slurm, PBS, host file, this machine),
 * each a struct alloc_ops in one table, asked in the order of the table. Nothing here calls
 * getenv or opens a socket: everything comes in through struct alloc_input, so that a recorded
 * environment is a test.
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

/* What the agents have told each other through an outer launcher. */
struct alloc_peers {
    char *const *names;       /* of their hosts, by rank */
    int n, index;             /* which of them we are */
    const char *job, *secret; /* the same for all */
};

struct alloc_input {
    char *const *env;         /* environment block */
    const char *hostname;     /* what gethostname() says */
    char *const *local_addrs; /* numeric addresses of this machine's interfaces, NULL-ended */
    /* Reads a file (node files, host files); dd_read_file() or a test's own. */
    int (*read_file)(const char *path, struct dd_buf *out, struct dd_err *err);
    /* What the user said; NULL, or 0 / -1 for numbers, when not said. */
    int min_nodes, max_nodes;  /* --nnodes=N or MIN:MAX; 0 */
    bool spares;               /* MIN:MAX: there may be more nodes than take part at once */
    int node_rank;             /* --node-rank; -1 */
    const char *master_addr;   /* --master-addr */
    int master_port;           /* --master-port; 0 */
    const char *rdzv_endpoint; /* --rdzv-endpoint=HOST[:PORT], "[v6]:port" */
    const char *rdzv_id;       /* --rdzv-id */
    const char *hosts;         /* --hosts: a host list expression */
    const char *hostfile;      /* --hostfile: "name [slots=N]" lines, '#' comments */
    bool have_nproc;           /* --nproc-per-node was said */
    bool list_only;            /* the nodes are wanted and nothing is started: a batch script on one
                                  of several nodes may ask, and each of several tasks of a node */
    bool whole_job; /* the job is named without its step, so that the batch script and its
                       steps call it the same, and the step's ports are left alone */
    const struct alloc_peers *peers; /* NULL: none */
    uint64_t nonce;                  /* random, for the name of a job that has none */
};

enum { ALLOC_MAX_PORTS = 16 };

struct alloc {
    const char *source; /* name of the row that answered: "slurm-step", "pbs", "local" … */
    char *job_id;       /* names this run for all its agents: "slurm.1234.0.r1", "pbs.12[3].srv" */
    char *run_id;       /* what workers see as TORCHELASTIC_RUN_ID */
    struct hostlist *nodes; /* in rank order, one entry per agent (a host with two agents stands in
                               it twice); entry 0 is the host. May be one name, of the host where
                               only that is known (explicit --rdzv-endpoint), of this node with an
                               etcd: then nnodes > count */
    int nnodes;             /* nodes that take part (agents that will join) */
    int index; /* my position, 0 = host; -1: assigned at join (endpoint without rank, etcd), or
                  with list_only: this is none of them */
    bool first_by_address; /* index 0, since the endpoint is this host: other agents of this host
                              may find the same */
    char *host_addr;       /* explicit address or name of the host to connect to, or NULL:
                              nodes[0] */
    uint16_t ports[ALLOC_MAX_PORTS]; /* candidates in order, given by user or scheduler */
    int nports;                      /* 0: elect them (rdzv/elect.h) */
    bool port_is_fixed;              /* the user's: no other will do */
    struct dd_strv gpus; /* of each node those that are the job's, by their numbers in the order of
                            the PCI addresses: "0,2"; empty: not known */
    char *psk;           /* secret of this job with at least 128 bits, or NULL */
    char *cookie;  /* PBS_JOBCOOKIE, or NULL: another one in each run of a job id; other users can
                      compute it */
    bool script;   /* with list_only: this is the job's script or shell, no task of it */
    bool on_slurm; /* the Slurm commands may be asked (scontrol) */
    uint64_t end_time;       /* seconds since 1970 when the allocation ends, 0 = not known */
    struct dd_strv warnings; /* sentences for the user: stale variables ignored and the like */
};

/* Finds out. Errors are sentences for the user: -EINVAL (contradiction, impossible list, host not
 * in it, empty node file …). Gives *ret. */
int alloc_find(struct alloc **ret, const struct alloc_input *in, struct dd_err *err);
/* The same for the node at index, without warnings. Gives *ret; -ENOMEM. */
int alloc_copy(struct alloc **ret, const struct alloc *a, int index);
void alloc_free(struct alloc *a);
bool alloc_is_pbs(const struct alloc *a); /* PBS' words count, whatever else the environment has */
/* Whether a source answers that goes before peers: the user, or a scheduler. */
bool alloc_is_told(const struct alloc_input *in);

/* An error that every process of the step or MPI job finds in the same way, so that one of them may
 * report it for all. */
enum { ALLOC_WRONG_FOR_ALL = -EUSERS };

/* Of detect: the source's variables are there, but they are another machine's job, as a sentence in
 * warnings says. Others are asked; where only this machine is left, that is refused. */
enum { ALLOC_STALE = 2 };

enum { ALLOC_ID_SIZE = 256 };

struct alloc_ops {
    const char *name;      /* "slurm-step" */
    const char *doc;       /* one line for readers of the table; no program shows it */
    const char *variables; /* of a scheduler's jobs: "SLURM_*"; NULL: it is none */
    const char *start;     /* how ddrun is started in such a job, for those who did not */
    const char *ask;       /* where ddctl knows of such a job, the same */
    /* 1 when this source speaks for this process, 0 when not (a sentence may be pushed to
     * warnings), ALLOC_STALE, or -errno when it must be obeyed but cannot. */
    int (*detect)(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err);
    int (*fill)(struct alloc *a, const struct alloc_input *in, struct dd_err *err);
    /* The job that the variables name, as a part of alloc.job_id ("1234", "12[3].srv", "9.3"),
     * wherever this process is; false: they name none. NULL: the source has no variables, or
     * another row has the same. */
    bool (*own)(char *const *env, char ret[ALLOC_ID_SIZE]);
};

/* NULL-ended, in the order of detection: what the user says completely, the scheduler's step or job
 * that this process runs in, an outer launcher that speaks PMI-1, what the user says partly, this
 * machine alone. */
extern const struct alloc_ops *const alloc_table[];

DD_AUTO_DEFINE(alloc, struct alloc *, alloc_free);

#endif
