/* --warm: what can be started by a fork. Reads the command line of Python, and compares
 * environments. Pure. */
#ifndef DD_WORKER_WARM_COMMAND_H
#define DD_WORKER_WARM_COMMAND_H

#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

/* A command line: PYTHON OPTIONS TARGET ARGUMENTS. Borrows from the arguments that were parsed. */
struct warm_command {
    const char *kind;       /* "script", "module" (-m) or "command" (-c) */
    const char *target;     /* script, module or Python code */
    size_t arguments;       /* index of the first argument of the target */
    bool unbuffered;        /* -u */
    struct dd_strv options; /* options of Python itself, without -m and -c; owned */
};

/* Parse "PYTHON [OPTIONS] SCRIPT|-m MODULE|-c CODE [ARGUMENTS]". -EINVAL with a message if the
 * interpreter would not run the program of --warm with these options, or there is no program. The
 * caller frees *ret in any case. */
int warm_command_parse(struct warm_command *ret, char *const *argv, struct dd_err *err);
void warm_command_done(struct warm_command *c);

/* True if `program` is a Python interpreter, by its name, or because PYTHON_EXEC of env has the
 * same file name. */
bool warm_command_is_python(const char *program, char *const *env);

/* True if Python or its modules read this variable when they start, so that it must be the same in
 * the interpreter and in a worker. */
bool warm_env_is_early(const char *name);
/* Return the name of an early variable that differs between two environments; NULL: none does. The
 * caller frees it. */
char *warm_env_difference(char *const *interpreter, char *const *worker);
/* Append the variables that both environments have with equal values. Return 0 or -ENOMEM. */
int warm_env_common(struct dd_strv *out, char *const *a, char *const *b);

#endif
