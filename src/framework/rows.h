/* The contracts, for the table in framework.c. */
#ifndef DD_FRAMEWORK_ROWS_H
#define DD_FRAMEWORK_ROWS_H

#include "framework/framework.h"

extern const struct framework_ops framework_launcher;
extern const struct framework_ops framework_torch;
extern const struct framework_ops framework_deepspeed;
extern const struct framework_ops framework_slurm;
extern const struct framework_ops framework_jax;
extern const struct framework_ops framework_tensorflow;
extern const struct framework_ops framework_mpi;

/* Sets NAME only where the environment does not have it. 0 or -ENOMEM. */
int framework_default(struct dd_strv *env, const char *name, const char *value);

/* CUDA_VISIBLE_DEVICES becomes the n-th of the GPUs that are visible; a list that is too short leaves none. */
int framework_one_gpu(struct dd_strv *env, int n);

#endif
