/* alloc: results for the environments of real jobs (tests/data/env). */
#include "alloc/alloc.h"
#include "base/num.h"
#include "launch/starter.h"
#include "node/gpu.h"
#include "recorded_world.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define S "slurm-22.05-"
#define P "openpbs-23.06-"
#define STEP "slurm-step"
#define TWO "node[1-2].cluster.test"

static void data_path(char *out, size_t size)
{
    const char *srcdir = getenv("srcdir");
    (void)snprintf(out, size, "%s/tests/data/env", srcdir != NULL ? srcdir : ".");
}

static void assert_folded(const struct hostlist *h, const char *expr)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 20);
    assert_int_equal(hostlist_fold(h, &b), 0);
    assert_string_equal(dd_buf_str(&b), expr);
}

/* A rejected job gets the command that would start it. */
static void recorded_job_is_refused_when_agents_are_missing_or_too_many(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *hostname;
        const char *text;
    } rows[] = {
        /* clang-format off */
        {S "batch.0.0", "node1",
         "in job 4, which has 3 nodes (node[1-3]), and cannot start the others\n  tip: run: srun --ntasks=3 --ntasks-per-node=1 ddrun"},
        {S "salloc.b.b", "ctl",
         "in job 9, which has 2 nodes (node[1-2]), and cannot start the others\n  tip: run: srun --ntasks=2 --ntasks-per-node=1 ddrun ..., or "
         "--nnodes=1 to use this host (ctl) alone"},
        {S "tasks4x2.0.0", "node1",
         "srun started 8 copies of ddrun on 2 nodes; it needs one per node\n  tip: run: srun -N2 --ntasks=2 --ntasks-per-node=1 ddrun "
         "--nproc-per-node=4 ..."},
        {S "resv.0.1", "node1",
         "srun started 3 copies of ddrun on 2 nodes; it needs one per node\n  tip: without --ntasks, srun takes the number of tasks "
         "from the script that calls it\n  tip: run: srun -N2 --ntasks=2 --ntasks-per-node=1 ddrun --nproc-per-node=2"},
        {S "gpupertask.1.3", "node2", "--ntasks-per-node=1 ddrun --nproc-per-node=3 ..."},
        {P "all0.script", "node1",
         "/var/spool/pbs/aux/5.pbshead of job 5.pbshead is empty; all of its chunks may have "
         "mpiprocs=0\n  tip: request -l select=N:ncpus=C:ngpus=G:mpiprocs=1 -l place=scatter"},
        {P "scatter1.script", "node1",
         "from the script of job 0.pbshead, which has 2 nodes (node[1-2].cluster.test), and "
         "cannot start the others\n  tip: run: mpiexec -n 2 --ppn 1 ddrun ..., or: for h in $(sort -u "
         "$PBS_NODEFILE); do pbs_tmrsh $h /PATH/OF/ddrun ... & done; wait"},
        {P "scatter4.script", "node1", "which has 2 nodes"},
        {P "prog.script", "node1", "which has 2 nodes"},
        {P "array2.script", "node2", "job 6[2].pbshead, which has 2 nodes"},
        {P "first0.script", "node1", "which has 2 nodes (node[2-3].cluster.test)"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        struct alloc *a = NULL;
        struct dd_err err = {.text = ""};
        recorded_load(&env, rows[i].name);
        recorded_set_nodefile(rows[i].name);
        struct alloc_input in = recorded_input(&env, rows[i].hostname);
        assert_int_equal(alloc_find(&a, &in, &err), strstr(rows[i].text, "copies") != NULL ||
                                                            strncmp(rows[i].text, "--", 2) == 0
                                                        ? ALLOC_WRONG_FOR_ALL
                                                        : -EINVAL);
        assert_null(a);
        if (strstr(err.text, rows[i].text) == NULL)
            fail_msg("%s is refused with \"%s\"", rows[i].name, err.text);
    }
}

/* The number of nodes or agents is wrong, so no command would start the job. */
static void number_that_is_not_that_of_the_job_is_refused_as_such(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *hostname;
        int nnodes;
        const char *text;
    } rows[] = {
        /* clang-format off */
        {S "batch.0.0", "node1", 4, "--nnodes=4 contradicts the 3 nodes of this job (node[1-3], source: slurm-batch)"},
        {S "batch.0.0", "node1", 2, "use --nnodes=2:2 to keep spare nodes"},
        {S "batch.0.0", "node1", 3, "cannot start the others"},
        {S "salloc.b.b", "ctl", 3, "--nnodes=3 contradicts the 2 nodes"},
        {P "scatter1.script", "node1", 3, "--nnodes=3 contradicts the 2 nodes"},
        {S "tasks4x2.0.0", "node1", 2, "srun started 8 copies of ddrun on 2 nodes"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        struct alloc *a = NULL;
        struct dd_err err = {.text = ""};
        recorded_load(&env, rows[i].name);
        recorded_set_nodefile(rows[i].name);
        struct alloc_input in = recorded_input(&env, rows[i].hostname);
        in.min_nodes = in.max_nodes = rows[i].nnodes;
        in.have_nproc = true;
        assert_true(alloc_find(&a, &in, &err) < 0);
        assert_null(a);
        if (strncmp(rows[i].text, "--", 2) == 0
                ? strncmp(err.text, rows[i].text, strlen(rows[i].text)) != 0
                : strstr(err.text, rows[i].text) == NULL)
            fail_msg("%s is refused with \"%s\"", rows[i].name, err.text);
    }
}

/* Options name two nodes, and srun has started four copies of ddrun on each: the first one has the
 * node's place in the job, and no other could ever get one. */
static void surplus_copy_ends_at_once_when_options_name_the_nodes(void **state)
{
    (void)state;
    static const char *const copies[] = {"tasks4x2.0.0", "tasks4x2.0.1", "tasks4x2.1.4",
                                         "tasks4x2.1.7"};
    for (int i = 0; i < 12; i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        struct dd_err err = {.text = ""};
        char name[64];
        (void)snprintf(name, sizeof(name), S "%s", copies[i % 4]);
        recorded_load(&env, name);
        struct alloc_input in = recorded_input(&env, i % 4 < 2 ? "node1" : "node2");
        if (i < 4)
            in.hosts = "node[1-2]";
        else
            in.rdzv_endpoint = "node1:29500";
        in.min_nodes = i < 8 ? 2 : 1; /* --nnodes=1:2: a copy may replace a lost one */
        in.max_nodes = 2;
        const bool surplus = i % 2 == 1 && i < 8;
        assert_int_equal(alloc_find(&a, &in, &err), surplus ? -EINVAL : 0);
        assert_true(!surplus || err.rc == -EINVAL); /* else the first copy alone would say it */
        assert_true(!surplus || strstr(err.text, "srun started 8 copies of ddrun on 2 nodes"));
    }
}

static const struct {
    const char *name;
    const char *hostname;
    const char *source;
    const char *job_id;
    const char *run_id;
    const char *nodes;
    int index;
    int nnodes;
    uint16_t ports[5];
} places[] = {
    /* clang-format off */
    {S "step4.0.0", "node1", STEP, "slurm.dd.1.0.r0", "1", "node[1-4]", 0, 4,
     {21001, 21002}},
    {S "step4.3.3", "node4", STEP, "slurm.dd.1.0.r0", "1", "node[1-4]", 3, 4,
     {21001, 21002}},
    {S "subset.1.1", "node3", STEP, "slurm.dd.3.0.r0", "3", "node[2-4]", 1, 3,
     {21008, 21009}},
    {S "batchstep.2.2", "node3", STEP, "slurm.dd.4.0.r0", "4", "node[1-3]", 2, 3,
     {21010, 21011}},
    {S "het0.0.0", "node1", STEP, "slurm.dd.7.0.r0", "7", "node[1-3]", 0, 3,
     {21020, 21021, 21022, 21023}},
    {S "het1.2.2", "node3", STEP, "slurm.dd.7.0.r0", "7", "node[1-3]", 2, 3,
     {21020, 21021, 21022, 21023}},
    {S "tasks4x2.1.5", "node2", STEP, "slurm.dd.2.0.r0", "2", "node[1,1,1,1-2,2,2,2]", 5, 8,
     {21003, 21004, 21005, 21006, 21007}},
    {S "resv.0.1", "node1", STEP, "slurm.dd.4.1.r0", "4", "node[1,1-2]", 1, 3,
     {21012, 21013}},
    {S "resv.1.2", "node2", STEP, "slurm.dd.4.1.r0", "4", "node[1,1-2]", 2, 3,
     {21012, 21013}},
    {S "gpupertask.1.3", "node2", STEP, "slurm.dd.10.0.r0", "10", "node[1,1,1-2]", 3, 4,
     {21024, 21025, 21026, 21027}},
    {S "array.0.0", "node1", "slurm-batch", "slurm.dd.5.batch.r0", "5", "node1", 0, 1, {0}},
    {P "scatter1.dsh.node1.0", "node1", "pbs", "pbs.0.pbshead", "0.pbshead", TWO, 0, 2, {0}},
    {P "scatter1.dsh.node2.0", "node2", "pbs", "pbs.0.pbshead", "0.pbshead", TWO, 1, 2, {0}},
    {P "scatter1.tmrsh.node2", "NODE2.other.site", "pbs", "pbs.0.pbshead", "0.pbshead", TWO,
     1, 2, {0}},
    {P "scatter4.dsh.node2.3", "node2", "pbs", "pbs.1.pbshead", "1.pbshead", TWO, 1, 2, {0}},
    {P "free.script", "node1", "pbs", "pbs.2.pbshead", "2.pbshead", "node1.cluster.test",
     0, 1, {0}},
    {P "free.dsh.node1.0", "node1", "pbs", "pbs.2.pbshead", "2.pbshead",
     "node1.cluster.test", 0, 1, {0}},
    {P "hosts121.dsh.node1.0", "node1", "pbs", "pbs.3.pbshead", "3.pbshead", TWO, 0, 2, {0}},
    {P "hosts121.dsh.node2.0", "node2", "pbs", "pbs.3.pbshead", "3.pbshead", TWO, 1, 2, {0}},
    {P "first0.dsh.node2.0", "node2", "pbs", "pbs.4.pbshead", "4.pbshead",
     "node[2-3].cluster.test", 0, 2, {0}},
    {P "first0.tmrsh.node3", "node3", "pbs", "pbs.4.pbshead", "4.pbshead",
     "node[2-3].cluster.test", 1, 2, {0}},
    {P "array1.dsh.node1.0", "node1", "pbs", "pbs.6[1].pbshead", "6[1].pbshead",
     "node[1,3].cluster.test", 0, 2, {0}},
    {P "array1.tmrsh.node3", "node3", "pbs", "pbs.6[1].pbshead", "6[1].pbshead",
     "node[1,3].cluster.test", 1, 2, {0}},
    {P "array2.dsh.node3.0", "node3", "pbs", "pbs.6[2].pbshead", "6[2].pbshead",
     "node[2-3].cluster.test", 1, 2, {0}},
    {P "export.dsh.node2.0", "node2", "pbs", "pbs.7.pbshead", "7.pbshead", TWO, 1, 2, {0}},
    {P "prog.dsh.node1.0", "node1", "pbs", "pbs.8.pbshead", "8.pbshead", TWO, 0, 2, {0}},
    {P "ppn.dsh.node2.0", "node2", "pbs", "pbs.9.pbshead", "9.pbshead", TWO, 1, 2, {0}},
    /* clang-format on */
};

static void recorded_process_finds_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        struct dd_err err = {.text = ""};
        recorded_load(&env, places[i].name);
        recorded_set_nodefile(places[i].name);
        struct alloc_input in = recorded_input(&env, places[i].hostname);
        recorded_with_agents(&in);
        if (alloc_find(&a, &in, &err) != 0)
            fail_msg("%s: %s", places[i].name, err.text);
        assert_string_equal(a->source, places[i].source);
        assert_string_equal(a->job_id, places[i].job_id);
        assert_string_equal(a->run_id, places[i].run_id);
        assert_folded(a->nodes, places[i].nodes);
        assert_int_equal(a->index, places[i].index);
        assert_int_equal(a->nnodes, places[i].nnodes);
        for (int k = 0; k < 5; k++)
            assert_int_equal(k < a->nports ? a->ports[k] : 0, places[i].ports[k]);
        assert_int_equal(a->on_slurm, strncmp(a->source, "slurm", 5) == 0);
        assert_null(a->host_addr);
        assert_int_equal(a->warnings.n, 0);
    }
}

/* In all recorded steps, rank and host are those that Slurm reports. */
static void recorded_steps_agree_with_slurm(void **state)
{
    (void)state;
    char dir[4096];
    struct dirent **names = NULL;
    int steps = 0;
    data_path(dir, sizeof(dir));
    int n = scandir(dir, &names, NULL, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        DD_AUTO(free) struct dirent *entry = names[i];
        struct dd_err err = {.text = ""};
        uint64_t rank = 0;
        uint64_t tasks = 0;
        char *end = strstr(entry->d_name, ".env");
        if (strncmp(entry->d_name, "slurm-", 6) != 0 || end == NULL)
            continue;
        *end = '\0';
        recorded_load(&env, entry->d_name);
        if (dd_env_get(env.v, "SLURM_STEP_ID") == NULL)
            continue;
        struct alloc_input in = recorded_input(&env, "some-container");
        recorded_with_agents(&in);
        if (alloc_find(&a, &in, &err) != 0)
            fail_msg("%s: %s", entry->d_name, err.text);
        assert_int_equal(dd_num_u64(dd_env_get(env.v, "SLURM_PROCID"), 0, 100, &rank), 0);
        assert_int_equal(dd_num_u64(dd_env_get(env.v, "SLURM_STEP_NUM_TASKS"), 0, 100, &tasks), 0);
        assert_int_equal(a->index, rank);
        assert_int_equal(a->nnodes, tasks);
        assert_string_equal(hostlist_nth(a->nodes, (size_t)a->index),
                            dd_env_get(env.v, "SLURMD_NODENAME"));
        steps++;
    }
    free(names);
    assert_int_equal(steps, 33);
}

/* Every task runs on the host in the name of its file. */
static void recorded_pbs_tasks_find_their_host(void **state)
{
    (void)state;
    char dir[4096];
    struct dirent **names = NULL;
    int tasks = 0;
    data_path(dir, sizeof(dir));
    int n = scandir(dir, &names, NULL, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        DD_AUTO(free) struct dirent *entry = names[i];
        struct dd_err err = {.text = ""};
        char host[64];
        char *end = strstr(entry->d_name, ".env");
        char *node = strstr(entry->d_name, ".node");
        if (strncmp(entry->d_name, P, strlen(P)) != 0 || end == NULL || node == NULL)
            continue;
        *end = '\0';
        recorded_load(&env, entry->d_name);
        recorded_set_nodefile(entry->d_name);
        (void)snprintf(host, sizeof(host), "%.5s", node + 1);
        struct alloc_input in = recorded_input(&env, host);
        if (alloc_find(&a, &in, &err) != 0)
            fail_msg("%s: %s", entry->d_name, err.text);
        (void)snprintf(host, sizeof(host), "%.5s.cluster.test", node + 1);
        assert_string_equal(hostlist_nth(a->nodes, (size_t)a->index), host);
        assert_int_equal(a->nnodes, hostlist_count(a->nodes));
        tasks++;
    }
    free(names);
    assert_int_equal(tasks, 54);
}

static void recorded_pbs_tasks_of_one_job_agree(void **state)
{
    (void)state;
    static const char *const names[] = {
        P "scatter1.dsh.node1.0",
        P "scatter1.dsh.node2.0",
        P "scatter1.tmrsh.node1",
        P "scatter1.tmrsh.node2",
    };
    DD_AUTO(free) char *first = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        recorded_load(&env, names[i]);
        recorded_set_nodefile(names[i]);
        struct alloc_input in = recorded_input(&env, strstr(names[i], "node1") != NULL ? "node1"
                                                                                       : "node2");
        assert_int_equal(alloc_find(&a, &in, NULL), 0);
        assert_string_equal(a->cookie, "11BD13BF7FC067B6640ECAE558DA9E89");
        assert_null(a->psk);
        assert_string_equal(a->job_id, "pbs.0.pbshead");
        if (first == NULL)
            first = DD_TAKE(a->job_id);
        else
            assert_string_equal(a->job_id, first);
    }
}

/* A host name that is in no list, as in a container: PBS_NODENUM decides, except in a script. */
static void recorded_pbs_task_falls_back_to_its_number(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int index; /* -1: rejected */
    } rows[] = {
        {P "scatter1.dsh.node1.0", 0}, {P "scatter1.dsh.node2.0", 1}, {P "array2.dsh.node3.0", 1},
        {P "first0.dsh.node3.0", -1},  {P "scatter1.script", -1},     {P "free.script", -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        recorded_load(&env, rows[i].name);
        recorded_set_nodefile(rows[i].name);
        struct alloc_input in = recorded_input(&env, "3f1c22d0");
        assert_int_equal(alloc_find(&a, &in, NULL), rows[i].index < 0 ? -EINVAL : 0);
        if (a != NULL)
            assert_int_equal(a->index, rows[i].index);
    }
}

/* With --nnodes=1 several agents are several jobs. */
static void recorded_process_runs_alone_when_told_so(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *hostname;
        const char *job_id;
        const char *nodes;
    } rows[] = {
        {S "step4.2.2", "node3", "slurm.dd.1.0.r0.n2", "node3"},
        {S "batch.0.0", "node1", "slurm.dd.4.batch.r0.n0", "node1"},
        {S "salloc.b.b", "ctl", "local.ctl.0000000000000001", "ctl"},
        {P "first0.script", "node1", "local.node1.0000000000000001", "node1"},
        {P "scatter1.script", "node1", "pbs.0.pbshead", "node1.cluster.test"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        struct dd_err err = {.text = ""};
        recorded_load(&env, rows[i].name);
        recorded_set_nodefile(rows[i].name);
        struct alloc_input in = recorded_input(&env, rows[i].hostname);
        in.min_nodes = in.max_nodes = 1;
        if (alloc_find(&a, &in, &err) != 0)
            fail_msg("%s: %s", rows[i].name, err.text);
        assert_int_equal(strncmp(a->job_id, rows[i].job_id, strlen(rows[i].job_id)), 0);
        assert_folded(a->nodes, rows[i].nodes);
        assert_int_equal(a->nnodes, 1);
        assert_int_equal(a->index, 0);
        assert_int_equal(a->nports, 0);
        assert_int_equal(a->warnings.n, 0);
    }
}

/* The list of nodes that a launcher requests before it starts any node is also limited to this
 * host. */
static void recorded_list_of_one_node_is_never_that_of_another_host(void **state)
{
    (void)state;
    static const char *const names[] = {S "salloc.b.b", S "batch.0.0", P "first0.script",
                                        P "scatter1.script"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        struct dd_err err = {.text = ""};
        recorded_load(&env, names[i]);
        recorded_set_nodefile(names[i]);
        struct alloc_input in = recorded_input(&env, "ctl");
        in.min_nodes = in.max_nodes = 1;
        in.list_only = true;
        if (alloc_find(&a, &in, &err) < 0)
            assert_int_equal(err.rc, -EINVAL);
        else
            assert_folded(a->nodes, "ctl");
    }
}

/* A process that only requests the list gets it where an agent could not start. */
static void recorded_script_gets_the_list(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *hostname;
        const char *nodes;
        int index;
    } rows[] = {
        {S "batch.0.0", "node1", "node[1-3]", 0},
        {S "salloc.b.b", "ctl", "node[1-2]", -1},
        {S "tasks4x2.1.5", "node2", "node1,node1,node1,node1,node2,node2,node2,node2", 5},
        {P "first0.script", "node1", "node[2-3].cluster.test", -1},
        {P "scatter1.script", "node1", TWO, 0},
        {P "ppn.script", "node1", TWO, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        DD_AUTO(alloc) struct alloc *a = NULL;
        DD_AUTO(hostlist) struct hostlist *wanted = NULL;
        struct dd_err err = {.text = ""};
        recorded_load(&env, rows[i].name);
        recorded_set_nodefile(rows[i].name);
        struct alloc_input in = recorded_input(&env, rows[i].hostname);
        in.list_only = true;
        if (alloc_find(&a, &in, &err) != 0)
            fail_msg("%s: %s", rows[i].name, err.text);
        assert_int_equal(hostlist_parse(&wanted, rows[i].nodes, &err), 0);
        assert_int_equal(hostlist_count(a->nodes), hostlist_count(wanted));
        for (size_t k = 0; k < hostlist_count(wanted); k++)
            assert_string_equal(hostlist_nth(a->nodes, k), hostlist_nth(wanted, k));
        assert_int_equal(a->index, rows[i].index);
        assert_int_equal(a->warnings.n, 0);
    }
}

/* ---- all recorded processes ---- */

static void assert_alloc(const struct recorded *r, const struct alloc *a, const struct dd_strv *env)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(4096);
    struct node_gpus gpus;
    struct starter const *st = starter_find(NULL, "auto", a->source);
    for (size_t i = 0; i < hostlist_count(a->nodes); i++)
        assert_int_equal(dd_buf_printf(&names, "%s%s", i > 0 ? "," : "", hostlist_nth(a->nodes, i)),
                         0);
    assert_string_equal(a->source, r->source);
    assert_string_equal(a->run_id, r->job);
    assert_string_equal(dd_buf_str(&names), r->nodes);
    assert_int_equal(a->nnodes, hostlist_count(a->nodes));
    assert_int_equal(a->index, r->index[0] == '-' ? -1 : atoi(r->index));
    assert_null(a->psk);
    assert_string_equal(a->cookie != NULL ? a->cookie : "-", r->key);
    assert_string_equal(a->script ? st->name : "-", r->start);
    assert_int_equal(a->end_time, 0); /* neither Slurm 22.05 nor PBS sets it */
    assert_int_equal(a->warnings.n, 0);
    assert_int_equal(node_gpus_count(&gpus, env->v, "/nowhere", NULL), 0);
    assert_int_equal(gpus.count, r->gpus[0] == '-' ? 0 : atoi(r->gpus));
}

static void every_recorded_process_is_read_as_expected(void **state)
{
    (void)state;
    struct recorded rows[RECORDED];
    recorded_expected(rows);
    for (size_t i = 0; i < RECORDED; i++) {
        const struct recorded *r = &rows[i];
        for (int list_only = 0; list_only < 2; list_only++) {
            DD_AUTO(strv) struct dd_strv env = {0};
            DD_AUTO(alloc) struct alloc *a = NULL;
            struct dd_err err = {.text = ""};
            recorded_load(&env, r->name);
            recorded_set_nodefile(r->name);
            struct alloc_input in = recorded_input(&env, r->host);
            recorded_with_agents(&in);
            in.list_only = list_only;
            const bool alone = strchr(r->nodes, ',') == NULL && r->index[0] != '-';
            const bool refused = r->nodes[0] == '-' || (!list_only && r->start[0] != '-' && !alone);
            if (alloc_find(&a, &in, &err) != (refused ? -EINVAL : 0))
                fail_msg("%s, %d: %s", r->name, list_only, err.text);
            if (!refused)
                assert_alloc(r, a, &env);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_job_is_refused_when_agents_are_missing_or_too_many),
        cmocka_unit_test(number_that_is_not_that_of_the_job_is_refused_as_such),
        cmocka_unit_test(surplus_copy_ends_at_once_when_options_name_the_nodes),
        cmocka_unit_test(recorded_process_finds_its_place),
        cmocka_unit_test(recorded_steps_agree_with_slurm),
        cmocka_unit_test(recorded_pbs_tasks_find_their_host),
        cmocka_unit_test(recorded_pbs_tasks_of_one_job_agree),
        cmocka_unit_test(recorded_pbs_task_falls_back_to_its_number),
        cmocka_unit_test(every_recorded_process_is_read_as_expected),
        cmocka_unit_test(recorded_process_runs_alone_when_told_so),
        cmocka_unit_test(recorded_list_of_one_node_is_never_that_of_another_host),
        cmocka_unit_test(recorded_script_gets_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
