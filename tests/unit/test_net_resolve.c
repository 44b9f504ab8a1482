/* Name lookups in a child; scontrol is a script of the test. No query leaves this machine: unknown
 * names have a label that the resolver rejects as too long. */
#include "base/auto.h"
#include "base/io.h"
#include "clock_world.h"
#include "net/resolve.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define NOWHERE "no-such-node-0123456789012345678901234567890123456789012345678901234567890"

enum { LIMIT_MS = 60000 };

struct fixture {
    struct event_base *base;
    char dir[64], script[96], path[200];
    char *old_path;
    size_t fds, calls, n;
    struct net_addr addrs[NET_RESOLVE_MAX];
    char why[300];
    struct net_resolve *r;
    bool free_inside;
};

static size_t open_fds(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->fds = open_fds();
    f->base = event_base_new();
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/ddrun-resolve-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->script, sizeof(f->script), "%s/scontrol", f->dir);
    f->old_path = strdup(getenv("PATH"));
    (void)snprintf(f->path, sizeof(f->path), "%s:/usr/bin:/bin", f->dir);
    (void)setenv("PATH", f->path, 1);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    net_resolve_free(f->r);
    event_base_free(f->base);
    (void)setenv("PATH", f->old_path, 1);
    free(f->old_path);
    (void)unlink(f->script);
    (void)rmdir(f->dir);
    assert_int_equal(open_fds(), f->fds);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, not even a zombie */
    free(f);
    return 0;
}

static void write_script(const struct fixture *f, const char *body)
{
    char text[1000];
    (void)snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", body);
    int fd = open(f->script, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_int_equal(dd_write_full(fd, text, strlen(text)), 0);
    assert_int_equal(fchmod(fd, 0700), 0);
    (void)close(fd);
}

static void on_done(void *arg, const struct net_addr *addrs, size_t n, const char *why)
{
    struct fixture *f = arg;
    f->calls++;
    f->n = n;
    memcpy(f->addrs, addrs, n * sizeof(*addrs));
    (void)snprintf(f->why, sizeof(f->why), "%s", why);
    if (f->free_inside) {
        net_resolve_free(f->r);
        f->r = NULL;
    }
    (void)event_base_loopbreak(f->base);
}

static void start(struct fixture *f, const char *name, bool try_scontrol, unsigned timeout_ms)
{
    const struct net_resolve_cfg cfg = {.name = name,
                                        .slurm = try_scontrol ? NET_RESOLVE_SLURM_ELSE
                                                              : NET_RESOLVE_SLURM_NEVER,
                                        .timeout_ms = timeout_ms,
                                        .done = on_done,
                                        .arg = f};
    net_resolve_free(f->r);
    f->calls = 0;
    assert_int_equal(net_resolve_start(&f->r, f->base, &cfg, NULL), 0);
    assert_int_equal(f->calls, 0); /* on_done is called from the loop only */
}

static void look_up(struct fixture *f, const char *name, bool try_scontrol)
{
    start(f, name, try_scontrol, LIMIT_MS);
    (void)event_base_dispatch(f->base);
    assert_int_equal(f->calls, 1);
}

static void resolve_refuses_what_is_no_name(void **state)
{
    struct fixture *f = *state;
    char longest[300];
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    const char *const bad[] = {"", "-o", "--help", longest, NULL};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct net_resolve_cfg cfg = {.name = bad[i],
                                            .slurm = NET_RESOLVE_SLURM_ELSE,
                                            .timeout_ms = 1000,
                                            .done = on_done,
                                            .arg = f};
        assert_int_equal(net_resolve_start(&f->r, f->base, &cfg, NULL), -EINVAL);
    }
}

static void resolve_takes_numbers_as_they_are(void **state)
{
    struct fixture *f = *state;
    char text[NET_ADDR_TEXT];
    look_up(f, "10.1.2.3", true);
    assert_int_equal(f->n, 1);
    assert_string_equal(net_addr_host(&f->addrs[0], text), "10.1.2.3");
    f->free_inside = true;
    look_up(f, "fd00::1", false);
    assert_int_equal(f->n, 1);
    assert_string_equal(net_addr_host(&f->addrs[0], text), "fd00::1");
}

static void resolve_finds_localhost_without_doubles(void **state)
{
    struct fixture *f = *state;
    look_up(f, "localhost", false);
    assert_true(f->n >= 1 && f->n <= 2);
    for (size_t i = 0; i < f->n; i++) {
        assert_true(net_addr_is_loopback(&f->addrs[i]));
        assert_int_equal(net_addr_port(&f->addrs[i]), 0);
    }
    assert_string_equal(f->why, "");
}

static void resolve_says_why_there_is_no_address(void **state)
{
    struct fixture *f = *state;
    look_up(f, NOWHERE, false);
    assert_int_equal(f->n, 0);
    assert_true(f->why[0] != '\0');
    write_script(f, "echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1");
    look_up(f, NOWHERE, true);
    assert_int_equal(f->n, 0);
    write_script(f, "echo NodeName=$4 NodeAddr=" NOWHERE "x NodeHostName=$4");
    look_up(f, NOWHERE, true);
    assert_int_equal(f->n, 0);
    assert_non_null(strstr(f->why, "NodeAddr=no-such-node-"));
    (void)unlink(f->script);
    (void)setenv("PATH", f->dir, 1); /* no scontrol in PATH */
    look_up(f, NOWHERE, true);
    assert_int_equal(f->n, 0);
}

static void resolve_asks_slurm_for_names_that_only_slurm_knows(void **state)
{
    struct fixture *f = *state;
    char text[NET_ADDR_TEXT];
    write_script(f, "[ \"$*\" = \"show node -o " NOWHERE "\" ] && echo \"NodeName=$4 Arch=x86_64 "
                    "Gres=gpu:2 NodeAddr=10.9.8.7 NodeHostName=$4 Version=22.05.8\"");
    look_up(f, NOWHERE, true);
    assert_int_equal(f->n, 1);
    assert_string_equal(net_addr_host(&f->addrs[0], text), "10.9.8.7");
    look_up(f, NOWHERE, false);
    assert_int_equal(f->n, 0);
}

static void resolve_asks_slurm_when_a_name_is_loopback_only(void **state)
{
    struct fixture *f = *state;
    char text[NET_ADDR_TEXT];
    write_script(f, "echo NodeName=$4 NodeAddr=10.9.8.7 NodeHostName=$4");
    look_up(f, "localhost", true);
    assert_true(f->n >= 2);
    assert_string_equal(net_addr_host(&f->addrs[f->n - 1], text), "10.9.8.7");
}

static void resolve_child_inherits_nothing(void **state)
{
    struct fixture *f = *state;
    char text[NET_ADDR_TEXT];
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    DD_AUTO(fd) int extra = fcntl(null, F_DUPFD, 77); /* deliberately without FD_CLOEXEC */
    (void)close(null);
    assert_int_equal(extra, 77);
    (void)signal(SIGTERM, SIG_IGN);
    /* 10.0.MASKED.OPEN: TERM is blocked or ignored; descriptor 77 is open */
    write_script(f, "o=0; [ -e /proc/$$/fd/77 ] && o=1\n"
                    "m=$(grep -E '^Sig(Blk|Ign)' /proc/$$/status | grep -c '[4-7c-f]...$')\n"
                    "echo NodeName=x NodeAddr=10.0.$m.$o X=1");
    look_up(f, NOWHERE, true);
    (void)signal(SIGTERM, SIG_DFL);
    assert_int_equal(f->n, 1);
    assert_string_equal(net_addr_host(&f->addrs[0], text), "10.0.0.0");
}

/* Reap what the lookup has left: orphans, adopted by this subreaper. Return the signal that ended
 * the script, whose pid is in DIR/pid; 0: the script had not begun; -1: it ended otherwise. */
static int signal_that_ended_script(const struct fixture *f)
{
    char path[100];
    int signal_of_script = 0;
    int status;
    pid_t pid;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(20);
    (void)snprintf(path, sizeof(path), "%s/pid", f->dir);
    const pid_t script = dd_read_file(path, &text, NULL) == 0 ? atoi(dd_buf_str(&text)) : 0;
    (void)unlink(path);
    while ((pid = waitpid(-1, &status, 0)) > 0)
        if (pid == script)
            signal_of_script = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
    return signal_of_script;
}

/* Look up a name with a script that never answers; the limit expires once the script has begun. */
static void give_up(struct fixture *f, const char *name)
{
    char path[100];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/pid", f->dir);
    start(f, name, true, LIMIT_MS);
    while (f->calls == 0 && (stat(path, &st) < 0 || st.st_size == 0)) {
        (void)event_base_loop(f->base, EVLOOP_NONBLOCK);
        (void)usleep(1000);
    }
    (void)event_base_loop(f->base, EVLOOP_NONBLOCK); /* take what was found before the script */
    clock_skip(LIMIT_MS);
    (void)event_base_dispatch(f->base);
    assert_int_equal(f->calls, 1);
    assert_int_equal(signal_that_ended_script(f), SIGKILL);
}

static void resolve_gives_up_in_time_and_ends_what_it_started(void **state)
{
    struct fixture *f = *state;
    char body[200];
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)snprintf(body, sizeof(body), "echo $$ >%s/pid; exec sleep 1000", f->dir);
    write_script(f, body);
    give_up(f, NOWHERE);
    assert_int_equal(f->n, 0);
    assert_string_equal(f->why, "the name service or scontrol does not respond");

    /* on timeout, the addresses found so far are returned */
    give_up(f, "localhost");
    assert_true(f->n >= 1);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void resolve_ends_the_child_when_it_is_freed(void **state)
{
    struct fixture *f = *state;
    write_script(f, "exec sleep 1000");
    start(f, NOWHERE, true, LIMIT_MS);
    net_resolve_free(f->r);
    f->r = NULL;
    assert_int_equal(event_base_dispatch(f->base), 1); /* no event is left */
    assert_int_equal(f->calls, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(resolve_refuses_what_is_no_name),
        T(resolve_takes_numbers_as_they_are),
        T(resolve_finds_localhost_without_doubles),
        T(resolve_says_why_there_is_no_address),
        T(resolve_asks_slurm_for_names_that_only_slurm_knows),
        T(resolve_asks_slurm_when_a_name_is_loopback_only),
        T(resolve_child_inherits_nothing),
        T(resolve_gives_up_in_time_and_ends_what_it_started),
        T(resolve_ends_the_child_when_it_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
