/* What is wrong with ddrun's options, found out before anything starts. */
#ifndef DD_CMD_DDRUN_CHECK_H
#define DD_CMD_DDRUN_CHECK_H

#include "base/log.h"
#include "cmd/ddrun_options.h"

/* What the command line alone shows. */
int check_options(const struct ddrun_options *o, struct dd_err *err);
/* What only this node shows, each by itself. */
int check_iface(const char *name, struct dd_err *err);
int check_report(const char *path, struct dd_err *err);
int check_preload(const struct ddrun_options *o, struct dd_err *err);
/* Options that have no effect where the number of nodes may not change: said once. */
void warn_of_fixed_size(const struct ddrun_options *o, const struct opt_table *t, const struct opt_result *res,
                        const struct dd_log *log);

#endif
