/* The interpreters of staged virtual environments, which uv installs in other directories. */
#ifndef DD_STAGE_STAGE_INTERPRETERS_H
#define DD_STAGE_STAGE_INTERPRETERS_H

#include "base/strv.h"

/* Limits of what the first node tells the others. */
enum { STAGE_INTERPRETERS = 4, STAGE_INTERPRETERS_TEXT = 1024 };

/* Append the directory of each interpreter that a virtual environment in `paths` links to, except
 * those that lie in a directory of `paths`, and that which contains `copies`, the directory for the
 * copies. 0 or -ENOMEM. */
int stage_interpreters_find(struct dd_strv *ret, char *const *paths, const char *copies);

#endif
