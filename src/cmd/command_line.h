/* Reads and checks the command line of ddrun, under each name by which ddrun can be called. */
#ifndef DD_CMD_COMMAND_LINE_H
#define DD_CMD_COMMAND_LINE_H

#include "base/log.h"
#include "cmd/ddrun_options.h"
#include "cmd/site_settings.h"

struct command_line {
    struct ddrun_options options;
    struct dd_strv script; /* SCRIPT and its arguments */
    struct opt_table table;
    struct opt_row *rows; /* owned rows of the table with torchrun's defaults; NULL unless called as
                             torchrun */
    struct opt_result result;
    struct site_settings settings; /* settings of files; option values borrow from them */
    struct dd_err left_out;        /* why a project file is ignored; rc is 0 if none is */
    struct dd_strv argv; /* arguments for the other nodes, with the settings of files as options;
                            empty: argv as given */
};

/* Read the command line, and set log->level from it. `launched`: the arguments are those of the
 * launcher, which has logged all warnings already. Return -1 to continue, otherwise ddrun's exit
 * code: an error has been logged, or --help or a similar option has been handled. */
int command_line_read(struct command_line *c, int argc, char **argv, bool launched,
                      struct dd_log *log);
void command_line_done(struct command_line *c);

#endif
