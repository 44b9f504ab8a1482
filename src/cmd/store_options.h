/* The option --store: value and row. */
#ifndef DD_CMD_STORE_OPTIONS_H
#define DD_CMD_STORE_OPTIONS_H

#include "base/opt.h"

/* A row for a struct that has a member `const char *store`. */
#define STORE_ROWS(type)                                                                              \
    {.name = "store",                                                                                 \
     .kind = OPT_STRING,                                                                              \
     .metavar = "direct|relay",                                                                       \
     .def = "direct",                                                                                 \
     .choices = "direct,relay",                                                                       \
     .group = "Rendezvous and network",                                                               \
     .help = "serve the store by the daemon, or by each node's agent",                                \
     .more =                                                                                          \
         "With 'relay', MASTER_ADDR and MASTER_PORT name the agent of the worker's own node. "        \
         "It answers what it can from copies and sends the rest to the daemon over its "              \
         "encrypted link, so the daemon has one connection per node. Use it for jobs of hundreds of " \
         "ranks and more. Programs that start a server of their own at MASTER_ADDR need "             \
         "'direct'. See docs/store.md.",                                                              \
     OPT_FIELD(type, store)}

#endif
