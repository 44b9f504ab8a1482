/* From what the user wrote to the argument list of a worker. */
#ifndef DD_WORKER_PROGRAM_H
#define DD_WORKER_PROGRAM_H

#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

struct program_spec {
    char *const *argv; /* SCRIPT and its arguments, NULL-ended, borrowed */
    bool module;       /* -m: python -u -m SCRIPT */
    bool no_python;    /* --no-python: SCRIPT as it is */
    bool run_path;     /* --run-path: by Python's runpy; goes before the two */
    bool is_python;    /* as torchrun: whatever its name, SCRIPT is a Python program */
    char *const *env;  /* PYTHON_EXEC, VIRTUAL_ENV, CONDA_PREFIX, PATH */
};

/* x.py -> python3 -u x.py (PYTHON_EXEC, then the active environment's python, then python3 of
 * PATH); -m; anything else -> itself, found in PATH, or in the current directory when it is an
 * executable file there. A program that is not there, or not executable, is -ENOENT / -EACCES with
 * a sentence; one whose name depends on the local rank is not looked for. Appends to out. */
int program_resolve(struct dd_strv *out, const struct program_spec *spec, struct dd_err *err);

/* torchrun's substitution in a worker's arguments: ${local_rank} and $local_rank become the number,
 * $$ becomes $, any other $ stays. Appends all of argv to out. 0 or -ENOMEM.
 * Src: torch 2.13.0, measured 2026-11-21. */
int program_for_rank(struct dd_strv *out, char *const *argv, int local_rank);

#endif
