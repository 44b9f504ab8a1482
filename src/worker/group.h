/* The workers of one node in one round: started together, watched, stopped together.
 *
 * Each worker gets a session and process group of its own, dies with the agent (PDEATHSIG), has no
 * signal blocked or ignored that the user's shell had not, and no file descriptor above 2. Exits arrive through the loop.
 */
#ifndef DD_WORKER_GROUP_H
#define DD_WORKER_GROUP_H

#include "base/err.h"
#include "base/log.h"
#include "base/strv.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct event_base;
struct worker_group;
struct worker_output; /* worker/output.h */

struct worker_exit {
    int local_rank;
    pid_t pid;
    int code;          /* exit status, or 128 + signal */
    int signal;        /* 0 when it exited by itself */
    uint64_t real_ns;  /* CLOCK_REALTIME when it was noticed */
};

struct worker_spec {
    struct dd_strv argv;     /* argv[0] is an absolute path or found in PATH of env */
    struct dd_strv env;
    const cpu_set_t *cpus;   /* borrowed; NULL: leave the mask alone */
    size_t cpus_size;
    int rank;                /* for labels and file names */
};

struct worker_group_cb {
    void (*on_exit)(void *arg, const struct worker_exit *e); /* each worker once */
    void (*on_empty)(void *arg); /* all have exited, their output has been read to the end, and
                                    nothing of their process groups lives any more */
    void *arg;
};

/* Starts n workers. out is borrowed and may be NULL (workers then inherit stdout and stderr: the
 * fast path). On failure nothing is left running. Gives *ret. */
int worker_group_start(struct worker_group **ret, struct event_base *base, const struct dd_log *log,
                       const struct worker_spec *specs, int n, struct worker_output *out,
                       const struct worker_group_cb *cb, struct dd_err *err);

/* Sends sig to the process groups of all workers that still run. */
void worker_group_signal(struct worker_group *g, int sig);
/* Sends sig now and SIGKILL after grace_ms; calling it again only shortens. Idempotent. */
void worker_group_stop(struct worker_group *g, int sig, unsigned grace_ms);
int worker_group_running(const struct worker_group *g);
/* Kills what is left, at once and without callbacks. NULL is fine. */
void worker_group_free(struct worker_group *g);

#endif
