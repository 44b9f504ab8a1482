/* Runs a helper program, or a function that may hang, for the agent: with limits of time and
 * output, in its own session, killed when the agent exits. */
#ifndef DD_WORKER_COMMAND_H
#define DD_WORKER_COMMAND_H

#include "base/err.h"

#include <sys/types.h>

struct event_base;
struct command;

enum {
    COMMAND_TOO_LATE = -1,
    COMMAND_FIRST_KEPT = 3, /* number of the first descriptor of command_spec.keep in the child */
};

struct command_spec {
    const char *const *argv; /* argv[0] is searched in PATH of env */
    const char *directory;   /* directory to search if PATH does not contain argv[0]; NULL: none */
    char *const *env;
    int (*run)(void *arg); /* used instead of argv: a function that the child runs, with stdout
                              captured; returns the exit status */
    void *run_arg;
    const int *keep; /* descriptors that the child of run inherits, in ascending order; numbered
                        from COMMAND_FIRST_KEPT in the child */
    size_t nkeep;
    size_t most_out;   /* limit of the output in bytes; 0: 64 KiB */
    unsigned limit_ms; /* time limit, after which the command and its children are killed */
};

/* Called once, from the loop, with the exit status, 128 + signal, or COMMAND_TOO_LATE, and with the
 * output to stdout and stderr (at most most_out), lent. The callback may free the command. */
typedef void command_done_f(void *arg, int code, const char *out);

/* spec is borrowed during the call. -ENOENT with a message if the program does not exist. The
 * caller owns *ret. */
int command_start(struct command **ret, struct event_base *base, const struct command_spec *spec,
                  command_done_f *done, void *arg, struct dd_err *err);
pid_t command_pid(const struct command *c); /* for worker_group_protect() */
/* Return what the command has printed so far, lent until the loop runs. */
const char *command_out(struct command *c);
void command_kill(struct command *c); /* the loop calls done() afterwards */
/* Wait until the command has exited, at most limit_ms, without the loop and without a callback.
 * NULL is allowed. */
void command_wait(struct command *c, unsigned limit_ms);
void command_free(struct command *c); /* kills the command; NULL is allowed */

#endif
