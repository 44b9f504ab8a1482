/* --hang-timeout: detect workers without progress, report their stacks and end them. The exit then
 * counts as a failure. */
#ifndef DD_AGENT_HANG_WATCH_H
#define DD_AGENT_HANG_WATCH_H

#include "agent/features.h"

enum { HANG_SIGN_OUTPUT = 1, HANG_SIGN_FILE = 2 };

struct hang_watch_cfg {
    uint64_t timeout_ns; /* 0: no hang watch */
    int signs;           /* bits of HANG_SIGN_* */
    const char *command; /* run for a hung worker; NULL: send SIGABRT */
};

extern const struct round_feature hang_watch_feature;

#endif
