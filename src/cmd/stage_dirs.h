/* What --stage needs on a node: paths, directories, the helper. */
#ifndef DD_CMD_STAGE_DIRS_H
#define DD_CMD_STAGE_DIRS_H

#include "base/scratch.h"
#include "base/strv.h"
#include "base/buf.h"
#include "cmd/stage_options.h"

#include <stdbool.h>

/* Write the paths of --stage as absolute ones, and check them: of every node their text, of the
 * first one (reads) the directories, too. */
int stage_dirs_paths(struct dd_strv *ret, const struct stage_options *o, bool reads,
                     struct dd_err *err);
/* Make the private directories for the copies, outside of the staged ones. A spare one may be
 * missing. */
int stage_dirs_make(struct dd_scratch *ret, struct dd_scratch *ret_spare,
                    const struct stage_options *o, char *const *env, struct dd_err *err);
/* Say what would be copied, and where to: one line, which the caller frees. 0 or -ENOMEM. */
int stage_dirs_describe(char **ret, const struct stage_options *o, const struct dd_strv *paths,
                        char *const *env);

#endif
