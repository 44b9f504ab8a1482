/* Ports reserved for listeners of the workers. The agent binds them and never listens, so that
 * workers bind them without a race. It sets SO_REUSEPORT, with which other users cannot bind them,
 * for gRPC, which sets it as well (JAX; TensorFlow with TF_GRPC_REUSE_PORT=1). Paddle and MindSpore
 * set only SO_REUSEADDR, for which the kernel does not compare users. Src: TensorFlow 2.21 and JAX
 * 0.10, measured; Paddle 3 (paddle/phi/core/distributed/store/tcp_utils.cc). */
#ifndef DD_AGENT_HELD_PORTS_H
#define DD_AGENT_HELD_PORTS_H

#include "agent/features.h"

extern const struct round_feature held_ports_feature;

/* Return the ports as text for JOIN and DONE, lent until the end of the round; "": none. */
const char *held_ports_text(const struct round *r);

#endif
