/* Parsers for options of ddrun that need more than a row of the option table. Each parses `text`
 * into `field`, the option's member of struct ddrun_options. Return 0, or -EINVAL or -ENOMEM with a
 * message in err. */
#ifndef DD_CMD_OPTION_VALUES_H
#define DD_CMD_OPTION_VALUES_H

#include "base/err.h"

#include <stdint.h>

struct signal_at {
    int sig; /* 0: not set */
    uint64_t ns;
};

/* Members of a row: a time of at most a year, 0: never. */
#define OPTION_TIME_OR_NEVER                                                                       \
    .kind = OPT_DURATION, .metavar = "TIME", .def = "0", .def_doc = "never", .min = 0,             \
    .max = INT64_C(31536000000000000)

int parse_nnodes(const char *text, void *field, struct dd_err *err);
int parse_restarts(const char *text, void *field, struct dd_err *err);
int parse_nproc(const char *text, void *field, struct dd_err *err);
int parse_signal_at(const char *text, void *field, struct dd_err *err);
int parse_drain_signal(const char *text, void *field, struct dd_err *err);
int parse_ssh_port(const char *text, void *field, struct dd_err *err);
int parse_stdin(const char *text, void *field, struct dd_err *err);
int parse_output(const char *text, void *field, struct dd_err *err);
int parse_requeue(const char *text, void *field, struct dd_err *err);
int parse_exit_rules(const char *text, void *field, struct dd_err *err);
int parse_trace(const char *text, void *field, struct dd_err *err);
int parse_hang_signs(const char *text, void *field, struct dd_err *err);
int parse_health(const char *text, void *field, struct dd_err *err);

#endif
