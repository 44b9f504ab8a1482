/* Directories and files of the workers' output, laid out as torchrun does:
 * LOG_DIR/RUN-ID_xxxxxxxx/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}. */
#ifndef DD_WORKER_OUTPUT_DIRS_H
#define DD_WORKER_OUTPUT_DIRS_H

#include "base/err.h"

/* Makes log_dir with its parents, and a new directory for this run in it, readable by the user
 * only. Gives *ret. A log_dir of NULL means one of its own below tmp_dir (NULL: /tmp). */
int output_run_dir(char **ret, const char *log_dir, const char *tmp_dir, const char *run_id,
                   struct dd_err *err);
/* Makes RUN/attempt_N/0 to nlocal - 1. */
int output_attempt_dirs(const char *run, int attempt, int nlocal, struct dd_err *err);
/* The path of a file there; gives *ret. 0 or -ENOMEM. */
int output_path(char **ret, const char *run, int attempt, int local_rank, const char *name);
/* Opens it for writing, empty. The file descriptor, or -errno. */
int output_open(const char *path, struct dd_err *err);

#endif
