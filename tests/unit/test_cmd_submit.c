/* The scripts that ddctl submit makes from templates, the queues that schedulers print, and whether
 * a job fits into them. */
#include "cmd/ddctl_submit_queue.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char ddrun[] = "/opt/ddrun", script[] = "train.py", quote[] = "it's", newline[] = "a\nb",
            nothing[] = "", dollar[] = "$HOME", plain[] = "--lr=1e-3";
static char *words[] = {ddrun, script, quote, newline, nothing, dollar, plain, NULL};

static char path[] = "PATH=/opt/x:/usr/bin", venv[] = "VIRTUAL_ENV=/v's", secret[] = "TOKEN=x";
static char *env[] = {secret, venv, path, NULL};

static const struct submit_request request = {.name = "train",
                                              .log = "logs/train-%j.out",
                                              .directory = "/data/a b",
                                              .env = env,
                                              .nodes = 2,
                                              .gpus_per_node = 4,
                                              .seconds = 129600,
                                              .command = words};

static const struct {
    const char *template, *job_id, *script; /* script NULL: `error` is expected */
    const char *error;
} scripts[] = {
    {.template = "#X --nodes=@NODES@ -t @TIME@\nexec @COMMAND@",
     .script = "#X --nodes=2 -t 36:00:00\n"
               "exec /opt/ddrun train.py 'it'\\''s' 'a\nb' '' '$HOME' --lr=1e-3\n"},
    {.template = "cd @DIRECTORY@\nexport @ENVIRONMENT@\n@COMMAND@\n",
     .script = "cd '/data/a b'\nexport PATH='/opt/x:/usr/bin' VIRTUAL_ENV='/v'\\''s'\n"
               "/opt/ddrun train.py 'it'\\''s' 'a\nb' '' '$HOME' --lr=1e-3\n"},
    {.template = "-o @LOG@\n@COMMAND@ # @NAME@",
     .script = "-o logs/train-%j.out\n"
               "/opt/ddrun train.py 'it'\\''s' 'a\nb' '' '$HOME' --lr=1e-3 # train\n"},
    /* a line break would end the comment */
    {.template = "@COMMAND@\n#@COMMAND@",
     .error =
         "line 2 of the template: the value of @COMMAND@, which follows a '#', contains a line break"},
    {.template = "#X @NAME@\n\ndate # @NODES@ @COMMAND@",
     .error =
         "line 3 of the template: the value of @COMMAND@, which follows a '#', contains a line break"},
    {.template = ">@LOG@ @COMMAND@\n",
     .job_id = "PBS_JOBID",
     .script = ">logs/train-\"$PBS_JOBID\".out "
               "/opt/ddrun train.py 'it'\\''s' 'a\nb' '' '$HOME' --lr=1e-3\n"},
    /* a line whose value is not set disappears */
    {.template = "@SELECT@ @NAME@\n#A @ACCOUNT@\n\n#Q @QUEUE@ @PARTITION@\n#@CPUS_PER_NODE@\n"
                 "@GPUS_PER_NODE@@COMMAND@",
     .script = "2:ngpus=4:mpiprocs=1 train\n\n"
               "4/opt/ddrun train.py 'it'\\''s' 'a\nb' '' '$HOME' --lr=1e-3\n"},
    {.template = "#$ -pe mpi @SLOTS@\n@COMMAND@ >@LOG@",
     .job_id = "JOB_ID",
     .script = "#$ -pe mpi 2\n"
               "/opt/ddrun train.py 'it'\\''s' 'a\nb' '' '$HOME' --lr=1e-3 "
               ">logs/train-\"$JOB_ID\".out\n"},
    /* other '@' are text */
    {.template = "#mail me@site.org @ @@ @nodes@ @X\n@COMMAND@",
     .script = "#mail me@site.org @ @@ @nodes@ @X\n"
               "/opt/ddrun train.py 'it'\\''s' 'a\nb' '' '$HOME' --lr=1e-3\n"},
    {.template = "#a\n# @NODE@\n@COMMAND@",
     .error = "line 2 of the template: unknown placeholder @NODE@"},
    {.template = "#!/bin/sh\nddrun train.py\n", .error = "the template does not contain @COMMAND@"},
    {.template = "", .error = "the template does not contain @COMMAND@"},
};

static void template_is_expanded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
        struct dd_err err = {0};
        int rc = submit_script_write(&out, scripts[i].template, scripts[i].job_id, &request, &err);
        if (scripts[i].script != NULL) {
            assert_string_equal(err.text, "");
            assert_string_equal(dd_buf_str(&out), scripts[i].script);
        } else {
            assert_int_equal(rc, -EINVAL);
            assert_memory_equal(err.text, scripts[i].error, strlen(scripts[i].error));
            assert_non_null(strstr(err.text, "\n  tip: "));
        }
    }
}

static const struct {
    const char *text;
    uint64_t seconds; /* 0: refused */
} times[] = {
    {"12h", 43200},        {"90m", 5400},         {"00:00:01", 1}, {"24:00:00", 86400},
    {"1-02:03:04", 93784}, {"100:00:00", 360000}, {"30:00", 0},    {"00:00:00", 0},
    {"1:60:00", 0},        {"1:00:60", 0},        {"x", 0},        {"", 0},
    {"-1:00:00", 0},       {"1-1h", 0},           {"1:00:00x", 0}, {"99999999999:00:00", 0},
};

static void times_of_schedulers_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        uint64_t s = 7;
        int rc = submit_time_parse(times[i].text, &s);
        assert_int_equal(rc, times[i].seconds > 0 ? 0 : -EINVAL);
        assert_int_equal(s, rc == 0 ? times[i].seconds : 7);
    }
}

static void log_is_a_plain_file_name(void **state)
{
    static const char *const good[] = {"a", "a-%j.out", "/x/y_%j/%j.log", "a@b"};
    static const char *const bad[] = {"",   "a b", "%x-%j", "a%", "d/",
                                      "-o", "a'b", "a\nb",  "$x", "#x"};
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(submit_is_log(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(submit_is_log(bad[i]));
}

/* As printed by Slurm 22.05 and OpenPBS 23.06, shortened. */
static const char slurm[] =
    "PartitionName=main AllowGroups=ALL Default=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 "
    "Nodes=node[1-4] State=UP TotalNodes=4\n"
    "PartitionName=long AllowGroups=ALL Default=NO MaxNodes=2 MaxTime=1-00:00:00 MinNodes=2 "
    "Nodes=node[1-4] State=UP TotalNodes=4\n"
    "PartitionName=old Default=NO State=INACTIVE TotalNodes=1 MaxTime=00:30:00\n";
static const char pbs[] = "Queue: workq\n"
                          "    queue_type = Execution\n"
                          "    state_count = Transit:0 Queued:0 Held:0 Waiting:0 Running:0 Begun\n"
                          "\t:0 \n"
                          "    enabled = True\n"
                          "    started = True\n"
                          "\n"
                          "Queue: short\n"
                          "    resources_max.nodect = 2\n"
                          "    resources_max.walltime = 01:00:00\n"
                          "    resources_min.nodect = 2\n"
                          "    enabled = False\n"
                          "\n"
                          "Server: ctl\n"
                          "    default_queue = short\n"
                          "    scheduling = True\n";

static const struct submit_queue_kind slurm_kind = {"partition", submit_next_slurm_queue};
static const struct submit_queue_kind pbs_kind = {"queue", submit_next_pbs_queue};
static const struct submit_queue_kind sge_kind = {"queue", submit_next_grid_engine_queue};
static const char sge[] = "all.q\ngpu.q\n";

static const struct {
    const struct submit_queue_kind *kind;
    const char *printed, *queue;
    int nodes;
    uint64_t seconds;
    const char *errors[3]; /* prefixes */
} fits[] = {
    {&slurm_kind, slurm, NULL, 4, 1000000, {NULL}},
    {&slurm_kind,
     slurm,
     NULL,
     5,
     0,
     {"partition 'main' accepts at most 4 nodes per job; --nodes=5 requests more"}},
    {&slurm_kind, slurm, "main,long", 2, 86400, {NULL}},
    {&slurm_kind,
     slurm,
     "long",
     1,
     86401,
     {"partition 'long' requires at least 2 nodes per job; --nodes=1 requests fewer",
      "--time=24:00:01 exceeds the limit of partition 'long' (24:00:00)"}},
    {&slurm_kind,
     slurm,
     "long",
     3,
     0,
     {"partition 'long' accepts at most 2 nodes per job; --nodes=3 requests more"}},
    {&slurm_kind, slurm, "old", 1, 60, {"partition 'old' accepts no jobs (state INACTIVE)"}},
    {&slurm_kind, slurm, "main,new", 1, 0, {"partition 'new' does not exist"}},
    {&slurm_kind, slurm, "mai", 1, 0, {"partition 'mai' does not exist"}},
    {&slurm_kind, "", NULL, 9, 0, {NULL}},
    {&pbs_kind, pbs, "workq", 100, 1000000, {NULL}},
    {&pbs_kind,
     pbs,
     NULL,
     1,
     3601,
     {"queue 'short' accepts no jobs (not enabled)",
      "queue 'short' requires at least 2 nodes per job; --nodes=1 requests fewer",
      "--time=1:00:01 exceeds the limit of queue 'short' (1:00:00)"}},
    {&pbs_kind, pbs, "gpu", 1, 0, {"queue 'gpu' does not exist"}},
    {&pbs_kind, pbs, "gpu@other", 1, 0, {NULL}},
    {&sge_kind, sge, "gpu.q,all.q@node1", 100, 1000000, {NULL}},
    {&sge_kind, sge, NULL, 1, 0, {NULL}},
    {&sge_kind, sge, "gpu", 1, 0, {"queue 'gpu' does not exist"}},
    {&sge_kind, "", "gpu", 1, 0, {"queue 'gpu' does not exist"}},
};

static void job_is_compared_with_the_limits_of_its_queue(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
        struct dd_err errs[SUBMIT_ERRORS_MAX] = {{0}};
        const struct submit_request r = {
            .queue = fits[i].queue, .nodes = fits[i].nodes, .seconds = fits[i].seconds};
        const size_t n = submit_queue_check(fits[i].kind, fits[i].printed, &r, errs);
        size_t expected = 0;
        for (; expected < 3 && fits[i].errors[expected] != NULL; expected++) {
            assert_memory_equal(errs[expected].text, fits[i].errors[expected],
                                strlen(fits[i].errors[expected]));
            assert_non_null(strstr(errs[expected].text, "\n  tip: "));
        }
        assert_int_equal(n, expected);
    }
}

static void missing_queue_is_answered_with_the_existing_ones(void **state)
{
    struct dd_err errs[SUBMIT_ERRORS_MAX] = {{0}};
    (void)state;
    assert_int_equal(submit_queue_check(&pbs_kind, pbs,
                                        &(struct submit_request){.queue = "x", .nodes = 1}, errs),
                     1);
    assert_non_null(strstr(errs[0].text, "workq, short"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(template_is_expanded),
        cmocka_unit_test(times_of_schedulers_are_read),
        cmocka_unit_test(log_is_a_plain_file_name),
        cmocka_unit_test(job_is_compared_with_the_limits_of_its_queue),
        cmocka_unit_test(missing_queue_is_answered_with_the_existing_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
