/* torchrun's command line where it differs from ours: being called by its name, and its options
 * that need more than a field. docs/torchrun.md has the whole table. */
#ifndef DD_CMD_TORCHRUN_H
#define DD_CMD_TORCHRUN_H

#include "base/log.h"
#include "base/opt.h"

#include <signal.h>

struct ddrun_options;

/* What of --rdzv-conf means something here. */
struct rdzv_conf {
    uint64_t join_ns, last_call_ns, dead_ns; /* 0: not said */
    const char *text;                        /* as it was written; NULL: it was not */
    char unknown[64]; /* a key that torchrun does not know either; "": none */
};

struct signal_list {
    const char *text; /* as it was written */
    sigset_t set;
    char unknown[32]; /* a name in it that no signal has; "": none */
};

/* For OPT_CUSTOM rows. */
int torchrun_parse_backend(const char *text, void *field, struct dd_err *err); /* const char * */
int torchrun_parse_conf(const char *text, void *field, struct dd_err *err); /* struct rdzv_conf */
int torchrun_parse_signals(const char *text, void *field,
                           struct dd_err *err); /* struct signal_list */
int torchrun_parse_logs_specs(const char *text, void *field, struct dd_err *err); /* const char * */

/* The value of the last such key, given (free()); NULL: there is none. */
int torchrun_conf_get(char **ret, const struct rdzv_conf *conf, const char *key,
                      struct dd_err *err);

/* Whether argv[0] is torchrun, whatever stands before it. */
bool torchrun_is_name(const char *argv0);
/* ddrun's rows with the defaults that torchrun states for its own options (free()); NULL: no
 * memory. */
struct opt_row *torchrun_rows(const struct opt_table *t);
/* After parsing: torchrun's defaults when called by its name, and what --rdzv-conf says where no
 * option of ours does. */
void torchrun_apply(struct ddrun_options *o, const struct opt_table *t,
                    const struct opt_result *res, bool by_name);
/* One line for each option that is taken but does less than it says. */
void torchrun_tell(const struct ddrun_options *o, const struct dd_log *log);
/* --virtual-local-rank needs a GPU per worker in CUDA_VISIBLE_DEVICES, when that is set. */
int torchrun_check_gpus(const struct ddrun_options *o, char *const *env, int slots,
                        struct dd_err *err);
/* What ddrun returns for a job that ended with `code`. */
int torchrun_exit_code(const struct ddrun_options *o, int code);

#endif
