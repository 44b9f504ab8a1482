/* Functions that the main programs share. */
#ifndef DD_CMD_COMMON_H
#define DD_CMD_COMMON_H

#include "base/log.h"
#include "base/opt.h"
#include "cmd/local_machine.h"

#include <stdbool.h>

/* Open standard descriptors that the caller has closed, and set the signal dispositions on which
 * ddrun relies. To be called first in main(). */
void cmd_sanitize_process(void);

/* True in the first task of a scheduler's step, and in a process that no launcher has numbered.
 * Only this task reports an error that all tasks of the step have. */
bool cmd_is_first_task(char *const *env);

/* Parse the command line. Handle --help and similar options, or log the error. Return -1 to
 * continue, otherwise the exit code. */
int cmd_options(const struct opt_table *t, void *values, int argc, char **argv,
                struct opt_result *res);
/* As cmd_options(), with the arguments, environment and settings of files in *in. */
int cmd_options_from(const struct opt_table *t, void *values, const struct opt_input *in,
                     struct opt_result *res);
/* As cmd_options(), but every task of a step logs its error. */
int cmd_options_alone(const struct opt_table *t, void *values, int argc, char **argv,
                      struct opt_result *res);
/* Log the error and return EXIT_USAGE. */
int cmd_fail(const struct opt_table *t, const struct dd_err *err);
/* Write the buffer to stdout. Return the exit code: 1 after logging a write error. EPIPE is not an
 * error. */
int cmd_write(const struct opt_table *t, const struct dd_buf *out);
/* Remove these comma-separated variables from the environment; names may be NULL. 0, or -ENOMEM
 * with a message. */
int cmd_unset(const char *names, struct dd_err *err);
/* Find the allocation for a program that starts no nodes. *given contains what the options set; the
 * rest comes from *m. Log warnings. The caller owns *ret. */
int cmd_find_alloc(struct alloc **ret, struct local_machine *m, const struct alloc_input *given,
                   const struct dd_log *log, struct dd_err *err);
/* Warn once about environment variables that have no effect and whose names resemble those of the
 * options. */
void cmd_warn_of_misspelt(const struct opt_table *t, const struct dd_log *log);
/* Warn once about options of the command line that need another option (`needs` in their row) which
 * is not set. */
void cmd_warn_of_idle(const struct opt_table *t, const struct opt_result *res,
                      const struct dd_log *log);
enum dd_log_level cmd_log_level(const char *name); /* one of "error,warning,notice,info,debug" */
/* Milliseconds for dd_log.waits_ms of a process that other processes wait for: its stderr may be a
 * stopped terminal or a full pipe. */
enum { CMD_LOG_WAIT_MS = 300 };

enum { EXIT_USAGE = 2 };

#endif
