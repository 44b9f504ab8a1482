/* ddrun on a node that the ddrun of another node has started. */
#ifndef DD_CMD_DDRUN_LAUNCHED_H
#define DD_CMD_DDRUN_LAUNCHED_H

#include "cmd/local_machine.h"
#include "launch/bootstrap_payload.h"

#define LAUNCHED_ARGUMENT "--launched="

/* Callback that runs the agent of the node in a process of its own. launched_ns: dd_now_ns() when
 * launched_main() was called. */
typedef int launched_node_f(struct bootstrap_payload *p, struct local_machine *m, int index,
                            uint64_t launched_ns);

/* Fetch the node's payload with the ticket; adopt directory, limits and environment of the
 * launcher; run node(), and start the nodes that the launcher has
 * assigned to this one. Return the exit code. */
int launched_main(const char *ticket, launched_node_f *node);

#endif
