/* node/numa: workers near their GPUs, on machines that are described by files. */
#include "node/gpu_numa.h"
#include "node/numa.h"

#include "node_world.h"

#include <unistd.h>

#define SYS "sys/devices/system/"

/* Create 2 sockets, 4 NUMA nodes of 4 cores with 2 threads each (CPUs c and c + 16), caches shared
 * by 2 cores. */
static void make_two_sockets(const char *m)
{
    char text[64];
    put("0-3\n", "%s/" SYS "node/online", m);
    for (int node = 0; node < 4; node++) {
        (void)snprintf(text, sizeof(text), "%d-%d,%d-%d\n", 4 * node, 4 * node + 3, 16 + 4 * node,
                       16 + 4 * node + 3);
        put(text, "%s/" SYS "node/node%d/cpulist", m, node);
    }
    for (int cpu = 0; cpu < 32; cpu++) {
        const int core = cpu % 16;
        (void)snprintf(text, sizeof(text), "%d,%d\n", core, core + 16);
        put(text, "%s/" SYS "cpu/cpu%d/topology/thread_siblings_list", m, cpu);
        put(core < 8 ? "0\n" : "1\n", "%s/" SYS "cpu/cpu%d/topology/physical_package_id", m, cpu);
        put("Data\n", "%s/" SYS "cpu/cpu%d/cache/index0/type", m, cpu);
        put("1\n", "%s/" SYS "cpu/cpu%d/cache/index0/level", m, cpu);
        put(text, "%s/" SYS "cpu/cpu%d/cache/index0/shared_cpu_list", m, cpu);
        (void)snprintf(text, sizeof(text), "%d-%d,%d-%d\n", core / 2 * 2, core / 2 * 2 + 1,
                       16 + core / 2 * 2, 16 + core / 2 * 2 + 1);
        put("Unified\n", "%s/" SYS "cpu/cpu%d/cache/index1/type", m, cpu);
        put("3\n", "%s/" SYS "cpu/cpu%d/cache/index1/level", m, cpu);
        put(text, "%s/" SYS "cpu/cpu%d/cache/index1/shared_cpu_list", m, cpu);
        put("Instruction\n", "%s/" SYS "cpu/cpu%d/cache/index2/type", m, cpu);
        put("4\n", "%s/" SYS "cpu/cpu%d/cache/index2/level", m, cpu);
    }
}

static void make_nvidia(const char *m, const char *addr, int minor, const char *uuid,
                        const char *numa)
{
    char text[200];
    (void)snprintf(text, sizeof(text), "Model: \t\t X\nGPU UUID: \t %s\nDevice Minor: \t %d\n",
                   uuid, minor);
    put(text, "%s/proc/driver/nvidia/gpus/%s/information", m, addr);
    put("", "%s/dev/nvidia%d", m, minor);
    put(numa, "%s/sys/bus/pci/devices/%s/numa_node", m, addr);
}

/* Create 4 NUMA nodes of 2 cores; the GPUs, by address, are at nodes 3, 1, 0 and 2. */
static void make_frontier(const char *m)
{
    static const char *const numa[] = {"3\n", "1\n", "0\n", "2\n"};
    put("0-3\n", "%s/" SYS "node/online", m);
    for (int i = 0; i < 4; i++) {
        char text[100];
        (void)snprintf(text, sizeof(text), "%d-%d\n", 2 * i, 2 * i + 1);
        put(text, "%s/" SYS "node/node%d/cpulist", m, i);
        put("4660\n", "%s/sys/class/kfd/kfd/topology/nodes/%d/gpu_id", m, 4 + i);
        (void)snprintf(text, sizeof(text), "location_id %d\ndomain 0\n", (0xc1 + i) << 8);
        put(text, "%s/sys/class/kfd/kfd/topology/nodes/%d/properties", m, 4 + i);
        put(numa[i], "%s/sys/bus/pci/devices/0000:c%d:00.0/numa_node", m, 1 + i);
    }
}

static int setup(void **state)
{
    if (make_root(state) < 0)
        return -1;
    make_two_sockets("bare");
    make_two_sockets("gpus"); /* three of them at NUMA node 3, one at 1 */
    make_nvidia("gpus", "0000:0a:00.0", 3, "GPU-aaaa-1", "3\n");
    make_nvidia("gpus", "0000:0b:00.0", 2, "GPU-bbbb-2", "3\n");
    make_nvidia("gpus", "0000:1c:00.0", 0, "GPU-cccc-3", "1\n");
    make_nvidia("gpus", "0000:9d:00.0", 1, "GPU-dddd-4", "3\n");
    make_nvidia("some", "0000:0a:00.0", 0, "GPU-aaaa-1",
                "-1\n"); /* a cgroup allows only the second GPU */
    make_nvidia("some", "0000:0b:00.0", 1, "GPU-bbbb-2", "2\n");
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/some/dev/nvidia0", root);
    assert_int_equal(unlink(path), 0);
    put("0\n", "%s/sys/class/kfd/kfd/topology/nodes/0/gpu_id", "amd");
    put("4660\n", "%s/sys/class/kfd/kfd/topology/nodes/1/gpu_id", "amd");
    put("simd_count 1\nlocation_id 49408\ndomain 1\n",
        "%s/sys/class/kfd/kfd/topology/nodes/1/properties", "amd");
    put("2\n", "%s/sys/bus/pci/devices/0001:c1:00.0/numa_node", "amd");
    put("", "%s/sys/x", "tells-nothing");
    put("0-1,8\n", "%s/" SYS "node/online", "grace"); /* two sockets; the GPU's memory is node 8 */
    put("0-3\n", "%s/" SYS "node/node0/cpulist", "grace");
    put("4-7\n", "%s/" SYS "node/node1/cpulist", "grace");
    put("\n", "%s/" SYS "node/node8/cpulist", "grace");
    put("0\n", "%s/" SYS "cpu/cpu0/topology/physical_package_id", "grace");
    put("1\n", "%s/" SYS "cpu/cpu4/topology/physical_package_id", "grace");
    make_frontier("frontier");
    return 0;
}

static void each_gpu_has_its_node(void **state)
{
    (void)state;
    static const struct {
        const char *machine, *env, *want;
    } rows[] = {
        {"gpus", NULL, "3 3 1 3"},
        {"gpus", "CUDA_VISIBLE_DEVICES=2,0", "1 3"},
        {"gpus", "CUDA_VISIBLE_DEVICES=GPU-cccc-3,GPU-aa", "1 3"},
        {"gpus", "CUDA_VISIBLE_DEVICES=1,9,2", "3"},
        {"gpus", "CUDA_VISIBLE_DEVICES=", ""},
        {"some", NULL, "2"},
        {"some", "CUDA_VISIBLE_DEVICES=0", "2"},
        {"amd", NULL, "2"},
        {"bare", NULL, ""},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        char *env[] = {(char *)(uintptr_t)rows[r].env, NULL};
        char dir[100], got[100] = "";
        int *numa, n;
        (void)snprintf(dir, sizeof(dir), "%s/%s", root, rows[r].machine);
        assert_int_equal(node_gpu_numa(&numa, &n, env, dir, NULL), 0);
        for (int i = 0; i < n; i++)
            (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%d", i > 0 ? " " : "",
                           numa[i]);
        free(numa);
        if (strcmp(got, rows[r].want) != 0)
            fail_msg("%s %s: %s", rows[r].machine, rows[r].env == NULL ? "" : rows[r].env, got);
    }
}

struct place_row {
    const char *machine, *mask, *mode;
    int i, n;
    const char *want; /* CPUs; "-": an error that names the option */
    unsigned long memory;
};

static void check_place(const struct place_row *row)
{
    char *env[] = {NULL};
    cpu_set_t mask, got, want;
    struct node_memory memory;
    struct dd_err err = {0};
    char dir[100];
    mask_of(&mask, row->mask);
    struct node_cpus c = {.set = &mask, .size = sizeof(mask), .count = CPU_COUNT(&mask)};
    (void)snprintf(dir, sizeof(dir), "%s/%s", root, row->machine);
    const struct node_numa_query q = {
        .cpus = &c, .root = dir, .env = env, .mode = node_numa_mode(row->mode), .nworkers = row->n};
    int rc = node_numa_place(&q, row->i, &got, &memory, &err);
    if (strcmp(row->want, "-") == 0) {
        assert_int_equal(rc, -EINVAL);
        assert_non_null(strstr(err.text, "--numa-binding"));
        return;
    }
    assert_int_equal(rc, 0);
    mask_of(&want, row->want);
    CPU_AND(&want, &want, &mask);
    if (!CPU_EQUAL(&want, &got) || memory.mask[0] != row->memory)
        fail_msg("%s, CPUs %s: %s %d/%d", row->machine, row->mask, row->mode, row->i, row->n);
}

static void workers_go_near_their_gpus(void **state)
{
    (void)state;
    static const struct place_row rows[] = {
        {"gpus", "0-31", "node", 0, 4, "12-15,28-31", 1 << 3},
        {"gpus", "0-31", "node", 2, 4, "4-7,20-23", 1 << 1},
        {"gpus", "0-5,31", "node", 2, 4, "4-5", 1 << 1},
        {"gpus", "0-5,31", "node", 0, 4, "31", 1 << 3},
        {"gpus", "0-5", "node", 0, 4, "-", 0},
        {"gpus", "0-31", "node", 4, 5, "-", 0},
        {"gpus", "0-31", "socket", 0, 4, "8-15,24-31", 1 << 2 | 1 << 3},
        {"gpus", "0-13,16-29", "socket", 2, 4, "0-7,16-23", 1 << 0 | 1 << 1},
        {"gpus", "0-31", "exclusive", 0, 4, "12-13,28-29", 1 << 3}, /* 4 cores for 3: 2, 1, 1 */
        {"gpus", "0-31", "exclusive", 1, 4, "14,30", 1 << 3},
        {"gpus", "0-31", "exclusive", 2, 4, "4-7,20-23", 1 << 1},
        {"gpus", "0-31", "exclusive", 3, 4, "15,31", 1 << 3},
        {"gpus", "4,12,13,28", "exclusive", 0, 4, "-", 0},
        {"gpus", "0-31", "core-complex", 0, 4, "12-13,28-29", 1 << 3},
        {"gpus", "0-31", "core-complex", 1, 4, "14-15,30-31", 1 << 3},
        {"gpus", "0-31", "core-complex", 3, 4, "12-13,28-29", 1 << 3}, /* wraps to the first one */
        {"gpus", "0-12,14-31", "core-complex", 0, 4, "14-15,30-31",
         1 << 3},                                            /* the larger one first */
        {"bare", "0-31", "node", 0, 2, "0-3,16-19", 1 << 0}, /* no GPU: nodes in order */
        {"bare", "0-31", "node", 1, 2, "8-11,24-27", 1 << 2},
        {"bare", "4-31", "node", 0, 3, "16-19", 1 << 0},
        {"bare", "0-31", "exclusive", 5, 8, "10-11,26-27", 1 << 2},
        {"grace", "0-7", "node", 1, 2, "4-7", 1 << 1}, /* node 8 has no CPUs */
        {"grace", "0-7", "node", 3, 4, "4-7", 1 << 1},
        {"grace", "0-7", "socket", 0, 2, "0-3", 1 << 0},
        {"frontier", "0-7", "node", 0, 4, "6-7", 1 << 3},
        {"frontier", "0-7", "node", 2, 4, "0-1", 1 << 0},
        {"tells-nothing", "0-3", "node", 1, 2, "0-3", 1 << 0},
        {"tells-nothing", "0-3", "exclusive", 1, 2, "2-3", 1 << 0},
        {"tells-nothing", "0-3", "core-complex", 1, 2, "0-3", 1 << 0},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        check_place(&rows[r]);
}

static void names_of_modes(void **state)
{
    (void)state;
    assert_int_equal(node_numa_mode("core-complex"), NODE_NUMA_CORE_COMPLEX);
    assert_int_equal(node_numa_mode(NULL), NODE_NUMA_NONE);
    assert_int_equal(node_numa_mode("x"), NODE_NUMA_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gpu_has_its_node),
        cmocka_unit_test(workers_go_near_their_gpus),
        cmocka_unit_test(names_of_modes),
    };
    return cmocka_run_group_tests(tests, setup, remove_root);
}
