#include "daemon/node_state.h"

enum node_state node_state(const struct rdzv *machine, const struct rdzv_view *v)
{
    const enum rdzv_state job = rdzv_state(machine);
    if (!v->part)
        return v->unfit                ? NODE_LEFT_OUT
               : job == RDZV_GATHERING ? NODE_WAITING
               : job == RDZV_FINISHED  ? NODE_ENDED
                                       : NODE_SPARE;
    if (v->done)
        return NODE_ENDED;
    return job == RDZV_STOPPING ? NODE_STOPPING : v->started ? NODE_RUNNING : NODE_STARTING;
}

const char *node_state_name(enum node_state s)
{
    static const char *const names[NODE_STATES] = {
        [NODE_WAITING] = "waiting",   [NODE_STARTING] = "starting", [NODE_RUNNING] = "running",
        [NODE_STOPPING] = "stopping", [NODE_ENDED] = "ended",       [NODE_SPARE] = "spare",
        [NODE_LEFT_OUT] = "left-out",
    };
    return names[s];
}
