#include "rdzv/task_layout.h"

#include "alloc/task.h"
#include "base/num.h"
#include "rdzv/static_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* This process among the tasks of its launcher. */
struct me {
    struct alloc_task task;
    bool is_task;
    int node, local; /* position of the node; local rank; -1: unknown */
};

void task_layout_clear(struct task_layout *p)
{
    hostlist_free(p->nodes);
    plan_clear(&p->plan);
    *p = (struct task_layout){0};
}

static bool says_other(int slots, int found)
{
    return slots > 0 && slots != found;
}

static int contradicts(int slots, int found, const char *what, struct dd_err *err)
{
    return dd_err_set(
        err, -EINVAL,
        "--nproc-per-node=%d contradicts %s (each of them is a worker; %d on one node)"
        "\n  tip: omit --nproc-per-node",
        slots, what, found);
}

/* srun has started several tasks on a node, or --hosts repeats its name: each task is a worker. */
static int by_list(const struct task_layout_input *in, const int *sizes, int n, struct me *me,
                   struct dd_err *err)
{
    int left = in->alloc->index;
    for (int i = 0; i < n; i++)
        if (says_other(in->slots, sizes[i]))
            return contradicts(in->slots, sizes[i], "the tasks in the node list", err);
    for (int i = 0; i < n && left >= 0; left -= sizes[i++])
        if (left < sizes[i]) {
            me->node = i;
            me->local = left;
        }
    return 0;
}

/* mpiexec has started this process as one of several, without naming the nodes. */
static int by_mpi(const struct task_layout_input *in, int *sizes, int n, struct me *me,
                  struct dd_err *err)
{
    const struct alloc_task *t = &me->task;
    if (says_other(in->slots, t->local_size))
        return contradicts(in->slots, t->local_size, "the processes of mpiexec", err);
    if (n * (long)t->local_size != t->size)
        return dd_err_set(
            err, -EINVAL,
            "%s started %d process%s, %d of them here, but there %s %d node%s (source: %s)"
            "\n  tip: name the nodes with --hosts=LIST, and start the same number of processes "
            "on each",
            t->launcher, t->size, t->size == 1 ? "" : "es", t->local_size, n == 1 ? "is" : "are", n,
            n == 1 ? "" : "s", in->alloc->source);
    if (t->local_size > PLAN_MAX_SLOTS)
        return dd_err_set(err, -EINVAL, "too many processes on one node: %d (limit %d)",
                          t->local_size, PLAN_MAX_SLOTS);
    if (in->alloc->index < 0)
        return dd_err_set(err, -EINVAL,
                          "cannot determine which of the nodes this machine is"
                          "\n  tip: name the nodes with --hosts=LIST");
    for (int i = 0; i < n; i++)
        sizes[i] = t->local_size;
    me->node = in->alloc->index;
    me->local = t->local_rank;
    return 0;
}

/* The tasks that a plain srun in this script would start. Without SLURM_NTASKS: one on each node.
 */
static int by_script(const struct task_layout_input *in, int *sizes, int n, struct dd_err *err)
{
    DD_AUTO(free) int *tasks = NULL;
    const char *text = dd_env_get_nonempty(in->env, "SLURM_TASKS_PER_NODE");
    int count = 0;
    if (!in->alloc->script || !in->alloc->on_slurm || text == NULL ||
        dd_env_get_nonempty(in->env, "SLURM_NTASKS") == NULL)
        return 0;
    int rc = plan_sizes_parse(&tasks, &count, text, err);
    if (rc < 0)
        return dd_err_where(err, rc, "SLURM_TASKS_PER_NODE");
    if (count == n)
        memcpy(sizes, tasks, (size_t)n * sizeof(*sizes));
    return 0;
}

static int task_layout_count_workers(const struct task_layout_input *in, int *sizes, int n,
                                     struct me *me, struct dd_err *err)
{
    const bool srun = me->is_task && me->task.local_size == 0;
    int most = 0;
    for (int i = 0; i < n; i++)
        most = sizes[i] > most ? sizes[i] : most;
    me->node = in->alloc->index;
    me->local = -1;
    if (most > 1)
        return by_list(in, sizes, n, me, err);
    if (me->is_task && !srun)
        return by_mpi(in, sizes, n, me, err);
    me->is_task = srun && in->slots <= 1;
    for (int i = 0; i < n && in->slots > 0; i++)
        sizes[i] = in->slots;
    if (in->slots == 0) {
        int rc = by_script(in, sizes, n, err);
        if (rc < 0)
            return rc;
    }
    if (me->node >= 0 && sizes[me->node] == 1)
        me->local = 0;
    return 0;
}

/* Select n workers of a node, the first of them with local rank `first`. */
static void set(struct task_layout *p, int node, int first, int n)
{
    static_plan_select(&p->plan, node);
    p->node = node;
    p->first = first;
    p->n = n;
}

static int choose_rank(struct task_layout *p, int rank, struct dd_err *err)
{
    int node = 0;
    if (rank >= p->plan.world_size)
        return dd_err_tip(err,
                          dd_err_set(err, -EINVAL,
                                     "--rank=%d is out of range: there %s %d worker%s", rank,
                                     p->plan.world_size == 1 ? "is" : "are", p->plan.world_size,
                                     p->plan.world_size == 1 ? "" : "s"),
                          "ranks count from 0");
    while (rank >= p->plan.sizes[node])
        rank -= p->plan.sizes[node++];
    set(p, node, rank, 1);
    return 0;
}

static int choose_other(struct task_layout *p, const struct task_layout_input *in,
                        const struct me *me, struct dd_err *err)
{
    p->here = false;
    if (p->scattered)
        return dd_err_set(
            err, -EINVAL,
            "only the ranks of this worker are known: its launcher does not number ranks node by "
            "node"
            "\n  tip: number ranks node by node, for example with srun --distribution=block");
    int rc = in->rank >= 0 ? choose_rank(p, in->rank, err) : 0;
    if (rc == 0 && in->rank < 0 && in->node >= p->plan.nnodes)
        rc = dd_err_tip(err,
                        dd_err_set(err, -EINVAL, "--node=%d is out of range: there %s %d node%s",
                                   in->node, p->plan.nnodes == 1 ? "is" : "are", p->plan.nnodes,
                                   p->plan.nnodes == 1 ? "" : "s"),
                        "nodes count from 0");
    if (rc == 0 && in->rank < 0)
        set(p, in->node, 0, p->plan.sizes[in->node]);
    p->here = rc == 0 && p->node == me->node;
    return rc;
}

static int task_layout_choose(struct task_layout *p, const struct task_layout_input *in,
                              const struct me *me, struct dd_err *err)
{
    const bool script = in->alloc->script;
    p->here = true;
    if (!script && me->node >= 0 && me->local >= 0) { /* this process is a worker */
        set(p, me->node, me->local, 1);
        const int rank = me->is_task ? me->task.rank : p->plan.first_rank + me->local;
        p->scattered = rank != p->plan.first_rank + me->local;
        if (in->node < 0 && (in->rank < 0 || in->rank == rank)) {
            p->plan.first_rank = rank - me->local;
            return 0;
        }
    }
    if (in->rank >= 0 || in->node >= 0)
        return choose_other(p, in, me, err);
    if (!script && me->node >= 0)
        set(p, me->node, 0, p->plan.sizes[me->node]);
    else if (p->plan.world_size == 1)
        set(p, 0, 0, 1);
    else
        p->node = -1;
    p->here = p->node >= 0 && p->node == me->node;
    return 0;
}

int task_layout_find(struct task_layout *ret, const struct task_layout_input *in,
                     struct dd_err *err)
{
    struct me me = {0};
    DD_AUTO(free) int *sizes = NULL;
    *ret = (struct task_layout){.node = -1};
    if (in->rank >= 0 && in->node >= 0)
        return dd_err_set(err, -EINVAL, "--rank and --node are mutually exclusive");
    int rc = alloc_task_find(&me.task, in->env, err);
    if (rc < 0)
        return rc;
    me.is_task = rc == 1;
    if (static_plan_group(&ret->nodes, &sizes, in->alloc->nodes) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    const int n = (int)hostlist_count(ret->nodes);
    rc = task_layout_count_workers(in, sizes, n, &me, err);
    const struct static_plan f = {.nodes = ret->nodes, .nnodes = n, .sizes = sizes};
    if (rc == 0)
        rc = static_plan_make(&ret->plan, &f, err);
    return rc < 0 ? rc : task_layout_choose(ret, in, &me, err);
}
