/* worker/spawn and base/process_name: children that run on without exec. */
#include "worker/spawn.h"
#include "base/process_name.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Call fn in a child, which exits with its result. Return the exit code. */
static int in_child(int (*fn)(void))
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(fn());
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int keep_three(void)
{
    static const int keep[] = {40, -1, 7, 41};
    for (int fd = 3; fd < 60; fd++)
        if (dup2(0, fd) < 0)
            return 2;
    spawn_close_except(keep, sizeof(keep) / sizeof(keep[0]));
    for (int fd = 0; fd < 60; fd++)
        if (is_open(fd) != (fd < 3 || fd == 7 || fd == 40 || fd == 41))
            return 3;
    return 0;
}

static int keep_the_lowest(void)
{
    static const int keep[] = {3};
    if (dup2(0, 3) < 0 || dup2(0, 4) < 0)
        return 2;
    spawn_close_except(keep, 1);
    return is_open(2) && is_open(3) && !is_open(4) ? 0 : 3;
}

static void closes_all_descriptors_but_those_named(void **state)
{
    (void)state;
    assert_int_equal(in_child(keep_three), 0);
    assert_int_equal(in_child(keep_the_lowest), 0);
}

static void handle(int sig)
{
    (void)sig;
}

static int drop_handlers(void)
{
    struct sigaction usr1, hup;
    (void)signal(SIGUSR1, handle);
    (void)signal(SIGHUP, SIG_IGN);
    spawn_drop_handlers();
    if (sigaction(SIGUSR1, NULL, &usr1) < 0 || sigaction(SIGHUP, NULL, &hup) < 0)
        return 2;
    return usr1.sa_handler == SIG_DFL && hup.sa_handler == SIG_IGN ? 0 : 3;
}

static void drops_handlers_and_leaves_ignored_signals(void **state)
{
    (void)state;
    assert_int_equal(in_child(drop_handlers), 0);
}

/* True if the file has this text first. */
static bool starts_with(const char *path, const char *text, size_t n)
{
    char got[64] = "";
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t have = fd < 0 ? -1 : read(fd, got, sizeof(got) - 1);
    (void)close(fd);
    return have >= (ssize_t)n && memcmp(got, text, n) == 0;
}

static int take_a_name(void)
{
    dd_process_name("ddrund");
    return starts_with("/proc/self/comm", "ddrund\n", 7) &&
                   starts_with("/proc/self/cmdline", "ddrund", 7)
               ? 0
               : 2;
}

/* The environment follows the arguments in memory. */
static int keep_the_environment(void)
{
    char before[4096], after[4096];
    const int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, before, sizeof(before));
    dd_process_name("a name that is longer than all arguments of this test program together: "
                    "........................................................................"
                    "........................................................................"
                    "........................................................................");
    const bool same = n > 0 && pread(fd, after, sizeof(after), 0) == n &&
                      memcmp(before, after, (size_t)n) == 0;
    (void)close(fd);
    return same ? 0 : 2;
}

static void takes_a_name_that_ps_shows(void **state)
{
    (void)state;
    assert_int_equal(in_child(take_a_name), 0);
    assert_int_equal(in_child(keep_the_environment), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closes_all_descriptors_but_those_named),
        cmocka_unit_test(drops_handlers_and_leaves_ignored_signals),
        cmocka_unit_test(takes_a_name_that_ps_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
