/* The workers of one node in one round: started together, watched, stopped together.
 *
 * Each worker has its own session and process group. It is killed when the agent exits (PDEATHSIG).
 * It has no signals blocked or ignored, and no file descriptors above 2 except those passed to it.
 * Its stdin is the agent's, a terminal (tty) or /dev/null. Exits are reported on the loop, by
 * SIGCHLD and evsignal: libevent supports signals in only one event_base of a process.
 *
 * Processes that a worker leaves behind are ended, too:
 * - The rest of its process group gets SIGTERM when the worker exits, and SIGKILL 2 s later. During
 *   worker_group_stop() it has the grace period of the workers: a shell script may exit on SIGTERM
 *   while its Python child writes a checkpoint.
 * - If the caller has made the agent a child subreaper (PR_SET_CHILD_SUBREAPER), other orphans of
 *   the workers (daemons, jobs in their own process groups) are ended after the last worker: after
 *   100 ms they get SIGTERM, finally SIGKILL. Children that the agent had before the start of the
 *   group are exempt; the caller must exempt later ones with worker_group_protect() before the loop
 *   runs again.
 * - A process that does not exit within 10 s after SIGKILL (state D) is logged and given up.
 */
#ifndef DD_WORKER_WORKER_GROUP_H
#define DD_WORKER_WORKER_GROUP_H

#include "base/err.h"
#include "base/log.h"
#include "base/strv.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct event_base;
struct warm_fork; /* worker/warm_fork.h */
struct worker_group;
struct worker_output; /* worker/output.h */

struct worker_exit {
    int local_rank;
    pid_t pid;
    int code; /* exit status, or 128 + signal; 137 if the worker did not exit even after SIGKILL */
    int signal;     /* 0: the worker called exit */
    uint64_t at_ns; /* dd_now_ns() when the exit was noticed */
};

enum { WORKER_FIRST_FD = 3, WORKER_MAX_FDS = 4 };

struct worker_spec {
    struct dd_strv argv; /* argv[0] is an absolute path, or found in PATH of env */
    struct dd_strv env;
    const char *directory; /* working directory, borrowed; NULL: the agent's */
    const cpu_set_t *cpus; /* borrowed; NULL: do not change the affinity */
    size_t cpus_size;      /* bytes of *cpus */
    const unsigned long
        *memory;             /* borrowed: bits of the NUMA nodes to prefer for memory; NULL: any */
    size_t memory_bits;      /* number of bits of *memory */
    int rank;                /* for messages; -1: the process is no worker */
    bool has_stdin;          /* stdin is the agent's; otherwise /dev/null */
    int fds[WORKER_MAX_FDS]; /* borrowed: descriptors passed as WORKER_FIRST_FD and up */
    int nfds;
    pid_t tracer;    /* process that may read the worker's memory, as may its descendants
                        (PR_SET_PTRACER); 0: none */
    const char *tty; /* borrowed: path of the terminal for stdin, stdout and stderr; NULL: none */
    /* borrowed: absolute path of a program that reads from via_fd and then executes argv:
     * "VIA enter NUMBER ARGV…"; NULL: none. A worker that is forked needs none. */
    const char *via;
    int via_fd;
    const char *must_execute; /* borrowed: why --warm must not fork this worker; NULL: no reason */
};

/* Pass a descriptor to the worker; return its number there. */
int worker_spec_fd(struct worker_spec *spec, int fd);
/* Make the spec that executes the program `via` of another spec; the caller frees ret->argv. 0 or
 * -ENOMEM. */
int worker_spec_via(struct worker_spec *ret, const struct worker_spec *spec);

/* Borrowed until free, except `warm`. */
struct worker_group_cfg {
    const struct dd_log *log;  /* NULL: no messages */
    struct worker_output *out; /* NULL: the workers inherit stdout and stderr */
    /* called once per worker, after its stderr has been read (worker_output_tail) */
    void (*on_exit)(void *arg, const struct worker_exit *e);
    /* called once: all workers have exited, their output has been read, and no process of their
     * groups is left */
    void (*on_empty)(void *arg);
    const struct warm_fork *warm; /* --warm: fork the workers from this interpreter; NULL: execute
                                     them. Borrowed during worker_group_start() */
    /* called if the interpreter cannot fork the workers, with the reason; they are executed then */
    void (*on_warm_failed)(void *arg, const char *why);
    void *arg;
};

/* Start n workers; return when all have executed their programs. On failure, no process remains,
 * and the message names the program. If a file system takes more than 1 s to load the program,
 * return 0; a later failure is logged and causes exit code 126 or 127. specs is borrowed during the
 * call, base until free. Descriptors 0 to 2 of the agent must be open. The caller owns *ret. */
int worker_group_start(struct worker_group **ret, struct event_base *base,
                       const struct worker_spec *specs, int n, const struct worker_group_cfg *cfg,
                       struct dd_err *err);

/* Exempt a child that the agent has started for another purpose from being stopped with the group.
 */
int worker_group_protect(struct worker_group *g, pid_t pid);

/* Send sig to the process groups of all running workers. SIGUSR1 and SIGUSR2, which announce the
 * end of a job, go only to processes that have a handler. Returns the number of processes, or
 * groups, that have got the signal, or -errno. */
int worker_group_signal(struct worker_group *g, int sig);
/* The scheduler has sent sig to all processes of the workers: worker_group_stop() will not repeat
 * it. */
void worker_group_has_signal(struct worker_group *g, int sig);
/* Send sig now, and SIGKILL after grace_ms. Idempotent; another call can only shorten the time. */
void worker_group_stop(struct worker_group *g, int sig, unsigned grace_ms);
/* Return the pid of the worker; 0 after its exit. */
pid_t worker_group_pid(const struct worker_group *g, int local_rank);
/* Return the time of the worker's fork, also after its exit. */
uint64_t worker_group_started_ns(const struct worker_group *g, int local_rank);
/* End one worker: sig to its process alone, SIGKILL to its process group after wait_ms. */
void worker_group_end(struct worker_group *g, int local_rank, int sig, unsigned wait_ms);
/* Kill all remaining processes without callbacks. NULL is allowed. May be called in on_empty, not
 * in on_exit. */
void worker_group_free(struct worker_group *g);

#endif
