/* Reads what the workers of this node are executing, when the daemon asks: Python frames from their
 * memory or by py-spy, else the state in the kernel. Nothing runs before a request, so a healthy
 * job has no overhead. */
#ifndef DD_AGENT_STACK_READER_H
#define DD_AGENT_STACK_READER_H

#include "agent/features.h"

#include <stdbool.h>

/* When the daemon asks for stacks without a request of ddctl. AUTO: as ON_FAILURE, but only of
 * workers that run Python. */
enum stacks_mode { STACKS_AUTO, STACKS_ON_FAILURE, STACKS_ON_HANG, STACKS_OFF };

struct stack_reader_cfg {
    enum stacks_mode mode;
    bool native;         /* also native frames; not for requests of ddctl */
    uint64_t timeout_ns; /* time limit of a request, for all nodes together */
    const char
        *py_spy; /* program that reads all frames; NULL: py-spy, only where needed; "none": never */
};

extern const struct round_feature stack_reader_feature;

#endif
