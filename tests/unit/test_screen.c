/* base/screen: the status line of a terminal, here a pseudo-terminal that this test reads. */
#include "base/log.h"
#include "base/screen.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <cmocka.h>

enum { LIMIT_MS = 60000 /* ends a hang */ };

struct bed {
    int master, slave;
    struct dd_screen *screen;
    struct dd_log log;
};

static int open_bed(void **state)
{
    static struct bed b;
    const struct winsize size = {.ws_row = 24, .ws_col = 20};
    struct termios raw;
    (void)setenv("TERM", "xterm", 1);
    b.master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    assert_true(b.master >= 0 && grantpt(b.master) == 0 && unlockpt(b.master) == 0);
    b.slave = open(ptsname(b.master), O_RDWR | O_NOCTTY);
    assert_true(b.slave >= 0);
    assert_int_equal(tcgetattr(b.slave, &raw), 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(b.slave, TCSANOW, &raw), 0);
    assert_int_equal(ioctl(b.slave, TIOCSWINSZ, &size), 0);
    b.screen = dd_screen_new(b.slave);
    assert_non_null(b.screen);
    b.log = (struct dd_log){.level = DD_LOG_NOTICE, .fd = b.slave, .screen = b.screen, .who = "w"};
    *state = &b;
    return 0;
}

static int close_bed(void **state)
{
    const struct bed *b = *state;
    dd_screen_free(b->screen);
    close(b->slave);
    close(b->master);
    return 0;
}

/* Return the output to the terminal since the last call. The kernel delivers it later; a mark
 * behind it shows that all of it has arrived. */
static const char *output(const struct bed *b)
{
    static const char mark = '\001';
    static char text[4096];
    size_t len = 0;
    assert_int_equal(write(b->slave, &mark, 1), 1);
    while (len == 0 || text[len - 1] != mark) {
        struct pollfd p = {.fd = b->master, .events = POLLIN};
        assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
        const ssize_t n = read(b->master, text + len, sizeof(text) - len);
        assert_true(n > 0);
        len += (size_t)n;
    }
    text[len - 1] = '\0';
    return text;
}

#define BLANKS "                    "

static void a_line_is_drawn_in_place_and_cut_to_the_width(void **state)
{
    const struct bed *b = *state;
    assert_int_equal(dd_screen_columns(b->screen), 20);
    dd_screen_draw(b->screen, "waiting");
    assert_string_equal(output(b), BLANKS "\rwaiting\033[K");
    dd_screen_draw(b->screen, "0123456789012345678901234");
    assert_string_equal(output(b), "\r0123456789012345678\033[K");
    dd_screen_clear(b->screen);
    assert_string_equal(output(b), "\r\033[K");
    dd_screen_clear(b->screen);
    assert_string_equal(output(b), "");
}

static void a_message_erases_the_line_first(void **state)
{
    const struct bed *b = *state;
    dd_screen_draw(b->screen, "waiting");
    (void)output(b);
    dd_log(&b->log, DD_LOG_NOTICE, "one");
    dd_log(&b->log, DD_LOG_NOTICE, "two");
    assert_string_equal(output(b), "\r\033[Kw: one\nw: two\n");
}

static void nothing_is_drawn_while_another_process_writes(void **state)
{
    const struct bed *b = *state;
    assert_true(dd_screen_begin(b->screen));
    dd_screen_draw(b->screen, "waiting");
    assert_string_equal(output(b), "");
    dd_screen_end(b->screen);
    dd_screen_draw(b->screen, "waiting");
    assert_non_null(strstr(output(b), "waiting"));
}

static void a_stopped_terminal_keeps_the_line_and_delays_nobody(void **state)
{
    const struct bed *b = *state;
    dd_screen_draw(b->screen, "waiting");
    (void)output(b);
    assert_int_equal(tcflow(b->slave, TCOOFF), 0);
    assert_false(dd_screen_begin(b->screen));
    dd_screen_end(b->screen);
    assert_int_equal(tcflow(b->slave, TCOON), 0);
    assert_true(dd_screen_begin(b->screen));
    dd_screen_end(b->screen);
    assert_string_equal(output(b), "\r\033[K");
}

static void a_child_erases_what_its_parent_has_drawn(void **state)
{
    const struct bed *b = *state;
    int status;
    dd_screen_draw(b->screen, "waiting");
    (void)output(b);
    const pid_t pid = fork();
    if (pid == 0) { /* like another program that inherits the memory */
        struct dd_screen *s = dd_screen_open(b->slave, dup(dd_screen_memory(b->screen)));
        dd_screen_clear(s);
        _exit(s == NULL);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_string_equal(output(b), "\r\033[K");
}

static void one_process_draws_until_it_is_gone(void **state)
{
    const struct bed *b = *state;
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(!dd_screen_claim(b->screen) || !dd_screen_claim(b->screen));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(dd_screen_is_ours(b->screen));
    assert_true(dd_screen_claim(b->screen)); /* the other process has exited */
    assert_true(dd_screen_is_ours(b->screen));
    pid = fork();
    if (pid == 0)
        _exit(dd_screen_claim(b->screen));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void what_is_no_terminal_has_no_screen(void **state)
{
    const struct bed *b = *state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_null(dd_screen_new(pipes[1]));
    (void)setenv("TERM", "dumb", 1);
    assert_null(dd_screen_new(b->slave));
    (void)unsetenv("TERM");
    assert_null(dd_screen_new(b->slave));
    assert_null(dd_screen_open(b->slave, -1));
    assert_true(dd_screen_begin(NULL));
    dd_screen_draw(NULL, "waiting");
    dd_screen_end(NULL);
    assert_false(dd_screen_claim(NULL));
    assert_int_equal(dd_screen_memory(NULL), -1);
    close(pipes[0]);
    close(pipes[1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_bed, close_bed)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_line_is_drawn_in_place_and_cut_to_the_width),
        TEST(a_message_erases_the_line_first),
        TEST(nothing_is_drawn_while_another_process_writes),
        TEST(a_stopped_terminal_keeps_the_line_and_delays_nobody),
        TEST(a_child_erases_what_its_parent_has_drawn),
        TEST(one_process_draws_until_it_is_gone),
        TEST(what_is_no_terminal_has_no_screen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
