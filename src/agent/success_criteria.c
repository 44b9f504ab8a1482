/* Roles that never end by themselves: once the tasks that count have succeeded on all nodes, the
 * daemon stops the others, and that is success. Here: this node's part of it is done. */
#include "agent/inner.h"

#include "framework/tf_roles.h"

static int counting(const struct agent *a, bool *ret_mine, int local_rank)
{
    struct tf_roles r = *a->cfg->tf_roles;
    int n = 0;
    if (tf_roles_fit(&r, a->round->plan.world_size, NULL) < 0)
        return 0;
    for (int i = 0; i < a->round->plan.local_size; i++) {
        bool one = tf_roles_count(&r, tf_roles_task(&r, a->round->plan.first_rank + i).type);
        n += one;
        if (i == local_rank)
            *ret_mine = one;
    }
    return n;
}

static void tell(struct agent *a)
{
    if (a->enough_left == 0)
        agent_send(a, MSG(SUCCESS_CRITERIA_MET, .round = a->round->plan.round));
}

static bool is_asked(const struct agent *a)
{
    return a->cfg->tf_roles != NULL && tf_roles_any_follower(a->cfg->tf_roles);
}

void enough_begin(struct agent *a)
{
    bool mine;
    if (!is_asked(a))
        return;
    a->enough_left = counting(a, &mine, -1);
    tell(a);
}

bool enough_said(const struct agent *a)
{
    return is_asked(a) && a->memory.last.n > 0 && a->enough_left == 0;
}

void enough_worker(struct agent *a, const struct worker_exit *e)
{
    bool mine = false;
    if (!is_asked(a) || e->code != 0)
        return;
    (void)counting(a, &mine, e->local_rank);
    if (!mine)
        return;
    a->enough_left--;
    tell(a);
}
