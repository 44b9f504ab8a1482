/* What the mains share. */
#ifndef DD_CMD_COMMON_H
#define DD_CMD_COMMON_H

#include "base/log.h"
#include "base/opt.h"

/* First of all: what a caller may have left closed or ignored, and what would hurt us, is set right. */
void cmd_begin(void);

/* Parses; answers --help and its like, or prints the error. -1: go on; otherwise the exit code. */
int cmd_options(const struct opt_table *t, void *values, int argc, char **argv,
                struct opt_result *res);
enum dd_log_level cmd_log_level(const char *name); /* one of "error,warning,notice,info,debug" */

enum { EXIT_USAGE = 2 };

#endif
