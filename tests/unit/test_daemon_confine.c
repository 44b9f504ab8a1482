/* daemon: what a confined process can still do. Each case is a child that confines itself. */
#include "daemon/confine.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Run fn() in a confined child, which may connect or not. Store its stderr in said and return its
 * wait status. */
static int confined_to(bool connects, int (*fn)(void), char *said, size_t size)
{
    int fds[2];
    int status;
    size_t len = 0;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(fds[1], STDERR_FILENO);
        confine(NULL, connects);
        _exit(fn());
    }
    close(fds[1]);
    for (ssize_t n = 1; n > 0 && len < size - 1; len += n > 0 ? (size_t)n : 0)
        n = read(fds[0], said + len, size - 1 - len);
    said[len] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int confined(int (*fn)(void), char *said, size_t size)
{
    return confined_to(false, fn, said, size);
}

static int filtered(void)
{
    return prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
}

static int fork_in_it(void)
{
    return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) < 0 && errno == ENOSYS ? 0 : 1;
}

static int exec_in_it(void)
{
    return execl("/bin/true", "true", (char *)NULL) < 0 && errno == ENOSYS ? 0 : 1;
}

static int write_a_file(void)
{
    return open("/dev/null", O_WRONLY) < 0 && errno == ENOSYS ? 0 : 1;
}

static int map_code(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
               ? 0
               : 1;
}

static int connect_out(void)
{
    return socket(AF_INET, SOCK_STREAM, 0) < 0 && socket(AF_INET6, SOCK_STREAM, 0) < 0 ? 0 : 1;
}

static int signal_another(void)
{
    return kill(getppid(), 0) < 0 && errno == ENOSYS ? 0 : 1;
}

/* A descriptor sends its owner the signal of its choice when data arrives. */
static int signal_by_a_descriptor(void)
{
    return fcntl(STDERR_FILENO, F_SETOWN, getppid()) < 0 && errno == ENOSYS ? 0 : 1;
}

/* The kernel kills a process that exceeds its limit of processor time. */
static int limit_another(void)
{
    struct rlimit most;
    return prlimit(getppid(), RLIMIT_CPU, NULL, &most) < 0 && errno == ENOSYS ? 0 : 1;
}

/* The service manager and the container engine of the user listen on Unix sockets, and start
 * programs. */
static int connect_here(void)
{
    const struct sockaddr_un sa = {.sun_family = AF_UNIX, .sun_path = "/nonexistent"};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ? errno : 0;
}

static int fail_to_connect_here(void)
{
    return connect_here() == ENOSYS ? 0 : 1;
}

static int daily_work(void)
{
    char byte;
    const int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    void *p = malloc(10 << 20);
    const int diag = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, 4);
    if (fd < 0 || read(fd, &byte, 1) != 1 || p == NULL || diag < 0 || dd_now_ns() == 0 ||
        if_nametoindex("lo") == 0 || socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0)
        return 1;
    free(p);
    return 0;
}

static int abort_in_it(void)
{
    abort();
}

/* The processor, the kernel or the build may have none. */
static bool has_filters(void)
{
    char said[4096];
    const int status = confined(filtered, said, sizeof(said));
    return said[0] != '\0' ||        /* the filter reports what it does not allow */
           WEXITSTATUS(status) == 2; /* prctl is not on the list, and would return the mode */
}

static void what_is_not_needed_is_refused_and_reported(void **state)
{
    int (*const attempts[])(void) = {
        fork_in_it,          exec_in_it,     write_a_file,  map_code,
        connect_out,         signal_another, limit_another, signal_by_a_descriptor,
        fail_to_connect_here};
    char said[4096];
    (void)state;
    if (!has_filters())
        skip();
    for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
        const int status = confined(attempts[i], said, sizeof(said));
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        const char *number = strstr(said, "ddrund: warning: system call ");
        assert_non_null(number);
        number += strlen("ddrund: warning: system call ");
        const char *rest = number + strspn(number, "0123456789");
        assert_true(rest > number);
        assert_int_equal(
            strncmp(rest, " is not allowed by ddrund's filter; it returned ENOSYS\n", 55), 0);
    }
}

static void the_daemons_work_goes_on(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(confined(daily_work, said, sizeof(said)), 0);
    assert_string_equal(said, "");
}

static void a_daemon_that_asks_munged_may_connect_to_it(void **state)
{
    char said[4096];
    (void)state;
    const int status = confined_to(true, connect_here, said, sizeof(said));
    assert_int_equal(WEXITSTATUS(status), ENOENT);
    assert_string_equal(said, "");
}

static void an_abort_is_one(void **state)
{
    char said[4096];
    (void)state;
    const int status = confined(abort_in_it, said, sizeof(said));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_needed_is_refused_and_reported),
        cmocka_unit_test(the_daemons_work_goes_on),
        cmocka_unit_test(a_daemon_that_asks_munged_may_connect_to_it),
        cmocka_unit_test(an_abort_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
