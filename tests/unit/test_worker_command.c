/* worker/command: a short command of the agent, with limits on its time and output. */
#include "base/auto.h"
#include "base/io.h"
#include "clock_world.h"
#include "worker/command.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { LIMIT_MS = 60000, GIVE_UP_MS = 2000 };

struct result {
    struct event_base *base;
    int times, code;
    char *out;
};

static void on_done(void *arg, int code, const char *out)
{
    struct result *r = arg;
    r->times++;
    r->code = code;
    r->out = strdup(out);
    event_base_loopbreak(r->base);
}

/* Disable pidfd_open(2) in this process, as on an old kernel or under a container's filter. */
static bool lose_pidfd(int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static char *const env[] = {(char[]){"PATH=/usr/bin:/bin"}, (char[]){"WORD=hello"}, NULL};

/* Wait until the command has printed this text. */
static void await_out(struct result *r, struct command *c, const char *text)
{
    while (strstr(command_out(c), text) == NULL && r->times == 0)
        (void)event_base_loop(r->base, EVLOOP_ONCE);
    assert_int_equal(r->times, 0);
}

/* Run sh -c SCRIPT to its end, or to its time limit once it has printed late_after; NULL: no limit.
 */
static struct result run(const char *script, const char *late_after)
{
    struct result r = {.base = event_base_new()};
    const char *argv[] = {"sh", "-c", script, NULL};
    const struct command_spec spec = {.argv = argv, .env = env, .limit_ms = LIMIT_MS};
    struct command *c = NULL;
    assert_int_equal(command_start(&c, r.base, &spec, on_done, &r, NULL), 0);
    assert_true(command_pid(c) > 0);
    if (late_after != NULL) {
        await_out(&r, c, late_after);
        clock_skip(LIMIT_MS);
    }
    event_base_dispatch(r.base);
    assert_int_equal(r.times, 1);
    assert_int_equal(command_pid(c), 0);
    command_free(c);
    event_base_free(r.base);
    return r;
}

static void code_and_output_come_back(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int code;
        const char *out;
    } rows[] = {
        {"echo $WORD; echo oops >&2; exit 3", 3, "hello\noops\n"},
        {"true", 0, ""},
        {"kill -KILL $$", 137, ""},
        {"read x || echo nothing to read", 0, "nothing to read\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct result r = run(rows[i].script, NULL);
        assert_int_equal(r.code, rows[i].code);
        assert_string_equal(r.out, rows[i].out);
        free(r.out);
    }
}

static int print_kept(void *arg)
{
    const int *n = arg;
    for (int i = 0; i < *n; i++) {
        char byte = '?';
        if (read(COMMAND_FIRST_KEPT + i, &byte, 1) != 1 || write(STDOUT_FILENO, &byte, 1) != 1)
            return 1;
    }
    return fcntl(COMMAND_FIRST_KEPT + *n, F_GETFD) >= 0; /* all others are closed */
}

static void a_function_keeps_the_descriptors_that_it_is_given(void **state)
{
    (void)state;
    int n = 3;
    int keep[3];
    int spare[3];
    for (int i = 0; i < n; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(write(ends[1], &"abc"[i], 1), 1);
        keep[i] = ends[0];
        spare[i] = ends[1];
    }
    struct result r = {.base = event_base_new()};
    const struct command_spec spec = {
        .run = print_kept, .run_arg = &n, .keep = keep, .nkeep = (size_t)n, .limit_ms = 60000};
    struct command *c = NULL;
    assert_int_equal(command_start(&c, r.base, &spec, on_done, &r, NULL), 0);
    event_base_loopexit(r.base, &(struct timeval){.tv_sec = 60});
    event_base_dispatch(r.base);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, "abc");
    command_free(c);
    event_base_free(r.base);
    free(r.out);
    for (int i = 0; i < n; i++) {
        close(keep[i]);
        close(spare[i]);
    }
}

/* PBS' commands are in such a directory, while the PATH of a job may lack it. */
static void a_program_may_be_in_a_directory_of_its_own(void **state)
{
    (void)state;
    char *const poor[] = {(char[]){"PATH=/nowhere"}, NULL};
    const char *const argv[] = {"echo", "found", NULL};
    struct dd_err err = {.text = ""};
    struct result r = {.base = event_base_new()};
    struct command_spec spec = {
        .argv = argv, .directory = "/nowhere/else", .env = poor, .limit_ms = 60000};
    struct command *c = NULL;
    assert_int_equal(command_start(&c, r.base, &spec, on_done, &r, &err), -ENOENT);
    assert_string_equal(err.text, "cannot run 'echo': not found");
    spec.directory = "/bin";
    assert_int_equal(command_start(&c, r.base, &spec, on_done, &r, NULL), 0);
    event_base_loopexit(r.base, &(struct timeval){.tv_sec = 60});
    event_base_dispatch(r.base);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, "found\n");
    command_free(c);
    event_base_free(r.base);
    free(r.out);
}

static void who_takes_too_long_is_killed_with_its_children(void **state)
{
    (void)state;
    struct result r = run("trap '' TERM; sleep 1000 & echo $!; wait; wait", "\n");
    assert_int_equal(r.code, COMMAND_TOO_LATE);
    int child = atoi(r.out);
    assert_true(child > 0);
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", child);
    for (int i = 0; i < 1000; i++) { /* its new parent may not have reaped it yet */
        DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(4096);
        if (dd_read_file(path, &b, NULL) < 0 || b.len == 0)
            break;
        assert_true(i < 999);
        (void)usleep(10000);
    }
    free(r.out);
}

static void what_a_command_leaves_behind_is_killed(void **state)
{
    (void)state;
    struct result r = run("sleep 1000 & exit 0", NULL); /* sleep keeps the pipe open */
    assert_int_equal(r.code, 0);
    free(r.out);
}

static void too_much_output_is_cut_and_nobody_waits(void **state)
{
    (void)state;
    struct result r = run("yes | head -c 1000000", NULL);
    assert_int_equal(r.code, 0);
    assert_int_equal(strlen(r.out), 65536);
    free(r.out);
}

static void a_program_that_is_not_there_is_told_at_once(void **state)
{
    (void)state;
    struct event_base *base = event_base_new();
    const char *argv[] = {"no-such-program", NULL};
    const struct command_spec spec = {.argv = argv, .env = env, .limit_ms = 1000};
    struct command *c = NULL;
    struct dd_err err = {0};
    assert_int_equal(command_start(&c, base, &spec, on_done, NULL, &err), -ENOENT);
    assert_non_null(strstr(err.text, "cannot run 'no-such-program'"));
    event_base_free(base);
}

static void one_that_is_freed_is_killed(void **state)
{
    (void)state;
    struct event_base *base = event_base_new();
    const char *argv[] = {"sleep", "1000", NULL};
    const struct command_spec spec = {.argv = argv, .env = env, .limit_ms = 600000};
    struct command *c = NULL;
    assert_int_equal(command_start(&c, base, &spec, on_done, NULL, NULL), 0);
    pid_t pid = command_pid(c);
    command_free(c);
    assert_int_equal(kill(pid, 0), -1);
    command_free(NULL);
    event_base_free(base);
}

/* Run as a program: a tracer prevents that it is reaped while the file exists. This imitates a
 * process in uninterruptible sleep, such as on a failed GPU. */
static int be_held(const char *path)
{
    pid_t me = getpid();
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (fork() != 0)
        for (;;)
            (void)pause();
    (void)setsid();
    long rc = ptrace(PTRACE_SEIZE, me, NULL, NULL);
    (void)dprintf(1, rc == 0 ? "held" : "not held");
    (void)close(1);
    (void)close(2);
    for (int i = 0; i < 6000 && access(path, F_OK) == 0; i++)
        (void)usleep(10000);
    return 0;
}

static void one_that_sigkill_does_not_end_is_given_up(void **state)
{
    (void)state;
    char path[] = "/tmp/ddrun-held-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    struct result r = {.base = event_base_new()};
    const char *argv[] = {"/proc/self/exe", "held", path, NULL};
    const struct command_spec spec = {.argv = argv, .env = env, .limit_ms = LIMIT_MS};
    struct command *c = NULL;
    struct command *other = NULL;
    assert_int_equal(command_start(&c, r.base, &spec, on_done, &r, NULL), 0);
    assert_int_equal(command_start(&other, r.base, &spec, on_done, &r, NULL), 0);
    await_out(&r, c, "held");
    await_out(&r, other, "held");
    clock_skip(LIMIT_MS);
    (void)event_base_loop(r.base, EVLOOP_NONBLOCK); /* kills both */
    clock_skip(GIVE_UP_MS);
    event_base_dispatch(r.base);
    assert_int_equal(r.times, 1);
    assert_int_equal(r.code, COMMAND_TOO_LATE);
    command_free(c);
    command_free(other); /* returns although the child survives SIGKILL */
    assert_int_equal(unlink(path), 0);
    event_base_free(r.base);
    bool forbidden = strcmp(r.out, "not held") == 0; /* some containers forbid ptrace */
    assert_true(forbidden || strcmp(r.out, "held") == 0);
    free(r.out);
    if (forbidden)
        skip();
}

/* The errors of a system without pidfd_open(2). */
static const int missing[] = {ENOSYS, EPERM};
enum { MISSING = sizeof(missing) / sizeof(missing[0]) };

/* Run all tests again in processes without pidfd_open(2). */
static void start_without_pidfd_open(pid_t pids[MISSING])
{
    for (size_t i = 0; i < MISSING; i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%d", missing[i]);
        pids[i] = fork();
        if (pids[i] == 0) {
            (void)execl("/proc/self/exe", "test_worker_command", "without", text, (char *)NULL);
            _exit(1);
        }
    }
}

/* Return the number of those that failed. */
static int wait_for_those_without(const pid_t pids[MISSING])
{
    int failed = 0;
    for (size_t i = 0; i < MISSING; i++) {
        int status = -1;
        if (waitpid(pids[i], &status, 0) == pids[i] && status == 0)
            continue;
        print_error("[  FAILED  ] without pidfd_open: %s\n", strerror(missing[i]));
        failed++;
    }
    return failed;
}

int main(int argc, char **argv)
{
    const bool without = argc == 3 && strcmp(argv[1], "without") == 0;
    pid_t others[MISSING] = {-1, -1};
    if (argc == 3 && strcmp(argv[1], "held") == 0)
        return be_held(argv[2]);
    if (without && (!lose_pidfd(atoi(argv[2])) || syscall(SYS_pidfd_open, getpid(), 0) >= 0))
        return 1;

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_and_output_come_back),
        cmocka_unit_test(a_function_keeps_the_descriptors_that_it_is_given),
        cmocka_unit_test(a_program_may_be_in_a_directory_of_its_own),
        cmocka_unit_test(who_takes_too_long_is_killed_with_its_children),
        cmocka_unit_test(what_a_command_leaves_behind_is_killed),
        cmocka_unit_test(too_much_output_is_cut_and_nobody_waits),
        cmocka_unit_test(a_program_that_is_not_there_is_told_at_once),
        cmocka_unit_test(one_that_is_freed_is_killed),
        cmocka_unit_test(one_that_sigkill_does_not_end_is_given_up),
    };
    if (!without) /* at the same time: the tests mostly wait */
        start_without_pidfd_open(others);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!without)
        failed += wait_for_those_without(others);
    return failed;
}
