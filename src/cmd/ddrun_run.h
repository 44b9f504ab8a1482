/* One run of ddrun on one node: what is found out before the agent starts, step by step. */
#ifndef DD_CMD_DDRUN_RUN_H
#define DD_CMD_DDRUN_RUN_H

#include "agent/agent.h"
#include "cmd/ddrun_options.h"

#include <limits.h>

struct emulate;

/* Put together step by step. */
struct run {
    const struct ddrun_options *o;
    struct dd_log log;
    uint64_t start_ns;
    char *const *script;           /* SCRIPT and its arguments */
    const struct emulate *emulate; /* NULL: a real node */
    const struct alloc *given;     /* by the process that started us; NULL */
    char source_addr[32];          /* of a simulated node */
    char hostname[256];
    struct dd_strv env, local_addrs, program;
    struct alloc *alloc;
    int slots, gpus;
    char ddrund[PATH_MAX], pmix_helper[PATH_MAX],
        web_helper[PATH_MAX]; /* of helpers "": not there, or not asked for */
    struct etcd_url etcd;     /* --rdzv-endpoint, where it is one */
    char *etcd_password;
    struct agent_cfg agent;
    char *folder, *log_dir; /* of the workers, where --chdir says it: absolute; NULL: as ddrun's,
                               and as --log-dir says */
    struct dd_scratch tmp,
        shm; /* private directories of this node's run, among temporary files and in /dev/shm */
    struct error_names error_names;
    struct terminal terminal; /* on stdin, as we have found it */
};

/* What the user and this machine say of the job, borrowed from r; needs run_look_around(). */
int run_alloc_input(const struct run *r, struct alloc_input *in, struct dd_err *err);
/* ddrun-web, for this option. */
int run_find_web(struct run *r, const char *option, struct dd_err *err);
/* r->etcd and its password, where --rdzv-endpoint is an etcd. */
int run_find_etcd(struct run *r, struct dd_err *err);
int run_look_around(struct run *r, struct dd_err *err);
/* Allocation, programs, number of workers; index: of a simulated or started node, else -1. After a
 * failure r->agent is good enough to tell the other nodes, where r->alloc is there. */
int run_prepare(struct run *r, int index, struct dd_err *err);
/* r->agent from all the rest. */
void run_fill_agent(struct run *r);
/* Makes r->tmp and r->shm where something needs them. < 0: what cannot do without has none. */
int run_make_scratch(struct run *r, struct dd_err *err);
void run_done(struct run *r);

#endif
