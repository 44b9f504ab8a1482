/* --warm: the workers of a round as forks of the warm interpreter.
 *
 * The interpreter forks a process, which forks the workers and exits, so that these become children
 * of the agent, which is a subreaper. Each worker waits until the agent releases the batch, and
 * exits if the agent abandons it: no worker runs without the agent's knowledge. */
#ifndef DD_WORKER_WARM_FORK_H
#define DD_WORKER_WARM_FORK_H

#include "base/err.h"
#include "worker/spawn.h"
#include "worker/warm_command.h"

/* The interpreter from which the workers of a round are forked. All borrowed. */
struct warm_fork {
    int fd;                     /* the agent's end of the interpreter's socket */
    const struct dd_strv *argv; /* command line of the interpreter */
    const struct dd_strv *env;  /* environment of the interpreter */
    const struct warm_command *command;
    bool records;      /* local rank 0 writes the list of its modules */
    unsigned limit_ms; /* time limit for the whole batch: the agent serves nothing else meanwhile */
};

struct warm_batch {
    const struct warm_fork *from;
    int gate[2]; /* closing the write end, [1], ends workers that have not been released */
    uint64_t end_ns;
    int n; /* workers requested */
};

enum { WARM_FORK_WHY = 160 };

/* True if this worker can be forked; otherwise it has to be executed, and why is the reason. */
bool warm_fork_fits(const struct warm_fork *w, const struct worker_spec *spec,
                    char why[WARM_FORK_WHY]);

/* Each returns 0 or < 0 with a message. After a failure, call warm_batch_done(). */
int warm_batch_begin(struct warm_batch *b, const struct warm_fork *from, int report_fd,
                     struct dd_err *err);
int warm_batch_add(struct warm_batch *b, const struct spawn_request *r, struct dd_err *err);
/* Wait until all workers are forked, and set pids[index] of each. Each is a child of this process.
 */
int warm_batch_collect(struct warm_batch *b, pid_t *pids, int npids, struct dd_err *err);
/* Let the workers run. */
int warm_batch_release(const struct warm_batch *b, struct dd_err *err);
/* Free the batch. Workers that have not been released exit. */
void warm_batch_done(struct warm_batch *b);

/* Make a file in memory, close-on-exec. Return its descriptor, or < 0 with a message. */
int warm_memory_file(const void *data, size_t len, struct dd_err *err);
/* Send a message without a text, with at most 16 descriptors. Return 0; -EAGAIN: there is no room
 * yet; or another -errno. */
int warm_send(int fd, char type, const int *fds, int nfds);

#endif
