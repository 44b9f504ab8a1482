/* What is wrong with ddrun's options, found out before anything starts. */
#ifndef DD_CMD_DDRUN_CHECK_H
#define DD_CMD_DDRUN_CHECK_H

#include "alloc/alloc.h"
#include "base/log.h"
#include "cmd/ddrun_options.h"

/* What the command line alone shows. */
int check_options(const struct ddrun_options *o, struct dd_err *err);
/* What only this node shows, each by itself. */
int check_report(const char *path, struct dd_err *err);
int check_preload(const struct ddrun_options *o, struct dd_err *err);
/* Options that have no effect where the number of nodes may not change: said once. */
void warn_of_fixed_size(const struct ddrun_options *o, const struct opt_table *t,
                        const struct opt_result *res, const struct dd_log *log);
/* Of -x NAME, where there is no such variable. */
void warn_of_unset(const struct ddrun_options *o, const struct dd_log *log);

/* Between SIGTERM and SIGKILL. PBS kills all that is left of a job 10 s after its own SIGTERM, so
 * there less than that, unless the user has said how long. Src: measured, OpenPBS 23.06. */
unsigned ddrun_grace_ms(const struct ddrun_options *o, const struct alloc *a);

#endif
