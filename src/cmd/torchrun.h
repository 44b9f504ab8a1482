/* torchrun's command line where it differs from ddrun's: the program name, and options that need
 * their own parser. docs/torchrun.md has the complete table. */
#ifndef DD_CMD_TORCHRUN_H
#define DD_CMD_TORCHRUN_H

#include "base/log.h"
#include "base/opt.h"

#include <signal.h>

struct ddrun_options;

/* The settings of --rdzv-conf that have an effect. */
struct rdzv_conf {
    uint64_t join_ns, last_call_ns, dead_ns; /* 0: not set */
    const char *text;                        /* the whole text; NULL: not given */
    char unknown[64]; /* the last key that torchrun does not have; "": none */
};

struct signal_list {
    const char *text; /* the text of the option */
    sigset_t set;
    char unknown[32]; /* the last unknown signal name; "": none */
};

/* Parsers of OPT_CUSTOM rows, each with the type of its field. */
int torchrun_parse_backend(const char *text, void *field, struct dd_err *err); /* const char * */
int torchrun_parse_conf(const char *text, void *field, struct dd_err *err); /* struct rdzv_conf */
int torchrun_parse_signals(const char *text, void *field,
                           struct dd_err *err); /* struct signal_list */
int torchrun_parse_logs_specs(const char *text, void *field, struct dd_err *err); /* const char * */

/* Set *ret to a copy of the value of the last key of this name (free()); NULL: not given. 0, or
 * -ENOMEM with a message. */
int torchrun_conf_get(char **ret, const struct rdzv_conf *conf, const char *key,
                      struct dd_err *err);

/* True if argv[0] is torchrun, with or without a directory. */
bool torchrun_is_name(const char *argv0);
/* Return ddrun's rows with torchrun's documented defaults (free()); NULL: out of memory. */
struct opt_row *torchrun_rows(const struct opt_table *t);
/* To be called after parsing: apply torchrun's defaults if called as torchrun, and --rdzv-conf for
 * options that are not given. */
void torchrun_apply(struct ddrun_options *o, const struct opt_table *t,
                    const struct opt_result *res, bool by_name);
/* Warn about each option that is accepted but has less effect than in torchrun. */
void torchrun_tell(const struct ddrun_options *o, const struct dd_log *log);
/* With --virtual-local-rank, check that CUDA_VISIBLE_DEVICES, if set, has an entry per worker. */
int torchrun_check_gpus(const struct ddrun_options *o, char *const *env, int slots,
                        struct dd_err *err);
/* Return ddrun's exit code for that of the job, according to --exit-code. */
int torchrun_exit_code(const struct ddrun_options *o, int code);

#endif
