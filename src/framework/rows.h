/* Contracts of the frameworks, for the table in framework.c. */
#ifndef DD_FRAMEWORK_ROWS_H
#define DD_FRAMEWORK_ROWS_H

#include "framework/framework.h"

/* Add one contract's variables to the environment of a worker. -ENOMEM; -ENOTSUP: a restart would
 * fail, too. */
typedef int framework_env_f(struct dd_strv *env, const struct framework_input *in,
                            struct dd_err *err);
framework_env_f framework_own_variables;
framework_env_f framework_torch;
framework_env_f framework_deepspeed;
framework_env_f framework_horovod;
framework_env_f framework_slurm;
framework_env_f framework_tensorflow;
framework_env_f framework_mpi;
framework_env_f framework_jax;
framework_env_f framework_oneccl;
framework_env_f framework_paddle;
framework_env_f framework_mindspore;

extern const char framework_mindspore_wrap[];

enum {
    FRAMEWORK_STRING_MAX = 128 * 1024
}; /* the kernel's MAX_ARG_STRLEN: size limit of a variable */

/* Set NAME if the environment does not contain it. Return 0 or -ENOMEM. */
int framework_default(struct dd_strv *env, const char *name, const char *value);

struct framework_number {
    const char *name;
    int value;
};

/* Set n variables to decimal numbers. Return 0 or -ENOMEM. */
int framework_numbers(struct dd_strv *env, const struct framework_number *v, size_t n);

/* Reduce CUDA_VISIBLE_DEVICES to its n-th entry, or to none if the list is too short. */
int framework_one_gpu(struct dd_strv *env, int n);

#endif
