/* launch/tm: the line of a host in the node file, and the exit code for a task's exit status. */
#include "launch/tm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_host_is_its_first_line(void **state)
{
    (void)state;
    static const char twice[] = "node1.cluster.test\nnode2.cluster.test\nnode1.cluster.test\n";
    static const struct {
        const char *text, *host;
        int line, lines;
    } rows[] = {
        {twice, "node1.cluster.test", 0, 3},
        {twice, "node2.cluster.test", 1, 3},
        {twice, "NODE2.Cluster.test", 1, 3},
        {twice, "node2", 1, 3},
        {twice, "node2.hsn.other", 1, 3}, /* the domain of another network, as with PALS */
        {twice, "node", -1, 3},
        {twice, "node11", -1, 3},
        {twice, "", -1, 3},
        {"n1.a\nn1.b", "n1.b", 1, 2}, /* an equal full name takes precedence */
        {"n1.a\nn1.b", "n1", 0, 2},
        {"\n n1 4\r\n\n\tn2\n\n", "n2", 1, 2},
        {"", "n1", -1, 0},
        {"\n\n", "n1", -1, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int lines = -1;
        assert_int_equal(tm_line_of(rows[i].text, strlen(rows[i].text), rows[i].host, &lines),
                         rows[i].line);
        assert_int_equal(lines, rows[i].lines);
    }
}

static void a_text_ends_where_it_is_said_to(void **state)
{
    (void)state;
    static const char text[] = {'n', '1', '\n', 'n', '2'}; /* not NUL-terminated */
    for (size_t n = 0; n <= sizeof(text); n++) {
        int lines = -1;
        assert_int_equal(tm_line_of(text, n, "n2", &lines), n == sizeof(text) ? 1 : -1);
        assert_int_equal(lines, n == 0 ? 0 : n <= 3 ? 1 : 2);
    }
}

static void a_status_becomes_an_exit_code(void **state)
{
    (void)state;
    static const int rows[][2] = {{0, 0},          {7, 7},         {254, 254},      {255, 255},
                                  {256, 255},      {256 + 9, 137}, {256 + 15, 143}, {256 + 64, 192},
                                  {256 + 65, 255}, {-1, 255},      {INT32_MAX, 255}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(tm_exit_code(rows[i][0]), rows[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_its_first_line),
        cmocka_unit_test(a_text_ends_where_it_is_said_to),
        cmocka_unit_test(a_status_becomes_an_exit_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
