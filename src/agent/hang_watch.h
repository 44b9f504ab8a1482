/* --hang-timeout: detect workers without activity, report their stacks and end them. The exit then
 * counts as a failure.
 *
 * If only output and heartbeats count as activity, each worker is judged alone. If further
 * signs count, such as processor time, the workers of the whole job must be idle, since an idle
 * worker may wait for one that computes: each agent sends IDLE for its own workers, and the daemon
 * answers with HUNG. */
#ifndef DD_AGENT_HANG_WATCH_H
#define DD_AGENT_HANG_WATCH_H

#include "agent/features.h"

struct hang_watch_cfg {
    uint64_t timeout_ns; /* 0: no hang watch */
    int signs;           /* bits of HANG_SIGN_*, or HANG_SIGNS_ACTIVITY (worker/hang.h) */
    bool has_gpus;       /* the node has GPUs, for which workers may busy-wait */
    const char *command; /* run for a hung worker; NULL: send SIGABRT */
};

extern const struct round_feature hang_watch_feature;

#endif
