/* Where workers say why they failed: TORCHELASTIC_ERROR_FILE, written by torch's record() as JSON.
 *
 * With a log directory it is error.json there. Without one it is a temporary file whose name no
 * other user knows before it is there (error_names.h). Where there can be none, it is an anonymous
 * file of the agent, which workers open by its name in /proc (which they cannot from another user
 * namespace, as containers have). */
#ifndef DD_AGENT_ERROR_FILES_H
#define DD_AGENT_ERROR_FILES_H

#include "agent/features.h"

extern const struct round_feature error_files_feature;

/* What the first failed worker of the last round wrote, with its exit code put in, to the file that
 * the starter of ddrun has named (NULL: none). */
void error_files_copy(const struct round *r, const char *path);

#endif
