/* The daemon of this node. The agent starts ddrund on a socket that already listens, so that no
 * other process can take the port, and is connected to ddrund by a socket pair. */
#ifndef DD_AGENT_LEADER_H
#define DD_AGENT_LEADER_H

#include "agent/locators.h"

#include <sys/types.h>

struct leader;

int leader_new(struct leader **ret, struct agent_loop *loop, struct uplink *uplink,
               const struct locators *locators);
/* Start ddrund and join it. After a failure, ddrund does not run. */
int leader_start(struct leader *l, struct dd_err *err);
pid_t leader_daemon(const struct leader *l);         /* pid of ddrund; 0: not running */
void leader_signal(const struct leader *l, int sig); /* send sig to ddrund, if it runs */
void leader_stop(struct leader *l); /* kill ddrund if it runs, and remove the job's key file */
void leader_free(struct leader *l); /* NULL is fine */

#endif
