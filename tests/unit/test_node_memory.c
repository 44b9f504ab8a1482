/* node: the limit of usable memory, from the machine and from both versions of cgroups. */
#include "node/memory.h"

#include "node_world.h"

#define GIB (UINT64_C(1) << 30)

static const char machine[] = "MemTotal:       16777216 kB\nMemFree:         1000 kB\n";

static const struct {
    const char *meminfo, *cgroup; /* /proc/meminfo, /proc/self/cgroup */
    const char *path, *text;
    uint64_t limit;
} rows[] = {
    {machine, "0::/\n", "sys/fs/cgroup/cgroup.procs", "", 16 * GIB},
    {machine, "0::/slurm/job_7/step_0/task_0\n",
     "sys/fs/cgroup/slurm/job_7/step_0/task_0/memory.max", "4294967296\n", 4 * GIB},
    {machine, "0::/slurm/job_7/step_0/task_0\n", "sys/fs/cgroup/slurm/job_7/memory.max",
     "4294967296\n", 4 * GIB},
    {machine, "0::/slurm/job_7\n", "sys/fs/cgroup/slurm/job_7/memory.max", "max\n", 16 * GIB},
    {machine, "0::/slurm/job_7\n", "sys/fs/cgroup/slurm/job_7/memory.max", "68719476736\n",
     16 * GIB},
    {machine, "0::/not/seen/in/a/container\n", "sys/fs/cgroup/memory.max", "1073741824\n", GIB},
    {machine, "5:devices:/\n4:memory:/slurm/uid_1/job_7\n0::/\n",
     "sys/fs/cgroup/memory/slurm/uid_1/memory.limit_in_bytes", "2147483648\n", 2 * GIB},
    {machine, "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
     "9223372036854771712\n", 16 * GIB},
    {machine, "nonsense\n:\n::\n0::\n", "sys/fs/cgroup/memory.max", "1073741824\n", GIB},
    {"", "0::/a\n", "sys/fs/cgroup/a/memory.max", "1073741824\n", GIB},
    {"", "0::/a\n", "sys/fs/cgroup/a/memory.max", "much\n", 0},
};

static void the_smallest_limit_counts(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])); i++) {
        DD_AUTO(free) char *dir = NULL;
        put(rows[i].meminfo, "%d/proc/meminfo", i);
        put(rows[i].cgroup, "%d/proc/self/cgroup", i);
        put(rows[i].text, "%d/%s", i, rows[i].path);
        assert_true(asprintf(&dir, "%s/%d", root, i) > 0);
        if (node_memory_limit(dir) != rows[i].limit)
            fail_msg("row %d: %llu", i, (unsigned long long)node_memory_limit(dir));
    }
    assert_int_equal(node_memory_limit("/nonexistent"), 0);
    assert_true(node_memory_limit("") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_limit_counts),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
