/* What the mains share. */
#ifndef DD_CMD_COMMON_H
#define DD_CMD_COMMON_H

#include "base/log.h"
#include "base/opt.h"
#include "cmd/local_machine.h"

#include <stdbool.h>

/* Open the standard descriptors that the caller left closed, and reset the signal dispositions that
 * ddrun relies on. Called before anything else. */
void cmd_sanitize_process(void);

/* True in the first task of a scheduler's step and where no launcher has numbered this process: an
 * error that all tasks find is reported by that task alone. */
bool cmd_is_first_task(char *const *env);

/* Parses; answers --help and its like, or prints the error. -1: go on; otherwise the exit code. */
int cmd_options(const struct opt_table *t, void *values, int argc, char **argv,
                struct opt_result *res);
/* The same where each process speaks for itself, whichever of a step it is. */
int cmd_options_alone(const struct opt_table *t, void *values, int argc, char **argv,
                      struct opt_result *res);
/* Says the error; returns EXIT_USAGE. */
int cmd_fail(const struct opt_table *t, const struct dd_err *err);
/* Writes an answer to stdout. Returns the exit code: 1 and a sentence when it cannot be written; a
 * reader who has gone is no fault. */
int cmd_write(const struct opt_table *t, const struct dd_buf *out);
/* Takes these variables, separated by commas, out of the environment; NULL: none. */
int cmd_unset(const char *names, struct dd_err *err);
/* The job that a program which starts nothing asks about: *given has what the options say, *m the
 * rest. Logs warnings. Gives *ret. */
int cmd_find_alloc(struct alloc **ret, const struct local_machine *m,
                   const struct alloc_input *given, const struct dd_log *log, struct dd_err *err);
/* Variables that look like misspelt ones of ours have no effect: said once. */
void cmd_warn_of_misspelt(const struct opt_table *t, const struct dd_log *log);
/* Options of the command line that have no effect without another one (their row's `needs`): said
 * once. */
void cmd_warn_of_idle(const struct opt_table *t, const struct opt_result *res,
                      const struct dd_log *log);
enum dd_log_level cmd_log_level(const char *name); /* one of "error,warning,notice,info,debug" */
/* log.waits_ms of a process that others wait for: its terminal may be held, its pipe be full. */
enum { CMD_LOG_WAIT_MS = 300 };

enum { EXIT_USAGE = 2 };

#endif
