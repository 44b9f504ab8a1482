/* ddrun's command line, read and checked, under each of the names by which ddrun is called. */
#ifndef DD_CMD_COMMAND_LINE_H
#define DD_CMD_COMMAND_LINE_H

#include "base/log.h"
#include "cmd/ddrun_options.h"

struct command_line {
    struct ddrun_options options;
    struct dd_strv script; /* SCRIPT and its arguments */
    struct opt_table table;
    struct opt_row *rows; /* torchrun's, in the table; NULL: ddrun's own */
    struct opt_result result;
};

/* Sets log->level as the options want it. launched: these are the launcher's arguments, which it
 * has warned about already. -1: go on; otherwise ddrun's exit code: errors have been logged, --help
 * and its like answered. */
int command_line_read(struct command_line *c, int argc, char **argv, bool launched,
                      struct dd_log *log);
void command_line_done(struct command_line *c);

#endif
