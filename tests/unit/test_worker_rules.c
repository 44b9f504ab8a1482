/* worker: options that apply to some ranks only. */
#include "base/auto.h"
#include "worker/rules.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void rules_are_for_their_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        int rank;
        const char *value;
    } rows[] = {
        {"all:x", 7, "x"},   {"0:x", 0, "x"},      {"0:x", 1, NULL},     {"0,3-5:a:b", 4, "a:b"},
        {"0,3-5:x", 5, "x"}, {"0,3-5:x", 6, NULL}, {"0,3-5:x", 2, NULL}, {"12:x", 1, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *v = rule_for(rows[i].rule, rows[i].rank);
        if ((v == NULL) != (rows[i].value == NULL) || (v != NULL && strcmp(v, rows[i].value) != 0))
            fail_msg("%s for %d is %s", rows[i].rule, rows[i].rank, v != NULL ? v : "(nothing)");
    }
}

static void the_highest_rank_of_a_rule_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        int rank;
    } rows[] = {{"5:gdb a=b:7", 5}, {"3,0-1:x", 3}, {"0,4-9999:A=b", 4},
                {"all:x", -1},      {"A=7:b", -1},  {"A", -1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(rule_highest_rank(rows[i].rule), rows[i].rank);
}

static void rules_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",       "x",    ":x",           "0",    "0:",
                                      "all",    "all:", "0-:x",         "-1:x", "5-3:x",
                                      "0,,1:x", "0 :x", "1234567890:x", "any:x"};
    static const char *const bad_env[] = {"1A=b", "A B", "", "0:A", "0:=b", "0:1A=b", "0:A B=c"};
    struct dd_err err = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (rule_check(bad[i], "--wrap", "0:gdb", &err) != -EINVAL ||
            strstr(err.text, "--wrap=0:gdb") == NULL)
            fail_msg("'%s' was taken, or '%s'", bad[i], err.text);
    for (size_t i = 0; i < sizeof(bad_env) / sizeof(bad_env[0]); i++)
        if (rule_check_env(bad_env[i], NULL) != -EINVAL)
            fail_msg("'%s' was taken", bad_env[i]);
    assert_int_equal(rule_check_env("all:A=", NULL), 0);
    assert_int_equal(rule_check_env("A=b:c", NULL), 0);
    assert_int_equal(rule_check_env("A", NULL), 0);
    assert_string_equal(rule_env_wanted("A"), "A");
    assert_null(rule_env_wanted("A=b"));
}

static void variables_are_set_in_order(void **state)
{
    (void)state;
    char *rules[] = {(char[]){"all:A=1"}, (char[]){"2:A=2=x"}, (char[]){"2-9:B="},
                     (char[]){"C=0:d=e"}, (char[]){"D"},       NULL};
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(rules_env(&env, rules, 2), 0);
    assert_string_equal(dd_env_get(env.v, "A"), "2=x");
    assert_string_equal(dd_env_get(env.v, "B"), "");
    assert_string_equal(dd_env_get(env.v, "C"), "0:d=e");
    assert_null(dd_env_get(env.v, "D"));
    assert_int_equal(rules_env(&env, NULL, 2), 0);
}

static void commands_go_in_front_the_first_outermost(void **state)
{
    (void)state;
    char *rules[] = {(char[]){"all:strace -f"}, (char[]){"1:nice"}, (char[]){"0:gdb"}, NULL};
    DD_AUTO(strv) struct dd_strv argv = {0};
    assert_int_equal(dd_strv_push(&argv, "prog"), 0);
    assert_int_equal(rules_wrap(&argv, NULL, 1), 0);
    assert_int_equal(argv.n, 1);
    assert_int_equal(rules_wrap(&argv, rules, 1), 0);
    assert_int_equal(argv.n, 5);
    assert_string_equal(argv.v[0], "/bin/sh");
    assert_string_equal(argv.v[2], "exec strace -f nice \"$@\"");
    assert_string_equal(argv.v[4], "prog");
    assert_null(argv.v[5]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_for_their_ranks),
        cmocka_unit_test(the_highest_rank_of_a_rule_is_found),
        cmocka_unit_test(rules_that_are_none_are_refused),
        cmocka_unit_test(variables_are_set_in_order),
        cmocka_unit_test(commands_go_in_front_the_first_outermost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
