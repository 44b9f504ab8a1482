/* --dry-run: what would be started here, as text. */
#ifndef DD_AGENT_DRY_RUN_H
#define DD_AGENT_DRY_RUN_H

#include "agent/agent.h"

/* Appends the plan, as far as one node can know it before it has met the others, and for each of
 * its workers the command and what of the environment is not ddrun's own. `simulated`: all nodes
 * are on this machine. */
int agent_dry_run(struct dd_buf *out, const struct agent_cfg *cfg, bool simulated,
                  struct dd_err *err);

#endif
