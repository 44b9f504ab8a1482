#include "framework/framework.h"

#include "framework/rows.h"

#include <errno.h>
#include <string.h>

const struct framework_ops *const framework_table[] = {
    &framework_launcher,
    &framework_torch,
    &framework_deepspeed,
    &framework_slurm,
    &framework_tensorflow,
    &framework_mpi,
    &framework_jax, /* after Slurm: it looks at what is there by then */
    NULL,
};

int framework_env(struct dd_strv *out, char *const *agent_env, const struct framework_input *in,
                  struct dd_err *err)
{
    struct framework_input found = *in;
    found.nested = dd_env_get(agent_env, "DDRUN_ROUND") != NULL;
    int rc = dd_strv_copy(out, agent_env);
    for (const struct framework_ops *const *f = framework_table; *f != NULL && rc == 0; f++)
        rc = (*f)->env(out, &found, err);
    return rc == -ENOMEM ? dd_err_set(err, rc, "out of memory for a worker's environment") : rc;
}

static const struct {
    const char *name;
    int bit;
} asked_for[] = {
    {"jax", FRAMEWORK_JAX},
    {"tensorflow", FRAMEWORK_TF},
};

int framework_parse(const char *names, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv list = {0};
    int bits = 0;
    if (dd_strv_split(&list, names, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < list.n; i++) {
        int bit = 0;
        for (size_t k = 0; k < sizeof(asked_for) / sizeof(asked_for[0]); k++)
            if (strcmp(list.v[i], asked_for[k].name) == 0)
                bit = asked_for[k].bit;
        if (bit == 0)
            return dd_err_set(err, -EINVAL,
                              "'%s' is no framework that has to be asked for; write jax or tensorflow (PyTorch and DeepSpeed need nothing)",
                              list.v[i]);
        bits |= bit;
    }
    return bits;
}
