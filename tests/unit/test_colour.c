/* base/colour: when messages are coloured, and which parts of them. */
#include "base/colour.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void the_environment_decides_before_the_terminal(void **state)
{
    static const struct {
        struct colour_env env;
        bool wanted;
    } rows[] = {
        {{.term = "xterm", .terminal = true}, true},
        {{.term = "xterm"}, false},
        {{.term = "dumb", .terminal = true}, false},
        {{.term = "", .terminal = true}, false},
        {{.terminal = true}, false},
        {{.no_color = "1", .term = "xterm", .terminal = true}, false},
        {{.no_color = "", .term = "xterm", .terminal = true}, true},
        {{.no_color = "1", .clicolor_force = "1", .term = "xterm", .terminal = true}, false},
        {{.clicolor_force = "1"}, true},
        {{.clicolor_force = "1", .clicolor = "0", .term = "dumb"}, true},
        {{.clicolor_force = "0", .term = "xterm"}, false},
        {{.clicolor_force = ""}, false},
        {{.clicolor = "0", .term = "xterm", .terminal = true}, false},
        {{.clicolor = "1", .term = "xterm"}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(dd_colour_is_wanted(&rows[i].env), rows[i].wanted);
}

static void words_at_the_beginning_of_a_line_have_colours(void **state)
{
    static const struct {
        const char *text;
        size_t prefix;
        const char *coloured;
    } rows[] = {
        {"ddrun: error: no error: here\n  tip: a tip: b\n", 7,
         "ddrun: \033[1;31merror:\033[0m no error: here\n  \033[1;32mtip:\033[0m a tip: b\n"},
        {"ddrun: warning: x\n", 7, "ddrun: \033[1;33mwarning:\033[0m x\n"},
        {"ddrun: waiting\n", 7, "ddrun: waiting\n"},
        {"  tip: at the end", 0, "  \033[1;32mtip:\033[0m at the end"},
        {"tip", 0, "tip"},
        {"\n\n", 0, "\n\n"},
        {"ab", 7, "ab"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
        assert_int_equal(
            dd_colour_message(&out, rows[i].text, strlen(rows[i].text), rows[i].prefix), 0);
        assert_int_equal(out.len, strlen(rows[i].coloured));
        assert_memory_equal(out.data, rows[i].coloured, out.len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_decides_before_the_terminal),
        cmocka_unit_test(words_at_the_beginning_of_a_line_have_colours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
