#include "agent/success_criteria.h"

#include "agent/agent.h"
#include "framework/tf_roles.h"
#include "rdzv/msg.h"

#include <errno.h>
#include <stdlib.h>

struct success_criteria {
    int round;         /* round that required_left belongs to */
    int required_left; /* required workers of this node that have yet to succeed; -1: no worker has
                          started */
};

/* Count the required workers of this node; *ret_mine: whether `local_rank` is one. */
static int count_required(const struct round *r, bool *ret_mine, int local_rank)
{
    struct tf_roles roles = *r->cfg->tf_roles;
    int n = 0;
    if (tf_roles_fit(&roles, r->plan.world_size, NULL) < 0)
        return 0;
    for (int i = 0; i < r->plan.local_size; i++) {
        bool one = tf_roles_count(&roles, tf_roles_task(&roles, r->plan.first_rank + i).type);
        n += one;
        if (i == local_rank)
            *ret_mine = one;
    }
    return n;
}

static void report_if_met(const struct success_criteria *s, const struct round *r)
{
    if (s->required_left == 0)
        round_send(r, MSG(SUCCESS_CRITERIA_MET, .round = r->plan.round));
}

bool success_criteria_met(const struct round *r)
{
    const struct success_criteria *s = features_state(r, &success_criteria_feature);
    return s != NULL && r->plan.nnodes > 0 && s->round == r->plan.round && s->required_left == 0;
}

/* ---- hooks ---- */

static int success_criteria_create(void **state, const struct round *r, struct dd_err *err)
{
    if (r->cfg->tf_roles == NULL || !tf_roles_any_follower(r->cfg->tf_roles))
        return 0;
    struct success_criteria *s = *state = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->required_left = -1;
    return 0;
}

static int success_criteria_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct success_criteria *s = *state;
    (void)err;
    if (s != NULL)
        *s = (struct success_criteria){.round = r->plan.round, .required_left = -1};
    return 0;
}

static int success_criteria_started(void *state, const struct round *r, struct dd_err *err)
{
    struct success_criteria *s = state;
    bool mine;
    (void)err;
    s->required_left = count_required(r, &mine, -1);
    report_if_met(s, r);
    return 0;
}

static void success_criteria_verdict(void *state, const struct round *r,
                                     const struct worker_end *end)
{
    struct success_criteria *s = state;
    bool mine = false;
    if (end->exit.code == 0)
        (void)count_required(r, &mine, end->exit.local_rank);
    if (!mine)
        return;
    s->required_left--;
    report_if_met(s, r);
}

const struct round_feature success_criteria_feature = {
    .name = "success-criteria",
    .create = success_criteria_create,
    .prepare = success_criteria_prepare,
    .started = success_criteria_started,
    .verdict = success_criteria_verdict,
    .destroy = free,
};
