/* node/numa: workers near their GPUs, on machines that are described by files. */
#include "base/auto.h"
#include "base/io.h"
#include "node/gpu_numa.h"
#include "node/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char root[] = "/tmp/test_node_numa.XXXXXX";

static void put(const char *machine, const char *content, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void put(const char *machine, const char *content, const char *fmt, ...)
{
    char path[400];
    va_list ap;
    int n = snprintf(path, sizeof(path), "%s/%s/", root, machine);
    va_start(ap, fmt);
    (void)vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, ap);
    va_end(ap);
    for (char *slash = path + sizeof(root); (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(dd_write_full(fd, content, strlen(content)), 0);
    close(fd);
}

#define SYS "sys/devices/system/"

/* 2 sockets, 4 NUMA nodes of 4 cores with 2 threads each (cpu c and c + 16), caches of 2 cores. */
static void make_two_sockets(const char *m)
{
    char text[64];
    put(m, "0-3\n", SYS "node/online");
    for (int node = 0; node < 4; node++) {
        (void)snprintf(text, sizeof(text), "%d-%d,%d-%d\n", 4 * node, 4 * node + 3, 16 + 4 * node, 16 + 4 * node + 3);
        put(m, text, SYS "node/node%d/cpulist", node);
    }
    for (int cpu = 0; cpu < 32; cpu++) {
        const int core = cpu % 16;
        (void)snprintf(text, sizeof(text), "%d,%d\n", core, core + 16);
        put(m, text, SYS "cpu/cpu%d/topology/thread_siblings_list", cpu);
        put(m, core < 8 ? "0\n" : "1\n", SYS "cpu/cpu%d/topology/physical_package_id", cpu);
        put(m, "Data\n", SYS "cpu/cpu%d/cache/index0/type", cpu);
        put(m, "1\n", SYS "cpu/cpu%d/cache/index0/level", cpu);
        put(m, text, SYS "cpu/cpu%d/cache/index0/shared_cpu_list", cpu);
        (void)snprintf(text, sizeof(text), "%d-%d,%d-%d\n", core / 2 * 2, core / 2 * 2 + 1, 16 + core / 2 * 2,
                       16 + core / 2 * 2 + 1);
        put(m, "Unified\n", SYS "cpu/cpu%d/cache/index1/type", cpu);
        put(m, "3\n", SYS "cpu/cpu%d/cache/index1/level", cpu);
        put(m, text, SYS "cpu/cpu%d/cache/index1/shared_cpu_list", cpu);
        put(m, "Instruction\n", SYS "cpu/cpu%d/cache/index2/type", cpu);
        put(m, "4\n", SYS "cpu/cpu%d/cache/index2/level", cpu);
    }
}

static void make_nvidia(const char *m, const char *addr, int minor, const char *uuid, const char *numa)
{
    char text[200];
    (void)snprintf(text, sizeof(text), "Model: \t\t X\nGPU UUID: \t %s\nDevice Minor: \t %d\n", uuid, minor);
    put(m, text, "proc/driver/nvidia/gpus/%s/information", addr);
    put(m, "", "dev/nvidia%d", minor);
    put(m, numa, "sys/bus/pci/devices/%s/numa_node", addr);
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(root) == NULL)
        return -1;
    make_two_sockets("bare");
    make_two_sockets("gpus"); /* three of them at NUMA node 3, one at 1 */
    make_nvidia("gpus", "0000:0a:00.0", 3, "GPU-aaaa-1", "3\n");
    make_nvidia("gpus", "0000:0b:00.0", 2, "GPU-bbbb-2", "3\n");
    make_nvidia("gpus", "0000:1c:00.0", 0, "GPU-cccc-3", "1\n");
    make_nvidia("gpus", "0000:9d:00.0", 1, "GPU-dddd-4", "3\n");
    make_nvidia("some", "0000:0a:00.0", 0, "GPU-aaaa-1", "-1\n"); /* a cgroup lets only the second be opened */
    make_nvidia("some", "0000:0b:00.0", 1, "GPU-bbbb-2", "2\n");
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/some/dev/nvidia0", root);
    assert_int_equal(unlink(path), 0);
    put("amd", "0\n", "sys/class/kfd/kfd/topology/nodes/0/gpu_id");
    put("amd", "4660\n", "sys/class/kfd/kfd/topology/nodes/1/gpu_id");
    put("amd", "simd_count 1\nlocation_id 49408\ndomain 1\n", "sys/class/kfd/kfd/topology/nodes/1/properties");
    put("amd", "2\n", "sys/bus/pci/devices/0001:c1:00.0/numa_node");
    put("tells-nothing", "", "sys/x");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[100];
    (void)snprintf(cmd, sizeof(cmd), "rm -r %s", root);
    return system(cmd);
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
            (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%d", i > 0 ? " " : "", numa[i]);
        free(numa);
        if (strcmp(got, rows[r].want) != 0)
            fail_msg("%s %s: %s", rows[r].machine, rows[r].env == NULL ? "" : rows[r].env, got);
    }
}

static void set_of(cpu_set_t *set, const char *list)
{
    CPU_ZERO(set);
    for (char *end; *list != '\0'; list = *end == ',' ? end + 1 : end) {
        long from = strtol(list, &end, 10), to = from;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (; from <= to; from++)
            CPU_SET((int)from, set);
    }
}

static void workers_go_near_their_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *machine, *mask, *mode;
        int i, n;
        const char *want; /* CPUs; "-": a sentence */
        unsigned long memory;
    } rows[] = {
        {"gpus", "0-31", "node", 0, 4, "12-15,28-31", 1 << 3},
        {"gpus", "0-31", "node", 2, 4, "4-7,20-23", 1 << 1},
        {"gpus", "0-5,31", "node", 2, 4, "4-5", 1 << 1},
        {"gpus", "0-5,31", "node", 0, 4, "31", 1 << 3},
        {"gpus", "0-5", "node", 0, 4, "-", 0},
        {"gpus", "0-31", "node", 4, 5, "-", 0},
        {"gpus", "0-31", "socket", 0, 4, "8-15,24-31", 1 << 2 | 1 << 3},
        {"gpus", "0-13,16-29", "socket", 2, 4, "0-7,16-23", 1 << 0 | 1 << 1},
        {"gpus", "0-31", "exclusive", 0, 4, "12-13,28-29", 1 << 3}, /* 4 cores among 3: 2, 1, 1 */
        {"gpus", "0-31", "exclusive", 1, 4, "14,30", 1 << 3},
        {"gpus", "0-31", "exclusive", 2, 4, "4-7,20-23", 1 << 1},
        {"gpus", "0-31", "exclusive", 3, 4, "15,31", 1 << 3},
        {"gpus", "4,12,13,28", "exclusive", 0, 4, "-", 0},
        {"gpus", "0-31", "core-complex", 0, 4, "12-13,28-29", 1 << 3},
        {"gpus", "0-31", "core-complex", 1, 4, "14-15,30-31", 1 << 3},
        {"gpus", "0-31", "core-complex", 3, 4, "12-13,28-29", 1 << 3}, /* again from the first */
        {"gpus", "0-12,14-31", "core-complex", 0, 4, "14-15,30-31", 1 << 3}, /* the larger one first */
        {"bare", "0-31", "node", 0, 2, "0-3,16-19", 1 << 0}, /* no GPU: nodes in order */
        {"bare", "0-31", "node", 1, 2, "8-11,24-27", 1 << 2},
        {"bare", "4-31", "node", 0, 3, "16-19", 1 << 0},
        {"bare", "0-31", "exclusive", 5, 8, "10-11,26-27", 1 << 2},
        {"tells-nothing", "0-3", "node", 1, 2, "0-3", 1 << 0},
        {"tells-nothing", "0-3", "exclusive", 1, 2, "2-3", 1 << 0},
        {"tells-nothing", "0-3", "core-complex", 1, 2, "0-3", 1 << 0},
    };
    char *env[] = {NULL};
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        cpu_set_t mask, got, want;
        struct node_memory memory;
        struct dd_err err = {0};
        char dir[100];
        set_of(&mask, rows[r].mask);
        struct node_cpus c = {.set = &mask, .size = sizeof(mask), .count = CPU_COUNT(&mask)};
        (void)snprintf(dir, sizeof(dir), "%s/%s", root, rows[r].machine);
        const struct node_numa_query q = {
            .cpus = &c, .root = dir, .env = env, .mode = node_numa_mode(rows[r].mode), .nworkers = rows[r].n};
        int rc = node_numa_place(&q, rows[r].i, &got, &memory, &err);
        if (strcmp(rows[r].want, "-") == 0) {
            assert_int_equal(rc, -EINVAL);
            assert_non_null(strstr(err.text, "--numa-binding"));
            continue;
        }
        assert_int_equal(rc, 0);
        set_of(&want, rows[r].want);
        CPU_AND(&want, &want, &mask);
        if (!CPU_EQUAL(&want, &got) || memory.mask[0] != rows[r].memory)
            fail_msg("row %zu: %s %s %d/%d", r, rows[r].machine, rows[r].mode, rows[r].i, rows[r].n);
    }
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
    return cmocka_run_group_tests(tests, setup, teardown);
}
