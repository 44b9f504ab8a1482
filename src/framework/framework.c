#include "framework/framework.h"

#include "framework/rows.h"

#include <errno.h>

const struct framework_ops *const framework_table[] = {
    &framework_launcher,
    &framework_torch,
    &framework_deepspeed,
    &framework_slurm,
    NULL,
};

int framework_env(struct dd_strv *out, char *const *agent_env, const struct framework_input *in,
                  struct dd_err *err)
{
    int rc = dd_strv_copy(out, agent_env);
    for (const struct framework_ops *const *f = framework_table; *f != NULL && rc == 0; f++)
        rc = (*f)->env(out, in, err);
    return rc == -ENOMEM ? dd_err_set(err, rc, "out of memory for a worker's environment") : rc;
}
