/* PyTorch's flight recorder: each worker keeps a record of its last collectives, and writes it to a
 * file when the agent asks through a named pipe, or by itself when a collective times out. */
#ifndef DD_AGENT_FLIGHT_RECORDER_H
#define DD_AGENT_FLIGHT_RECORDER_H

#include "agent/features.h"
#include "report/flight_record.h"

struct dd_scratch;

struct flight_recorder_cfg {
    const struct dd_scratch *tmp; /* private directory; NULL: no flight recorder */
};

extern const struct round_feature flight_recorder_feature;

/* Ask all workers of this node for their records. A worker that does not use NCCL has no pipe, and
 * is not asked. */
void flight_recorder_ask(const struct round *r);
/* True once each worker that was asked has written its record, or has ended; also if the feature
 * takes no part. */
bool flight_recorder_is_ready(const struct round *r);
/* Read the last record of a worker. -ENOENT: there is none; -ESTALE: it is too old to be of this
 * failure; -EPROTO: it is incomplete. */
int flight_recorder_read(const struct round *r, int local_rank, struct flight_record *ret);

#endif
