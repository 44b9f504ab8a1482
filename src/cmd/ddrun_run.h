/* One run of ddrun on one node: what ddrun finds before it starts the agent. */
#ifndef DD_CMD_DDRUN_RUN_H
#define DD_CMD_DDRUN_RUN_H

#include "agent/agent.h"
#include "cmd/collect_dirs.h"
#include "cmd/ddrun_options.h"
#include "cmd/local_machine.h"
#include "cmd/node_dirs.h"
#include "node/cpu_kind.h"
#include "web/etcd_url.h"

#include <limits.h>

struct emulate;
struct launch_plan;

struct run {
    /* Constant during the whole run: */
    const struct ddrun_options *o;
    char *const *script; /* SCRIPT and its arguments */
    struct local_machine *machine;
    const struct emulate *emulate; /* NULL: a real node */
    const struct alloc *given; /* allocation from the launcher that started this node; NULL: none */
    uint64_t start_ns;
    uint64_t launched_ns; /* when a launcher started this node; 0: none did */
    struct dd_log log;
    struct terminal terminal; /* terminal on stdin at the start */
    /* Set by run_prepare() for this and all later nodes of this process: */
    char pmix_helper[PATH_MAX], web_helper[PATH_MAX],
        stage_helper[PATH_MAX]; /* "": missing or not needed */
    /* Set for one node, from run_prepare() to run_done(): */
    char source_addr[32]; /* loopback address of a simulated node */
    char hostname[256];
    struct dd_strv env, program;
    struct alloc *alloc;
    int slots, gpus;
    struct etcd_url etcd; /* parsed --rdzv-endpoint, if it is an etcd */
    char *etcd_password;
    struct agent_cfg agent;
    char *directory, *log_dir; /* absolute directory of --chdir, and --log-dir made absolute for it;
                                  NULL: none */
    struct node_dirs dirs;
    struct error_names error_names;
    struct {
        struct warm_command command;
        struct dd_strv modules; /* empty: not named by the user */
        char *plan;
    } warm;
    struct dd_strv stage_paths; /* absolute paths of --stage */
    struct collect_dirs collect;
    struct {
        struct dd_strv path; /* DIR, absolute; empty: no --compile-cache */
        char kind[NODE_CPU_KIND];
    } compile_cache;
};

/* ---- ddrun_node.c ---- */

/* Run the agent of this node until the job ends; return the exit code. index: of a simulated or
 * launched node, otherwise -1. */
int run_node(struct run *r, int index);
/* --dry-run: print what run_node() would do; return the exit code. */
int run_describe_node(struct run *r, int index);

/* ---- ddrun_prepare.c ---- */

/* Find allocation, programs and number of workers. After a failure, r->agent is complete enough to
 * report the error to the other nodes, provided that r->alloc is set. */
int run_prepare(struct run *r, int index, struct dd_err *err);
/* Set r->program, and with --chdir r->directory. */
int run_find_program(struct run *r, struct dd_err *err);
/* --check-for: check what the command line needs before a job of that many nodes is submitted, and
 * print the name of the script and the files that all nodes need, each with a NUL byte at its end.
 * Return the exit code. (ddrun_check_for.c) */
int run_check_for(struct run *r);
/* With --warm: set r->warm from the program and its interpreter. (ddrun_warm.c) */
int run_find_warm(struct run *r, struct dd_err *err);
void run_warm_done(struct run *r);
/* Make the private directories that the options need. Return < 0 if a required one cannot be
 * made. (ddrun_scratch.c) */
int run_make_scratch(struct run *r, struct dd_err *err);
/* If this process is to start the nodes of the job, give a plan in *ret, otherwise NULL. */
int run_plan_launch(const struct run *r, char **argv, struct launch_plan **ret, struct dd_err *err);
/* Free the members of one node. */
void run_done(struct run *r);
/* Find ddrun-web, which `option` needs. */
int run_find_web(struct run *r, const char *option, struct dd_err *err);

/* ---- ddrun_etcd.c, ddrun_agent.c ---- */

/* If --rdzv-endpoint is an etcd, parse it into r->etcd and read its password. */
int run_find_etcd(struct run *r, struct dd_err *err);
/* Fill r->agent from all other members. */
void run_fill_agent(struct run *r);

#endif
