/* The option --fold. */
#ifndef DD_CMD_FOLD_OPTIONS_H
#define DD_CMD_FOLD_OPTIONS_H

#include "base/opt.h"

/* A row for a struct that has a member `bool fold`. */
#define FOLD_ROWS(type)                                                                            \
    {.name = "fold",                                                                               \
     .project = true,                                                                              \
     .kind = OPT_FLAG,                                                                             \
     .group = "Output",                                                                            \
     .help = "write equal lines of a node's workers once",                                         \
     .more = "A line that several workers of one node write within 200 ms is written once, with "  \
             "their ranks, as '[0-7] loading'. Lines that differ only in numbers are equal, as "   \
             "'[0-7] loss 2.30…2.34'. The lines of each worker stay in order; the files of "       \
             "--log-dir have all lines. Cannot be combined with --output=raw. See OUTPUT.",        \
     OPT_FIELD(type, fold)}

#endif
