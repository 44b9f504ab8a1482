/* alloc: stale and contradictory variables, inserted into every recorded environment, are rejected
 * with one sentence that names the variable and the remedy. No mutation of an environment yields an
 * unknown host. */
#include "recorded_world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- rejected environments ---- */

enum kind { STEP = 1, BATCH = 2, SALLOC = 4, TASK = 8, SCRIPT = 16 }; /* PBS: the last two */

static enum kind kind_of(const struct recorded *r)
{
    if (strcmp(r->source, "pbs") == 0)
        return r->start[0] == '-' ? TASK : SCRIPT;
    if (strcmp(r->source, "slurm-step") == 0)
        return STEP;
    return r->index[0] == '-' ? SALLOC : BATCH;
}

static bool has_nodefile(const struct dd_strv *env)
{
    return dd_env_get(env->v, "PBS_NODEFILE") != NULL;
}

static bool is_first(const struct recorded *r)
{
    return strcmp(r->index, "0") == 0;
}

static bool is_het(const struct recorded *r)
{
    return strstr(r->name, "-het") != NULL;
}

/* Spoil an environment; false: the row does not apply to this process. */
typedef bool spoil_f(const struct recorded *r, struct dd_strv *env, const char **hostname);

#define SPOIL(name)                                                                                \
    static bool name(const struct recorded *r, struct dd_strv *env, const char **hostname)
#define UNUSED (void)r, (void)env, (void)hostname

SPOIL(of_another_job)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_JOB_ID", "99"), 0);
    return true;
}

SPOIL(of_another_step)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_STEP_ID", "77"), 0);
    return true;
}

SPOIL(with_no_id)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_JOB_ID", "../1"), 0);
    dd_env_unset(env, "SLURM_JOBID");
    return true;
}

SPOIL(with_more_nodes)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_STEP_NUM_NODES", "9"), 0);
    return true;
}

SPOIL(with_more_tasks)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_STEP_NUM_TASKS", "99"), 0);
    return true;
}

SPOIL(with_tasks_of_others)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_STEP_TASKS_PER_NODE", "1(x9)"), 0);
    return true;
}

SPOIL(of_another_node)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURMD_NODENAME", "elsewhere"), 0);
    return true;
}

SPOIL(beyond_the_nodes)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_NODEID", "99"), 0);
    return true;
}

SPOIL(beyond_the_tasks)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_PROCID", "99"), 0);
    return true;
}

SPOIL(without_the_steps_list)
{
    UNUSED;
    dd_env_unset(env, "SLURM_STEP_NODELIST");
    return true;
}

SPOIL(with_half_a_list)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_STEP_NODELIST", "node[1-"), 0);
    return true;
}

/* A shell in a step calls salloc, which allocates other nodes but keeps the variables of the step;
 * or it submits a script that inherits them. */
SPOIL(below_an_allocation)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_JOB_ID", "99"), 0);
    assert_int_equal(dd_env_set(env, "SLURM_JOBID", "99"), 0);
    assert_int_equal(dd_env_set(env, "SLURM_JOB_NODELIST", "other[7-8]"), 0);
    assert_int_equal(dd_env_set(env, "SLURM_NODELIST", "other[7-8]"), 0);
    return !is_het(r); /* a heterogeneous job has lists of other names, which remain */
}

SPOIL(with_more_nodes_in_the_job)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_JOB_NUM_NODES", "9"), 0);
    return true;
}

SPOIL(with_nnodes)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "SLURM_NNODES", "9"), 0);
    return true;
}

/* Variables inherited through `sbatch --export=ALL` or ssh with SendEnv. */
SPOIL(elsewhere)
{
    UNUSED;
    *hostname = "laptop";
    return true;
}

SPOIL(elsewhere_without_a_place)
{
    UNUSED;
    dd_env_unset(env, "PBS_TASKNUM");
    *hostname = "laptop";
    return strcmp(r->nodes, "-") != 0;
}

SPOIL(of_another_pbs_job)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "PBS_JOBID", "99.other"), 0);
    return has_nodefile(env);
}

SPOIL(with_no_pbs_id)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "PBS_JOBID", "a/b"), 0);
    return true;
}

SPOIL(without_the_file)
{
    UNUSED;
    recorded_set_nodefile_text(NULL);
    return true;
}

SPOIL(with_an_empty_file)
{
    UNUSED;
    recorded_set_nodefile_text("");
    return true;
}

/* The node file lacks the lines of this host. */
SPOIL(with_a_short_file)
{
    static char text[64];
    UNUSED;
    (void)snprintf(text, sizeof(text), "node%d.cluster.test\n", r->host[4] == '1' ? 2 : 1);
    recorded_set_nodefile_text(text);
    return true;
}

SPOIL(with_a_broken_file)
{
    UNUSED;
    recorded_set_nodefile_text("node1 gpus=4\n");
    return true;
}

SPOIL(with_the_number_of_the_first)
{
    UNUSED;
    assert_int_equal(dd_env_set(env, "PBS_NODENUM", "0"), 0);
    return !is_first(r);
}

static void add_all(struct dd_strv *env, const char *name)
{
    DD_AUTO(strv) struct dd_strv more = {0};
    recorded_load(&more, name);
    assert_int_equal(dd_strv_copy(env, more.v), 0);
}

SPOIL(with_pbs_of_this_host)
{
    UNUSED;
    add_all(env, "openpbs-23.06-scatter1.dsh.node1.0");
    recorded_set_nodefile("openpbs-23.06-ppn.script");
    return strcmp(r->host, "node1") == 0 || strcmp(r->host, "node2") == 0;
}

static const struct {
    int kinds;
    spoil_f *spoil;
    const char *says[3]; /* the variable and its contradiction; the remedy */
} refused[] = {
    {STEP | BATCH | SALLOC,
     of_another_job,
     {"SLURM_JOB_ID=99 contradicts SLURM_JOBID=", "contradict", "unset"}},
    {STEP,
     of_another_step,
     {"SLURM_STEP_ID=77 contradicts SLURM_STEPID=", "start ddrun with srun"}},
    {STEP | BATCH, with_no_id, {"SLURM_JOB_ID=../1 is not a valid job id"}},
    {STEP,
     with_more_nodes,
     {"SLURM_STEP_NUM_NODES=9 contradicts SLURM_STEP_NODELIST=node", "unset SLURM_STEP_NUM_NODES"}},
    {STEP,
     with_more_tasks,
     {"SLURM_STEP_NUM_TASKS=99 contradicts SLURM_STEP_TASKS_PER_NODE=", "start ddrun with srun"}},
    {STEP,
     with_tasks_of_others,
     {"SLURM_STEP_TASKS_PER_NODE=1(x9) is for 9 nodes, but SLURM_STEP_NODELIST=node"}},
    {STEP,
     of_another_node,
     {"SLURMD_NODENAME=elsewhere contradicts SLURM_NODEID=", "start ddrun with srun"}},
    {STEP, beyond_the_nodes, {"SLURM_NODEID=99 is not a number from 0 to"}},
    {STEP, beyond_the_tasks, {"SLURM_PROCID=99 is not a number from 0 to"}},
    {STEP,
     without_the_steps_list,
     {"SLURM_STEP_ID is set, but SLURM_STEP_NODELIST is not", "unset SLURM_STEP_ID"}},
    {STEP, with_half_a_list, {"SLURM_STEP_NODELIST: '[1-' has an unmatched '['"}},
    {STEP,
     below_an_allocation,
     {"SLURM_STEP_NODELIST=node", "not in SLURM_JOB_NODELIST=other[7-8]", "unset SLURM_STEP_ID"}},
    {BATCH | SALLOC,
     with_more_nodes_in_the_job,
     {"SLURM_JOB_NUM_NODES=9 contradicts SLURM_JOB_NODELIST=node", "unset"}},
    {BATCH | SALLOC, with_nnodes, {"SLURM_NNODES=9 contradicts SLURM_JOB_NODELIST=node", "unset"}},
    {BATCH | SALLOC,
     elsewhere,
     {"SLURM_JOB_ID=", "belongs to a job of another machine: this host (laptop) is not in node",
      "unset SLURM_*"}},
    {TASK | SCRIPT,
     elsewhere_without_a_place,
     {"PBS_JOBID=", "this host (laptop) is not in node", "unset PBS_*"}},
    {TASK | SCRIPT,
     of_another_pbs_job,
     {"PBS_NODEFILE=/var/spool/pbs/aux/", "is not the node file of PBS_JOBID=99.other",
      "unset PBS_*"}},
    {TASK | SCRIPT, with_no_pbs_id, {"PBS_JOBID=a/b is not a valid job id"}},
    {TASK,
     without_the_file,
     {"the node file of job", "cannot open '/var/spool/pbs/aux/", "--hosts=LIST"}},
    {SCRIPT,
     without_the_file,
     {"PBS_JOBID=", "cannot open '/var/spool/pbs/aux/",
      "run ddrun in the job's script; or unset PBS_*"}},
    {TASK | SCRIPT,
     with_an_empty_file,
     {"the node file /var/spool/pbs/aux/", "is empty", "mpiprocs=1"}},
    {TASK, with_a_short_file, {"is not in /var/spool/pbs/aux/", "mpiprocs=1"}},
    {TASK | SCRIPT, with_a_broken_file, {":1: invalid attribute 'gpus=4'", "NAME [slots=N]"}},
    {TASK,
     with_the_number_of_the_first,
     {"PBS_NODENUM=0 belongs to another host: this host (node", "start ddrun with pbs_tmrsh"}},
    {STEP | BATCH,
     with_pbs_of_this_host,
     {"variables of two jobs", "is in both", "unset SLURM_* or PBS_*"}},
};

static void assert_sentence(const char *name, size_t row, const struct dd_err *err)
{
    for (size_t k = 0; k < 3 && refused[row].says[k] != NULL; k++)
        if (strstr(err->text, refused[row].says[k]) == NULL)
            fail_msg("%s, row %zu: \"%s\"\n does not say\n\"%s\"", name, row, err->text,
                     refused[row].says[k]);
    assert_true(recorded_is_message(err->text));
    assert_true(strlen(err->text) < sizeof(err->text) - 1);
}

static void stale_and_contradictory_variables_are_refused(void **state)
{
    (void)state;
    struct recorded rows[RECORDED];
    size_t done[sizeof(refused) / sizeof(refused[0])] = {0};
    recorded_expected(rows);
    for (size_t i = 0; i < RECORDED; i++)
        for (size_t k = 0; k < sizeof(refused) / sizeof(refused[0]); k++) {
            DD_AUTO(strv) struct dd_strv env = {0};
            struct alloc *a = NULL;
            struct dd_err err = {.text = ""};
            const char *hostname = rows[i].host;
            if ((refused[k].kinds & (int)kind_of(&rows[i])) == 0)
                continue;
            recorded_load(&env, rows[i].name);
            recorded_set_nodefile(rows[i].name);
            if (!refused[k].spoil(&rows[i], &env, &hostname))
                continue;
            struct alloc_input in = recorded_input(&env, hostname);
            recorded_with_agents(&in);
            if (alloc_find(&a, &in, &err) != -EINVAL)
                fail_msg("%s, row %zu, is not refused: %s", rows[i].name, k, err.text);
            assert_null(a);
            assert_sentence(rows[i].name, k, &err);
            done[k]++;
        }
    for (size_t k = 0; k < sizeof(refused) / sizeof(refused[0]); k++)
        assert_true(done[k] > 0);
}

/* The job of this host takes precedence over variables inherited from another scheduler's job. */
static void left_over_variables_of_another_scheduler_are_ignored(void **state)
{
    (void)state;
    struct recorded rows[RECORDED];
    recorded_expected(rows);
    for (size_t i = 0; i < RECORDED; i++) {
        const struct recorded *r = &rows[i];
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(strv) struct dd_strv others = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        struct dd_err err = {.text = ""};
        const bool pbs = strcmp(r->source, "pbs") == 0;
        if (kind_of(r) == SALLOC || strcmp(r->nodes, "-") == 0 || r->index[0] == '-')
            continue;
        recorded_load(&env, r->name);
        recorded_load(&others,
                      pbs ? "slurm-22.05-subset.1.1" : "openpbs-23.06-scatter1.dsh.node2.0");
        if (pbs) { /* its step ran on other hosts */
            assert_int_equal(dd_env_set(&others, "SLURM_STEP_NODELIST", "far[2-4]"), 0);
            assert_int_equal(dd_env_set(&others, "SLURM_JOB_NODELIST", "far[2-4]"), 0);
            assert_int_equal(dd_env_set(&others, "SLURMD_NODENAME", "far3"), 0);
        }
        assert_int_equal(dd_strv_copy(&env, others.v), 0);
        recorded_set_nodefile(r->name);
        if (!pbs)
            recorded_set_nodefile_text("far1\nfar2\n");
        struct alloc_input in = recorded_input(&env, r->host);
        in.have_nproc = in.list_only = true;
        if (alloc_find(&a, &in, &err) != 0)
            fail_msg("%s: %s", r->name, err.text);
        assert_string_equal(a->source, r->source);
        assert_string_equal(a->run_id, r->job);
        assert_int_equal(a->index, atoi(r->index));
        assert_int_equal(a->warnings.n, pbs);
        if (pbs)
            assert_non_null(
                strstr(a->warnings.v[0], "SLURM_* are stale variables of job 3: this host (node"));
    }
}

/* ---- harmless environments ---- */

static void stale_variables_are_told_where_this_host_alone_is_wanted(void **state)
{
    (void)state;
    static const char *const names[] = {"slurm-22.05-batch.0.0", "slurm-22.05-salloc.b.b",
                                        "openpbs-23.06-scatter1.script"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (int worker = 0; worker < 2; worker++) {
            DD_AUTO(strv) struct dd_strv env = {0};
            DD_AUTO(alloc) struct alloc *a = NULL;
            struct dd_err err = {.text = ""};
            recorded_load(&env, names[i]);
            recorded_set_nodefile_text(NULL);
            if (worker) /* a worker of ddrun has the node list */
                assert_int_equal(dd_env_set(&env, "DDRUN_NODES", "a,b"), 0);
            struct alloc_input in = recorded_input(&env, "laptop");
            in.list_only = worker;
            in.max_nodes = in.min_nodes = !worker;
            if (alloc_find(&a, &in, &err) != 0)
                fail_msg("%s: %s", names[i], err.text);
            assert_string_equal(a->source, "local");
            assert_string_equal(a->job_id, "local.laptop.0000000000000001");
            assert_int_equal(a->warnings.n, 1);
            assert_non_null(strstr(a->warnings.v[0], "belongs to a job of another machine"));
            assert_non_null(strstr(a->warnings.v[0], "; ignoring it"));
            assert_false(a->on_slurm);
            assert_null(a->psk);
        }
}

/* A login shell on a node of the job has only the job id. */
static void an_id_without_a_list_is_no_job(void **state)
{
    (void)state;
    DD_AUTO(strv) struct dd_strv env = {0};
    DD_AUTO(alloc) struct alloc *a = NULL;
    recorded_load(&env, "slurm-22.05-batch.0.0");
    dd_env_unset(&env, "SLURM_JOB_NODELIST");
    dd_env_unset(&env, "SLURM_NODELIST");
    struct alloc_input in = recorded_input(&env, "node1");
    assert_int_equal(alloc_find(&a, &in, NULL), 0);
    assert_string_equal(a->source, "local");
    assert_int_equal(a->warnings.n, 1);
    assert_non_null(strstr(a->warnings.v[0],
                           "SLURM_JOB_ID=4 is set, but SLURM_JOB_NODELIST is not; ignoring it"));
}

/* Some sites make Slurm set PBS variables for its jobs. */
static void one_job_may_have_the_names_of_two_schedulers(void **state)
{
    (void)state;
    DD_AUTO(strv) struct dd_strv env = {0};
    DD_AUTO(alloc) struct alloc *a = NULL;
    recorded_load(&env, "slurm-22.05-step4.1.1");
    assert_int_equal(dd_strv_push(&env, "PBS_JOBID=1"), 0);
    assert_int_equal(dd_strv_push(&env, "PBS_NODEFILE=/tmp/nodes"), 0);
    recorded_set_nodefile_text("node1\nnode2\nnode3\nnode4\n");
    struct alloc_input in = recorded_input(&env, "node2");
    assert_int_equal(alloc_find(&a, &in, NULL), 0);
    assert_string_equal(a->source, "slurm-step");
    assert_int_equal(a->index, 1);
    assert_int_equal(a->warnings.n, 0);
}

/* ---- fuzzing: mutated environments ---- */

static uint32_t below(uint64_t *seed, size_t n)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (uint32_t)(*seed >> 33) % (uint32_t)n;
}

/* Unset a variable, replace it by one of another process, truncate it, change one byte or repeat
 * it. */
static void mutate(struct dd_strv *env, const struct dd_strv *other, uint64_t *seed)
{
    const uint32_t i = below(seed, env->n);
    char *entry = env->v[i];
    char *value = strchr(entry, '=');
    const size_t len = strlen(entry);
    static const char odd[] = "0123456789[](),-x. ~\xff";
    char copy[4096];
    (void)snprintf(copy, sizeof(copy), "%s", entry);
    switch (below(seed, 6)) {
    case 0:
        copy[strcspn(copy, "=")] = '\0';
        dd_env_unset(env, copy);
        break;
    case 1:
    case 2:
        (void)snprintf(copy, sizeof(copy), "%s", other->v[below(seed, other->n)]);
        value = strchr(copy, '=');
        if (value != NULL)
            *value++ = '\0';
        assert_int_equal(dd_env_set(env, copy, value != NULL ? value : ""), 0);
        break;
    case 3:
        if (value != NULL)
            value[1 + below(seed, len - (size_t)(value - entry))] = '\0';
        break;
    case 4:
        if (value != NULL && value[1] != '\0')
            value[1 + below(seed, strlen(value + 1))] = odd[below(seed, sizeof(odd) - 1)];
        break;
    default:
        assert_int_equal(dd_strv_push(env, copy), 0);
    }
}

static void know(struct hostlist *known, const char *expression)
{
    DD_AUTO(hostlist) struct hostlist *these = NULL;
    if (expression != NULL && hostlist_parse(&these, expression, NULL) == 0)
        for (size_t i = 0; i < hostlist_count(these); i++)
            assert_int_equal(hostlist_push(known, hostlist_nth(these, i)), 0);
}

static bool has(const struct hostlist *h, const char *name)
{
    for (size_t i = 0; i < hostlist_count(h); i++)
        if (strcmp(hostlist_nth(h, i), name) == 0)
            return true;
    return false;
}

/* Check that each node is in a list of the environment or in the node file, or is this host. */
static void assert_known(const struct alloc *a, const struct alloc_input *in)
{
    static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                        "SLURM_NODELIST"};
    DD_AUTO(hostlist) struct hostlist *known = NULL;
    DD_AUTO(buf) struct dd_buf file = DD_BUF_INIT(1 << 20);
    assert_int_equal(hostlist_new(&known), 0);
    assert_int_equal(hostlist_push(known, in->hostname), 0);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        know(known, dd_env_get(in->env, lists[i]));
    if (recorded_read("", &file, NULL) == 0)
        know(known, dd_buf_str(&file));
    for (size_t i = 0; i < hostlist_count(a->nodes); i++)
        if (!has(known, hostlist_nth(a->nodes, i)))
            fail_msg("where is %s from?", hostlist_nth(a->nodes, i));
    assert_true(a->index >= -1 && a->index < a->nnodes);
    assert_int_equal(a->nnodes, hostlist_count(a->nodes));
}

/* Names that no message for ddctl contains: it starts no nodes, and some of its commands lack these
 * options. */
static const char *const not_for_ddctl[] = {"ddrun", "--hosts", "--hostfile", "--nnodes",
                                            "--node-rank"};

static void any_environment_gives_known_hosts_or_one_sentence(void **state)
{
    (void)state;
    enum { ROUNDS = 120, CHANGES = 4 };
    struct recorded rows[RECORDED];
    uint64_t seed = 20261121;
    int found = 0;
    int not_found = 0;
    recorded_expected(rows);
    for (int n = 0; n < ROUNDS * RECORDED; n++) {
        const struct recorded *r = &rows[n % RECORDED];
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(strv) struct dd_strv other = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        struct dd_err err = {.text = ""};
        recorded_load(&env, r->name);
        recorded_load(&other, rows[below(&seed, RECORDED)].name);
        recorded_set_nodefile(r->name);
        for (uint32_t k = below(&seed, CHANGES) + 1; k > 0; k--)
            mutate(&env, &other, &seed);
        struct alloc_input in = recorded_input(&env, below(&seed, 4) == 0 ? "3f1c22d0" : r->host);
        in.have_nproc = below(&seed, 2) == 0;
        in.list_only = below(&seed, 2) == 0;
        if (alloc_find(&a, &in, &err) == 0) {
            assert_known(a, &in);
            found++;
        } else {
            assert_null(a);
            assert_true(recorded_is_message(err.text));
            for (size_t k = 0; in.list_only && k < sizeof(not_for_ddctl) / sizeof(not_for_ddctl[0]);
                 k++)
                if (strstr(err.text, not_for_ddctl[k]) != NULL)
                    fail_msg("%s: ddctl is told: %s", r->name, err.text);
            not_found++;
        }
    }
    assert_true(found > 1000 && not_found > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stale_and_contradictory_variables_are_refused),
        cmocka_unit_test(left_over_variables_of_another_scheduler_are_ignored),
        cmocka_unit_test(stale_variables_are_told_where_this_host_alone_is_wanted),
        cmocka_unit_test(an_id_without_a_list_is_no_job),
        cmocka_unit_test(one_job_may_have_the_names_of_two_schedulers),
        cmocka_unit_test(any_environment_gives_known_hosts_or_one_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
