/* --pty: one rank runs on a pseudo-terminal and reads stdin. */
#ifndef DD_AGENT_PTY_RANK_H
#define DD_AGENT_PTY_RANK_H

#include "agent/features.h"

extern const struct round_feature pty_rank_feature;

/* Return the number of bytes that the worker has written to its pseudo-terminal; 0: the worker has
 * no pseudo-terminal. */
uint64_t pty_rank_written(const struct round *r, int local_rank);

#endif
