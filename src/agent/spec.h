/* What a worker is started with. */
#ifndef DD_AGENT_SPEC_H
#define DD_AGENT_SPEC_H

#include "agent/agent.h"

struct spec_input {
    const struct agent_cfg *cfg;
    const struct plan *plan;
    int local_rank;
    const char *iface, *nccl_iface; /* as in struct framework_input */
    const char *error_file;
    const char *horovod_port;
    bool unbuffered; /* Python shall not fill buffers: a terminal is where its output goes */
};

/* Appends to the empty *argv and *env. As framework_env(). */
int spec_make(struct dd_strv *argv, struct dd_strv *env, const struct spec_input *s,
              struct dd_err *err);

#endif
