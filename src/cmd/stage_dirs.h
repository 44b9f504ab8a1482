/* Checks the paths of --stage on a node, and chooses the directories for the copies. */
#ifndef DD_CMD_STAGE_DIRS_H
#define DD_CMD_STAGE_DIRS_H

#include "base/scratch.h"
#include "base/strv.h"
#include "base/buf.h"
#include "base/log.h"
#include "cmd/stage_options.h"

#include <stdbool.h>

/* Write the paths of --stage as absolute paths, an archive or image as "FILE:NAME", and check them:
 * their text on every node, the directories and files only on the first node (reads). */
int stage_dirs_paths(struct dd_strv *ret, const struct stage_options *o, bool reads,
                     struct dd_err *err);
/* Append the directories whose contents this node may lack before they are copied. reads: this is
 * the first node. */
int stage_dirs_arriving(struct dd_strv *ret, const struct dd_strv *paths, bool reads);
bool stage_dirs_have_archive(const struct stage_options *o);
/* Make the private directories for the copies, outside of the staged directories. The spare
 * directory may be missing. */
int stage_dirs_make(struct dd_scratch *ret, struct dd_scratch *ret_spare,
                    const struct stage_options *o, char *const *env, struct dd_err *err);
/* Make a private directory for files that are executed: in dir, or with NULL in one of the default
 * directories. */
int stage_dirs_make_for_code(struct dd_scratch *ret, const char *dir, char *const *env,
                             struct dd_err *err);
/* Return the default directory that stage_dirs_make_for_code() would try first; NULL: none. */
const char *stage_dirs_choose_for_code(char *const *env);
/* Describe sources and destination in one line, which the caller frees. 0 or -ENOMEM. */
int stage_dirs_describe(char **ret, const struct stage_options *o, const struct dd_strv *paths,
                        char *const *env);

#endif
