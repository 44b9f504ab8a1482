/* worker: --warm's command lines, environments, messages and archive. */
#include "base/auto.h"
#include "worker/spawn.h"
#include "worker/warm_archive.h"
#include "worker/warm_command.h"
#include "worker/warm_msg.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void command_lines_of_python_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *line, *kind, *target, *options;
        size_t arguments;
        bool unbuffered;
    } rows[] = {
        {"py x.py", "script", "x.py", "", 2, false},
        {"py -u x.py -E -m y", "script", "x.py", "-u", 3, true},
        {"py -uOO -X dev x.py", "script", "x.py", "-uOO -X dev", 5, true},
        {"py -Xdev -W error -m a.b c", "module", "a.b", "-Xdev -W error", 6, false},
        {"py -um a.b", "module", "a.b", "-u", 3, true},
        {"py -Bma", "module", "a", "-B", 2, false},
        {"py -c print() -E", "command", "print()", "", 3, false},
        {"py -P dir/", "script", "dir/", "-P", 3, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv argv = {0};
        DD_AUTO(strv) struct dd_strv options = {0};
        struct warm_command c;
        struct dd_err err = {0};
        assert_int_equal(dd_strv_split(&argv, rows[i].line, " "), 0);
        assert_int_equal(dd_strv_split(&options, rows[i].options, " "), 0);
        if (warm_command_parse(&c, argv.v, &err) < 0)
            fail_msg("'%s': %s", rows[i].line, err.text);
        if (strcmp(c.kind, rows[i].kind) != 0 || strcmp(c.target, rows[i].target) != 0 ||
            c.arguments != rows[i].arguments || c.unbuffered != rows[i].unbuffered ||
            c.options.n != options.n)
            fail_msg("'%s' is %s '%s', %zu options, arguments from %zu", rows[i].line, c.kind,
                     c.target, c.options.n, c.arguments);
        for (size_t k = 0; k < options.n; k++)
            assert_string_equal(c.options.v[k], options.v[k]);
        warm_command_done(&c);
    }
}

static void interpreters_that_would_not_fork_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {"py",          "py -",       "py -u",         "py -E x.py",
                                       "py -uI x.py", "py -S x.py", "py -i x.py",    "py -V",
                                       "py -m",       "py -c",      "py --help",     "py -X",
                                       "py -W x.py",  "py -h",      "py -s -uE x.py"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(strv) struct dd_strv argv = {0};
        struct warm_command c;
        struct dd_err err = {0};
        assert_int_equal(dd_strv_split(&argv, rows[i], " "), 0);
        if (warm_command_parse(&c, argv.v, &err) != -EINVAL || strstr(err.text, "--warm") == NULL)
            fail_msg("'%s' was accepted, or '%s'", rows[i], err.text);
        warm_command_done(&c);
    }
}

static void python_is_known_by_its_name(void **state)
{
    (void)state;
    char *with[] = {(char[]){"PYTHON_EXEC=/opt/x/interpreter"}, NULL};
    char *none[] = {NULL};
    assert_true(warm_command_is_python("/usr/bin/python3.11", none));
    assert_true(warm_command_is_python("pypy3", none));
    assert_false(warm_command_is_python("/python/bin/a.out", none));
    assert_true(warm_command_is_python("interpreter", with));
    assert_false(warm_command_is_python("interpreter", none));
}

static void only_early_variables_make_a_difference(void **state)
{
    (void)state;
    char *a[] = {(char[]){"RANK=0"}, (char[]){"OMP_NUM_THREADS=1"}, (char[]){"PYTHONUNBUFFERED=1"},
                 NULL};
    char *b[] = {(char[]){"RANK=1"}, (char[]){"OMP_NUM_THREADS=1"}, NULL};
    char *c[] = {(char[]){"OMP_NUM_THREADS=2"}, NULL};
    char *d[] = {(char[]){"OMP_NUM_THREADS=1"}, (char[]){"PYTHONHASHSEED=0"}, NULL};
    char *e[] = {NULL};
    DD_AUTO(free) char *ac = warm_env_difference(a, c);
    DD_AUTO(free) char *bd = warm_env_difference(b, d);
    DD_AUTO(free) char *be = warm_env_difference(b, e);
    assert_null(warm_env_difference(a, b));
    assert_string_equal(ac, "OMP_NUM_THREADS");
    assert_string_equal(bd, "PYTHONHASHSEED");
    assert_string_equal(be, "OMP_NUM_THREADS");
}

static void the_interpreter_gets_what_all_workers_have(void **state)
{
    (void)state;
    char *a[] = {(char[]){"A=1"}, (char[]){"RANK=0"}, (char[]){"B="}, (char[]){"C=1"}, NULL};
    char *b[] = {(char[]){"B="}, (char[]){"RANK=1"}, (char[]){"A=1"}, (char[]){"D=1"}, NULL};
    DD_AUTO(strv) struct dd_strv both = {0};
    assert_int_equal(warm_env_common(&both, a, b), 0);
    assert_int_equal(both.n, 2);
    assert_string_equal(dd_env_get(both.v, "A"), "1");
    assert_string_equal(dd_env_get(both.v, "B"), "");
}

static void messages_are_decoded(void **state)
{
    (void)state;
    static const char bytes[] = "U\1\0\0\0\2\1\0\0torch\nwhy";
    struct warm_msg m;
    assert_int_equal(warm_msg_decode(&m, bytes, sizeof(bytes) - 1), 0);
    assert_int_equal(m.type, WARM_UNFIT);
    assert_int_equal(m.a, 1);
    assert_int_equal(m.b, 258);
    assert_string_equal(m.text, "torch\nwhy");
    assert_int_equal(warm_msg_decode(&m, "R\0\0\0\0\0\0\0\0", 9), 0);
    assert_string_equal(m.text, "");
}

static void malformed_messages_are_refused(void **state)
{
    (void)state;
    static char longest[WARM_MSG_MAX + 1] = "R";
    struct warm_msg m;
    memset(longest + 9, 'x', sizeof(longest) - 9);
    assert_int_equal(warm_msg_decode(&m, longest, WARM_MSG_MAX), 0);
    assert_int_equal(warm_msg_decode(&m, longest, WARM_MSG_MAX + 1), -EPROTO);
    assert_int_equal(warm_msg_decode(&m, "R\0\0\0\0\0\0\0", 8), -EPROTO);
    assert_int_equal(warm_msg_decode(&m, "", 0), -EPROTO);
    assert_int_equal(warm_msg_decode(&m, "Z\0\0\0\0\0\0\0\0", 9), -EPROTO);
    assert_int_equal(warm_msg_decode(&m, "B\0\0\0\0\0\0\0\0a\0b", 12), -EPROTO);
}

static void requests_have_lengths(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
    DD_AUTO(buf) struct dd_buf small = DD_BUF_INIT(10);
    const struct warm_config c = {
        .mode = WARM_SERVE, .kind = "script", .target = "x.py", .agent = 12};
    static const char wanted[] = "\5\0\0\0serve\1\0\0\0000\1\0\0\0000\1\0\0\0000\6\0\0\0script"
                                 "\4\0\0\0x.py\2\0\0\00012";
    assert_int_equal(warm_config_encode(&out, &c), 0);
    assert_int_equal(out.len, sizeof(wanted) - 1);
    assert_memory_equal(out.data, wanted, out.len);
    assert_int_equal(warm_config_encode(&small, &c), -EMSGSIZE);
}

static void an_archive_has_the_file_and_a_directory(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
    /* the check value of CRC-32 is that of these nine digits */
    static const unsigned char crc[] = {0x26, 0x39, 0xf4, 0xcb};
    assert_int_equal(warm_archive_make(&out, "a.py", "123456789", 9), 0);
    assert_int_equal(out.len, 30 + 4 + 9 + 46 + 4 + 22);
    assert_memory_equal(out.data, "PK\3\4", 4);
    assert_memory_equal(out.data + 14, crc, 4);
    assert_memory_equal(out.data + 30, "a.py123456789PK\1\2", 17);
    assert_memory_equal(out.data + 43 + 16, crc, 4);
    assert_memory_equal(out.data + 93, "PK\5\6", 4);
    assert_memory_equal(out.data + 93 + 16, "\x2b\0\0\0", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines_of_python_are_read),
        cmocka_unit_test(interpreters_that_would_not_fork_are_refused),
        cmocka_unit_test(python_is_known_by_its_name),
        cmocka_unit_test(only_early_variables_make_a_difference),
        cmocka_unit_test(the_interpreter_gets_what_all_workers_have),
        cmocka_unit_test(messages_are_decoded),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(requests_have_lengths),
        cmocka_unit_test(an_archive_has_the_file_and_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
