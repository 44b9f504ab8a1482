/* node: the health checks before a round, on artificial machines. */
#include "node/health.h"

#include "node_world.h"

#include <unistd.h>

static struct node_health *seen(int checks, int gpus)
{
    struct node_health *h;
    const struct node_health_cfg cfg = {
        .checks = checks, .gpus = gpus, .tmpdir = root, .root = root};
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
    assert_int_equal(node_health_parse("none", &err), 0);
    assert_int_equal(node_health_parse("gpu,ib", &err), NODE_HEALTH_GPU | NODE_HEALTH_IB);
    assert_int_equal(node_health_parse("all", &err), 15);
    static const char *const bad[] = {"", "gpus", "gpu,", ",gpu", "gpu,none", "g"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(node_health_parse(bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "gpu, ib, shm, disk"));
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
    struct node_health *all = seen(NODE_HEALTH_GPU, 2);
    struct node_health *half = seen(NODE_HEALTH_GPU, 1);
    struct node_health *parts = seen(NODE_HEALTH_GPU, 14);
    assert_string_equal(wrong(all), "fit");
    assert_string_equal(wrong(parts), "fit");
    put("\xff\xff\xff\xff", "sys/bus/pci/drivers/nvidia/0000:65:00.0/config");
    assert_string_equal(wrong(all),
                        "only 1 of 2 GPUs respond; 0000:65:00.0 has fallen off the bus");
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
    struct node_health *h = seen(NODE_HEALTH_IB, 0);
    assert_string_equal(wrong(h), "fit");
    put("2: INIT\n", "sys/class/infiniband/mlx5_0/ports/1/state");
    assert_string_equal(
        wrong(h), "InfiniBand port mlx5_0/ports/1 is INIT, but was ACTIVE when the job started");
    put("", "sys/class/infiniband/mlx5_0/ports/1/state");
    assert_string_equal(
        wrong(h), "InfiniBand port mlx5_0/ports/1 is gone, but was ACTIVE when the job started");
    node_health_free(h);
}

static void disk_that_cannot_be_written_is_seen(void **state)
{
    (void)state;
    struct node_health *h = seen(NODE_HEALTH_DISK | NODE_HEALTH_SHM, 0);
    assert_string_equal(wrong(h), "fit"); /* although /dev/shm is missing */
    node_health_free(h);
    const struct node_health_cfg cfg = {
        .checks = NODE_HEALTH_DISK, .tmpdir = "/nonexistent/tmp", .root = root};
    assert_int_equal(node_health_new(&h, &cfg, NULL), 0);
    assert_string_equal(
        wrong(h), "cannot write a temporary file in /nonexistent/tmp: No such file or directory");
    node_health_free(h);
}

static void nothing_is_wrong_where_nothing_is_there(void **state)
{
    (void)state;
    struct node_health *h;
    const struct node_health_cfg cfg = {.checks = NODE_HEALTH_GPU | NODE_HEALTH_IB |
                                                  NODE_HEALTH_SHM,
                                        .gpus = 8,
                                        .tmpdir = "/tmp",
                                        .root = "/nonexistent"};
    assert_int_equal(node_health_new(&h, &cfg, NULL), 0);
    assert_string_equal(wrong(h), "fit");
    node_health_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_is_read),
        cmocka_unit_test(gpu_that_has_fallen_off_the_bus_is_seen),
        cmocka_unit_test(port_that_went_down_is_seen),
        cmocka_unit_test(disk_that_cannot_be_written_is_seen),
        cmocka_unit_test(nothing_is_wrong_where_nothing_is_there),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
