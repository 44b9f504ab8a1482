/* Options that name ranks: --stdin, --pty, --env, --wrap, --preload, --local-ranks-filter. */
#ifndef DD_AGENT_RANK_OPTIONS_H
#define DD_AGENT_RANK_OPTIONS_H

#include "agent/agent.h"
#include "rdzv/plan.h"

/* Refuse a rank that the job does not have: -ENOTSUP. An elastic job may have it in a later round,
 * so its first node only warns, once. A local rank may exist on some nodes only: the first node
 * warns if no node has a local rank that --local-ranks-filter names. */
int rank_options_check(const struct agent_cfg *cfg, const struct plan *p, struct dd_err *err);

#endif
