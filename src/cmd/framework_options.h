/* What ddrun and ddctl env are told alike of frameworks and of the workers' variables: values,
 * rows, checks. */
#ifndef DD_CMD_TOLD_H
#define DD_CMD_TOLD_H

#include "base/opt.h"
#include "framework/tf_roles.h"

struct told {
    int names; /* --framework: bits of FRAMEWORK_* */
    bool tf;
    struct tf_roles roles; /* n = 0: not said */
    struct dd_strv env;    /* worker/rules.h */
};

/* Rows but for their texts, for a struct that has `struct told told`. */
#define TOLD_FRAMEWORK(type)                                                                       \
    .name = "framework", .kind = OPT_CUSTOM, .metavar = "NAME,...", .example = "jax",              \
    .parse = told_parse_framework, OPT_FIELD(type, told.names)
#define TOLD_TF(type) .name = "tf", .kind = OPT_FLAG, OPT_FIELD(type, told.tf)
#define TOLD_ROLES(type)                                                                           \
    .name = "roles", .kind = OPT_CUSTOM, .metavar = "TYPE:N,...",                                  \
    .example = "chief:1,ps:2,worker:*", .def_doc = "worker:*", .parse = told_parse_roles,          \
    OPT_FIELD(type, told.roles)
#define TOLD_ENV(type)                                                                             \
    .name = "env", .kind = OPT_REPEATED, .metavar = "[RANKS:]NAME=VALUE", .no_env = true,          \
    .example = "NCCL_DEBUG=INFO", OPT_FIELD(type, told.env)

int told_parse_framework(const char *text, void *field, struct dd_err *err);
int told_parse_roles(const char *text, void *field, struct dd_err *err);

/* All frameworks that are asked for, by whichever option. */
int told_frameworks(const struct told *t);
/* NULL: nothing is said of them. */
const struct tf_roles *told_roles(const struct told *t);
int told_check(const struct told *t, struct dd_err *err);

#endif
