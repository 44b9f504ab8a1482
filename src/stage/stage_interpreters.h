/* Finds the interpreters of staged virtual environments, which uv installs in other directories. */
#ifndef DD_STAGE_STAGE_INTERPRETERS_H
#define DD_STAGE_STAGE_INTERPRETERS_H

#include "base/strv.h"

/* Limits of the list that the first node sends to the others: directories, and bytes. */
enum { STAGE_INTERPRETERS = 4, STAGE_INTERPRETERS_TEXT = 1024 };

/* Append the directory of each interpreter that a virtual environment in `paths` links to, except
 * directories that lie in one of `paths`, and the one that contains `copies`, the directory for the
 * copies. 0 or -ENOMEM. */
int stage_interpreters_find(struct dd_strv *ret, char *const *paths, const char *copies);

#endif
