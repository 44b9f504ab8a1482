/* rdzv: the text form of the ports that nodes reserve for their workers. */
#include "rdzv/ports.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static int sizes[] = {2, 1};
static const struct plan two = {.nnodes = 2, .world_size = 3, .sizes = sizes};

static void ports_of_all_nodes_become_endpoints(void **state)
{
    (void)state;
    static const uint16_t mine[] = {500, 501, 502}, its[] = {600, 601};
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1000);
    DD_AUTO(buf) struct dd_buf other = DD_BUF_INIT(1000);
    DD_AUTO(strv) struct dd_strv all = {0};
    DD_AUTO(free) char *coordinator = NULL;
    assert_int_equal(ports_format(&text, NULL, mine, 3), 0);
    assert_int_equal(ports_format(&other, "", its, 2), 0);
    assert_int_equal(ports_count(dd_buf_str(&text)), 3);
    assert_int_equal(dd_buf_puts(&text, ";"), 0);
    assert_int_equal(ports_append(&text, dd_buf_str(&other), "fd00::2"), 0);
    assert_string_equal(dd_buf_str(&text), "/500,501,502;fd00::2/600,601");
    assert_int_equal(ports_workers(&all, dd_buf_str(&text), "10.0.0.1", &two, NULL), 0);
    assert_int_equal(all.n, 3);
    assert_string_equal(all.v[0], "10.0.0.1:501");
    assert_string_equal(all.v[1], "10.0.0.1:502");
    assert_string_equal(all.v[2], "[fd00::2]:601");
    assert_int_equal(ports_coordinator(&coordinator, dd_buf_str(&text), "10.0.0.1", NULL), 0);
    assert_string_equal(coordinator, "10.0.0.1:500");
}

static void ports_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"1",     "/",   "/0",    "/65536", "/1,",  "/1,,2",
                                      "/1;/2", "/1 ", "a b/1", "/1/2",   "\"/1", "10.0.0.1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (ports_count(bad[i]) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(ports_count(""), 0);
    assert_int_equal(ports_count("fe80::1%eth0/65535"), 1);
}

static void missing_ports_are_said(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {";", "node rank 0 reserved too few ports for its workers: 0, expected 3"},
        {"/1;/1,2", "node rank 0 reserved too few ports for its workers: 1, expected 3"},
        {"/1,2,3", "node rank 1 reserved too few ports for its workers: 0, expected 2"},
        {"/1,2,3;", "node rank 1 reserved too few ports for its workers: 0, expected 2"},
        {"/1,2,3;x", "malformed port list of node rank 1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv all = {0};
        struct dd_err err = {0};
        assert_int_equal(ports_workers(&all, rows[i].text, "h", &two, &err), -EPROTO);
        assert_string_equal(err.text, rows[i].says);
    }
    struct dd_err err = {0};
    DD_AUTO(strv) struct dd_strv none = {0};
    assert_int_equal(ports_workers(&none, "", "h", &two, &err),
                     -ENOTSUP); /* retries would not help */
    assert_non_null(strstr(err.text, "too long to be sent"));
    DD_AUTO(free) char *coordinator = NULL;
    assert_int_equal(ports_coordinator(&coordinator, "", "h", NULL), 0);
    assert_null(coordinator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_of_all_nodes_become_endpoints),
        cmocka_unit_test(ports_are_checked),
        cmocka_unit_test(missing_ports_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
