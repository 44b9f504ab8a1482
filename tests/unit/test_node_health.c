/* node: the health checks before a round, on artificial machines. */
#include "node/health.h"

#include "node_world.h"

#include <errno.h>
#include <unistd.h>

static struct node_health *seen(const char *text, int gpus)
{
    static struct node_health_list list; /* of the last call: the tests keep no other */
    struct node_health *h;
    const struct node_health_cfg cfg = {
        .list = &list, .gpus = gpus, .nvml = "/missing.so", .tmpdir = root, .root = root};
    assert_int_equal(node_health_parse(&list, text, NULL), 0);
    assert_int_equal(node_health_new(&h, &cfg, NULL), 0);
    return h;
}

static const char *wrong(const struct node_health *h)
{
    static struct dd_err err;
    return node_health_check(h, &err) == 0 ? "fit" : err.text;
}

static void list_is_read(void **state)
{
    (void)state;
    struct dd_err err;
    struct node_health_list l;
    static const struct {
        const char *text;
        int checks, n;
    } good[] = {
        {"none", 0, 0},
        {"gpu,ib", NODE_HEALTH_GPU | NODE_HEALTH_IB, 0},
        {"all", 15, 0},
        {"all,storage=/s", 15, 1},
        {"disk,disk=/a:b:1G,memory=64G", NODE_HEALTH_DISK, 2},
        {"storage=/1,storage=/2,storage=/3,storage=/4,storage=/5,storage=/6,storage=/7,storage=/8",
         0, 8},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(node_health_parse(&l, good[i].text, &err), 0);
        assert_int_equal(l.checks, good[i].checks);
        assert_int_equal(l.n, good[i].n);
    }
    assert_int_equal(node_health_parse(&l, "disk=/a:b:1G,memory=64K", &err), 0);
    assert_string_equal(l.targets[0].path, "/a:b");
    assert_int_equal(l.targets[0].bytes, 1 << 30);
    assert_string_equal(l.targets[1].path, "");
    assert_int_equal(l.targets[1].bytes, 65536);
}

static void invalid_list_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "gpu, ib, shm, disk"},
        {"gpus", "gpu, ib, shm, disk"},
        {"gpu,", "gpu, ib, shm, disk"},
        {",gpu", "gpu, ib, shm, disk"},
        {"gpu,none", "gpu, ib, shm, disk"},
        {"g", "gpu, ib, shm, disk"},
        {"gpu=1", "gpu, ib, shm, disk"},
        {"all=1", "gpu, ib, shm, disk"},
        {"storage", "storage=PATH"},
        {"memory", "memory=SIZE"},
        {"storage=scratch", "absolute path"},
        {"storage=", "absolute path"},
        {"memory=", "memory=64G"},
        {"memory=0", "memory=64G"},
        {"memory=-1G", "memory=64G"},
        {"disk=/scratch", "disk=/scratch:10G"},
        {"disk=/scratch:", "disk=/scratch:10G"},
        {"disk=scratch:1G", "absolute path"},
        {"storage=/1,storage=/2,storage=/3,storage=/4,storage=/5,storage=/6,storage=/7,storage=/8,"
         "storage=/9",
         "at most 8"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct node_health_list l;
        struct dd_err err;
        assert_int_equal(node_health_parse(&l, bad[i].text, &err), -EINVAL);
        assert_non_null(strstr(err.text, bad[i].says));
    }
}

static void gpu_that_has_fallen_off_the_bus_is_seen(void **state)
{
    (void)state;
    put("\x03\x1a", "sys/bus/pci/drivers/ast/0000:03:00.0/config"); /* the server's own display */
    put("\xde\x10\x30\x23", "sys/bus/pci/drivers/nvidia/0000:17:00.0/config");
    put("\xde\x10\x30\x23", "sys/bus/pci/drivers/nvidia/0000:65:00.0/config");
    put("", "sys/bus/pci/drivers/nvidia/new_id");
    put("\x86\x80", "sys/bus/pci/drivers/i915/0000:00:02.0/config");
    struct node_health *all = seen("gpu", 2);
    struct node_health *half = seen("gpu", 1);
    struct node_health *parts = seen("gpu", 14);
    assert_string_equal(wrong(all), "fit");
    assert_string_equal(wrong(parts), "fit");
    put("\xff\xff\xff\xff", "sys/bus/pci/drivers/nvidia/0000:65:00.0/config");
    assert_string_equal(
        wrong(all),
        "only 1 of 2 GPUs respond; 0000:65:00.0 cannot be read, or has fallen off the bus");
    assert_string_equal(wrong(parts), wrong(all));
    assert_string_equal(wrong(half), "fit"); /* the failed GPU may belong to another job */
    DD_AUTO(free) char *path = NULL;
    assert_true(asprintf(&path, "%s/sys/bus/pci/drivers/nvidia/0000:17:00.0/config", root) > 0);
    assert_int_equal(unlink(path), 0);
    assert_non_null(strstr(wrong(half), "only 0 of 2 GPUs"));
    node_health_free(all);
    node_health_free(half);
    node_health_free(parts);
}

static void port_that_went_down_is_seen(void **state)
{
    (void)state;
    put("4: ACTIVE\n", "sys/class/infiniband/mlx5_0/ports/1/state");
    put("1: DOWN\n", "sys/class/infiniband/mlx5_1/ports/1/state"); /* unused from the start */
    struct node_health *h = seen("ib", 0);
    assert_string_equal(wrong(h), "fit");
    put("2: INIT\n", "sys/class/infiniband/mlx5_0/ports/1/state");
    assert_string_equal(
        wrong(h), "InfiniBand port mlx5_0/ports/1 is INIT, but was ACTIVE when the job started");
    put("", "sys/class/infiniband/mlx5_0/ports/1/state");
    assert_string_equal(
        wrong(h), "InfiniBand port mlx5_0/ports/1 is gone, but was ACTIVE when the job started");
    node_health_free(h);
}

static void errors_of_a_port_since_the_last_check_are_warnings(void **state)
{
    (void)state;
    static const char port[] = "sys/class/infiniband/mlx5_2/ports/1";
    put("4: ACTIVE\n", "%s/state", port);
    put("5: LinkUp\n", "%s/phys_state", port);
    put("3\n", "%s/counters/link_downed", port);
    put("100\n", "%s/counters/symbol_error", port);
    struct node_health *h = seen("ib", 0); /* without port_rcv_errors, as for some cards */
    assert_string_equal(wrong(h), "fit");
    assert_string_equal(node_health_warnings(h), ""); /* errors before the job */
    put("4\n", "%s/counters/link_downed", port);
    put("107\n", "%s/counters/symbol_error", port);
    assert_string_equal(wrong(h), "fit");
    assert_string_equal(
        node_health_warnings(h),
        "InfiniBand port mlx5_2/ports/1 has had 1 failed link since the last check\n"
        "InfiniBand port mlx5_2/ports/1 has had 7 symbol errors since the last check\n");
    put("0\n", "%s/counters/link_downed", port); /* perfquery -r */
    put("rubbish\n", "%s/counters/symbol_error", port);
    assert_string_equal(wrong(h), "fit");
    assert_string_equal(node_health_warnings(h), "");
    put("1: DOWN\n", "%s/state", port);
    put("3: Disabled\n", "%s/phys_state", port);
    assert_string_equal(wrong(h), "InfiniBand port mlx5_2/ports/1 is DOWN (Disabled), but was "
                                  "ACTIVE when the job started");
    assert_string_equal(node_health_doing(h), "InfiniBand port mlx5_2/ports/1");
    node_health_free(h);
    put("1: DOWN\n", "%s/state", port);
}

static void little_memory_is_seen(void **state)
{
    (void)state;
    put("MemTotal:       65536000 kB\nMemFree:  1 kB\nMemAvailable:   32768000 kB\n",
        "proc/meminfo");
    struct node_health *h = seen("memory=31G", 0);
    assert_string_equal(wrong(h), "fit");
    node_health_free(h);
    h = seen("memory=64G", 0);
    assert_string_equal(wrong(h),
                        "only 31.2 GiB of memory is available, less than 64.0 GiB (--health)");
    node_health_free(h);
}

static void storage_is_written_and_read(void **state)
{
    (void)state;
    DD_AUTO(free) char *text = NULL;
    assert_true(asprintf(&text, "storage=%s,disk=%s:1K", root, root) > 0);
    struct node_health *h = seen(text, 0);
    assert_string_equal(wrong(h), "fit");
    node_health_free(h);
    h = seen("storage=/nonexistent/s", 0);
    assert_string_equal(
        wrong(h), "cannot write a temporary file in /nonexistent/s: No such file or directory");
    node_health_free(h);
    h = seen("disk=/nonexistent/s:1K", 0);
    assert_non_null(strstr(wrong(h), "cannot read the free space of /nonexistent/s"));
    node_health_free(h);
    h = seen("disk=/:16777216G", 0);
    assert_non_null(strstr(wrong(h), "the file system of / has only "));
    node_health_free(h);
}

static void disk_that_cannot_be_written_is_seen(void **state)
{
    (void)state;
    struct node_health *h = seen("disk,shm", 0);
    assert_string_equal(wrong(h), "fit"); /* although /dev/shm is missing */
    node_health_free(h);
    const struct node_health_list disk = {.checks = NODE_HEALTH_DISK};
    const struct node_health_cfg cfg = {.list = &disk, .tmpdir = "/nonexistent/tmp", .root = root};
    assert_int_equal(node_health_new(&h, &cfg, NULL), 0);
    assert_string_equal(
        wrong(h), "cannot write a temporary file in /nonexistent/tmp: No such file or directory");
    node_health_free(h);
}

static void checks_are_idle_where_there_is_neither_gpu_nor_active_port(void **state)
{
    static const struct {
        const char *list;
        int gpus;
        bool idle;
    } rows[] = {{"gpu,ib", 0, true}, {"none", 2, true},  {"gpu,ib", 2, false},   {"ib", 2, true},
                {"shm", 0, false},   {"disk", 0, false}, {"storage=/", 0, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node_health *h = seen(rows[i].list, rows[i].gpus);
        assert_int_equal(node_health_is_idle(h), rows[i].idle);
        node_health_free(h);
    }
    put("4: ACTIVE\n", "sys/class/infiniband/mlx5_0/ports/1/state");
    struct node_health *h = seen("gpu,ib", 0);
    assert_false(node_health_is_idle(h));
    node_health_free(h);
}

static void nothing_is_wrong_where_nothing_is_there(void **state)
{
    (void)state;
    struct node_health *h;
    const struct node_health_list most = {.checks = NODE_HEALTH_GPU | NODE_HEALTH_IB |
                                                    NODE_HEALTH_SHM};
    const struct node_health_cfg cfg = {
        .list = &most, .gpus = 8, .nvml = "/missing.so", .tmpdir = "/tmp", .root = "/nonexistent"};
    assert_int_equal(node_health_new(&h, &cfg, NULL), 0);
    assert_string_equal(wrong(h), "fit");
    node_health_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_is_read),
        cmocka_unit_test(invalid_list_is_refused),
        cmocka_unit_test(errors_of_a_port_since_the_last_check_are_warnings),
        cmocka_unit_test(little_memory_is_seen),
        cmocka_unit_test(storage_is_written_and_read),
        cmocka_unit_test(gpu_that_has_fallen_off_the_bus_is_seen),
        cmocka_unit_test(port_that_went_down_is_seen),
        cmocka_unit_test(disk_that_cannot_be_written_is_seen),
        cmocka_unit_test(checks_are_idle_where_there_is_neither_gpu_nor_active_port),
        cmocka_unit_test(nothing_is_wrong_where_nothing_is_there),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
