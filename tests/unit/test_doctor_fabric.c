/* doctor: the fabric of artificial machines, and variables that differ from the fabric's profile.
 */
#include "doctor/fabric.h"

#include "node_world.h"

#include "base/io.h"

#include <stdlib.h>

static void port(const char *adapter, const char *link, const char *state)
{
    put(state, "sys/class/infiniband/%s/ports/1/state", adapter);
    put(link, "sys/class/infiniband/%s/ports/1/link_layer", adapter);
}

/* Each tree has what the one before has, so that the order of the fabrics is tested, too. */
static void fabric_is_found(void **state)
{
    (void)state;
    assert_string_equal(fabric_detect("/nonexistent"), "");
    port("mlx5_0", "InfiniBand\n", "1: DOWN\n");
    port("mlx5_1", "Ethernet\n", "1: DOWN\n");
    assert_string_equal(fabric_detect(root), "");
    port("mlx5_1", "Ethernet\n", "4: ACTIVE\n");
    assert_string_equal(fabric_detect(root), "roce");
    port("mlx5_0", "InfiniBand\n", "4: ACTIVE\n");
    assert_string_equal(fabric_detect(root), "infiniband");
    put("0x15b3\n", "sys/class/infiniband/mlx5_0/device/vendor");
    put("0x101b\n", "sys/class/infiniband/mlx5_0/device/device");
    assert_string_equal(fabric_detect(root), "infiniband");
    port("rdmap16s27", "Unspecified\n", "4: ACTIVE\n");
    put("0x1d0f\n", "sys/class/infiniband/rdmap16s27/device/vendor");
    put("0xefa2\n", "sys/class/infiniband/rdmap16s27/device/device");
    assert_string_equal(fabric_detect(root), "efa");
    put("0x17db\n", "sys/class/cxi/cxi0/device/vendor");
    assert_string_equal(fabric_detect(root), "slingshot11");
}

static void variables_of_a_profile_are_read_with_their_reasons(void **state)
{
    (void)state;
    struct fabric_profile p;
    fabric_profile_parse(&p, "# Sources: [1]\nBEFORE = 1\n[environment]\n"
                             "NCCL_NET = \"AWS Libfabric\"   # fail if it is missing, not TCP [2]\n"
                             "NCCL_IB_TIMEOUT = 22\n# COMMENTED = 3   # site [1]\nlower = 1\n"
                             "OPEN = \"no end\nEMPTY = \"\"\nBOTH = \"a # b\" # reason [3] [4]\n"
                             "[partition.gpu]\nAFTER = 1\n");
    assert_int_equal(p.n, 3);
    assert_string_equal(p.v[0].name, "NCCL_NET");
    assert_string_equal(p.v[0].value, "AWS Libfabric");
    assert_string_equal(p.v[0].reason, "fail if it is missing, not TCP");
    assert_string_equal(p.v[1].value, "22");
    assert_string_equal(p.v[1].reason, "");
    assert_string_equal(p.v[2].value, "a # b");
    assert_string_equal(p.v[2].reason, "reason");
    fabric_profile_parse(&p, "");
    assert_int_equal(p.n, 0);
}

/* More variables and longer texts than there is room for. */
static void large_profile_is_cut(void **state)
{
    (void)state;
    static char text[1 << 14] = "[environment]\n";
    struct fabric_profile p;
    char line[FABRIC_REASON + 100];
    (void)snprintf(line, sizeof(line), "A=1 # %0*d\n", FABRIC_REASON + 40, 0);
    strcat(text, line);
    (void)snprintf(line, sizeof(line), "B=\"%0*d\"\n", FABRIC_VALUE, 0);
    strcat(text, line);
    for (int i = 0; i < 2 * FABRIC_VARIABLES_MAX; i++)
        strcat(text, "C=1\n");
    fabric_profile_parse(&p, text);
    assert_int_equal(p.n, FABRIC_VARIABLES_MAX);
    assert_int_equal(strlen(p.v[0].reason), FABRIC_REASON - 1);
    assert_string_equal(p.v[1].name, "C");
}

static void says(const json_t *advice, size_t i, const char *what, const char *reason)
{
    const json_t *o = json_array_get(advice, i);
    assert_string_equal(json_string_value(json_object_get(o, "what")), what);
    assert_non_null(strstr(json_string_value(json_object_get(o, "do")), reason));
}

static void only_variables_that_differ_are_named(void **state)
{
    (void)state;
    struct fabric_profile p;
    char same[] = "SAME=1", other[] = "OTHER=0";
    char *const env[] = {same, other, NULL};
    fabric_profile_parse(&p, "[environment]\nSAME = 1 # equal\nOTHER = 1 # a reason [1]\n"
                             "GLOO_SOCKET_IFNAME = \"ib0\" # sites differ\nNONE = \"x\"\n");
    json_t *advice = fabric_profile_advice(&p, "roce", env);
    assert_int_equal(json_array_size(advice), 2);
    says(advice, 0, "OTHER is 0; the profile roce.toml has 1", "a reason; ");
    says(advice, 1, "NONE is not set; the profile roce.toml has x", "docs/config.md");
    json_decref(advice);
}

/* The profiles of the tree have the form that the parser reads: each assignment with a reason. */
static void profiles_of_the_tree_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *fabric;
        size_t n;
    } rows[] = {{"slingshot11", 8}, {"efa", 2}, {"infiniband", 3}, {"roce", 3}};
    const char *src = getenv("srcdir");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 16);
        struct fabric_profile p;
        char path[4096];
        (void)snprintf(path, sizeof(path), "%s/contrib/profiles/%s.toml", src != NULL ? src : ".",
                       rows[i].fabric);
        assert_int_equal(dd_read_file(path, &text, NULL), 0);
        fabric_profile_parse(&p, dd_buf_str(&text));
        assert_int_equal(p.n, rows[i].n);
        for (size_t k = 0; k < p.n; k++)
            assert_true(strlen(p.v[k].reason) > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fabric_is_found),
        cmocka_unit_test(variables_of_a_profile_are_read_with_their_reasons),
        cmocka_unit_test(large_profile_is_cut),
        cmocka_unit_test(only_variables_that_differ_are_named),
        cmocka_unit_test(profiles_of_the_tree_are_read),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
