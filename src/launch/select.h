/* Which variables of the starting shell go with the job (--launch-env, --launch-env-exclude). Pure.
 */
#ifndef DD_LAUNCH_SELECT_H
#define DD_LAUNCH_SELECT_H

#include "base/strv.h"

/* Appends the names of the variables in `env` that stay behind: those that no pattern of `only` (as
 * of a shell, comma separated; NULL: all go) and nothing of a scheduler's or a login's asks for,
 * and those that one of `without` (NULL: none) names. 0 or -ENOMEM. */
int select_env(struct dd_strv *ret, char *const *env, const char *only, const char *without);

#endif
