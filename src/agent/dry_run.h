/* --dry-run: describe what ddrun would start on this node. */
#ifndef DD_AGENT_DRY_RUN_H
#define DD_AGENT_DRY_RUN_H

#include "agent/agent.h"

/* Append the plan, as far as one node can foresee it, and for each worker of this node its command
 * and the environment variables that ddrun adds or changes. `simulated`: all nodes are on this
 * machine. */
int agent_dry_run(struct dd_buf *out, const struct agent_cfg *cfg, bool simulated,
                  struct dd_err *err);
/* Append the plan as a JSON object on one line; docs/json.md describes the members. */
int agent_dry_run_json(struct dd_buf *out, const struct agent_cfg *cfg, bool simulated,
                       struct dd_err *err);

#endif
