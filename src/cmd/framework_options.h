/* Options for frameworks and for variables of the workers, shared by ddrun and ddctl env: values,
 * rows, checks. */
#ifndef DD_CMD_FRAMEWORK_OPTIONS_H
#define DD_CMD_FRAMEWORK_OPTIONS_H

#include "base/opt.h"
#include "framework/tf_roles.h"

struct framework_options {
    int names; /* --framework: bits of FRAMEWORK_* */
    bool tf;
    struct tf_roles roles; /* n = 0: not set */
    struct dd_strv env;    /* rules, see worker/rules.h */
};

/* Option rows without their help texts, for a struct that has `struct framework_options framework`.
 */
#define OPTION_FRAMEWORK(type)                                                                     \
    .name = "framework", .kind = OPT_CUSTOM, .metavar = "NAME,...", .example = "jax",              \
    .parse = framework_options_parse_names, OPT_FIELD(type, framework.names)
#define OPTION_TF(type) .name = "tf", .kind = OPT_FLAG, OPT_FIELD(type, framework.tf)
#define OPTION_ROLES(type)                                                                         \
    .name = "roles", .kind = OPT_CUSTOM, .metavar = "TYPE:N,...",                                  \
    .example = "chief:1,ps:2,worker:*", .def_doc = "worker:*",                                     \
    .parse = framework_options_parse_roles, OPT_FIELD(type, framework.roles)
#define OPTION_ENV(type)                                                                           \
    .name = "env", .kind = OPT_REPEATED, .metavar = "[RANKS:]NAME=VALUE", .no_env = true,          \
    .example = "NCCL_DEBUG=INFO", OPT_FIELD(type, framework.env)

int framework_options_parse_names(const char *text, void *field, struct dd_err *err);
int framework_options_parse_roles(const char *text, void *field, struct dd_err *err);

/* Return the frameworks that --framework or --tf select, as FRAMEWORK_* bits. */
int framework_options_names(const struct framework_options *t);
/* Return NULL if --roles is not given. */
const struct tf_roles *framework_options_roles(const struct framework_options *t);
int framework_options_check(const struct framework_options *t, struct dd_err *err);

#endif
