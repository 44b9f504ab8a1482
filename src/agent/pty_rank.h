/* --pty: one rank has a terminal, and with it stdin. */
#ifndef DD_AGENT_PTY_RANK_H
#define DD_AGENT_PTY_RANK_H

#include "agent/features.h"

extern const struct round_feature pty_rank_feature;

/* Bytes that this worker has written to its terminal; 0 without one. */
uint64_t pty_rank_written(const struct round *r, int local_rank);

#endif
