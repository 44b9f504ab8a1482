/* The end of an allocation, its reason, and whether the reason justifies a requeue. */
#include "agent/requeue.h"
#include "alloc/endtime.h"
#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static void time_left_of_squeue(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seconds; /* < 0: none */
    } rows[] = {
        {"0:59\n", 59},
        {"1:02:03\n", 3723},
        {"2-03:04:05", 183845},
        {" 10:00\n", 600},
        {"364-23:59:51", 31535991},
        {"UNLIMITED\n", -1},
        {"NOT_SET", -1},
        {"INVALID", -1},
        {"", -1},
        {"\n", -1},
        {"1:2:3:4", -1},
        {"5 minutes", 5},
        {"1-", -1},
        {"-5:00", -1},
        {"99999999999999999999:00", -1},
        {"5:00x", -1},
        {"slurm_load_jobs error: Invalid job id specified", -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t got = -1;
        int rc = alloc_slurm_time_left(rows[i].text, &got);
        if (rc != (rows[i].seconds < 0 ? -ENOENT : 0) || got != rows[i].seconds)
            fail_msg("'%s': %d, %lld", rows[i].text, rc, (long long)got);
    }
}

static void end_time_of_qstat(void **state)
{
    (void)state;
    static const char job[] = "Job Id: 12.head\n"
                              "    Job_Name = train\n"
                              "    Resource_List.select = 2:ncpus=4\n"
                              "    Resource_List.walltime = 01:00:30\n"
                              "    stime = Sat Nov 21 12:00:00 2026\n"
                              "    session_id = 77\n";
    struct tm tm = {
        .tm_year = 126, .tm_mon = 10, .tm_mday = 21, .tm_hour = 13, .tm_sec = 30, .tm_isdst = -1};
    int64_t end = 0;
    assert_int_equal(alloc_pbs_end_time(job, &end), 0);
    assert_int_equal(end, mktime(&tm));
    for (size_t n = 0; n < sizeof(job) - 1;
         n++) { /* truncated: no end before both fields are complete */
        char *cut = strndup(job, n);
        int64_t none = 0;
        if (alloc_pbs_end_time(cut, &none) == 0)
            assert_true(n >= (size_t)(strstr(job, "2026") - job) + 1);
        free(cut);
    }
    assert_int_equal(alloc_pbs_end_time("    stime = Sat Nov 21 12:00:00 2026\n", &end), -ENOENT);
    assert_int_equal(
        alloc_pbs_end_time("    Resource_List.walltime = 1:00\n    stime = never\n", &end),
        -ENOENT);
}

/* Job records as printed by Slurm 22.05.8. */
static void why_slurm_ends_a_job(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum alloc_end why;
    } rows[] = {
        {"JobId=1 JobName=b JobState=RUNNING Reason=None PreemptEligibleTime=x PreemptTime=2026-11-21T12:47:48 TimeLimit=UNLIMITED",
         ALLOC_END_PREEMPTED},
        {"JobId=1 JobName=b JobState=RUNNING Reason=None PreemptEligibleTime=x PreemptTime=None TimeLimit=00:01:00",
         ALLOC_END_OTHER},
        {"JobId=1 JobName=b JobState=COMPLETING Reason=None Requeue=1", ALLOC_END_OTHER},
        {"JobId=1 JobName=b JobState=CANCELLED Reason=None PreemptTime=2026-11-21T12:47:48",
         ALLOC_END_OTHER},
        {"JobId=1 JobName=b JobState=COMPLETING Reason=TimeLimit Requeue=1 TimeLimit=00:01:00",
         ALLOC_END_TIMEOUT},
        {"JobId=1 JobName=b JobState=TIMEOUT Reason=None", ALLOC_END_TIMEOUT},
        {"JobId=1 JobName=b JobState=TIMEOUTS Reason=TimeLimits", ALLOC_END_OTHER},
        {"", ALLOC_END_OTHER},
        {" JobState=", ALLOC_END_OTHER},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (alloc_slurm_why(rows[i].text) != rows[i].why)
            fail_msg("'%s': %d", rows[i].text, (int)alloc_slurm_why(rows[i].text));
}

static void reasons_to_start_again(void **state)
{
    (void)state;
    static const struct {
        struct requeue_end end;
        int reason;
    } rows[] = {
        {{.code = 0, .end_near = true}, 0}, /* success */
        {{.code = 0, .node_lost = true}, 0},
        {{.code = 1}, 0}, /* an ordinary failure */
        {{.code = 1, .node_lost = true}, REQUEUE_NODE_LOSS},
        {{.code = 93, .rule = EXIT_NO_REQUEUE, .node_lost = true, .end_near = true}, 0},
        {{.code = 75, .rule = EXIT_REQUEUE}, REQUEUE_BY_RULE},
        {{.code = 75, .rule = EXIT_REQUEUE, .end_near = true}, REQUEUE_BY_RULE},
        {{.code = 75, .rule = EXIT_REQUEUE, .stopped = true}, REQUEUE_ASK},
        {{.code = 17, .rule = EXIT_STOP}, 0},
        {{.code = 3, .end_near = true}, REQUEUE_TIMEOUT},
        {{.code = 143, .stopped = true}, REQUEUE_ASK}, /* by the scheduler or a user */
        {{.code = 143, .stopped = true, .end_near = true}, REQUEUE_ASK},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (requeue_reason(&rows[i].end) != rows[i].reason)
            fail_msg("row %zu: %d", i, requeue_reason(&rows[i].end));
}

static void reasons_are_named(void **state)
{
    (void)state;
    struct dd_err err = {0};
    assert_int_equal(requeue_parse("preempt", &err), REQUEUE_PREEMPT);
    assert_int_equal(requeue_parse("timeout,node-loss", &err), REQUEUE_TIMEOUT | REQUEUE_NODE_LOSS);
    static const char *const wrong[] = {"always", "preempt,,timeout", "timeou", "timeouts",
                                        ",preempt"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (requeue_parse(wrong[i], &err) != -EINVAL)
            fail_msg("'%s' was taken", wrong[i]);
        assert_non_null(strstr(err.text, "node-loss"));
    }
}

static void variables_that_tell_the_end_go_before_commands(void **state)
{
    (void)state;
    static const struct {
        const char *env[3];
        uint64_t start, end; /* end 0: not known */
        const char *source;  /* NULL: the user has named the nodes */
    } rows[] = {
        {{"SLURM_JOB_END_TIME=1795250000", "COBALT_ENDTIME=1795250001"},
         0,
         1795250000,
         "slurm-step"},
        {{"SLURM_JOB_END_TIME=1795250000", "COBALT_ENDTIME=1795250001"},
         0,
         1795250001,
         "cobalt"}, /* source decides */
        {{"SLURM_JOB_END_TIME=1795250000", "PBS_WALLTIME=60"}, 1795240000, 1795240060, "pbs"},
        {{"SLURM_JOB_END_TIME=1795250000"}, 0, 0, "lsf"},
        {{NULL}, 100, 0, NULL},
        {{"SLURM_JOB_END_TIME=1795250000"}, 0, 1795250000, NULL},
        {{"SLURM_JOB_END_TIME=soon", "COBALT_ENDTIME=1795250001"}, 0, 1795250001, NULL},
        {{"COBALT_ENDTIME=0"}, 0, 0, NULL},
        {{"PBS_WALLTIME=3600"}, 1795250000, 1795253600, NULL},
        {{"PBS_WALLTIME=3600"}, 0, 0, NULL},
        {{"PBS_WALLTIME=01:00:00"}, 1795250000, 0, NULL},
        {{"PBS_WALLTIME=99999999999999999999"}, 1795250000, 0, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t end = 0;
        int rc = alloc_told_end_time(rows[i].source != NULL ? rows[i].source : "hosts",
                                     (char *const *)(uintptr_t)rows[i].env, rows[i].start, &end);
        assert_int_equal(rc, rows[i].end > 0 ? 0 : -ENOENT);
        assert_int_equal(end, rows[i].end);
    }
}

static void each_scheduler_is_asked_in_its_words(void **state)
{
    (void)state;
    static const struct {
        const char *source, *env[4], *command; /* NULL: no scheduler can be queried */
    } rows[] = {
        {"slurm-batch", {"SLURM_JOB_ID=7", "PBS_JOBID=8"}, "squeue -h -o %L -j 7"},
        {"pbs", {"SLURM_JOB_ID=7", "PBS_JOBID=8[2].srv"}, "qstat -f 8[2].srv"},
        {"lsf", {"LSB_JOBID=9", "LSB_JOBINDEX=0"}, "bjobs -noheader -o time_left 9"},
        {"lsf", {"LSB_JOBID=9", "LSB_JOBINDEX=3"}, "bjobs -noheader -o time_left 9[3]"},
        {"sge", {"JOB_ID=5", "SGE_ROOT=/sge"}, "qstat -j 5"},
        {"oar", {"OAR_JOB_ID=5"}, "oarstat -f -j 5"},
        {"oar", {"OAR_JOBID=6"}, "oarstat -f -j 6"},
        {"hosts", {"FLUX_JOB_ID=f2", "FLUX_URI=local:///run"}, "flux job timeleft"},
        {"mpiexec", {"FLUX_ENCLOSING_ID=f2", "FLUX_URI=local:///run"}, "flux job timeleft"},
        {"hosts", {"LSB_JOBID=9"}, "bjobs -noheader -o time_left 9"},
        {"hosts", {"JOB_ID=5"}, NULL}, /* JOB_ID alone is ambiguous */
        {"sge", {"JOB_ID=5"}, NULL},
        {"local", {NULL}, NULL},
        {"cobalt", {"COBALT_JOBID=5"}, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *const *env = (char *const *)(uintptr_t)rows[i].env;
        const struct alloc_end_row *row = alloc_end_find(rows[i].source, env);
        DD_AUTO(strv) struct dd_strv words = {0};
        DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(400);
        const char *directory;
        assert_int_equal(row == NULL, rows[i].command == NULL);
        if (row == NULL)
            continue;
        assert_int_equal(alloc_end_command(row, env, &words, &directory), 0);
        for (size_t k = 0; k < words.n; k++)
            assert_int_equal(dd_buf_printf(&line, "%s%s", k > 0 ? " " : "", words.v[k]), 0);
        assert_string_equal(dd_buf_str(&line), rows[i].command);
        assert_int_equal(directory != NULL, strcmp(rows[i].source, "pbs") == 0);
    }
}

static void answers_are_read_as_their_schedulers_mean_them(void **state)
{
    (void)state;
    static char id[][16] = {"LSB_JOBID=9",  "JOB_ID=5",      "SGE_ROOT=/sge",
                            "OAR_JOB_ID=5", "FLUX_JOB_ID=f", "FLUX_URI=x"};
    char *env[] = {id[0], id[1], id[2], id[3], id[4], id[5], NULL};
    char *flux[] = {id[4], id[5], NULL};
    static const struct {
        const char *source, *text;
        uint64_t start, end; /* end: if now is 1000; 0: none */
    } rows[] = {
        {"lsf", "0:12 L\n", 0, 1720},
        {"lsf", " 100:01 L", 0, 361060},
        {"lsf", "00:12:05 L\n", 0, 1725},
        {"lsf", "0:12 E\n", 0, 0}, /* an estimate, not a limit */
        {"lsf", "0:12 X\n", 0, 0},
        {"lsf", "-\n", 0, 0},
        {"lsf", "0:12\n", 0, 0},
        {"lsf", "12 L\n", 0, 0},
        {"lsf", "Job <9> is not found\n", 0, 0},
        {"lsf", "1:2:3:4 L\n", 0, 0},
        {"lsf", "99999999999999999999:00 L\n", 0, 0},
        {"sge",
         "job_number:                 5\nhard resource_list:         mem=4G,h_rt=300\nmail_list: a\n",
         900, 1200},
        {"sge", "hard resource_list:         h_rt=01:00:30,gpu=2\n", 900, 4530},
        {"sge", "hard resource_list:         h_rt=300\n", 0, 0}, /* the start is not known */
        {"sge", "hard resource_list:         h_rt=INFINITY\n", 900, 0},
        {"sge",
         "hard resource_list:         s_rt=300,x_h_rt=5\nsoft resource_list:         h_rt=5\n", 900,
         0},
        {"sge", "context: hard resource_list: h_rt=5\n", 900, 0},
        {"sge", "Following jobs do not exist: 5\n", 900, 0},
        {"oar",
         "Job_Id: 5\n    state = Running\n    walltime = 1:0:30\n    startTime = 1970-01-02 00:00:10\n",
         0, 1},
        {"oar", "    walltime = 1:0:30\n    startTime = soon\n", 0, 0},
        {"oar", "    walltime = \n    startTime = 1970-01-02 00:00:10\n", 0, 0},
        {"flux", "61\n", 0, 1061},
        {"flux", "0\n", 0, 1000},
        {"flux", "4294967295\n", 0, 0}, /* no limit */
        {"flux", "10m\n", 0, 0},
        {"flux", "flux-job: not part of a job\n", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const bool is_flux = strcmp(rows[i].source, "flux") == 0;
        const struct alloc_end_row *row = is_flux ? alloc_end_find("hosts", flux)
                                                  : alloc_end_find(rows[i].source, env);
        struct tm tm = {.tm_year = 70, .tm_mday = 2, .tm_hour = 1, .tm_sec = 40, .tm_isdst = -1};
        uint64_t end = 0;
        int rc = alloc_end_answer(row, rows[i].text, 1000, rows[i].start, &end);
        const uint64_t wanted = rows[i].end == 1 ? (uint64_t)mktime(&tm) : rows[i].end;
        if (rc != (wanted > 0 ? 0 : -ENOENT) || end != wanted)
            fail_msg("row %zu: %d, %llu", i, rc, (unsigned long long)end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_scheduler_is_asked_in_its_words),
        cmocka_unit_test(answers_are_read_as_their_schedulers_mean_them),
        cmocka_unit_test(variables_that_tell_the_end_go_before_commands),
        cmocka_unit_test(time_left_of_squeue),
        cmocka_unit_test(end_time_of_qstat),
        cmocka_unit_test(why_slurm_ends_a_job),
        cmocka_unit_test(reasons_to_start_again),
        cmocka_unit_test(reasons_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
