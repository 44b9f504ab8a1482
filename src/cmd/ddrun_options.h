/* ddrun's options: the rows and the struct that they fill. */
#ifndef DD_CMD_DDRUN_OPTIONS_H
#define DD_CMD_DDRUN_OPTIONS_H

#include "base/opt.h"
#include "cmd/failure_options.h"
#include "cmd/horovodrun.h"
#include "cmd/framework_options.h"
#include "cmd/hang_options.h"
#include "cmd/stacks_options.h"
#include "cmd/collect_options.h"
#include "cmd/compile_cache_options.h"
#include "cmd/stage_options.h"
#include "cmd/torchrun.h"
#include "node/health.h"

struct node_range {
    int min, max; /* 0: not set */
    bool range;   /* given as MIN:MAX */
};

struct restart_budget {
    int most;
    uint64_t within_ns; /* period of the budget; 0: the whole job */
};

enum { ETCD_ENDPOINT_MAX = 600 }; /* larger than ETCD_TEXT_MAX */

/* Transport of the workers' output to ddrun's stdout and stderr. */
enum output_style { OUTPUT_LINES, OUTPUT_LABELS, OUTPUT_RAW };

struct ddrun_options {
    struct node_range nnodes;
    const char *nproc_per_node;
    int node_rank;
    const char *hosts, *hostfile;
    const char *launcher, *launch_command;
    int launch_fanout;
    const char *launch_env, *launch_env_exclude;
    const char *ssh_words; /* value of -p or -i, which conflict with --launcher=ssh; NULL: not
                              given */
    struct horovodrun horovodrun;
    bool standalone;
    int simulate_nodes;

    const char *rdzv_backend, *rdzv_endpoint, *rdzv_id;
    const char *notify, *timeline;
    char etcd_endpoint[ETCD_ENDPOINT_MAX]; /* rdzv_endpoint as an etcd URL, for torchrun's
                                              --rdzv-backend=etcd */
    struct rdzv_conf rdzv_conf;
    const char *master_addr, *local_addr;
    int master_port;
    const char *iface;
    uint64_t rdzv_timeout;
    const char *key_file, *key_source, *munge_socket;
    bool insecure;

    const char *chdir;
    bool module, no_python, run_path;
    bool by_torchrun; /* called as torchrun */
    int stdin_rank;   /* rank, STDIN_ALL or STDIN_NONE */
    int pty;
    const char *role, *bind, *slurm_env;
    const char *mpi;
    bool no_config;
    const char *dry_run; /* "text" or "json"; NULL: run the job */
    int check_for;       /* check the command line for a job of so many nodes; 0: not given */
    const char *doctor;  /* output format of --doctor; NULL: not given */
    struct framework_options framework;
    struct dd_strv wrap, preload; /* rules, see worker/rules.h */
    const char *store;            /* "direct" or "relay" */
    const char *warm;             /* modules, or WARM_AUTO; NULL: not given */
    struct stage_options stage;
    struct collect_options collect;
    struct compile_cache_options compile_cache;

    struct restart_budget max_restarts;
    struct failure_options failure;
    const char *grow;
    uint64_t rejoin_timeout, last_call, heartbeat;
    const char *report, *metrics;
    bool profile;
    struct node_health_list health;
    const char *health_check;
    uint64_t health_timeout;
    uint64_t straggler_interval;
    uint64_t timeout, shutdown_timeout, monitor_interval;
    bool shutdown_said;
    struct signal_list signals;
    const char *exit_code;
    bool virtual_local_rank;
    const char *start_method, *event_log_handler, *logs_specs;
    const char *numa_binding;
    struct signal_at signal_before_end;
    struct hang_options hang;
    struct stacks_options stacks;
    int requeue_on; /* bits of REQUEUE_* */

    enum output_style output;
    bool label, fold;
    const char *log_dir, *redirects, *tee, *local_ranks_filter;
    const char *stdout_filters, *stderr_filters;
    const char *log_level;
    unsigned trace; /* bits of DD_TRACE_* */
};

extern const struct opt_table ddrun_options;

#endif
