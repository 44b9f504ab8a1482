/* The options of --compile-cache: values and rows. */
#ifndef DD_CMD_COMPILE_CACHE_OPTIONS_H
#define DD_CMD_COMPILE_CACHE_OPTIONS_H

#include "base/opt.h"

#include <stdint.h>

#define COMPILE_CACHE_DEFAULT "default"

struct compile_cache_options {
    const char *dir; /* NULL: not given; COMPILE_CACHE_DEFAULT: below the user's cache directory */
    uint64_t most;   /* size limit of the directory, in bytes */
};

/* Rows for a struct that has `struct compile_cache_options compile_cache`. */
#define COMPILE_CACHE_ROWS(type)                                                                   \
    {.name = "compile-cache",                                                                      \
     .kind = OPT_STRING,                                                                           \
     .metavar = "DIR",                                                                             \
     .implied = COMPILE_CACHE_DEFAULT,                                                             \
     .example = "/shared/me/compiled",                                                             \
     .group = "Program",                                                                           \
     .help = "give each node local caches of compiled code, kept in DIR",                          \
     .more = "PyTorch's Inductor, Triton, JAX, CUDA, MIOpen and Numba find their caches in local " \
             "storage of the node (see --stage-dir). The first node reads the caches of earlier "  \
             "jobs from DIR and sends them to the other nodes before the workers start; what the " \
             "job has compiled goes back to DIR when the workers have exited. Variables such as "  \
             "TORCHINDUCTOR_CACHE_DIR that are already set are left alone. The default of DIR is " \
             "ddrun/compile in $XDG_CACHE_HOME or ~/.cache. Where the caches cannot be used, a "   \
             "warning says why, and the job runs without them. See docs/compile_cache.md.",        \
     OPT_FIELD(type, compile_cache.dir)},                                                          \
    {                                                                                              \
        .name = "compile-cache-max", .kind = OPT_BYTES, .metavar = "SIZE", .def = "2G", .min = 1,  \
        .needs = "compile-cache", .group = "Program",                                              \
        .help = "size limit of the directory of --compile-cache",                                  \
        .more =                                                                                    \
            "At the start of a job, ddrun removes what has not been used for longest from the "    \
            "directory until it has at most SIZE. A job adds at most SIZE.",                       \
        OPT_FIELD(type, compile_cache.most)                                                        \
    }

#endif
