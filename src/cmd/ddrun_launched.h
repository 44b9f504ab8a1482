/* ddrun on a node where another node's ddrun has started it. */
#ifndef DD_CMD_DDRUN_LAUNCHED_H
#define DD_CMD_DDRUN_LAUNCHED_H

#include "cmd/local_machine.h"
#include "launch/bootstrap_payload.h"

#define LAUNCHED_ARGUMENT "--launched="

/* Runs the node's agent, in a process of its own. */
typedef int launched_node_f(struct bootstrap_payload *p, const struct local_machine *m, int index);

/* Fetches the node's payload with the ticket; makes directory, limits and environment those of the
 * launcher; runs node(), and the launcher of the nodes that this one is to start. The exit code. */
int launched_main(const char *ticket, launched_node_f *node);

#endif
