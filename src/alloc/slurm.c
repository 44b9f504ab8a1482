/* Slurm: inside a step, srun has started one agent per task and set its index; in the batch script,
 * or the shell of salloc, there is only one ddrun.
 *
 * A process of a step has SLURM_STEP_ID and SLURM_PROCID. The batch script has SLURM_PROCID, NODEID
 * and LOCALID, too (all 0), but no SLURM_STEP_ID. Src: environments recorded from Slurm 22.05.8 in
 * tests/data/env; variables as in srun(1), OUTPUT ENVIRONMENT VARIABLES.
 */
#include "alloc/alloc_inner.h"

#include "base/num.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Special step ids, not of srun: the shell of an interactive salloc, the batch script, the extern
 * step. Src: slurm.h, SLURM_INTERACTIVE_STEP and its neighbours. */
#define FIRST_SPECIAL_STEP UINT64_C(0xfffffff0)

#define VARIABLES "SLURM_*"
#define START "start ddrun with srun, or in the job's script"
#define ASK "run ddctl in a step of the job, or in its script"

static const char *var(const struct alloc_input *in, const char *name)
{
    return dd_env_get_nonempty(in->env, name);
}

static const char *job_nodelist(const struct alloc_input *in, const char **name)
{
    *name = "SLURM_JOB_NODELIST";
    if (var(in, *name) == NULL)
        *name = "SLURM_NODELIST";
    return var(in, *name);
}

/* Read the step's number; false outside of a step. */
static bool step_id(const struct alloc_input *in, uint64_t *ret)
{
    const char *text = var(in, "SLURM_STEP_ID");
    return text != NULL && var(in, "SLURM_PROCID") != NULL && var(in, "SLURM_JOB_ID") != NULL &&
           dd_num_u64(text, 0, FIRST_SPECIAL_STEP - 1, ret) == 0;
}

/* Name the job "slurm.CLUSTER.JOB.STEP.rN"; N changes when Slurm requeues the job under its old id.
 */
static int set_job(struct alloc *a, const struct alloc_input *in, const char *step,
                   struct dd_err *err)
{
    const char *job = var(in, "SLURM_JOB_ID");
    const char *cluster = var(in, "SLURM_CLUSTER_NAME");
    const char *end = var(in, "SLURM_JOB_END_TIME");
    int restarts = 0;
    int rc = alloc_env_int(in, "SLURM_RESTART_COUNT", 0, INT32_MAX, &restarts, err);
    if (rc < 0)
        return rc;
    if (in->whole_job)
        step = "all";
    bool named = cluster != NULL && alloc_id_ok(cluster);
    if (alloc_set(&a->requeue_id, "slurm.%s%s%s.%s", named ? cluster : "", named ? "." : "", job,
                  step) < 0 ||
        alloc_set(&a->job_id, "%s.r%d", a->requeue_id, restarts) < 0 ||
        alloc_set(&a->run_id, "%s", job) < 0)
        return alloc_no_memory(err);
    a->requeued = restarts > 0;
    if (end != NULL) /* only set by Slurm after 22.05; an invalid value is ignored */
        (void)dd_num_u64(end, 0, UINT64_MAX, &a->end_time);
    a->on_slurm = true;
    return 0;
}

static const char *by_srun(const struct alloc_input *in)
{
    return alloc_either(in, "start ddrun with srun", "run ddctl with srun");
}

/* Slurm sets both variables of a pair to the same value: different values belong to two jobs. */
static int check_job(const struct alloc_input *in, struct dd_err *err)
{
    static const char *const twins[][2] = {{"SLURM_JOB_ID", "SLURM_JOBID"},
                                           {"SLURM_STEP_ID", "SLURM_STEPID"}};
    if (!alloc_id_ok(var(in, "SLURM_JOB_ID")))
        return dd_err_set(err, -EINVAL, "SLURM_JOB_ID=%.80s is not a valid job id",
                          var(in, "SLURM_JOB_ID"));
    for (size_t i = 0; i < sizeof(twins) / sizeof(twins[0]); i++) {
        const char *a = var(in, twins[i][0]);
        const char *b = var(in, twins[i][1]);
        if (a != NULL && b != NULL && strcmp(a, b) != 0)
            return dd_err_set(err, -EINVAL,
                              "%s=%.40s contradicts %s=%.40s; one of them is stale"
                              "\n  tip: %s, or unset the SLURM_* variables of the other job",
                              twins[i][0], a, twins[i][1], b, by_srun(in));
    }
    return 0;
}

/* Check a variable that contains the number of nodes or tasks of a list. */
static int check_count(const struct alloc_input *in, const char *name, int n, const char *list,
                       struct dd_err *err)
{
    int said = n;
    int rc = alloc_env_int(in, name, 1, HOSTLIST_MAX, &said, err);
    if (rc < 0 || said == n)
        return rc < 0 ? rc : 0;
    return dd_err_set(err, -EINVAL,
                      "%s=%d contradicts %s=%.80s, which has %d; one of them is stale"
                      "\n  tip: unset %s, or %s",
                      name, said, list, var(in, list), n, name, by_srun(in));
}

/* Flux can run inside a Slurm step, and forwards the step's variables to the tasks of Flux. */
static bool is_in_flux(const struct alloc_input *in)
{
    return var(in, "FLUX_JOB_ID") != NULL;
}

/* ---- in a step
 * ----------------------------------------------------------------------------------- */

static int step_detect(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err)
{
    uint64_t step;
    (void)warnings;
    (void)err;
    return !is_in_flux(in) && step_id(in, &step);
}

struct step {
    struct hostlist *hosts; /* without duplicates */
    struct alloc_tasks tasks;
    int nodeid;
    int localid;
};

static void dd_auto_step(struct step *s)
{
    hostlist_free(s->hosts);
    free(s->tasks.per_node);
}

static int not_of_srun(const struct alloc_input *in, const char *lacking, struct dd_err *err)
{
    return dd_err_set(err, -EINVAL,
                      "SLURM_STEP_ID is set, but %s is not; srun did not set these variables"
                      "\n  tip: unset SLURM_STEP_ID%s",
                      lacking, alloc_either(in, ", or use --hosts=LIST", ""));
}

static int read_hosts(struct step *s, const struct alloc_input *in, struct dd_err *err)
{
    const char *list = var(in, "SLURM_STEP_NODELIST");
    if (list == NULL)
        return not_of_srun(in, "SLURM_STEP_NODELIST", err);
    int rc = hostlist_parse(&s->hosts, list, err);
    return rc < 0 ? dd_err_where(err, rc, "SLURM_STEP_NODELIST") : 0;
}

/* A shell in a step that allocates nodes or submits a job forwards the step's variables to it. A
 * heterogeneous step has the hosts of all components, which the job's list may lack. */
static int check_hosts(const struct step *s, const struct alloc_input *in, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *job = NULL;
    DD_AUTO(hostlist) struct hostlist *others = NULL;
    struct alloc_shown shown;
    const char *name;
    const char *list = job_nodelist(in, &name);
    if (list == NULL || var(in, "SLURM_HET_SIZE") != NULL)
        return 0;
    int rc = hostlist_parse(&job, list, err);
    if (rc < 0)
        return dd_err_where(err, rc, "%s", name);
    if (hostlist_difference(&others, s->hosts, job) < 0)
        return alloc_no_memory(err);
    if (hostlist_count(others) == 0)
        return 0;
    return dd_err_set(
        err, -EINVAL,
        "SLURM_STEP_NODELIST=%.80s has nodes (%s) that are not in %s=%.80s; the variables of "
        "the step are stale"
        "\n  tip: %s, or unset SLURM_STEP_ID",
        var(in, "SLURM_STEP_NODELIST"), alloc_show(&shown, others), name, list, by_srun(in));
}

static int read_tasks(struct step *s, const struct alloc_input *in, struct dd_err *err)
{
    const char *name = "SLURM_STEP_TASKS_PER_NODE";
    const char *text = var(in, name);
    if (text == NULL)
        return not_of_srun(in, name, err);
    int rc = alloc_tasks_parse(&s->tasks, text, err);
    if (rc < 0)
        return dd_err_where(err, rc, "%s", name);
    if (s->tasks.n != hostlist_count(s->hosts))
        return dd_err_set(err, -EINVAL,
                          "%s=%.80s is for %zu node%s, but SLURM_STEP_NODELIST=%.80s has %zu", name,
                          text, s->tasks.n, s->tasks.n == 1 ? "" : "s",
                          var(in, "SLURM_STEP_NODELIST"), hostlist_count(s->hosts));
    rc = check_count(in, "SLURM_STEP_NUM_NODES", (int)s->tasks.n, "SLURM_STEP_NODELIST", err);
    return rc < 0 ? rc : check_count(in, "SLURM_STEP_NUM_TASKS", s->tasks.total, name, err);
}

static int read_place(struct step *s, const struct alloc_input *in, struct dd_err *err)
{
    int nodes = (int)s->tasks.n;
    int rank;
    s->nodeid = s->localid = -1;
    int rc = alloc_env_int(in, "SLURM_NODEID", 0, nodes - 1, &s->nodeid, err);
    if (rc == 1 && s->tasks.per_node[s->nodeid] == 0)
        return dd_err_set(
            err, -EINVAL,
            "SLURM_STEP_TASKS_PER_NODE=%.80s has no task on node SLURM_NODEID=%d; one "
            "of them is stale"
            "\n  tip: %s, or unset SLURM_STEP_ID",
            var(in, "SLURM_STEP_TASKS_PER_NODE"), s->nodeid, by_srun(in));
    if (rc == 1)
        rc = alloc_env_int(in, "SLURM_LOCALID", 0, s->tasks.per_node[s->nodeid] - 1, &s->localid,
                           err);
    if (rc == 0)
        return not_of_srun(in, s->nodeid < 0 ? "SLURM_NODEID" : "SLURM_LOCALID", err);
    if (rc > 0)
        rc = alloc_env_int(in, "SLURM_PROCID", 0, s->tasks.total - 1, &rank, err);
    const char *here = var(in, "SLURMD_NODENAME");
    const char *name = rc > 0 ? hostlist_nth(s->hosts, (size_t)s->nodeid) : "";
    if (rc > 0 && here != NULL && strcmp(here, name) != 0)
        return dd_err_set(err, -EINVAL,
                          "SLURMD_NODENAME=%.80s contradicts SLURM_NODEID=%d, which is %.80s in "
                          "SLURM_STEP_NODELIST=%.80s; the variables belong to two tasks"
                          "\n  tip: %s, or unset SLURM_STEP_ID",
                          here, s->nodeid, name, var(in, "SLURM_STEP_NODELIST"), by_srun(in));
    return rc < 0 ? rc : 0;
}

/* True if --nnodes counts the tasks of the step: the user wants several agents on a node. */
static bool agents_are_meant(const struct step *s, const struct alloc_input *in)
{
    return in->have_nproc && in->max_nodes > 0 &&
           (in->max_nodes == 1 || alloc_permits(in, s->tasks.total));
}

/* srun started one agent per worker, or more agents than nodes because it took the number of tasks
 * from the calling script. */
static int refuse_tasks(const struct step *s, const struct alloc_input *in, struct dd_err *err)
{
    int said = 0; /* --ntasks-per-node of the script, which srun ignored */
    int rc = alloc_env_int(in, "SLURM_NTASKS_PER_NODE", 1, INT32_MAX, &said, err);
    const bool inherited = rc == 1 && s->tasks.most > said;
    rc = dd_err_set(err, ALLOC_WRONG_FOR_ALL,
                    "srun started %d copies of ddrun on %zu node%s; it needs one per node",
                    s->tasks.total, s->tasks.n, s->tasks.n == 1 ? "" : "s");
    if (inherited)
        rc = dd_err_tip(
            err, rc,
            "without --ntasks, srun takes the number of tasks from the script that calls it");
    if (in->have_nproc)
        return dd_err_tip(
            err, rc,
            "run: srun -N%zu --ntasks=%zu --ntasks-per-node=1 ddrun ..., or add --nnodes=%d to run %d agents",
            s->tasks.n, s->tasks.n, s->tasks.total, s->tasks.total);
    return dd_err_tip(
        err, rc, "run: srun -N%zu --ntasks=%zu --ntasks-per-node=1 ddrun --nproc-per-node=%d ...",
        s->tasks.n, s->tasks.n, s->tasks.most);
}

int alloc_refuse_surplus(const struct alloc_input *in, int n, struct dd_err *err)
{
    DD_AUTO(step) struct step s = {0};
    if (n == 1 || in->list_only || in->node_rank >= 0 || var(in, "SLURM_STEP_ID") == NULL ||
        read_hosts(&s, in, NULL) < 0 || read_tasks(&s, in, NULL) < 0 ||
        read_place(&s, in, NULL) < 0 || s.localid == 0 || s.tasks.n < (size_t)n)
        return 0;
    (void)refuse_tasks(&s, in, err);
    if (err != NULL)
        err->rc = -EINVAL; /* not ALLOC_WRONG_FOR_ALL: wrong for this copy alone */
    return -EINVAL;
}

/* Add one entry per agent. Agents of one host are adjacent, regardless of --distribution: with the
 * default (block) this is the order of SLURM_PROCID. */
static int set_agents(struct alloc *a, const struct step *s, struct dd_err *err)
{
    int rc = hostlist_new(&a->nodes);
    for (size_t i = 0; rc == 0 && i < s->tasks.n; i++) {
        if ((int)i == s->nodeid)
            a->index = (int)hostlist_count(a->nodes) + s->localid;
        for (int k = 0; rc == 0 && k < s->tasks.per_node[i]; k++)
            rc = hostlist_push(a->nodes, hostlist_nth(s->hosts, i));
    }
    a->nnodes = s->tasks.total;
    return rc < 0 ? alloc_no_memory(err) : 0;
}

static int step_ports(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    const char *ports = var(in, "SLURM_STEP_RESV_PORTS");
    int n = ports != NULL ? alloc_ports_parse(a->ports, ports, err) : 0;
    if (n < 0)
        return dd_err_where(err, n, "SLURM_STEP_RESV_PORTS");
    a->nports = n;
    return 0;
}

static int step_fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    DD_AUTO(step) struct step s = {0};
    uint64_t id = 0;
    char step[24];
    (void)step_id(in, &id);
    (void)snprintf(step, sizeof(step), "%" PRIu64, id);
    int rc = check_job(in, err);
    if (rc == 0)
        rc = read_hosts(&s, in, err);
    if (rc == 0)
        rc = check_hosts(&s, in, err);
    if (rc == 0)
        rc = read_tasks(&s, in, err);
    if (rc == 0)
        rc = read_place(&s, in, err);
    if (rc == 0 && s.tasks.most > 1 && !agents_are_meant(&s, in) && !in->list_only)
        rc = refuse_tasks(&s, in, err);
    if (rc == 0)
        rc = set_agents(a, &s, err);
    if (rc == 0 && !in->whole_job)
        rc = step_ports(a, in, err);
    return rc == 0 ? set_job(a, in, step, err) : rc;
}

static bool own(char *const *env, char ret[ALLOC_ID_SIZE])
{
    return alloc_own_is(env, "SLURM_JOB_ID", ret);
}

const struct alloc_ops alloc_slurm_step = {
    .name = "slurm-step",
    .doc = "Slurm: srun started one ddrun on each node",
    .variables = VARIABLES,
    .start = START,
    .ask = ASK,
    .detect = step_detect,
    .fill = step_fill,
    .own = own,
};

/* ---- in the batch script, or under salloc
 * -------------------------------------------------------- */

static int read_job_hosts(struct hostlist **ret, const struct alloc_input *in, struct dd_err *err)
{
    const char *name;
    const char *list = job_nodelist(in, &name);
    int rc = hostlist_parse(ret, list, err);
    if (rc < 0)
        return dd_err_where(err, rc, "%s", name);
    rc = check_count(in, "SLURM_JOB_NUM_NODES", (int)hostlist_count(*ret), name, err);
    return rc < 0 ? rc : check_count(in, "SLURM_NNODES", (int)hostlist_count(*ret), name, err);
}

/* True for the command of salloc, which runs where salloc was called, outside of slurmd. */
static bool under_salloc(const struct alloc_input *in)
{
    const char *host = var(in, "SLURM_SUBMIT_HOST");
    return host != NULL && var(in, "SLURM_NODEID") == NULL && alloc_is_me(in, host);
}

static int say_srun(const struct alloc_input *in, const struct hostlist *hosts, struct dd_err *err)
{
    struct alloc_shown shown;
    size_t n = hostlist_count(hosts);
    int rc = alloc_check_nnodes(hosts, (int)n, alloc_slurm_batch.name, in, err);
    if (rc < 0)
        return rc;
    return dd_err_tip(
        err,
        dd_err_set(
            err, -EINVAL,
            "ddrun was started once in job %.40s, which has %zu node%s (%s), and cannot start %s",
            var(in, "SLURM_JOB_ID"), n, n == 1 ? "" : "s", alloc_show(&shown, hosts),
            n == 1 ? "one there" : "the others"),
        "run: srun --ntasks=%zu --ntasks-per-node=1 ddrun ..., or --nnodes=1 to use this host (%s) alone",
        n, in->hostname);
}

static int batch_detect(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *hosts = NULL;
    struct alloc_shown shown;
    const char *name;
    const char *job = var(in, "SLURM_JOB_ID");
    if (job == NULL || is_in_flux(in))
        return 0;
    if (job_nodelist(in, &name) == NULL) { /* a login to one of the job's nodes */
        int rc = dd_strv_pushf(
            warnings, "SLURM_JOB_ID=%.40s is set, but SLURM_JOB_NODELIST is not; ignoring it", job);
        return rc < 0 ? alloc_no_memory(err) : 0;
    }
    int rc = check_job(in, err);
    if (rc == 0)
        rc = read_job_hosts(&hosts, in, err);
    if (rc < 0)
        return rc;
    if (alloc_find_me(in, hosts) >= 0)
        return 1;
    if (under_salloc(in) && in->max_nodes == 1 && !in->spares)
        return 0;
    if (under_salloc(in))
        return in->list_only ? 1 : say_srun(in, hosts, err);
    rc = dd_strv_pushf(
        warnings,
        "SLURM_JOB_ID=%.40s belongs to a job of another machine: this host (%s) is not in "
        "%s; ignoring it",
        job, in->hostname, alloc_show(&shown, hosts));
    return rc < 0 ? alloc_no_memory(err) : ALLOC_STALE;
}

static int batch_fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    int rc = read_job_hosts(&a->nodes, in, err);
    if (rc < 0)
        return rc;
    a->nnodes = (int)hostlist_count(a->nodes);
    a->index = alloc_find_me(in, a->nodes);
    if (a->index < 0) /* under salloc */
        a->index = -1;
    a->script = true;
    if (a->nnodes > 1 && in->max_nodes != 1 && !in->list_only)
        return say_srun(in, a->nodes, err);
    rc = set_job(a, in, "batch", err);
    return rc == 0 && alloc_add_command(a, in) < 0 ? alloc_no_memory(err) : rc;
}

const struct alloc_ops alloc_slurm_batch = {
    .name = "slurm-batch",
    .doc = "Slurm: the batch script or salloc shell",
    .variables = VARIABLES,
    .start = START,
    .ask = ASK,
    .detect = batch_detect,
    .fill = batch_fill,
};
