/* Checks of ddrun's options before anything starts. */
#ifndef DD_CMD_DDRUN_CHECK_H
#define DD_CMD_DDRUN_CHECK_H

#include "alloc/alloc.h"
#include "base/log.h"
#include "cmd/ddrun_options.h"

/* Check what depends on the command line alone. */
int check_options(const struct ddrun_options *o, struct dd_err *err);
/* Check --warm against other options. (ddrun_warm.c) */
int warm_options_check(const struct ddrun_options *o, struct dd_err *err);
/* Check what depends on this node. Files that are written later must be writable now. */
int check_output_files(const struct ddrun_options *o, struct dd_err *err);
int check_preload(const struct ddrun_options *o, struct dd_err *err);
/* Warn once about options that have no effect if the number of nodes is fixed. */
void warn_of_fixed_size(const struct ddrun_options *o, const struct opt_table *t,
                        const struct opt_result *res, const struct dd_log *log);
/* Warn about each -x NAME whose variable is not set. */
void warn_of_unset(const struct ddrun_options *o, const struct dd_log *log);

/* Return the time between SIGTERM and SIGKILL. PBS kills the remaining processes of a job 10 s
 * after its own SIGTERM, so the default is shorter there. Src: measured, OpenPBS 23.06. */
unsigned ddrun_grace_ms(const struct ddrun_options *o, const struct alloc *a);

#endif
