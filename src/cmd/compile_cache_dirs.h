/* Determines the directories of --compile-cache on a node: the shared one and the local one. */
#ifndef DD_CMD_COMPILE_CACHE_DIRS_H
#define DD_CMD_COMPILE_CACHE_DIRS_H

#include "base/log.h"
#include "base/scratch.h"
#include "base/strv.h"
#include "cmd/compile_cache_options.h"

/* Append the shared directory, absolute, if the option was given. */
int compile_cache_dirs_path(struct dd_strv *ret, const struct compile_cache_options *o,
                            char *const *env, struct dd_err *err);
/* Make the private directory of this node. stage_dir: --stage-dir, or NULL. On failure, log a
 * warning with the reason and leave *ret unchanged. */
void compile_cache_dirs_make(struct dd_scratch *ret, const char *stage_dir, char *const *env,
                             const struct dd_log *log);
/* Describe the shared and the local directory in one line, which the caller frees. 0 or -ENOMEM. */
int compile_cache_dirs_describe(char **ret, const char *path, const char *stage_dir,
                                char *const *env);

#endif
