/* Selects the variables of the launching shell that are forwarded (--launch-env,
 * --launch-env-exclude). Pure. */
#ifndef DD_LAUNCH_SELECT_H
#define DD_LAUNCH_SELECT_H

#include "base/strv.h"

/* Append the names of the variables in `env` that are not forwarded: those that `without` matches,
 * and those that neither `only` nor the built-in list of login and scheduler variables matches.
 * Both are comma-separated shell patterns; `only` NULL: forward all, `without` NULL: exclude none.
 * Return 0 or -ENOMEM. */
int select_env(struct dd_strv *ret, char *const *env, const char *only, const char *without);

#endif
