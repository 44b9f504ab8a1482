/* The contracts, for the table in framework.c. */
#ifndef DD_FRAMEWORK_ROWS_H
#define DD_FRAMEWORK_ROWS_H

#include "framework/framework.h"

extern const struct framework_ops framework_launcher;
extern const struct framework_ops framework_torch;
extern const struct framework_ops framework_deepspeed;
extern const struct framework_ops framework_horovod;
extern const struct framework_ops framework_slurm;
extern const struct framework_ops framework_jax;
extern const struct framework_ops framework_tensorflow;
extern const struct framework_ops framework_mpi;
extern const struct framework_ops framework_oneccl;
extern const struct framework_ops framework_paddle;
extern const struct framework_ops framework_mindspore;

extern const char framework_mindspore_wrap[];

enum { FRAMEWORK_STRING_MAX = 128 * 1024 }; /* of one variable, the kernel's MAX_ARG_STRLEN */

/* Sets NAME only where the environment does not have it. 0 or -ENOMEM. */
int framework_default(struct dd_strv *env, const char *name, const char *value);

/* CUDA_VISIBLE_DEVICES becomes the n-th of the GPUs that are visible; a list that is too short
 * leaves none. */
int framework_one_gpu(struct dd_strv *env, int n);

#endif
