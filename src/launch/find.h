/* Finds the starter for an allocation on this machine. */
#ifndef DD_LAUNCH_FIND_H
#define DD_LAUNCH_FIND_H

#include "alloc/alloc.h"
#include "launch/starter.h"

#include <limits.h>

/* Find a starter by name, or by "auto". `program` becomes its path, or "" if the user's command
 * replaces it. Return NULL if there is none; err is set only if one exists that does not work here.
 */
const struct starter *launch_find(char program[PATH_MAX], const char *name, const struct alloc *a,
                                  const char *words, struct dd_err *err);
/* Return -EINVAL if --launch-command (NULL: not given) contains no word. */
int launch_command_check(const char *words, struct dd_err *err);
/* True if a helper of ddrun works here; if not, err contains the reason. */
bool launch_helper_works(const char *program, struct dd_err *err);

#endif
