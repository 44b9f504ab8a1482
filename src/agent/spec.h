/* Arguments and environment of a worker. */
#ifndef DD_AGENT_SPEC_H
#define DD_AGENT_SPEC_H

#include "base/err.h"
#include "base/strv.h"
#include "framework/framework.h"

#include <stdbool.h>

struct agent_cfg;

struct spec_cfg {
    const struct dd_strv *program; /* resolved argument list */
    const char *role;
    enum slurm_env slurm_env;
    const char *signals_to_handle; /* TORCHELASTIC_SIGNALS_TO_HANDLE */
    bool virtual_local_rank;
    bool horovod_elastic; /* set HOROVOD_ELASTIC */
    /* worker/rules.h, checked; NULL: none */
    char *const *env_rules, *const *wrap_rules, *const *preload_rules;
};

struct spec_input {
    const struct agent_cfg *cfg;
    const struct plan *plan;
    int local_rank;
    const char *iface, *nccl_iface; /* as in struct framework_input */
    const char *error_file;
    const char *horovod_port;
    const char *store_addr, *store_port; /* as in struct framework_input */
    bool unbuffered; /* disable Python's output buffering: the output goes to a terminal */
};

/* Append to the empty *argv and *env. Errors as in framework_env(). */
int spec_make(struct dd_strv *argv, struct dd_strv *env, const struct spec_input *s,
              struct dd_err *err);

#endif
