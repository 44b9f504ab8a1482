#include "cmd/framework_options.h"

#include "framework/framework.h"
#include "worker/rules.h"

#include <errno.h>

int told_parse_framework(const char *text, void *field, struct dd_err *err)
{
    int bits = framework_parse(text, err);
    *(int *)field = bits > 0 ? bits : 0;
    return bits < 0 ? bits : 0;
}

int told_parse_roles(const char *text, void *field, struct dd_err *err)
{
    return tf_roles_parse(field, text, err);
}

int told_frameworks(const struct told *t)
{
    return t->names | (t->tf ? FRAMEWORK_TF : 0);
}

const struct tf_roles *told_roles(const struct told *t)
{
    return t->roles.n > 0 ? &t->roles : NULL;
}

int told_check(const struct told *t, struct dd_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < t->env.n && rc == 0; i++)
        rc = rule_check_env(t->env.v[i], err);
    if (rc == 0 && t->roles.n > 0 && (told_frameworks(t) & FRAMEWORK_TF) == 0)
        rc = dd_err_set(err, -EINVAL, "--roles is for TensorFlow; write --tf as well");
    return rc;
}
