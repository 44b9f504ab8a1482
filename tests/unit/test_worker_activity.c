/* worker/activity: what this process uses is read from the kernel; answers about sockets are
 * parsed. */
#include "base/auto.h"
#include "base/io.h"
#include "worker/activity.h"
#include "worker/children.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 100000 };

static struct hang_counters now_used(pid_t pid)
{
    DD_AUTO(socket_bytes) struct socket_bytes sockets = {0};
    struct hang_counters c;
    if (socket_bytes_read(&sockets) < 0)
        skip(); /* a kernel without sock_diag */
    assert_int_equal(activity_read(pid, &sockets, &c), 0);
    return c;
}

static void processor_time_of_a_descendant_counts(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        close(fds[1]);
        while (clock() < CLOCKS_PER_SEC / 20)
            ;
        (void)!read(fds[0], &byte, 1); /* until the test has looked */
        _exit(0);
    }
    close(fds[0]);
    assert_true(child > 0);
    while (now_used(child).cpu_ns < 20 * DD_NS_PER_MS)
        ;
    assert_true(now_used(getpid()).cpu_ns >= 20 * DD_NS_PER_MS);
    close(fds[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Root could read a kernel stack: that of the interrupt which preempted the process. */
static void state_of_a_running_process_has_no_kernel_function(void **state)
{
    (void)state;
    char out[300];
    const pid_t child = fork();
    if (child == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
        for (volatile bool busy = true; busy;)
            ;
    assert_true(child > 0);
    for (int running = 0; running < 50;)
        if (children_state(child, out, sizeof(out))[0] == 'R') {
            assert_string_equal(out, "R");
            running++;
        }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

enum { MEMORY = 32 << 20 };

static pid_t start_with_much_memory(void)
{
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0) {
        char *memory = malloc(MEMORY);
        if (memory != NULL)
            memset(memory, 1, MEMORY);
        (void)!write(fds[1], memory, 1);
        (void)pause();
    }
    close(fds[1]);
    assert_true(child > 0);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    return child;
}

/* Return the state in /proc/PID/stat; set *exiting to the flag PF_EXITING there. */
static char raw_state(pid_t pid, bool *exiting)
{
    char path[40];
    char state = '?';
    unsigned flags = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %*s %c %*d %*d %*d %*d %*d %u", &state, &flags), 2);
    (void)fclose(f);
    *exiting = (flags & 4) != 0;
    return state;
}

/* The kernel frees the memory of a killed process before it becomes a zombie. */
static void process_that_exits_is_not_running(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        bool exiting = false;
        char raw = 'R';
        const pid_t child = start_with_much_memory();
        assert_int_equal(kill(child, SIGKILL), 0);
        while (raw != 'Z') {
            raw = raw_state(child, &exiting);
            if (exiting)
                assert_int_not_equal(children_state_letter(child), 'R');
        }
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
}

static void bytes_that_are_read_count(void **state)
{
    (void)state;
    char bytes[4096];
    const uint64_t before = now_used(getpid()).io_bytes;
    DD_AUTO(fd) int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 100; i++)
        assert_int_equal(read(fd, bytes, sizeof(bytes)), sizeof(bytes));
    assert_true(now_used(getpid()).io_bytes >= before + 100 * sizeof(bytes));
}

static void bytes_of_tcp_connections_count(void **state)
{
    static char bytes[BYTES];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    (void)state;
    DD_AUTO(fd) int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    DD_AUTO(fd) int here = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(server, 1), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(connect(here, (struct sockaddr *)&a, sizeof(a)), 0);
    DD_AUTO(fd) int there = accept(server, NULL, NULL);
    const uint64_t before = now_used(getpid()).net_bytes;
    assert_int_equal(send(here, bytes, sizeof(bytes), 0), sizeof(bytes));
    assert_int_equal(recv(there, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
    assert_true(now_used(getpid()).net_bytes >= before + sizeof(bytes));
}

static void process_that_is_gone_has_used_nothing(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    const struct hang_counters c = now_used(child);
    assert_int_equal(c.cpu_ns + c.io_bytes + c.net_bytes, 0);
}

static void incomplete_answers_about_sockets_are_refused(void **state)
{
    static const uint32_t words[] = {100, 0, 0, 0}; /* longer than the answer */
    static const uint32_t short_message[] = {20, 20, 0, 0, 0};
    (void)state;
    DD_AUTO(socket_bytes) struct socket_bytes s = {0};
    assert_int_equal(socket_bytes_parse(&s, words, sizeof(words)), -EPROTO);
    assert_int_equal(socket_bytes_parse(&s, short_message, sizeof(short_message)), -EPROTO);
    assert_int_equal(socket_bytes_parse(&s, words, 3), 1); /* nothing of a message */
    assert_int_equal(s.n, 0);
}

/* Another user may open any number of connections: those of a worker may be the ones left out. */
static void sockets_that_are_too_many_to_count_are_an_error(void **state)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_msg socket;
    } answer[256] = {0};
    DD_AUTO(socket_bytes) struct socket_bytes s = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(answer) / sizeof(answer[0]); i++)
        answer[i].head = (struct nlmsghdr){.nlmsg_len = sizeof(answer[0]),
                                           .nlmsg_type = SOCK_DIAG_BY_FAMILY};
    while (s.n < SOCKET_BYTES_MAX)
        assert_int_equal(socket_bytes_parse(&s, answer, sizeof(answer)), 1);
    assert_int_equal(socket_bytes_parse(&s, answer, sizeof(answer)), -EOVERFLOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processor_time_of_a_descendant_counts),
        cmocka_unit_test(state_of_a_running_process_has_no_kernel_function),
        cmocka_unit_test(process_that_exits_is_not_running),
        cmocka_unit_test(bytes_that_are_read_count),
        cmocka_unit_test(bytes_of_tcp_connections_count),
        cmocka_unit_test(process_that_is_gone_has_used_nothing),
        cmocka_unit_test(incomplete_answers_about_sockets_are_refused),
        cmocka_unit_test(sockets_that_are_too_many_to_count_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
