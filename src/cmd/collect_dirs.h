/* Splits the values of --collect on a node into patterns and directories, and checks them. */
#ifndef DD_CMD_COLLECT_DIRS_H
#define DD_CMD_COLLECT_DIRS_H

#include "base/err.h"
#include "base/strv.h"
#include "cmd/collect_options.h"

#include <stdbool.h>

/* Zero-initialized; the caller calls collect_dirs_done(), also after a failure. */
struct collect_dirs {
    struct dd_strv patterns, dirs; /* as many patterns as directories; the directories are
                                      absolute */
    char *here;                    /* current directory of this process */
};

/* Split the rules and check them; receives: check also that the directories can be written. */
int collect_dirs_read(struct collect_dirs *ret, const struct collect_options *o, bool receives,
                      struct dd_err *err);
void collect_dirs_done(struct collect_dirs *d);

#endif
