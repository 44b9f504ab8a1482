/* Which starter there is on this machine for an allocation. */
#ifndef DD_LAUNCH_FIND_H
#define DD_LAUNCH_FIND_H

#include "alloc/alloc.h"
#include "launch/starter.h"

#include <limits.h>

/* By name or "auto". Its path goes to program, "" where the user's words take its place. NULL:
 * none; err has a sentence where there is one that cannot do its work here, else it is left alone.
 */
const struct starter *launch_find(char program[PATH_MAX], const char *name, const struct alloc *a,
                                  const char *words, struct dd_err *err);
/* The path of one of our programs: beside this one, else where it is installed; false: it is in
 * neither place. */
bool launch_find_ours(char ret[PATH_MAX], const char *name, const char *installed);
/* Whether a helper of ours can do its work here; if not, err says why. */
bool launch_helper_works(const char *program, struct dd_err *err);

#endif
