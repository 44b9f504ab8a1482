/* Points a program to the copies of staged directories, where they cannot be mounted at their
 * original paths. Pure. */
#ifndef DD_STAGE_STAGE_ENV_H
#define DD_STAGE_STAGE_ENV_H

#include "base/strv.h"

#include <stdbool.h>

/* pairs: source, copy, source, copy …, NULL-terminated; absolute paths without a final '/'. */

/* Translate a path that is or lies in a source to the path in the copy: 1 and *ret, which the
 * caller frees; 0: the path lies in no source; -ENOMEM. */
int stage_env_path(char **ret, const char *path, char *const *pairs);
/* Replace paths in a source by those in its copy, in PATH, PYTHONPATH, LD_LIBRARY_PATH, VIRTUAL_ENV
 * and CONDA_PREFIX. 0 or -ENOMEM. */
int stage_env_vars(struct dd_strv *env, char *const *pairs);
/* Remove the variables whose values are paths in the directory. */
void stage_env_without(struct dd_strv *env, const char *dir);
/* True if a path in one of the variables of stage_env_vars(), the program or its script is or lies
 * in the source. */
bool stage_env_names(const char *source, char *const *env, char *const *argv);
/* Replace the paths of the program and of its script, the first argument that is no option, by
 * those in the copy. 0 or -ENOMEM. */
int stage_env_argv(struct dd_strv *argv, char *const *pairs);

#endif
