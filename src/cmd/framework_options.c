#include "cmd/framework_options.h"

#include "framework/framework.h"
#include "worker/rules.h"

#include <errno.h>

int framework_options_parse_names(const char *text, void *field, struct dd_err *err)
{
    int bits = framework_parse(text, err);
    *(int *)field = bits > 0 ? bits : 0;
    return bits < 0 ? bits : 0;
}

int framework_options_parse_roles(const char *text, void *field, struct dd_err *err)
{
    return tf_roles_parse(field, text, err);
}

int framework_options_names(const struct framework_options *t)
{
    return t->names | (t->tf ? FRAMEWORK_TF : 0);
}

const struct tf_roles *framework_options_roles(const struct framework_options *t)
{
    return t->roles.n > 0 ? &t->roles : NULL;
}

int framework_options_check(const struct framework_options *t, struct dd_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < t->env.n && rc == 0; i++)
        rc = rule_check_env(t->env.v[i], err);
    if (rc == 0 && t->roles.n > 0 && (framework_options_names(t) & FRAMEWORK_TF) == 0)
        rc = dd_err_set(err, -EINVAL, "--roles needs --tf or --framework=tensorflow");
    return rc;
}
