/* The options of --collect: values and rows. */
#ifndef DD_CMD_COLLECT_OPTIONS_H
#define DD_CMD_COLLECT_OPTIONS_H

#include "base/opt.h"
#include "base/strv.h"

struct collect_options {
    struct dd_strv rules; /* values of --collect, each PATTERN:DIR */
};

/* Rows for a struct that has `struct collect_options collect`. */
#define COLLECT_ROWS(type)                                                                         \
    {.name = "collect",                                                                            \
     .kind = OPT_REPEATED,                                                                         \
     .metavar = "PATTERN:DIR",                                                                     \
     .no_env = true,                                                                               \
     .example = "'$TMPDIR/ckpt/*.pt:results'",                                                     \
     .group = "Output",                                                                            \
     .help = "copy files of the nodes to DIR at the end of the job",                               \
     .more = "PATTERN is a wildcard pattern (glob) for files or directories in local storage "     \
             "of the nodes; each node replaces $NAME by its own variable, and "                    \
             "$DDRUN_NODE by its name. DIR is a directory "                                        \
             "of the first node or of a shared file system. ddrun copies the files of a node to "  \
             "DIR/NODE when its workers have exited, also after a failure, and at the signal "     \
             "of --signal-before-end or --drain-signal. A file appears complete or not at all, "   \
             "and never replaces a newer one. Warnings name the files that were not copied; "      \
             "the exit code stays that of the job. See docs/collect.md.",                          \
     OPT_FIELD(type, collect.rules)}

#endif
