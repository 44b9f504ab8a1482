/* The agent: ddrun on one node. It finds or starts the daemon, joins the job, runs the workers of
 * each round, reports their exits and exits with the job's exit code. */
#ifndef DD_AGENT_AGENT_H
#define DD_AGENT_AGENT_H

#include "agent/collecting.h"
#include "agent/cuda_core.h"
#include "agent/error_names.h"
#include "agent/flight_recorder.h"
#include "agent/hang_watch.h"
#include "agent/health_check.h"
#include "agent/locate_etcd.h"
#include "agent/mpi_servers.h"
#include "agent/nccl_query.h"
#include "agent/progress_watch.h"
#include "agent/round_specs.h"
#include "agent/signal_before_end.h"
#include "agent/spec.h"
#include "agent/warm_interpreter.h"
#include "agent/stack_reader.h"
#include "agent/staging.h"
#include "alloc/alloc.h"
#include "base/log.h"
#include "framework/framework.h"
#include "net/key.h"
#include "rdzv/machine.h"
#include "worker/output.h"
#include "worker/terminal.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { STDIN_NONE = -1, STDIN_ALL = -2 };

struct daemon_cfg;

/* All pointers are borrowed for the agent's life. */
struct agent_cfg {
    const struct alloc *alloc;
    const char *node_name;
    pid_t guardian; /* the process that runs guardian_run() */
    char *const *env;
    const char *cannot;    /* why this node cannot run workers; the agent joins only to report it;
                              NULL: it can */
    const char *directory; /* workers' directory, absolute; NULL: that of this process */
    int slots;             /* workers of this node */
    struct rdzv_cfg rdzv;  /* configuration of the daemon's round machine; .nodes, .epoch, .tie and
                             .probes_first are not set */
    uint64_t heartbeat_ns;
    uint64_t rdzv_timeout_ns;
    uint64_t timeout_ns;                     /* --timeout; 0: none */
    unsigned grace_ms;                       /* time from the stop signal to SIGKILL */
    struct signal_before_end_cfg before_end; /* --signal-before-end */
    uint64_t load_interval_ns;               /* --straggler-interval; 0: never */
    uint64_t watch_nodes_ns; /* --watch-nodes: interval of the scheduler's command; 0: never */
    struct hang_watch_cfg hang;
    struct stack_reader_cfg stacks;
    struct progress_watch_cfg progress;
    int requeue_on; /* bits of REQUEUE_*, agent/requeue.h */
    int stdin_rank; /* rank that reads ddrun's stdin, or STDIN_ALL, STDIN_NONE */
    int pty_rank;   /* rank with a pseudo-terminal, which also reads stdin; -1: none */
    const struct terminal *terminal; /* state of stdin's terminal when ddrun started */
    struct output_spec output;
    const struct error_names *error_names;
    struct health_cfg health;
    const char *report;  /* --report: file that the reporting node writes; NULL: none */
    bool relay_store;    /* --store=relay */
    bool profile;        /* --profile: print a profile of the store at the end */
    const char *metrics; /* --metrics: file that the leader writes; NULL: none */
    struct spec_cfg worker;
    struct warm_interpreter_cfg warm;
    const sigset_t *ending_signals;  /* which of SIGUSR1 and SIGUSR2 end the job; NULL: none */
    int frameworks;                  /* bits of FRAMEWORK_*; some need a reserved port per worker */
    const struct tf_roles *tf_roles; /* NULL: all tasks have the role "worker" */
    struct mpi_servers_cfg mpi;
    struct staging_cfg staging, compile_cache;
    struct collecting_cfg collecting;
    struct flight_recorder_cfg flight;
    struct nccl_query_cfg ras;
    struct cuda_core_cfg cuda_core;
    struct locate_etcd_cfg etcd; /* rendezvous through etcd */
    const char *notify;          /* URL of a web hook for the job's events; NULL: none */
    const char *timeline;        /* --timeline: file that the daemon writes; NULL: none */
    const char *web_helper;      /* with notify: path of ddrun-web */
    struct round_specs_binding bind;
    const char *port_tip;    /* tip for an error: how to choose another port for the daemon */
    const char *listen_addr; /* the daemon listens on this address only; NULL: on all (one node:
                                loopback) */
    const char *source_addr; /* source address of outgoing connections; NULL: the kernel's choice */
    const char *iface; /* network interface of the workers; NULL: the one that the link uses */
    struct net_key_input key_in;
    /* Run ddrund for a job, in a child process. The function adds ddrund's own options to
     * *cfg; cfg->log is the agent's. screen_fd: memory of the status line (dd_screen_memory()).
     * Returns the exit code. */
    int (*run_daemon)(struct daemon_cfg *cfg, int screen_fd);
    const struct dd_log *log;
    uint64_t start_ns;    /* dd_now_ns() when the program started */
    uint64_t launched_ns; /* dd_now_ns() when a launcher started this node, before start_ns; 0: no
                             launcher */
};

/* Run the job on this node until it ends. Returns ddrun's exit code; errors have been logged. */
int agent_run(const struct agent_cfg *cfg);

#endif
