/* The option --warm: values and row. */
#ifndef DD_CMD_WARM_OPTIONS_H
#define DD_CMD_WARM_OPTIONS_H

#include "base/opt.h"

#define WARM_AUTO "auto"

/* A row for a struct that has a member `const char *warm`; NULL: not given. */
#define WARM_ROWS(type)                                                                            \
    {.name = "warm",                                                                               \
     .common = true,                                                                               \
     .kind = OPT_STRING,                                                                           \
     .metavar = "MODULE,...",                                                                      \
     .implied = WARM_AUTO,                                                                         \
     .example = "torch,transformers",                                                              \
     .group = "Program",                                                                           \
     .help = "fork the workers from a Python that has imported modules",                           \
     .more =                                                                                       \
         "One interpreter on each node imports the modules while the nodes connect to each "       \
         "other. It forks the workers, also after a restart, so they start without importing "     \
         "and share its memory. Without MODULE, ddrun imports what the last run of the script "    \
         "has imported, or else torch. Modules that start threads or open a GPU are left "         \
         "out with a warning. --warm cannot be combined with --wrap and --preload. See "           \
         "docs/warm.md.",                                                                          \
     OPT_FIELD(type, warm)}

#endif
