/* Makes the argument list of a worker from the user's command line. */
#ifndef DD_WORKER_PROGRAM_H
#define DD_WORKER_PROGRAM_H

#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

struct program_spec {
    char *const *argv;     /* SCRIPT and its arguments, NULL-terminated, borrowed */
    bool module;           /* -m: python -u -m SCRIPT */
    bool no_python;        /* --no-python: execute SCRIPT directly */
    bool run_path;         /* --run-path: with Python's runpy; overrides module and no_python */
    bool is_python;        /* called as torchrun: SCRIPT is a Python program, whatever its name */
    char *const *env;      /* read: PYTHON_EXEC, VIRTUAL_ENV, CONDA_PREFIX, PATH */
    char *const *arriving; /* absolute paths of directories that this node may lack until the
                              workers start; NULL: none */
};

/* Resolve x.py to python3 -u x.py (with PYTHON_EXEC, the active environment's python, or python3 of
 * PATH); -m likewise; anything else to itself, found in PATH, or in the current directory if it is
 * an executable file there. Fail with a message if the program does not exist or cannot be
 * executed; a name that depends on the local rank is not checked. A program below `arriving` need
 * not exist yet, and is not looked up in PATH: the process that executes it does that. Append to
 * out. Return 0 or -errno. */
int program_resolve(struct dd_strv *out, const struct program_spec *spec, struct dd_err *err);

/* Substitute as torchrun does in a worker's arguments: ${local_rank} and $local_rank become the
 * number, $$ becomes $, any other $ stays. Append all of argv to out. Return 0 or -ENOMEM. Src:
 * torch 2.13.0, measured 2026-11-21. */
int program_for_rank(struct dd_strv *out, char *const *argv, int local_rank);

#endif
