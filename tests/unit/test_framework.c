/* framework: the environment of one worker. */
#include "framework/framework.h"
#include "framework/tf_roles.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static int sizes[] = {2, 3, 2};
static char master[] = "10.0.0.1";
static char nodes[] = "node[1-3]";
static const struct plan plan = {.round = 2,
                                 .nnodes = 3,
                                 .node_rank = 1,
                                 .first_rank = 2,
                                 .local_size = 3,
                                 .world_size = 7,
                                 .restart_count = 2,
                                 .max_restarts = 5,
                                 .master_addr = master,
                                 .master_port = 31000,
                                 .sizes = sizes,
                                 .nodes = nodes};
static const struct framework_input input = {.plan = &plan,
                                             .local_rank = 1,
                                             .run_id = "job7",
                                             .role = "default",
                                             .node_name = "node2",
                                             .iface = "ib0",
                                             .error_file = ""};

struct row {
    const char *name, *value; /* NULL: must not be set */
};

static void expect(struct dd_strv *env, const struct row *rows)
{
    for (; rows->name != NULL; rows++) {
        const char *v = dd_env_get(env->v, rows->name);
        if ((v == NULL) != (rows->value == NULL) || (v != NULL && strcmp(v, rows->value) != 0))
            fail_msg("%s is %s, not %s", rows->name, v == NULL ? "(unset)" : v,
                     rows->value == NULL ? "(unset)" : rows->value);
    }
}

static void worker_gets_what_torchrun_gives(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"PATH=/bin"}, (char[]){"RANK=99"}, (char[]){"PMI_RANK=0"},
                     (char[]){"DDRUN_KEY=secret"}, NULL};
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &input, NULL), 0);
    expect(&env,
           (const struct row[]){{"PATH", "/bin"},
                                {"RANK", "3"},
                                {"LOCAL_RANK", "1"},
                                {"WORLD_SIZE", "7"},
                                {"LOCAL_WORLD_SIZE", "3"},
                                {"GROUP_RANK", "1"},
                                {"GROUP_WORLD_SIZE", "3"},
                                {"ROLE_RANK", "3"},
                                {"ROLE_WORLD_SIZE", "7"},
                                {"ROLE_NAME", "default"},
                                {"MASTER_ADDR", "10.0.0.1"},
                                {"MASTER_PORT", "31000"},
                                {"TORCHELASTIC_RESTART_COUNT", "2"},
                                {"TORCHELASTIC_MAX_RESTARTS", "5"},
                                {"TORCHELASTIC_RUN_ID", "job7"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                {"TORCHELASTIC_ERROR_FILE", ""},
                                {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                                {"OMP_NUM_THREADS", "1"},
                                {"GLOO_SOCKET_IFNAME", "ib0"},
                                {"TP_SOCKET_IFNAME", "ib0"},
                                {"NCCL_SOCKET_IFNAME", NULL},
                                {"PMI_RANK", NULL},
                                {"DDRUN_KEY", NULL},
                                {"CROSS_RANK", "1"},
                                {"CROSS_SIZE", "3"},
                                {"LOCAL_SIZE", NULL},
                                {"SLURM_PROCID", NULL},
                                {"DDRUN_ROUND", "2"},
                                {"DDRUN_NODES", "node[1-3]"},
                                {NULL, NULL}});
}

static void what_an_outer_launcher_says_of_its_process_is_gone(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"PMI_FD=7"},
                     (char[]){"PMIX_RANK=0"},
                     (char[]){"PMIX_MCA_gds=hash"},
                     (char[]){"OMPI_COMM_WORLD_RANK=0"},
                     (char[]){"OMPI_MCA_ess=pmi"},
                     (char[]){"OMPI_MCA_orte_hnp_uri=x"},
                     (char[]){"OMPI_MCA_btl_tcp_if_include=eth0"},
                     (char[]){"OMPI_MCA_pmix_base_verbose=1"},
                     (char[]){"MPI_LOCALRANKID=0"},
                     (char[]){"HYDI_CONTROL_FD=8"},
                     NULL};
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &input, NULL), 0);
    expect(&env, (const struct row[]){{"PMI_FD", NULL},
                                      {"PMIX_RANK", NULL},
                                      {"PMIX_MCA_gds", "hash"},
                                      {"OMPI_COMM_WORLD_RANK", NULL},
                                      {"OMPI_MCA_ess", NULL},
                                      {"OMPI_MCA_orte_hnp_uri", NULL},
                                      {"OMPI_MCA_btl_tcp_if_include", "eth0"},
                                      {"OMPI_MCA_pmix_base_verbose", "1"},
                                      {"MPI_LOCALRANKID", NULL},
                                      {"HYDI_CONTROL_FD", NULL},
                                      {"OMPI_MCA_schizo", NULL},
                                      {NULL, NULL}});
}

static void mpi_ranks_are_said_in_all_their_ways(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"PMI_RANK=0"}, (char[]){"OMPI_MCA_hwloc_base_binding_policy=core"},
                     NULL};
    struct framework_input in = input;
    in.mpi = true;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"PMI_RANK", "3"},
                                      {"PMI_SIZE", "7"},
                                      {"MPI_LOCALRANKID", "1"},
                                      {"MPI_LOCALNRANKS", "3"},
                                      {"OMPI_COMM_WORLD_RANK", "3"},
                                      {"OMPI_COMM_WORLD_SIZE", "7"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                      {"MV2_COMM_WORLD_LOCAL_SIZE", "3"},
                                      {"OMPI_MCA_schizo", "ompi"},
                                      {"OMPI_MCA_hwloc_base_binding_policy", "core"},
                                      {NULL, NULL}});
}

static void worker_keeps_what_the_user_chose(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"OMP_NUM_THREADS=6"}, (char[]){"GLOO_SOCKET_IFNAME=eth9"},
                     (char[]){"NCCL_SOCKET_IFNAME=eth8"}, NULL};
    struct framework_input in = input;
    in.nccl_iface = "ib0";
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"OMP_NUM_THREADS", "6"},
                                      {"GLOO_SOCKET_IFNAME", "eth9"},
                                      {"NCCL_SOCKET_IFNAME", "eth8"},
                                      {"TP_SOCKET_IFNAME", "ib0"},
                                      {NULL, NULL}});
}

static void nccl_is_told_only_where_it_would_choose_otherwise(void **state)
{
    (void)state;
    char *agent[] = {NULL};
    struct framework_input in = input;
    in.nccl_iface = "ib0";
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"NCCL_SOCKET_IFNAME", "=ib0"}, {NULL, NULL}});
}

static void threads_of_pbs_are_divided_and_one_worker_is_left_alone(void **state)
{
    (void)state;
    char *pbs[] = {(char[]){"PBS_JOBID=1.s"}, (char[]){"NCPUS=8"}, (char[]){"OMP_NUM_THREADS=8"},
                   NULL};
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, pbs, &input, NULL), 0);
    expect(&env, (const struct row[]){{"OMP_NUM_THREADS", "2"}, {NULL, NULL}});
    char *none[] = {NULL};
    struct plan one = plan;
    int one_size[] = {1};
    one.sizes = one_size;
    one.nnodes = one.local_size = one.world_size = 1;
    one.node_rank = one.first_rank = 0;
    struct framework_input in = input;
    in.plan = &one;
    in.local_rank = 0;
    DD_AUTO(strv) struct dd_strv alone = {0};
    assert_int_equal(framework_env(&alone, none, &in, NULL), 0);
    expect(&alone, (const struct row[]){{"OMP_NUM_THREADS", NULL}, {NULL, NULL}});
}

static void horovod_finds_its_place_and_its_server(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"HOROVOD_RANK=99"}, (char[]){"HOROVOD_GLOO_RENDEZVOUS_ADDR=10.9.9.9"},
                     (char[]){"HOROVOD_GLOO_TIMEOUT_SECONDS=7"}, (char[]){"_HOROVOD_SECRET_KEY=x"},
                     NULL};
    struct framework_input in = input;
    in.node_name = "node2";
    in.horovod_port = "4711";
    in.local_rank = 2; /* only this node has three workers */
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"HOROVOD_RANK", "4"},
                                      {"HOROVOD_SIZE", "7"},
                                      {"HOROVOD_LOCAL_RANK", "2"},
                                      {"HOROVOD_LOCAL_SIZE", "3"},
                                      {"HOROVOD_CROSS_RANK", "0"},
                                      {"HOROVOD_CROSS_SIZE", "1"},
                                      {"HOROVOD_HOSTNAME", "node2"},
                                      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                                      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4711"},
                                      {"HOROVOD_CONTROLLER", "gloo"},
                                      {"HOROVOD_CPU_OPERATIONS", "gloo"},
                                      {"HOROVOD_GLOO_IFACE", "ib0"},
                                      {"HOROVOD_GLOO_TIMEOUT_SECONDS", "7"},
                                      {"_HOROVOD_SECRET_KEY", NULL},
                                      {"HOROVOD_ELASTIC", NULL},
                                      {NULL, NULL}});
    in.horovod_port = NULL;
    in.elastic = true;
    in.local_rank = 1;
    DD_AUTO(strv) struct dd_strv none = {0};
    assert_int_equal(framework_env(&none, agent, &in, NULL), 0);
    expect(&none, (const struct row[]){{"HOROVOD_CROSS_RANK", "1"},
                                       {"HOROVOD_CROSS_SIZE", "3"},
                                       {"HOROVOD_ELASTIC", "1"},
                                       {"HOROVOD_GLOO_RENDEZVOUS_ADDR", NULL},
                                       {"HOROVOD_GLOO_RENDEZVOUS_PORT", NULL},
                                       {NULL, NULL}});
}

static void slurm_variables_speak_of_the_worker(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"SLURM_JOB_ID=5"},
                     (char[]){"SLURM_PROCID=1"},
                     (char[]){"SLURM_NTASKS=3"},
                     (char[]){"SLURM_TASK_PID=9"},
                     (char[]){"SLURM_STEP_NODELIST=node[1-3]"},
                     NULL};
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &input, NULL), 0);
    expect(&env, (const struct row[]){{"SLURM_JOB_ID", "5"},
                                      {"SLURM_PROCID", "3"},
                                      {"SLURM_LOCALID", "1"},
                                      {"SLURM_NODEID", "1"},
                                      {"SLURM_NTASKS", "7"},
                                      {"SLURM_NPROCS", "7"},
                                      {"SLURM_STEP_NUM_TASKS", "7"},
                                      {"SLURM_NTASKS_PER_NODE", "3"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "2,3,2"},
                                      {"SLURM_TASKS_PER_NODE", "2,3,2"},
                                      {"SLURM_GTIDS", "2,3,4"},
                                      {"SLURM_TASK_PID", NULL},
                                      {"SLURM_STEP_NODELIST", "node[1-3]"},
                                      {NULL, NULL}});
    struct framework_input in = input;
    in.slurm_env = SLURM_ENV_KEEP;
    DD_AUTO(strv) struct dd_strv kept = {0};
    assert_int_equal(framework_env(&kept, agent, &in, NULL), 0);
    expect(&kept, (const struct row[]){{"SLURM_PROCID", "1"}, {NULL, NULL}});
    in.slurm_env = SLURM_ENV_STRIP;
    DD_AUTO(strv) struct dd_strv bare = {0};
    assert_int_equal(framework_env(&bare, agent, &in, NULL), 0);
    expect(&bare,
           (const struct row[]){{"SLURM_JOB_ID", NULL}, {"SLURM_PROCID", NULL}, {NULL, NULL}});
}

/* Return the input of rank 1, the only worker of its node, and set its plan. */
static struct framework_input alone_on_its_node(struct plan *p)
{
    static int ones[] = {1, 1};
    struct framework_input in = input;
    *p = plan;
    p->sizes = ones;
    p->nnodes = p->world_size = 2;
    p->node_rank = p->first_rank = p->local_size = 1;
    in.plan = p;
    in.local_rank = 0;
    return in;
}

static void jax_gets_a_coordinator_and_its_devices(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"OMPI_MCA_orte_hnp_uri=1.0;tcp://10.0.0.9:1"}, NULL};
    struct plan p = plan;
    p.coordinator = (char[]){"[fd00::1]:41000"};
    struct framework_input in = input;
    in.plan = &p;
    in.gpus = 4;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"JAX_COORDINATOR_ADDRESS", "[fd00::1]:41000"},
                                      {"JAX_LOCAL_DEVICE_IDS", "1"},
                                      {"OMPI_MCA_orte_hnp_uri", NULL},
                                      {"SLURM_PROCID", NULL},
                                      {NULL, NULL}});
    in.virtual_local_rank = in.one_gpu = true;
    DD_AUTO(strv) struct dd_strv masked = {0};
    assert_int_equal(framework_env(&masked, agent, &in, NULL), 0);
    expect(&masked, (const struct row[]){{"JAX_LOCAL_DEVICE_IDS", "0"},
                                         {"CUDA_VISIBLE_DEVICES", "1"},
                                         {NULL, NULL}});
    struct plan q;
    in = alone_on_its_node(&q);
    in.gpus = 3;
    DD_AUTO(strv) struct dd_strv all = {0};
    assert_int_equal(framework_env(&all, agent, &in, NULL), 0);
    expect(&all, (const struct row[]){{"JAX_COORDINATOR_ADDRESS", NULL},
                                      {"JAX_LOCAL_DEVICE_IDS", "0,1,2"},
                                      {NULL, NULL}});
}

static void jax_takes_ranks_from_slurms_five_where_they_are_asked_for(void **state)
{
    (void)state;
    char *agent[] = {NULL};
    struct framework_input in = input;
    in.frameworks = FRAMEWORK_JAX;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"SLURM_JOB_ID", "1"},
                                      {"SLURM_STEP_NODELIST", "node[1-3]"},
                                      {"SLURM_NTASKS", "7"},
                                      {"SLURM_PROCID", "3"},
                                      {"SLURM_LOCALID", "1"},
                                      {"SLURM_GTIDS", NULL},
                                      {NULL, NULL}});
    char *slurm[] = {(char[]){"SLURM_JOB_ID=5"}, (char[]){"SLURM_PROCID=0"},
                     NULL}; /* a batch script without srun */
    in.frameworks = 0;
    DD_AUTO(strv) struct dd_strv batch = {0};
    assert_int_equal(framework_env(&batch, slurm, &in, NULL), 0);
    expect(&batch, (const struct row[]){{"SLURM_JOB_ID", "5"},
                                        {"SLURM_STEP_NODELIST", "node[1-3]"},
                                        {"SLURM_NTASKS", "7"},
                                        {"SLURM_PROCID", "3"},
                                        {"SLURM_LOCALID", "1"},
                                        {NULL, NULL}});
}

static void jax_keeps_the_users_own_but_not_an_outer_ddruns(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"JAX_COORDINATOR_ADDRESS=mine:5"},
                     (char[]){"JAX_LOCAL_DEVICE_IDS=2,3"}, NULL, NULL};
    struct plan p = plan;
    p.coordinator = (char[]){"10.0.0.1:41000"};
    struct framework_input in = input;
    in.plan = &p;
    in.gpus = 4;
    DD_AUTO(strv) struct dd_strv kept = {0};
    assert_int_equal(framework_env(&kept, agent, &in, NULL), 0);
    expect(&kept, (const struct row[]){{"JAX_COORDINATOR_ADDRESS", "mine:5"},
                                       {"JAX_LOCAL_DEVICE_IDS", "2,3"},
                                       {NULL, NULL}});
    agent[2] = (char[]){"DDRUN_ROUND=0"};
    DD_AUTO(strv) struct dd_strv inner = {0};
    assert_int_equal(framework_env(&inner, agent, &in, NULL), 0);
    expect(&inner, (const struct row[]){{"JAX_COORDINATOR_ADDRESS", "10.0.0.1:41000"},
                                        {"JAX_LOCAL_DEVICE_IDS", "1"},
                                        {NULL, NULL}});
    char *port[] = {(char[]){"JAX_COORDINATOR_PORT=1234"}, NULL};
    DD_AUTO(strv) struct dd_strv chosen = {0};
    assert_int_equal(framework_env(&chosen, port, &in, NULL), 0);
    expect(&chosen,
           (const struct row[]){{"JAX_COORDINATOR_ADDRESS", "10.0.0.1:1234"}, {NULL, NULL}});
}

static struct framework_input tf_input(struct plan *p, struct tf_roles *roles, const char *text)
{
    static char names[][16] = {"a:1", "a:2", "b:1", "b:2", "[fd00::3]:3", "c:1", "c:2"};
    static char *hosts[] = {names[0], names[1], names[2], names[3],
                            names[4], names[5], names[6], NULL};
    struct framework_input in = input;
    *p = plan;
    p->endpoints = (struct dd_strv){.v = hosts, .n = 7};
    in.plan = p;
    in.frameworks = FRAMEWORK_TF;
    if (text != NULL) {
        assert_int_equal(tf_roles_parse(roles, text, NULL), 0);
        in.tf_roles = roles;
    }
    return in;
}

static void tf_config_names_every_worker(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"TF_CONFIG=stale"}, NULL};
    struct plan p;
    struct framework_input in = tf_input(&p, NULL, NULL);
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(
        &env,
        (const struct row[]){
            {"TF_CONFIG",
             "{\"cluster\": {\"worker\": [\"a:1\", \"a:2\", \"b:1\", \"b:2\", \"[fd00::3]:3\", \"c:1\", "
             "\"c:2\"]}, \"task\": {\"type\": \"worker\", \"index\": 3}}"},
            {"CUDA_VISIBLE_DEVICES", NULL},
            {NULL, NULL}});
    in.frameworks = 0;
    DD_AUTO(strv) struct dd_strv without = {0};
    assert_int_equal(framework_env(&without, agent, &in, NULL), 0);
    expect(&without, (const struct row[]){{"TF_CONFIG", "stale"}, {NULL, NULL}});
}

static void tf_config_gives_out_roles_and_leaves_the_evaluator_out(void **state)
{
    (void)state;
    static const struct {
        int local_rank;
        const char *task, *gpu;
    } rows[] = {{0, "\"ps\", \"index\": 1}}", ""},
                {1, "\"evaluator\", \"index\": 0}}", ""},
                {2, "\"worker\", \"index\": 0}}", NULL}};
    char *agent[] = {(char[]){"CUDA_VISIBLE_DEVICES=4,6"}, NULL};
    struct plan p;
    struct tf_roles roles;
    struct framework_input in = tf_input(&p, &roles, "chief:1,ps:2,evaluator:1,worker:*");
    in.gpus = 2;
    for (size_t i = 0; i < 3; i++) {
        in.local_rank = rows[i].local_rank;
        DD_AUTO(strv) struct dd_strv env = {0};
        assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
        const char *config = dd_env_get(env.v, "TF_CONFIG");
        assert_non_null(strstr(
            config,
            "{\"chief\": [\"a:1\"], \"ps\": [\"a:2\", \"b:1\"], \"worker\": [\"[fd00::3]:3\", \"c:1\", \"c:2\"]}"));
        if (strstr(config, rows[i].task) == NULL)
            fail_msg("%s", config);
        expect(&env, (const struct row[]){
                         {"CUDA_VISIBLE_DEVICES", rows[i].gpu != NULL ? rows[i].gpu : "4,6"},
                         {NULL, NULL}});
    }
}

static void tf_workers_of_a_node_have_a_gpu_each(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"CUDA_VISIBLE_DEVICES=4,6,GPU-7"}, NULL};
    struct plan p;
    struct tf_roles roles;
    struct framework_input in = tf_input(&p, &roles, "worker:*,ps:3");
    in.gpus = 3;
    in.local_rank = 1;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"CUDA_VISIBLE_DEVICES", "6"}, {NULL, NULL}});
}

static void tf_refuses_what_cannot_be(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        "worker",        "worker:0",          "chief:2",
                                      "chief:*", "worker:*,ps:*", "worker:1,worker:2", "ps:2",
                                      "boss:1",  "worker:x",      "evaluator:1"};
    struct tf_roles roles;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (tf_roles_parse(&roles, bad[i], NULL) == 0)
            fail_msg("'%s' was taken", bad[i]);
    char *agent[] = {NULL};
    struct dd_err err = {0};
    struct plan p;
    struct framework_input in = tf_input(&p, &roles, "chief:1,worker:5");
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, &err), -ENOTSUP);
    assert_string_equal(err.text, "--roles names 6 tasks, but this job has 7 workers");
    static char many[20000][32];
    static char *list[20001];
    for (int i = 0; i < 20000; i++) {
        (void)snprintf(many[i], sizeof(many[i]), "10.0.0.1:%d", 10000 + i);
        list[i] = many[i];
    }
    int one[] = {20000};
    p = plan;
    p.sizes = one;
    p.nnodes = 1;
    p.node_rank = p.first_rank = 0;
    p.local_size = p.world_size = 20000;
    p.endpoints = (struct dd_strv){.v = list, .n = 20000};
    in.tf_roles = NULL;
    DD_AUTO(strv) struct dd_strv too_long = {0};
    assert_int_equal(framework_env(&too_long, agent, &in, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "131072 bytes"));
}

static void frameworks_are_named(void **state)
{
    (void)state;
    struct dd_err err = {0};
    assert_int_equal(framework_parse("jax", NULL), FRAMEWORK_JAX);
    assert_int_equal(framework_parse("torch,deepspeed", NULL),
                     0); /* their variables are set for every job */
    assert_int_equal(framework_parse("paddle,torch,tensorflow", NULL),
                     FRAMEWORK_PADDLE | FRAMEWORK_TF);
    assert_int_equal(framework_parse("jax,torchy", &err), -22);
    assert_non_null(strstr(err.text, "'torchy'"));
}

static void more_workers_than_a_variable_can_name_are_refused(void **state)
{
    (void)state;
    struct dd_err err = {0};
    assert_int_equal(framework_check_size(FRAMEWORK_JAX, 1000000, NULL), 0); /* a single address */
    assert_int_equal(framework_check_size(FRAMEWORK_TF, 7000, NULL), 0);
    assert_int_equal(framework_check_size(FRAMEWORK_TF, 8000, &err), -E2BIG);
    assert_non_null(strstr(err.text, "at most 7710 workers"));
    assert_int_equal(framework_check_size(FRAMEWORK_PADDLE, 8000, NULL), 0);
    assert_int_equal(framework_check_size(FRAMEWORK_PADDLE | FRAMEWORK_TF, 8000, NULL), -E2BIG);
}

static void frameworks_that_need_ports_are_known(void **state)
{
    (void)state;
    assert_true(framework_wants_ports(FRAMEWORK_PADDLE | FRAMEWORK_JAX));
    assert_false(framework_wants_ports(FRAMEWORK_JAX | FRAMEWORK_MINDSPORE));
}

static void paddle_names_every_worker_and_its_gpu(void **state)
{
    (void)state;
    char *agent[] = {NULL};
    struct plan p;
    struct framework_input in = tf_input(&p, NULL, NULL);
    struct dd_err err = {0};
    in.frameworks = FRAMEWORK_PADDLE;
    DD_AUTO(strv) struct dd_strv none = {0};
    assert_int_equal(framework_env(&none, agent, &in, &err), -ENOTSUP); /* without a coordinator */
    p.coordinator = (char[]){"a:9"};
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env,
           (const struct row[]){{"PADDLE_TRAINER_ENDPOINTS", "a:1,a:2,b:1,b:2,[fd00::3]:3,c:1,c:2"},
                                {"PADDLE_CURRENT_ENDPOINT", "b:2"},
                                {"PADDLE_MASTER", "a:9"},
                                {"PADDLE_TRAINER_ID", "3"},
                                {"PADDLE_TRAINERS_NUM", "7"},
                                {"PADDLE_GLOBAL_RANK", "3"},
                                {"PADDLE_GLOBAL_SIZE", "7"},
                                {"PADDLE_LOCAL_RANK", "1"},
                                {"PADDLE_LOCAL_SIZE", "3"},
                                {"PADDLE_RANK_IN_NODE", "1"},
                                {"PADDLE_NNODES", "3"},
                                {"PADDLE_DISTRI_BACKEND", "gloo"},
                                {"FLAGS_selected_gpus", NULL},
                                {"TF_CONFIG", NULL},
                                {NULL, NULL}});
    in.gpus = 4;
    DD_AUTO(strv) struct dd_strv gpu = {0};
    assert_int_equal(framework_env(&gpu, agent, &in, NULL), 0);
    expect(&gpu, (const struct row[]){
                     {"FLAGS_selected_gpus", "1"}, {"PADDLE_DISTRI_BACKEND", NULL}, {NULL, NULL}});
}

static void mindspore_has_a_scheduler_beside_rank_0(void **state)
{
    (void)state;
    char *agent[] = {NULL};
    struct plan p = plan;
    p.coordinator = (char[]){"[fd00::3]:41000"};
    struct framework_input in = input;
    in.plan = &p;
    in.frameworks = FRAMEWORK_MINDSPORE;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"MS_ROLE", "MS_WORKER"},
                                      {"MS_WORKER_NUM", "7"},
                                      {"MS_SCHED_HOST", "fd00::3"},
                                      {"MS_SCHED_PORT", "41000"},
                                      {"MS_NODE_ID", "3"},
                                      {NULL, NULL}});
    assert_int_equal(strncmp(framework_wrap(in.frameworks), "0:", 2), 0);
    assert_null(framework_wrap(FRAMEWORK_JAX));
}

static void oneccl_counts_as_torch_does(void **state)
{
    (void)state;
    char *agent[] = {(char[]){"CCL_PROCESS_LAUNCHER=hydra"}, NULL};
    struct framework_input in = input;
    DD_AUTO(strv) struct dd_strv kept = {0};
    assert_int_equal(framework_env(&kept, agent, &in, NULL), 0);
    expect(&kept, (const struct row[]){{"CCL_PROCESS_LAUNCHER", "hydra"}, {NULL, NULL}});
    agent[0] = NULL;
    in.virtual_local_rank = true;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, agent, &in, NULL), 0);
    expect(&env, (const struct row[]){{"CCL_PROCESS_LAUNCHER", "none"},
                                      {"CCL_LOCAL_RANK", "1"},
                                      {"CCL_LOCAL_SIZE", "3"},
                                      {NULL, NULL}});
}

static void by_hand_nothing_speaks_of_an_agent(void **state)
{
    (void)state;
    char *task[] = {(char[]){"SLURM_JOB_ID=5"},
                    (char[]){"SLURM_PROCID=3"},
                    (char[]){"PMI_RANK=3"},
                    (char[]){"DDRUN_KEY=k"},
                    (char[]){"SLURM_NTASKS=7"},
                    (char[]){"TORCHELASTIC_RUN_ID=old"},
                    (char[]){"OMPI_MCA_orte_hnp_uri=u"},
                    NULL};
    struct framework_input in = input;
    in.by_hand = true;
    in.run_id = in.role = NULL;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(framework_env(&env, task, &in, NULL), 0);
    expect(&env, (const struct row[]){{"RANK", "3"},
                                      {"MASTER_ADDR", "10.0.0.1"},
                                      {"MASTER_PORT", "31000"},
                                      {"PMI_RANK", "3"},
                                      {"SLURM_GTIDS", NULL},
                                      {"OMPI_MCA_orte_hnp_uri", "u"},
                                      {"TORCHELASTIC_RUN_ID", NULL},
                                      {"TORCHELASTIC_USE_AGENT_STORE", NULL},
                                      {"ROLE_RANK", NULL},
                                      {"DDRUN_ROUND", NULL},
                                      {"DDRUN_KEY", "k"},
                                      {NULL, NULL}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worker_gets_what_torchrun_gives),
        cmocka_unit_test(what_an_outer_launcher_says_of_its_process_is_gone),
        cmocka_unit_test(mpi_ranks_are_said_in_all_their_ways),
        cmocka_unit_test(worker_keeps_what_the_user_chose),
        cmocka_unit_test(nccl_is_told_only_where_it_would_choose_otherwise),
        cmocka_unit_test(threads_of_pbs_are_divided_and_one_worker_is_left_alone),
        cmocka_unit_test(horovod_finds_its_place_and_its_server),
        cmocka_unit_test(slurm_variables_speak_of_the_worker),
        cmocka_unit_test(jax_gets_a_coordinator_and_its_devices),
        cmocka_unit_test(jax_takes_ranks_from_slurms_five_where_they_are_asked_for),
        cmocka_unit_test(jax_keeps_the_users_own_but_not_an_outer_ddruns),
        cmocka_unit_test(tf_config_names_every_worker),
        cmocka_unit_test(tf_config_gives_out_roles_and_leaves_the_evaluator_out),
        cmocka_unit_test(tf_workers_of_a_node_have_a_gpu_each),
        cmocka_unit_test(tf_refuses_what_cannot_be),
        cmocka_unit_test(frameworks_are_named),
        cmocka_unit_test(more_workers_than_a_variable_can_name_are_refused),
        cmocka_unit_test(frameworks_that_need_ports_are_known),
        cmocka_unit_test(paddle_names_every_worker_and_its_gpu),
        cmocka_unit_test(mindspore_has_a_scheduler_beside_rank_0),
        cmocka_unit_test(oneccl_counts_as_torch_does),
        cmocka_unit_test(by_hand_nothing_speaks_of_an_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
