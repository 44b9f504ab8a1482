/* site_settings: which values of ddrun.toml files apply to a job. */
#include "cmd/site_settings.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

struct values {
    bool label;
    int number;
    const char *log_dir, *hook, *report, *dry;
    struct dd_strv env, wrap;
};

#define FIELD(name) OPT_FIELD(struct values, name)

static const struct opt_row rows[] = {
    {.name = "label", .project = true, .kind = OPT_FLAG, .help = "h", FIELD(label)},
    {.name = "nproc-per-node",
     .project = true,
     .kind = OPT_INT,
     .metavar = "N",
     .min = 1,
     .max = 9,
     .help = "h",
     FIELD(number)},
    {.name = "log-dir", .kind = OPT_STRING, .metavar = "DIR", .help = "h", FIELD(log_dir)},
    {.name = "health-check", .kind = OPT_STRING, .metavar = "CMD", .help = "h", FIELD(hook)},
    {.name = "report",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .implied = "out.json",
     .help = "h",
     FIELD(report)},
    {.name = "dry", .kind = OPT_STRING, .metavar = "X", .no_file = true, .help = "h", FIELD(dry)},
    {.name = "env",
     .kind = OPT_REPEATED,
     .metavar = "NAME=VALUE",
     .no_env = true,
     .help = "h",
     FIELD(env)},
    {.name = "wrap",
     .project = true,
     .kind = OPT_REPEATED,
     .metavar = "CMD",
     .help = "h",
     FIELD(wrap)},
};
static const struct opt_table table = {.program = "tool",
                                       .version = "1",
                                       .usage = "",
                                       .about = "",
                                       .env_prefixes = "TOOL_",
                                       OPT_ROWS(rows)};

struct run {
    struct site_settings s;
    struct values v;
    struct opt_result res;
    struct dd_err err;
    struct dd_strv argv, env;
    const char *partition, *queue, *host;
    struct dd_strv includes;
    bool included;
};

static void done(struct run *r)
{
    opt_values_done(&table, &r->v);
    opt_result_done(&r->res);
    dd_strv_done(&r->argv);
    dd_strv_done(&r->env);
    dd_strv_done(&r->includes);
    site_settings_done(&r->s);
}

static int add_as(struct run *r, const char *name, bool project, const char *json)
{
    static char *none[] = {NULL};
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(4096);
    const struct site_file file = {.name = name, .project = project, .included = r->included};
    const struct site_job job = {.partition = r->partition,
                                 .queue = r->queue,
                                 .hosts = {NULL, r->host},
                                 .env = r->env.v != NULL ? r->env.v : none};
    assert_int_equal(dd_buf_puts(&text, json), 0);
    int rc = site_settings_includes(&r->includes, &table, &file, &job, &text, &r->err);
    return rc < 0 ? rc : site_settings_add(&r->s, &table, &file, &job, &text, &r->err);
}

static int add(struct run *r, const char *json)
{
    return add_as(r, "f", false, json);
}

static void parse(struct run *r, const char *words)
{
    static char *none[] = {NULL};
    assert_int_equal(dd_strv_split(&r->argv, words, " "), 0);
    const struct opt_input in = {.argc = (int)r->argv.n,
                                 .argv = r->argv.v,
                                 .env = r->env.v != NULL ? r->env.v : none,
                                 .settings = r->s.v,
                                 .n_settings = r->s.n};
    assert_int_equal(opt_parse(&table, &r->v, &in, &r->res, &r->err), 0);
}

static void a_later_file_replaces_an_earlier_one(void **state)
{
    struct run r = {0};
    (void)state;
    assert_int_equal(
        add_as(&r, "/etc/f", false,
               "{\"values\": [[1, [\"nproc-per-node\"], \"2\"], [2, [\"log-dir\"], \"a\"],"
               "[3, [\"wrap\"], [\"x\", \"y\"]]]}"),
        0);
    assert_int_equal(
        add_as(&r, "./f", true,
               "{\"values\": [[7, [\"nproc-per-node\"], \"3\"], [8, [\"wrap\"], \"z\"]]}"),
        0);
    parse(&r, "tool");
    assert_int_equal(r.v.number, 3);
    assert_string_equal(r.v.log_dir, "a");
    assert_int_equal(r.v.wrap.n, 1);
    assert_string_equal(r.v.wrap.v[0], "z");
    assert_string_equal(opt_result_source(&r.res, &table, "nproc-per-node")->place, "./f:7");
    assert_string_equal(opt_result_source(&r.res, &table, "log-dir")->place, "/etc/f:2");
    done(&r);
}

static void variables_and_options_take_precedence_over_files(void **state)
{
    struct run r = {0};
    (void)state;
    assert_int_equal(dd_env_set(&r.env, "TOOL_NPROC_PER_NODE", "5"), 0);
    assert_int_equal(
        add(&r, "{\"values\": [[1, [\"nproc-per-node\"], \"2\"], [2, [\"log-dir\"], \"a\"],"
                "[3, [\"label\"], true], [4, [\"report\"], true]]}"),
        0);
    parse(&r, "tool --log-dir=b");
    assert_int_equal(r.v.number, 5);
    assert_string_equal(r.v.log_dir, "b");
    assert_true(r.v.label);
    assert_string_equal(r.v.report, "out.json");
    assert_int_equal(opt_result_source(&r.res, &table, "label")->from, OPT_FROM_FILE);
    assert_true(opt_is_given(&r.res, &table, "label"));
    done(&r);
}

#define SECTIONS                                                                                   \
    "{\"values\": [[6, [\"queue\", \"long\", \"nproc-per-node\"], \"4\"],"                         \
    "[2, [\"partition\", \"gpu\", \"nproc-per-node\"], \"3\"],"                                    \
    "[3, [\"partition\", \"cpu\", \"log-dir\"], \"no\"],"                                          \
    "[4, [\"partition\", \"gpu\", \"environment\", \"A\"], \"gpu\"],"                              \
    "[1, [\"nproc-per-node\"], \"2\"], [5, [\"environment\", \"A\"], \"all\"]]}"

static void sections_apply_to_their_partition_and_queue(void **state)
{
    static const struct {
        const char *partition, *queue;
        int number;
        const char *a;
    } cases[] = {{NULL, NULL, 2, "A=all"},
                 {"gpu", NULL, 3, "A=gpu"},
                 {NULL, "long", 4, "A=all"},
                 {"gpu", "long", 4, "A=gpu"},
                 {"gp", "longer", 2, "A=all"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct run r = {.partition = cases[i].partition, .queue = cases[i].queue};
        assert_int_equal(add(&r, SECTIONS), 0);
        parse(&r, "tool");
        assert_int_equal(r.v.number, cases[i].number);
        assert_null(r.v.log_dir);
        assert_int_equal(r.v.env.n, 1);
        assert_string_equal(r.v.env.v[0], cases[i].a);
        done(&r);
    }
}

#define HOSTS                                                                                      \
    "{\"values\": [[5, [\"host\", \"b[1-2]\", \"nproc-per-node\"], \"6\"],"                        \
    "[7, [\"host\", \"*\", \"environment\", \"A\"], \"any\"],"                                     \
    "[4, [\"host\", \"b*\", \"nproc-per-node\"], \"5\"],"                                          \
    "[6, [\"host\", \"b*\", \"environment\", \"A\"], \"b\"],"                                      \
    "[3, [\"host\", \"a1,c.site\", \"nproc-per-node\"], \"4\"],"                                   \
    "[2, [\"queue\", \"long\", \"nproc-per-node\"], \"3\"], [1, [\"nproc-per-node\"], \"2\"]]}"

static void sections_apply_to_hosts_and_the_last_of_several_wins(void **state)
{
    static const struct {
        const char *host;
        int number;
    } cases[] = {{"a1", 4},     {"a1.site", 4}, {"a2", 3}, {"b1", 6}, {"b3.site", 5},
                 {"c.site", 4}, {"c", 3},       {"B2", 6}, {NULL, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct run r = {.host = cases[i].host, .queue = "long"};
        assert_int_equal(add(&r, HOSTS), 0);
        parse(&r, "tool");
        assert_int_equal(r.v.number, cases[i].number);
        assert_int_equal(r.v.env.n, cases[i].host != NULL);
        if (r.v.env.n > 0)
            assert_string_equal(r.v.env.v[0], "A=any");
        done(&r);
    }
}

static void includes_are_listed_by_line_if_their_section_applies(void **state)
{
    static const char json[] =
        "{\"values\": [[9, [\"host\", \"n1\", \"include\"], [\"c.toml\", \"/d/d\"]],"
        "[1, [\"include\"], \"a.toml\"], [2, [\"host\", \"n2\", \"include\"], \"b\"]]}";
    struct run r = {.host = "n1"};
    struct run again = {.host = "n1", .included = true};
    (void)state;
    assert_int_equal(add_as(&r, "/etc/f", false, json), 0);
    assert_int_equal(r.s.n, 0);
    assert_int_equal(r.includes.n, 3);
    assert_string_equal(r.includes.v[0], "/etc/a.toml");
    assert_string_equal(r.includes.v[1], "/etc/c.toml");
    assert_string_equal(r.includes.v[2], "/d/d");
    assert_int_equal(add(&again, json), -EINVAL);
    assert_string_equal(again.err.text, "f:1: a file that is included cannot include others");
    done(&r);
    done(&again);
}

static void environment_does_not_override_the_users(void **state)
{
    struct run r = {0};
    (void)state;
    assert_int_equal(dd_env_set(&r.env, "SET", ""), 0);
    assert_int_equal(add(&r, "{\"values\": [[1, [\"environment\", \"SET\"], \"file\"],"
                             "[2, [\"environment\", \"UNSET\"], \"file\"],"
                             "[3, [\"environment\", \"OTHER\"], \"1\"]]}"),
                     0);
    parse(&r, "tool --env UNSET=user");
    assert_int_equal(r.v.env.n, 3); /* of two entries for a variable the last one wins */
    assert_string_equal(r.v.env.v[0], "UNSET=file");
    assert_string_equal(r.v.env.v[1], "OTHER=1");
    assert_string_equal(r.v.env.v[2], "UNSET=user");
    done(&r);
}

static void the_other_nodes_get_the_values_in_force_as_options(void **state)
{
    static const char *const expected[] = {
        "tool", "--no-config", "--env=A=1", "--label=no", "--nproc-per-node=3", "script", NULL};
    struct run r = {0};
    DD_AUTO(strv) struct dd_strv argv = {0};
    (void)state;
    assert_int_equal(dd_env_set(&r.env, "TOOL_LOG_DIR", "b"), 0);
    assert_int_equal(
        add(&r, "{\"values\": [[1, [\"environment\", \"A\"], \"1\"], [2, [\"label\"], false],"
                "[3, [\"log-dir\"], \"a\"], [4, [\"nproc-per-node\"], \"3\"]]}"),
        0);
    parse(&r, "tool script");
    assert_int_equal(site_settings_argv(&argv, &r.s, &table, &r.res, r.argv.v), 0);
    for (size_t i = 0; expected[i] != NULL; i++)
        assert_string_equal(argv.v[i], expected[i]);
    assert_int_equal(argv.n, 6);
    done(&r);
}

struct wrong {
    const char *value, *message;
    bool project;
};

static void assert_refused(const struct wrong *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct run r = {0};
        char json[500];
        (void)snprintf(json, sizeof(json), "{\"values\": [%s]}", cases[i].value);
        assert_int_equal(add_as(&r, "f", cases[i].project, json), -EINVAL);
        assert_string_equal(r.err.text, cases[i].message);
        done(&r);
    }
}

static void a_wrong_file_is_refused_with_its_line(void **state)
{
    static const struct wrong cases[] = {
        {"[3, [\"nproc-pre-node\"], \"4\"]",
         "f:3: unknown option 'nproc-pre-node'\n  tip: did you mean 'nproc-per-node'?", false},
        {"[3, [\"partition\", \"other\", \"nproc-pre-node\"], \"4\"]",
         "f:3: unknown option 'nproc-pre-node'\n  tip: did you mean 'nproc-per-node'?", false},
        {"[3, [\"zzzzzzzz\"], \"4\"]",
         "f:3: unknown option 'zzzzzzzz'\n  tip: 'tool --help=all' lists all options; a key has no "
         "dashes before it",
         false},
        {"[3, [\"help\"], \"all\"]",
         "f:3: unknown option 'help'\n  tip: 'tool --help=all' lists all options; a key has no "
         "dashes before it",
         false},
        {"[3, [\"dry\"], \"x\"]", "f:3: dry: a file cannot set this option", false},
        {"[4, [\"partitions\", \"gpu\", \"label\"], true]",
         "f:4: unknown section 'partitions.gpu'\n  tip: sections are [partition.NAME], [queue.NAME], "
         "[host.\"HOSTS\"] and [environment], also within the others",
         false},
        {"[5, [\"label\"], \"\"], [6, [\"label\"], [true]]", "f:6: label: expected true or false",
         false},
        {"[5, [\"log-dir\"], null]", "f:5: log-dir: expected text or a number", false},
        {"[5, [\"log-dir\"], true]", "f:5: log-dir: expected text or a number", false},
        {"[5, [\"wrap\"], [\"a\", true]]", "f:5: wrap: expected text, or a list of texts", false},
        {"[5, [\"environment\", \"A-B\"], \"1\"]", "f:5: 'A-B' is not the name of a variable",
         false},
        {"[5, [\"environment\", \"DDRUN_KEY\"], \"1\"]",
         "f:5: DDRUN_KEY is a variable of tool itself\n  tip: set the option by its name, outside "
         "of [environment], as in: log-level = \"info\"",
         false},
        {"[5, [\"health-check\"], \"/tmp/x\"]",
         "f:5: health-check: a project file cannot set this option\n  tip: put it into ~/.config/ddrun.toml",
         true},
        {"[5, [\"queue\", \"q\", \"environment\", \"LD_PRELOAD\"], \"/tmp/x\"]",
         "f:5: LD_PRELOAD: a project file cannot set this variable\n  tip: put it into ~/.config/ddrun.toml",
         true},
        {"[5, [\"env\"], \"LD_PRELOAD=x\"]",
         "f:5: env: a project file cannot set this option\n  tip: put it into ~/.config/ddrun.toml",
         true},
    };
    (void)state;
    assert_refused(cases, sizeof(cases) / sizeof(cases[0]));
}

static void wrong_hosts_and_includes_are_refused(void **state)
{
    static const struct wrong cases[] = {
        {"[5, [\"host\", \"n[1-\", \"label\"], true]",
         "f:5: [host.\"...\"]: '[1-' has an unmatched '[' (character 2 of host list 'n[1-')",
         false},
        {"[5, [\"host\", \"a:b\", \"label\"], true]",
         "f:5: [host.\"...\"]: ':' cannot be part of a host pattern ('a:b')", false},
        {"[5, [\"include\"], true]",
         "f:5: include: expected the path of a file, or a list of paths", false},
        {"[5, [\"include\"], \"/tmp/x\"]",
         "f:5: include: a project file cannot set this option\n  tip: put it into ~/.config/ddrun.toml",
         true},
    };
    (void)state;
    assert_refused(cases, sizeof(cases) / sizeof(cases[0]));
}

/* Return whether the file may set the variable. */
static bool sets(const char *name, bool project)
{
    struct run r = {0};
    char json[200];
    (void)snprintf(json, sizeof(json), "{\"values\": [[1, [\"environment\", \"%s\"], \"1\"]]}",
                   name);
    int rc = add_as(&r, "f", project, json);
    assert_true(rc == 0 ? r.s.n == 1 : rc == -EINVAL && strstr(r.err.text, name) != NULL);
    done(&r);
    return rc == 0;
}

static void no_file_sets_what_ddrun_sets_for_each_worker(void **state)
{
    static const char *const names[] = {"RANK",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "GROUP_RANK",
                                        "ROLE_RANK",
                                        "TORCHELASTIC_RUN_ID",
                                        "DDRUN_NODES",
                                        "PET_NNODES",
                                        "SLURM_PROCID",
                                        "PMI_FD",
                                        "PMI2_FD",
                                        "PMIX_RANK",
                                        "OMPI_COMM_WORLD_RANK",
                                        "HOROVOD_RANK",
                                        "CROSS_RANK",
                                        "CCL_LOCAL_RANK",
                                        "JAX_COORDINATOR_ADDRESS",
                                        "TF_CONFIG",
                                        "PADDLE_TRAINER_ID",
                                        "MS_ROLE"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_false(sets(names[i], false));
        assert_false(sets(names[i], true));
    }
    assert_true(sets("PMIX_MCA_gds", false));
    assert_true(sets("HOROVOD_FUSION_THRESHOLD", false));
    assert_true(sets("RANKS", false));
}

static void a_project_file_sets_only_listed_variables(void **state)
{
    static const char *const allowed[] = {"OMP_NUM_THREADS",         "NCCL_DEBUG",
                                          "NCCL_DEBUG_SUBSYS",       "NCCL_SOCKET_IFNAME",
                                          "GLOO_SOCKET_IFNAME",      "TOKENIZERS_PARALLELISM",
                                          "PYTHONUNBUFFERED",        "TORCH_SHOW_CPP_STACKTRACES",
                                          "TORCH_DISTRIBUTED_DEBUG", "TORCH_CPP_LOG_LEVEL"};
    static const char *const others[] = {"PATH",
                                         "LD_PRELOAD",
                                         "PYTHONPATH",
                                         "NCCL_DEBUG_FILE",
                                         "NCCL_NET_PLUGIN",
                                         "CUDA_INJECTION64_PATH",
                                         "HTTPS_PROXY",
                                         "TORCH_EXTENSIONS_DIR",
                                         "HF_ENDPOINT",
                                         "PMIX_MCA_gds",
                                         "OMP_NUM_THREADSX"};
    (void)state;
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
        assert_true(sets(allowed[i], true));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(sets(others[i], true));
        assert_true(sets(others[i], false));
    }
}

static void a_wrong_value_is_named_by_its_line(void **state)
{
    struct run r = {0};
    static char tool[] = "tool";
    char *argv[] = {tool, NULL};
    (void)state;
    assert_int_equal(add(&r, "{\"values\": [[3, [\"nproc-per-node\"], \"many\"]]}"), 0);
    const struct opt_input in = {
        .argc = 1, .argv = argv, .env = argv + 1, .settings = r.s.v, .n_settings = r.s.n};
    assert_int_equal(opt_parse(&table, &r.v, &in, &r.res, &r.err), -EINVAL);
    assert_string_equal(r.err.text,
                        "f:3: nproc-per-node: 'many' is not a whole number; for example 3");
    done(&r);
}

static void an_error_of_the_parser_is_reported_with_its_line(void **state)
{
    struct run r = {0};
    (void)state;
    assert_int_equal(add(&r, "{\"line\": 2, \"error\": \"no \\u001b array\"}"), -EINVAL);
    assert_string_equal(r.err.text, "f:2: no \\x1b array");
    assert_int_equal(add(&r, "{\"line"), -EINVAL);
    assert_string_equal(r.err.text, "f: cannot be read: ddrun-toml wrote no valid answer");
    done(&r);
}

static void partition_and_queue_come_from_the_scheduler(void **state)
{
    static const struct {
        const char *name, *partition, *queue;
    } cases[] = {{"SLURM_JOB_PARTITION", "x", NULL},
                 {"PBS_QUEUE", NULL, "x"},
                 {"LSB_QUEUE", NULL, "x"},
                 {"QUEUE", NULL, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        DD_AUTO(strv) struct dd_strv env = {0};
        struct site_job job;
        assert_int_equal(dd_env_set(&env, cases[i].name, "x"), 0);
        site_job_read(&job, env.v, "node1.site");
        assert_true((job.partition != NULL) == (cases[i].partition != NULL));
        assert_true((job.queue != NULL) == (cases[i].queue != NULL));
        assert_null(job.hosts[0]);
        assert_string_equal(job.hosts[1], "node1.site");
        assert_int_equal(dd_env_set(&env, "SLURMD_NODENAME", "n1"), 0);
        assert_int_equal(dd_env_set(&env, "SGE_ROOT", "/sge"), 0);
        site_job_read(&job, env.v, "node1.site");
        assert_true((job.queue != NULL) == (cases[i].partition == NULL));
        assert_string_equal(job.hosts[0], "n1");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_later_file_replaces_an_earlier_one),
        cmocka_unit_test(variables_and_options_take_precedence_over_files),
        cmocka_unit_test(sections_apply_to_their_partition_and_queue),
        cmocka_unit_test(sections_apply_to_hosts_and_the_last_of_several_wins),
        cmocka_unit_test(includes_are_listed_by_line_if_their_section_applies),
        cmocka_unit_test(environment_does_not_override_the_users),
        cmocka_unit_test(the_other_nodes_get_the_values_in_force_as_options),
        cmocka_unit_test(a_wrong_file_is_refused_with_its_line),
        cmocka_unit_test(wrong_hosts_and_includes_are_refused),
        cmocka_unit_test(no_file_sets_what_ddrun_sets_for_each_worker),
        cmocka_unit_test(a_project_file_sets_only_listed_variables),
        cmocka_unit_test(a_wrong_value_is_named_by_its_line),
        cmocka_unit_test(an_error_of_the_parser_is_reported_with_its_line),
        cmocka_unit_test(partition_and_queue_come_from_the_scheduler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
