/* The workers of one node in one round: started together, watched, stopped together.
 *
 * Each worker gets a session and process group of its own, dies with the agent (PDEATHSIG), has no
 * signal blocked or ignored, and no file descriptor above 2 but those it is given. Its stdin is the
 * agent's or /dev/null. Exits arrive through the loop (SIGCHLD by evsignal: libevent allows signals
 * in one event_base of a process at a time).
 *
 * What a worker leaves behind is ended too:
 * - The rest of its process group gets SIGTERM when the worker ends by itself, SIGKILL 2 s later;
 *   during worker_group_stop() it has the same grace as the workers (a shell script that dies of
 *   SIGTERM at once while its Python child writes a checkpoint).
 * - When the agent is a child subreaper (prctl PR_SET_CHILD_SUBREAPER, the caller's business), any
 *   other process that was orphaned onto it (daemons with setsid, jobs in process groups of their
 *   own) is ended after the last worker: 100 ms to end by itself, SIGTERM, at last SIGKILL.
 *   Children that the agent had when the group was started are never touched; those that it starts
 *   later for other purposes must be named with worker_group_protect() before the loop runs again.
 * - A process that does not die within 10 s after SIGKILL (state D) is logged and left.
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
    int code;       /* exit status, or 128 + signal; 137 for one that did not even die of SIGKILL */
    int signal;     /* 0 when it exited by itself */
    uint64_t at_ns; /* dd_now_ns() when it was noticed */
};

enum { WORKER_FIRST_FD = 3, WORKER_MAX_FDS = 4 };

struct worker_spec {
    struct dd_strv argv; /* argv[0] is an absolute path or found in PATH of env */
    struct dd_strv env;
    const char *folder;    /* borrowed; NULL: the agent's */
    const cpu_set_t *cpus; /* borrowed; NULL: leave the mask alone */
    size_t cpus_size;
    const unsigned long
        *memory; /* borrowed: NUMA nodes whose memory it takes first, a bit for each; NULL: any */
    size_t memory_bits;
    int rank;                /* for labels and file names */
    bool has_stdin;          /* the agent's; else /dev/null */
    int fds[WORKER_MAX_FDS]; /* borrowed: what it has as descriptors WORKER_FIRST_FD and up */
    int nfds;
    const char *tty; /* borrowed; NULL or the terminal that is its stdin, stdout and stderr */
};

/* Adds a descriptor; returns its number in the worker. */
int worker_spec_fd(struct worker_spec *spec, int fd);

/* Whom the group tells what. */
struct worker_group_cb {
    const struct dd_log *log; /* borrowed until free; NULL: silent */
    /* each worker once; what it wrote to stderr has been read (worker_output_tail) */
    void (*on_exit)(void *arg, const struct worker_exit *e);
    /* once: all have exited, their output has been read to the end, and nothing of their process
     * groups lives any more */
    void (*on_empty)(void *arg);
    void *arg;
};

/* Starts n workers; returns when all have become their programs. out is borrowed and may be NULL
 * (workers then inherit stdout and stderr: the fast path). On failure nothing is left running and
 * the sentence names the program. When a file system takes longer than 1 s to give the program, it
 * returns 0 and a failure shows later: a log line, and exit code 126 or 127. specs is borrowed
 * during the call, base and out until free; fds 0 to 2 of the agent are open. Gives *ret. */
int worker_group_start(struct worker_group **ret, struct event_base *base,
                       const struct worker_spec *specs, int n, struct worker_output *out,
                       const struct worker_group_cb *cb, struct dd_err *err);

/* A child that the agent started for other purposes after the group; it will not be ended with it.
 */
int worker_group_protect(struct worker_group *g, pid_t pid);

/* Sends sig to the process groups of all workers that still run; SIGUSR1 and SIGUSR2, which
 * schedulers use to announce something, only to those of their processes that have a handler. */
void worker_group_signal(struct worker_group *g, int sig);
/* The scheduler has sent sig to all processes of the workers by itself: worker_group_stop() with it
 * will not send it again. */
void worker_group_has_signal(struct worker_group *g, int sig);
/* Sends sig now and SIGKILL after grace_ms; calling it again only shortens. Idempotent. */
void worker_group_stop(struct worker_group *g, int sig, unsigned grace_ms);
/* The worker's process; 0 when it has ended. */
pid_t worker_group_pid(const struct worker_group *g, int local_rank);
/* Ends one worker: sig to it alone, SIGKILL to its process group after wait_ms. */
void worker_group_end(struct worker_group *g, int local_rank, int sig, unsigned wait_ms);
/* Kills what is left, at once and without callbacks. NULL is fine. May be called in on_empty, but
 * not in on_exit. */
void worker_group_free(struct worker_group *g);

#endif
