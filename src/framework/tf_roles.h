/* TensorFlow's task types: the task of each rank in the cluster. Pure. */
#ifndef DD_FRAMEWORK_TF_ROLES_H
#define DD_FRAMEWORK_TF_ROLES_H

#include "base/err.h"

#include <stdbool.h>

enum tf_type { TF_CHIEF, TF_WORKER, TF_PS, TF_EVALUATOR, TF_TYPES };
enum { TF_REST = -1 };

/* Assigned in this order, from rank 0 on. */
struct tf_roles {
    int n;
    struct tf_role {
        enum tf_type type;
        int count; /* TF_REST: all remaining ranks */
    } v[TF_TYPES];
};

struct tf_task {
    enum tf_type type;
    int index; /* index among the tasks of its type */
};

const char *tf_type_name(enum tf_type type);
/* Parse "chief:1,ps:2,worker:*,evaluator:1". -EINVAL with a message. */
int tf_roles_parse(struct tf_roles *ret, const char *text, struct dd_err *err);
/* Replace TF_REST by a number; -EINVAL if the roles do not fit the number of workers. */
int tf_roles_fit(struct tf_roles *roles, int world_size, struct dd_err *err);
/* Return the task of a rank; the roles must be fitted. */
struct tf_task tf_roles_task(const struct tf_roles *roles, int rank);
/* True if tasks of this type must succeed: the chief alone if there are parameter servers and a
 * chief, since workers then may never end; otherwise chief and workers. */
bool tf_roles_count(const struct tf_roles *roles, enum tf_type type);
/* True if some tasks are stopped when the others have succeeded. */
bool tf_roles_any_follower(const struct tf_roles *roles);

#endif
