/* Ports for what the workers listen on: bound here and never listened on, so that a worker takes
 * them without a race, and with SO_REUSEPORT, so that no other user can. gRPC sets it (JAX;
 * TensorFlow where TF_GRPC_REUSE_PORT=1); Paddle and MindSpore set SO_REUSEADDR alone, for which
 * the kernel compares no users. Src: TensorFlow 2.21 and JAX 0.10, measured; Paddle 3
 * (paddle/phi/core/distributed/store/tcp_utils.cc). */
#ifndef DD_AGENT_HELD_PORTS_H
#define DD_AGENT_HELD_PORTS_H

#include "agent/features.h"

extern const struct round_feature held_ports_feature;

/* For JOIN and DONE, lent until the end of the round; "": none. */
const char *held_ports_text(const struct round *r);

#endif
