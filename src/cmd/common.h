/* What the mains share. */
#ifndef DD_CMD_COMMON_H
#define DD_CMD_COMMON_H

#include "alloc/alloc.h"
#include "base/log.h"
#include "base/opt.h"

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
/* Numeric addresses of this machine's interfaces, as alloc_input wants them. */
int cmd_local_addrs(struct dd_strv *ret, struct dd_err *err);
/* How other nodes may find this one, which is a's index-th (-1: none of them): its name there, or
 * its own, then some of its addresses. Appends to *ret. */
int cmd_addresses(struct dd_strv *ret, const struct alloc *a, int index, struct dd_err *err);
/* Takes these variables, separated by commas, out of the environment; NULL: none. */
int cmd_unset(const char *names, struct dd_err *err);
/* The job that is asked about here, for those who start nothing: `said` has what the user said, the
 * rest is found out, and warnings are logged. hostname gets what gethostname() says. Gives *ret. */
enum { CMD_HOSTNAME = 256 };
int cmd_find_alloc(struct alloc **ret, char hostname[CMD_HOSTNAME], const struct alloc_input *said,
                   const struct dd_log *log, struct dd_err *err);
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
