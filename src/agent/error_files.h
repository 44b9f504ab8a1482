/* TORCHELASTIC_ERROR_FILE: torch's record() writes the reason of a failure to this file, as JSON.
 * With a log directory the file is error.json there (--log-dir=/dev/null: no file). Otherwise it is
 * a temporary file whose name other users cannot predict (error_names.h). Without a usable
 * temporary directory it is an anonymous file of the agent, which workers open through /proc; that
 * fails in another user namespace, as in some containers. */
#ifndef DD_AGENT_ERROR_FILES_H
#define DD_AGENT_ERROR_FILES_H

#include "agent/features.h"

extern const struct round_feature error_files_feature;

/* Copy the error file of the first failed worker of the last round, with its exit code inserted, to
 * `path` (NULL: nothing to do). */
void error_files_copy(const struct round *r, const char *path);

#endif
