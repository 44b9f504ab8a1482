/* When an allocation ends, why it did, and whether that is a reason to start it again. */
#include "agent/requeue.h"
#include "alloc/endtime.h"

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
        {"0:59\n", 59},        {"1:02:03\n", 3723},       {"2-03:04:05", 183845}, {" 10:00\n", 600}, {"364-23:59:51", 31535991},
        {"UNLIMITED\n", -1},   {"NOT_SET", -1},           {"INVALID", -1},        {"", -1},          {"\n", -1},
        {"1:2:3:4", -1},       {"5 minutes", 5},          {"1-", -1},             {"-5:00", -1},     {"99999999999999999999:00", -1},
        {"5:00x", -1},         {"slurm_load_jobs error: Invalid job id specified", -1},
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
    struct tm tm = {.tm_year = 126, .tm_mon = 10, .tm_mday = 21, .tm_hour = 13, .tm_sec = 30, .tm_isdst = -1};
    int64_t end = 0;
    assert_int_equal(alloc_pbs_end_time(job, &end), 0);
    assert_int_equal(end, mktime(&tm));
    for (size_t n = 0; n < sizeof(job) - 1; n++) { /* cut anywhere: no crash, and no end before both are there */
        char *cut = strndup(job, n);
        int64_t none = 0;
        if (alloc_pbs_end_time(cut, &none) == 0)
            assert_true(n >= (size_t)(strstr(job, "2026") - job) + 1);
        free(cut);
    }
    assert_int_equal(alloc_pbs_end_time("    stime = Sat Nov 21 12:00:00 2026\n", &end), -ENOENT);
    assert_int_equal(alloc_pbs_end_time("    Resource_List.walltime = 1:00\n    stime = never\n", &end), -ENOENT);
}

/* The words of Slurm 22.05.8. */
static void why_slurm_ends_a_job(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum alloc_end why;
    } rows[] = {
        {"JobId=1 JobName=b JobState=RUNNING Reason=None PreemptEligibleTime=x PreemptTime=2026-11-21T12:47:48 TimeLimit=UNLIMITED", ALLOC_END_PREEMPTED},
        {"JobId=1 JobName=b JobState=RUNNING Reason=None PreemptEligibleTime=x PreemptTime=None TimeLimit=00:01:00", ALLOC_END_OTHER},
        {"JobId=1 JobName=b JobState=COMPLETING Reason=None Requeue=1", ALLOC_END_OTHER},
        {"JobId=1 JobName=b JobState=CANCELLED Reason=None PreemptTime=2026-11-21T12:47:48", ALLOC_END_OTHER},
        {"JobId=1 JobName=b JobState=COMPLETING Reason=TimeLimit Requeue=1 TimeLimit=00:01:00", ALLOC_END_TIMEOUT},
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
        {{.code = 0, .end_near = true}, 0}, /* the work is done */
        {{.code = 0, .node_lost = true}, 0},
        {{.code = 1}, 0}, /* a failure like any other */
        {{.code = 1, .node_lost = true}, REQUEUE_NODE_LOSS},
        {{.code = 93, .node_lost = true, .end_near = true}, 0},
        {{.code = 3, .end_near = true}, REQUEUE_TIMEOUT},
        {{.code = 143, .stopped = true, .end_near = true}, 0}, /* somebody wanted it so */
        {{.code = 143, .stopped = true, .by_scheduler = true}, REQUEUE_ASK},
        {{.code = 143, .stopped = true, .by_scheduler = true, .end_near = true}, REQUEUE_ASK},
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
    static const char *const wrong[] = {"always", "preempt,,timeout", "timeou", "timeouts", ",preempt"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (requeue_parse(wrong[i], &err) != -EINVAL)
            fail_msg("'%s' was taken", wrong[i]);
        assert_non_null(strstr(err.text, "preempt, timeout, node-loss"));
    }
}

static void variables_that_tell_the_end_go_before_commands(void **state)
{
    (void)state;
    static const struct {
        const char *env[3];
        uint64_t start, end; /* end 0: nothing is told */
    } rows[] = {
        {{NULL}, 100, 0},
        {{"SLURM_JOB_END_TIME=1795250000"}, 0, 1795250000},
        {{"SLURM_JOB_END_TIME=soon", "COBALT_ENDTIME=1795250001"}, 0, 1795250001},
        {{"COBALT_ENDTIME=0"}, 0, 0},
        {{"PBS_WALLTIME=3600"}, 1795250000, 1795253600},
        {{"PBS_WALLTIME=3600"}, 0, 0},
        {{"PBS_WALLTIME=01:00:00"}, 1795250000, 0},
        {{"PBS_WALLTIME=99999999999999999999"}, 1795250000, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t end = 0;
        int rc = alloc_told_end_time((char *const *)(uintptr_t)rows[i].env, rows[i].start, &end);
        assert_int_equal(rc, rows[i].end > 0 ? 0 : -ENOENT);
        assert_int_equal(end, rows[i].end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_that_tell_the_end_go_before_commands),
        cmocka_unit_test(time_left_of_squeue),      cmocka_unit_test(end_time_of_qstat),
        cmocka_unit_test(why_slurm_ends_a_job),     cmocka_unit_test(reasons_to_start_again),
        cmocka_unit_test(reasons_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
