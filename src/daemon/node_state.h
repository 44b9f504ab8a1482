/* The state of a node, as ddctl and the metrics show it. */
#ifndef DD_DAEMON_NODE_STATE_H
#define DD_DAEMON_NODE_STATE_H

#include "rdzv/machine.h"

enum node_state {
    NODE_WAITING,  /* until the first round begins */
    NODE_STARTING, /* from here to NODE_ENDED: states of a member of the round */
    NODE_RUNNING,
    NODE_STOPPING,
    NODE_ENDED,    /* also: not a member when the job has finished */
    NODE_SPARE,    /* joined, but not a member of the round */
    NODE_LEFT_OUT, /* excluded from further rounds */
    NODE_STATES
};

enum node_state node_state(const struct rdzv *machine, const struct rdzv_view *v);
const char *node_state_name(enum node_state s);

#endif
