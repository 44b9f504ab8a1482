/* A small program, or a function that may hang, which the agent runs for a purpose of its own:
 * bounded in time and output, in a session of its own, gone with the agent. */
#ifndef DD_WORKER_COMMAND_H
#define DD_WORKER_COMMAND_H

#include "base/err.h"

#include <sys/types.h>

struct event_base;
struct command;

enum { COMMAND_TOO_LATE = -1 };

struct command_spec {
    const char *const *argv; /* argv[0] is found in PATH of env */
    const char *folder;      /* else here; NULL */
    char *const *env;
    int (*run)(
        void *arg); /* instead: what the child does; stdout is taken, it returns the exit status */
    void *run_arg;
    size_t most_out;   /* of what it writes, 0: 64 KiB */
    unsigned limit_ms; /* then it and its children are killed */
};

/* Once, from the loop: the exit status, 128 + signal, or COMMAND_TOO_LATE; and what it wrote to
 * stdout and stderr (at most most_out), lent. The command may be freed here. */
typedef void command_done_f(void *arg, int code, const char *out);

/* spec is borrowed during the call. A program that is not there: -ENOENT with a sentence. Gives
 * *ret.
 */
int command_start(struct command **ret, struct event_base *base, const struct command_spec *spec,
                  command_done_f *done, void *arg, struct dd_err *err);
pid_t command_pid(const struct command *c); /* for worker_group_protect() */
void command_free(struct command *c);       /* kills it; NULL is fine */

#endif
