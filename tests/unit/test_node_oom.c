/* node: the number of processes of this cgroup that the OOM killer has ended, in both versions of
 * cgroups. */
#include "node/oom.h"

#include "node_world.h"

static const char events[] = "low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\noom_group_kill 0\n";
static const char control[] = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n";

static const struct {
    const char *cgroup; /* /proc/self/cgroup */
    const char *path, *text;
    uint64_t kills;
} rows[] = {
    {"0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
     "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events", events,
     3},
    {"0::/\n", "sys/fs/cgroup/memory.events", events, 3},
    {"0::/not/seen/in/a/container\n", "sys/fs/cgroup/memory.events", events, 3},
    {"5:devices:/\n4:memory:/slurm/uid_1/job_7\n0::/\n",
     "sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.oom_control", control, 4},
    {"4:cpu,memory:/a\n", "sys/fs/cgroup/memory/a/memory.oom_control", control, 4},
    {"4:memory_of_mine:/a\n", "sys/fs/cgroup/memory/a/memory.oom_control", control, 0},
    {"0::/a\n", "sys/fs/cgroup/a/memory.events", "low 0\noom_kill many\n", 0},
    {"0::/a\n", "sys/fs/cgroup/a/memory.events", "", 0},
    {"nonsense\n:\n::\n", "sys/fs/cgroup/a", "", 0},
};

/* While the cgroup of the job has no kill, those of the whole node are none of the job's. */
static void kills_of_the_node_do_not_count_where_the_job_has_a_file(void **state)
{
    DD_AUTO(free) char *dir = NULL;
    (void)state;
    put("0::/job_7\n", "job/proc/self/cgroup");
    put("oom_kill 0\n", "job/sys/fs/cgroup/job_7/memory.events");
    put("oom_kill 2\n", "job/sys/fs/cgroup/memory.events");
    assert_true(asprintf(&dir, "%s/job", root) > 0);
    assert_int_equal(node_oom_kills(dir), 0);
}

static void kills_are_counted_in_either_version(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])); i++) {
        DD_AUTO(free) char *dir = NULL;
        put(rows[i].cgroup, "%d/proc/self/cgroup", i);
        put(rows[i].text, "%d/%s", i, rows[i].path);
        assert_true(asprintf(&dir, "%s/%d", root, i) > 0);
        assert_int_equal(node_oom_kills(dir), rows[i].kills);
    }
    assert_int_equal(node_oom_kills("/nonexistent"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kills_are_counted_in_either_version),
        cmocka_unit_test(kills_of_the_node_do_not_count_where_the_job_has_a_file),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
