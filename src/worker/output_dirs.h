/* Directories and files of the workers' output, in torchrun's layout:
 * LOG_DIR/RUN-ID_xxxxxxxx/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}. */
#ifndef DD_WORKER_OUTPUT_DIRS_H
#define DD_WORKER_OUTPUT_DIRS_H

#include "base/err.h"

/* Make log_dir with its parents, and in it a directory for this run that only the user can read.
 * log_dir NULL: a directory below tmp_dir, or below /tmp if tmp_dir is NULL or others could replace
 * what is in it. The caller owns *ret. */
int output_run_dir(char **ret, const char *log_dir, const char *tmp_dir, const char *run_id,
                   struct dd_err *err);
/* Make RUN/attempt_N with a directory for each local rank below nlocal. */
int output_attempt_dirs(const char *run, int attempt, int nlocal, struct dd_err *err);
/* Compose the path RUN/attempt_N/LOCAL_RANK/NAME. The caller owns *ret. Return 0 or -ENOMEM. */
int output_path(char **ret, const char *run, int attempt, int local_rank, const char *name);
/* Open a file for writing, and truncate it. Return the descriptor, or -errno. */
int output_open(const char *path, struct dd_err *err);

#endif
