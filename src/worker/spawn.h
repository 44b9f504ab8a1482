/* Starts one process: the steps between fork and exec, and the report of a failure there. Uses
 * fork, not vfork: measured 2026-11-21 for 4 processes on 2 cores, vfork takes 1.0 ms for any size
 * of the parent, fork 1.1 ms for a parent of 1 MiB and 1.7 ms for one of 4 MiB. But vfork suspends
 * the parent until the file system has answered the exec, and the agent must serve its link. */
#ifndef DD_WORKER_SPAWN_H
#define DD_WORKER_SPAWN_H

#include "base/core.h"
#include "base/err.h"
#include "worker/worker_group.h"

#include <signal.h>
#include <sys/types.h>

/* Values of the parent that its children use. The parent reads them once for all children: each
 * function that a child calls costs page faults there. */
struct spawn_parent {
    pid_t agent;
    struct dd_core core; /* settings of the guardian, which its workers get */
    sigset_t caught;     /* signals that are ignored or have a handler */
};
void spawn_parent_read(struct spawn_parent *p);

struct spawn_request {
    const struct spawn_parent *parent;
    const struct worker_spec *spec;
    const char *path; /* file to execute: `via` of spec, or argv[0] as found in PATH */
    int index;        /* copied to the report */
    int fds[3];       /* stdin, stdout, stderr; -1: the agent's own */
    int report_fd;    /* write end of the report pipe, close-on-exec */
};

/* Written by a child when a stage fails; after SPAWN_AFFINITY the child still executes its program.
 */
struct spawn_report {
    int index;
    int stage;
    int error; /* errno */
};

enum { SPAWN_STDIO = 1, SPAWN_DIRECTORY, SPAWN_EXEC, SPAWN_AFFINITY /* only a warning */ };

/* Signal mask of the agent. All signals are blocked while children are forked, so that no handler
 * of the agent runs in a child. */
struct spawn_mask {
    sigset_t saved;
};
void spawn_begin(struct spawn_mask *m);
void spawn_end(const struct spawn_mask *m);

/* Fork a process. To be called between spawn_begin and spawn_end. Return the pid, or -errno. */
pid_t spawn_child(const struct spawn_request *r, struct dd_err *err);

/* To be called in a child: close all descriptors from `first` on. The agent's own descriptors are
 * close-on-exec, those that it has inherited are not. */
void spawn_close_from(unsigned first);
/* Close all descriptors except stdin, stdout, stderr and those in keep; skip negative ones in keep.
 */
void spawn_close_except(const int *keep, size_t n);
/* To be called in a child that does not exec: as exec does, reset the signals that have a handler,
 * and leave those that are ignored. */
void spawn_drop_handlers(void);

/* Find a program as a shell does, in the PATH of env. The caller owns *ret. Return 0, or -ENOENT,
 * -EACCES or -ENOMEM without a message. */
int spawn_lookup(char **ret, const char *name, char *const *env);

/* Set the message for a report of any stage but SPAWN_AFFINITY; return -r->error. path: the
 * program. directory: of --chdir; may be NULL at other stages than SPAWN_DIRECTORY. */
int spawn_explain(const struct spawn_report *r, const char *path, const char *directory,
                  struct dd_err *err);

#endif
