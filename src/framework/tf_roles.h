/* TensorFlow's roles: which rank is which task of the cluster. Pure. */
#ifndef DD_FRAMEWORK_TF_ROLES_H
#define DD_FRAMEWORK_TF_ROLES_H

#include "base/err.h"

#include <stdbool.h>

enum tf_type { TF_CHIEF, TF_WORKER, TF_PS, TF_EVALUATOR, TF_TYPES };
enum { TF_REST = -1 };

/* Given out in this order, from rank 0 on. */
struct tf_roles {
    int n;
    struct tf_role {
        enum tf_type type;
        int count; /* TF_REST: who is left */
    } v[TF_TYPES];
};

struct tf_task {
    enum tf_type type;
    int index; /* among those of its type */
};

const char *tf_type_name(enum tf_type type);
/* "chief:1,ps:2,worker:*,evaluator:1"; -EINVAL with a sentence. */
int tf_roles_parse(struct tf_roles *ret, const char *text, struct dd_err *err);
/* Puts numbers in for TF_REST; -EINVAL when the roles do not fit the number of workers. */
int tf_roles_fit(struct tf_roles *roles, int world_size, struct dd_err *err);
/* Of fitted roles and a rank of theirs. */
struct tf_task tf_roles_task(const struct tf_roles *roles, int rank);
/* Whether the job is over when all these tasks have succeeded: the chief where there are parameter
 * servers, whose workers never end; else chief and workers. */
bool tf_roles_count(const struct tf_roles *roles, enum tf_type type);
/* Some tasks are ended by others' success. */
bool tf_roles_any_follower(const struct tf_roles *roles);

#endif
