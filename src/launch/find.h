/* Which starter there is on this machine for an allocation. */
#ifndef DD_LAUNCH_FIND_H
#define DD_LAUNCH_FIND_H

#include "alloc/alloc.h"
#include "launch/starter.h"

#include <limits.h>

/* By name or "auto". Its path goes to program, "" where the user's words take its place. NULL: none. */
const struct starter *launch_find(char program[PATH_MAX], const char *name, const struct alloc *a, const char *words);

#endif
