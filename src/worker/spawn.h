/* One new process: what happens between fork and exec, and how a failure there gets back.
 *
 * fork, not vfork: measured 2026-11-21 for 4 processes on 2 cores, vfork 1.0 ms at any size of the
 * parent, fork 1.1 ms for a parent of 1 MiB and 1.7 ms for one of 4 MiB; but a parent in vfork
 * stands still for as long as the file system takes to answer the exec, and the agent has a link to
 * serve.
 */
#ifndef DD_WORKER_SPAWN_H
#define DD_WORKER_SPAWN_H

#include "base/err.h"
#include "worker/group.h"

struct spawn_request {
    const struct worker_spec *spec;
    const char *path; /* what is executed: argv[0], looked up in PATH */
    int index;        /* comes back in the report */
    int fds[3];       /* stdin, stdout, stderr; -1: the agent's own */
    int report_fd;    /* writing end of the report pipe, close-on-exec */
};

/* What a child writes to the report pipe when it cannot become the program; nothing otherwise. */
struct spawn_report {
    int index;
    int stage;
    int error; /* errno */
};

enum { SPAWN_STDIO = 1, SPAWN_FOLDER, SPAWN_EXEC, SPAWN_AFFINITY /* only a warning */ };

/* All signals are blocked while children are made, so that no handler of the agent runs in one. */
struct spawn_mask {
    sigset_t saved;
};
void spawn_begin(struct spawn_mask *m);
void spawn_end(const struct spawn_mask *m);

/* The pid, or -errno. Between spawn_begin and spawn_end. */
pid_t spawn_child(const struct spawn_request *r, struct dd_err *err);

/* In a child: closes all from `first` on. Everything of the agent is close-on-exec already; what
 * its own parent left open is not. */
void spawn_close_from(unsigned first);

/* Finds name as the shell would, in the PATH of env. *ret is for the caller to free. -ENOENT or
 * -EACCES without a sentence. */
int spawn_lookup(char **ret, const char *name, char *const *env);

/* The sentence for a report of any stage but SPAWN_AFFINITY; returns -r->error. */
int spawn_explain(const struct spawn_report *r, const char *path, struct dd_err *err);

#endif
