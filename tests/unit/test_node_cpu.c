/* node/cpu: the CPUs of a machine that a table describes, distributed to workers. */
#include "node/cpu.h"

#include "node_world.h"

#include <unistd.h>

struct machine {
    const char *name;
    int cpus;
    int threads; /* per core: siblings are cpu, cpu + cpus/threads, ... or neighbours */
    bool neighbours;
    const char *numa[4]; /* cpulist of each node */
};

static const struct machine machines[] = {
    {"flat", 8, 1, false, {NULL}},
    {"smt", 16, 2, false, {"0-3,8-11", "4-7,12-15"}},
    {"paired", 8, 2, true, {"0-7"}},
    {"four", 64, 1, false, {"0-15", "16-31", "32-47", "48-63"}},
    {"odd", 12, 1, false, {"0-9", "10-11"}},
};

static int setup(void **state)
{
    if (make_root(state) < 0)
        return -1;
    for (size_t m = 0; m < sizeof(machines) / sizeof(machines[0]); m++) {
        const struct machine *x = &machines[m];
        int cores = x->cpus / x->threads, nodes = 0;
        char name[100], text[100];
        for (int cpu = 0; cpu < x->cpus && x->threads == 2; cpu++) {
            (void)snprintf(name, sizeof(name), "cpu/cpu%d/topology/thread_siblings_list", cpu);
            if (x->neighbours)
                (void)snprintf(text, sizeof(text), "%d-%d\n", cpu / 2 * 2, cpu / 2 * 2 + 1);
            else
                (void)snprintf(text, sizeof(text), "%d,%d\n", cpu % cores, cpu % cores + cores);
            put(text, "%s/sys/devices/system/%s", x->name, name);
        }
        for (; nodes < 4 && x->numa[nodes] != NULL; nodes++) {
            (void)snprintf(name, sizeof(name), "node/node%d/cpulist", nodes);
            (void)snprintf(text, sizeof(text), "%s\n", x->numa[nodes]);
            put(text, "%s/sys/devices/system/%s", x->name, name);
        }
        (void)snprintf(text, sizeof(text), nodes > 1 ? "0-%d\n" : "0\n", nodes - 1);
        put(text, "%s/sys/devices/system/node/online", x->name);
    }
    return 0;
}

static void list_of(char *out, size_t size, const cpu_set_t *set)
{
    *out = '\0';
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, set)) {
            int to = i;
            while (to + 1 < CPU_SETSIZE && CPU_ISSET(to + 1, set))
                to++;
            size_t n = strlen(out);
            (void)snprintf(out + n, size - n, to > i ? "%s%d-%d" : "%s%d", n > 0 ? "," : "", i, to);
            i = to;
        }
}

static void cpus_are_shared_by_cores_and_numa_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *machine, *mask;
        int n;
        const char *want; /* the shares, separated by spaces; "-": unbound */
    } rows[] = {
        {"flat", "0-7", 1, "0-7"},
        {"flat", "0-7", 2, "0-3 4-7"},
        {"flat", "0-7", 3, "0-1 2-4 5-7"},
        {"flat", "0-7", 8, "0 1 2 3 4 5 6 7"},
        {"flat", "0-7", 9, "-"},
        {"flat", "1,3,5,7", 2, "1,3 5,7"},
        {"flat", "6", 1, "6"},
        {"flat", "6", 2, "-"},
        {"none", "0-3", 2, "0-1 2-3"}, /* a machine without topology files */
                                       /* siblings stay together, each worker in one NUMA node */
        {"smt", "0-15", 2, "0-3,8-11 4-7,12-15"},
        {"smt", "0-15", 4, "0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15"},
        {"smt", "0-15", 8, "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15"},
        {"smt", "0-15", 1, "0-15"},
        {"smt", "0-15", 3, "0-1,8-9 2-4,10-12 5-7,13-15"},            /* 2+3+3 beats 4+2+2 */
        {"smt", "0-15", 16, "0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15"}, /* fewer cores than workers */
        {"smt", "0-7", 4, "0-1 2-3 4-5 6-7"},                         /* one thread of each core */
        {"smt", "0,8,1", 2, "0,8 1"},
        {"paired", "0-7", 2, "0-3 4-7"},
        {"paired", "0-7", 4, "0-1 2-3 4-5 6-7"},
        {"paired", "0-7", 3, "0-1 2-3 4-7"},
        /* four NUMA nodes: split at their borders, unless a share loses more than a quarter */
        {"four", "0-63", 2, "0-31 32-63"},
        {"four", "0-63", 4, "0-15 16-31 32-47 48-63"},
        {"four", "0-63", 6, "0-9 10-20 21-31 32-41 42-52 53-63"},
        {"four", "8-23", 2, "8-15 16-23"},
        {"four", "0-31", 5, "0-4 5-9 10-15 16-23 24-31"},
        {"odd", "0-11", 2, "0-5 6-11"},
        {"odd", "0-11", 6, "0-1 2-3 4-5 6-7 8-9 10-11"},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        cpu_set_t mask, share;
        char dir[100], got[400] = "";
        mask_of(&mask, rows[r].mask);
        struct node_cpus c = {.set = &mask, .size = sizeof(mask), .count = CPU_COUNT(&mask)};
        (void)snprintf(dir, sizeof(dir), "%s/%s", root, rows[r].machine);
        for (int i = 0; i < rows[r].n; i++) {
            size_t len = strlen(got);
            char list[200];
            int rc = node_cpus_share(&c, dir, i, rows[r].n, &share);
            if (rc == 0)
                list_of(list, sizeof(list), &share);
            if (rc == 0)
                (void)snprintf(got + len, sizeof(got) - len, "%s%s", len > 0 ? " " : "", list);
            else
                strcpy(got, "-");
        }
        if (strcmp(got, rows[r].want) != 0)
            fail_msg("%s %s / %d: %s", rows[r].machine, rows[r].mask, rows[r].n, got);
    }
}

/* For any number of workers, each CPU is in exactly one share, and no share is empty. */
static void cpus_shares_cover_the_mask_once(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof(machines) / sizeof(machines[0]); m++)
        for (int n = 1; n <= machines[m].cpus; n++) {
            cpu_set_t mask, all, share;
            char dir[100];
            CPU_ZERO(&mask);
            CPU_ZERO(&all);
            for (int cpu = 0; cpu < machines[m].cpus; cpu++)
                CPU_SET(cpu, &mask);
            struct node_cpus c = {.set = &mask, .size = sizeof(mask), .count = machines[m].cpus};
            (void)snprintf(dir, sizeof(dir), "%s/%s", root, machines[m].name);
            int sum = 0;
            for (int i = 0; i < n; i++) {
                assert_int_equal(node_cpus_share(&c, dir, i, n, &share), 0);
                assert_true(CPU_COUNT(&share) >= 1);
                sum += CPU_COUNT(&share);
                CPU_OR(&all, &all, &share);
            }
            assert_int_equal(sum, machines[m].cpus);
            assert_true(CPU_EQUAL(&all, &mask));
        }
}

static void cpus_get_tells_this_process_mask(void **state)
{
    (void)state;
    struct node_cpus c = {0};
    cpu_set_t mask, *share;
    assert_int_equal(node_cpus_get(&c, NULL), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(mask), &mask), 0);
    assert_int_equal(c.count, CPU_COUNT(&mask));
    assert_true(c.online >= c.count);
    share = malloc(c.size);
    assert_int_equal(node_cpus_share(&c, "", 0, 1, share), 0); /* this machine */
    assert_true(CPU_EQUAL_S(c.size, share, c.set));
    assert_int_equal(node_cpus_share(&c, "", 0, 1, share), 0); /* from the cached topology */
    assert_int_equal(node_cpus_share(&c, root, 0, 1, share), 0);
    assert_true(CPU_EQUAL_S(c.size, share, c.set));
    assert_int_equal(node_cpus_share(&c, "", 1, 1, share), 1);
    assert_int_equal(node_cpus_share(&c, "", 0, 0, share), 1);
    free(share);
    node_cpus_done(&c);
    node_cpus_done(&c);
}

static void cpus_bound_by_accident_needs_a_bigger_machine(void **state)
{
    (void)state;
    static const struct {
        int count, online, n;
        bool want;
    } rows[] = {
        {1, 64, 4, true}, {1, 64, 1, false}, {4, 64, 4, false},
        {2, 2, 4, false}, {3, 64, 4, true},  {64, 64, 8, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node_cpus c = {.count = rows[i].count, .online = rows[i].online};
        assert_int_equal(node_cpus_bound_by_accident(&c, rows[i].n), rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_are_shared_by_cores_and_numa_nodes),
        cmocka_unit_test(cpus_shares_cover_the_mask_once),
        cmocka_unit_test(cpus_get_tells_this_process_mask),
        cmocka_unit_test(cpus_bound_by_accident_needs_a_bigger_machine),
    };
    return cmocka_run_group_tests(tests, setup, remove_root);
}
