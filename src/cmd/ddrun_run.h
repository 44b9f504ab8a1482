/* One run of ddrun on one node: what is found out before the agent starts, step by step. */
#ifndef DD_CMD_DDRUN_RUN_H
#define DD_CMD_DDRUN_RUN_H

#include "agent/agent.h"
#include "cmd/ddrun_options.h"
#include "cmd/local_machine.h"

#include <limits.h>

struct emulate;
struct launch_plan;

struct run {
    /* Of the whole run: */
    const struct ddrun_options *o;
    char *const *script; /* SCRIPT and its arguments */
    const struct local_machine *machine;
    const struct emulate *emulate; /* NULL: a real node */
    const struct alloc *given;     /* by the launcher that started this node; NULL */
    uint64_t start_ns;
    struct dd_log log;
    struct terminal terminal; /* on stdin, as found at the start */
    /* Of one node, from run_prepare() to run_done(): */
    char source_addr[32]; /* of a simulated node */
    char hostname[256];
    struct dd_strv env, program;
    struct alloc *alloc;
    int slots, gpus;
    char ddrund[PATH_MAX], pmix_helper[PATH_MAX],
        web_helper[PATH_MAX]; /* of helpers "": not there, or not asked for */
    struct etcd_url etcd;     /* --rdzv-endpoint, where it is one */
    char *etcd_password;
    struct agent_cfg agent;
    char *folder, *log_dir; /* of the workers, where --chdir names it: absolute; NULL: as ddrun's,
                               and as --log-dir has it */
    struct dd_scratch tmp,
        shm; /* private directories of this node's run, among temporary files and in /dev/shm */
    struct error_names error_names;
};

/* ---- ddrun_node.c ---- */

/* Runs the agent of this node until the job is over; the exit code. index: of a simulated or
 * launched node, else -1. */
int run_node(struct run *r, int index);
/* --dry-run: writes what run_node() would do to stdout; the exit code. */
int run_describe_node(struct run *r, int index);

/* ---- ddrun_prepare.c ---- */

/* Allocation, programs, number of workers. After a failure r->agent is good enough to tell the
 * other nodes, where r->alloc is there. */
int run_prepare(struct run *r, int index, struct dd_err *err);
/* Makes r->tmp and r->shm where something needs them. < 0: what cannot do without has none. */
int run_make_scratch(struct run *r, struct dd_err *err);
/* Whether this process is to start the nodes of the job: gives *ret then, else NULL. */
int run_plan_launch(const struct run *r, char **argv, struct launch_plan **ret, struct dd_err *err);
/* Frees what belongs to one node. */
void run_done(struct run *r);
/* ddrun-web, for this option. */
int run_find_web(struct run *r, const char *option, struct dd_err *err);

/* ---- ddrun_etcd.c, ddrun_agent.c ---- */

/* r->etcd and its password, where --rdzv-endpoint is an etcd. */
int run_find_etcd(struct run *r, struct dd_err *err);
/* r->agent from all the rest. */
void run_fill_agent(struct run *r);

#endif
