/* ddrund's options: the rows and the struct that they fill. */
#ifndef DD_CMD_DDRUND_OPTIONS_H
#define DD_CMD_DDRUND_OPTIONS_H

#include "base/opt.h"

struct ddrund_options {
    const char *listen;
    bool insecure;
    const char *key_file;
    const char *old_clients;
    uint64_t max_memory, max_value;
    const char *log_level;
};

extern const struct opt_table ddrund_options;

#endif
