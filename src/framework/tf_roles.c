#include "framework/tf_roles.h"

#include "base/auto.h"
#include "base/num.h"
#include "base/strv.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

const char *tf_type_name(enum tf_type type)
{
    static const char *const names[TF_TYPES] = {"chief", "worker", "ps", "evaluator"};
    return type < TF_TYPES ? names[type] : "?";
}

static const struct tf_role *find(const struct tf_roles *roles, enum tf_type type)
{
    for (int i = 0; i < roles->n; i++)
        if (roles->v[i].type == type)
            return &roles->v[i];
    return NULL;
}

/* Parse "worker:*"; modifies the item. */
static int parse_role(struct tf_roles *r, char *item)
{
    char *colon = strchr(item, ':');
    struct tf_role role = {.type = TF_CHIEF};
    if (colon == NULL)
        return -EINVAL;
    *colon = '\0';
    while (role.type < TF_TYPES && strcmp(item, tf_type_name(role.type)) != 0)
        role.type++;
    const int most = role.type == TF_CHIEF || role.type == TF_EVALUATOR ? 1 : INT_MAX;
    if (role.type == TF_TYPES || find(r, role.type) != NULL)
        return -EINVAL;
    if (strcmp(colon + 1, "*") == 0 && most > 1)
        role.count = TF_REST;
    else if (dd_num_int(colon + 1, 1, most, &role.count) < 0)
        return -EINVAL;
    for (int i = 0; i < r->n && role.count == TF_REST; i++)
        if (r->v[i].count == TF_REST)
            return -EINVAL;
    r->v[r->n++] = role;
    return 0;
}

int tf_roles_parse(struct tf_roles *ret, const char *text, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv items = {0};
    struct tf_roles r = {0};
    if (dd_strv_split(&items, text, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = items.n > 0 ? 0 : -EINVAL;
    for (size_t i = 0; i < items.n && rc == 0; i++)
        rc = parse_role(&r, items.v[i]);
    if (rc == 0 && find(&r, TF_CHIEF) == NULL && find(&r, TF_WORKER) == NULL)
        rc = -EINVAL;
    if (rc < 0)
        return dd_err_set(
            err, rc,
            "invalid task list '%s': expected TYPE:NUMBER separated by commas, such as "
            "chief:1,ps:2,worker:*"
            "\n  tip: name each of chief, worker, ps and evaluator at most once, a chief or workers at "
            "least, one chief and one evaluator at most, and '*' for the rest at most once",
            text);
    *ret = r;
    return 0;
}

int tf_roles_fit(struct tf_roles *roles, int world_size, struct dd_err *err)
{
    long sum = 0;
    struct tf_role *rest = NULL;
    for (int i = 0; i < roles->n; i++) {
        if (roles->v[i].count == TF_REST)
            rest = &roles->v[i];
        else
            sum += roles->v[i].count;
    }
    if (rest != NULL ? sum >= world_size : sum != world_size)
        return dd_err_set(err, -EINVAL, "--roles names %ld task%s%s, but this job has %d worker%s",
                          sum, sum == 1 ? "" : "s", rest != NULL ? " and at least one more" : "",
                          world_size, world_size == 1 ? "" : "s");
    if (rest != NULL)
        rest->count = world_size - (int)sum;
    return 0;
}

struct tf_task tf_roles_task(const struct tf_roles *roles, int rank)
{
    int i = 0;
    while (i + 1 < roles->n && rank >= roles->v[i].count)
        rank -= roles->v[i++].count;
    return (struct tf_task){.type = roles->v[i].type, .index = rank};
}

bool tf_roles_count(const struct tf_roles *roles, enum tf_type type)
{
    if (type == TF_CHIEF)
        return true;
    return type == TF_WORKER && (find(roles, TF_PS) == NULL || find(roles, TF_CHIEF) == NULL);
}

bool tf_roles_any_follower(const struct tf_roles *roles)
{
    for (int i = 0; i < roles->n; i++)
        if (!tf_roles_count(roles, roles->v[i].type))
            return true;
    return false;
}
