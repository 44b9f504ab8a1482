/* worker/worker_group: start, supervision and stop of real processes and their descendants. */
#include "base/auto.h"
#include "base/io.h"
#include "clock_world.h"
#include "worker/worker_group.h"
#include "worker/spawn.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MAX = 8, LIMIT_S = 60 };

/* A minimal agent: a loop, a group, and a FIFO ($TELL) that its workers write to. */
struct bench {
    struct event_base *base;
    struct worker_group *g;
    char dir[64];
    char tell[80]; /* the FIFO */
    int tell_fd;
    struct event *on_tell;
    struct event *on_limit;
    struct dd_buf told; /* everything read from the FIFO */
    int tells;          /* number of lines after which after_tells is called */
    void (*after_tells)(struct bench *b);
    struct worker_spec specs[MAX];
    int n;
    struct worker_exit exits[MAX];
    int nexits;
    void (*after_exit)(struct bench *b);
    bool empty;
    bool late; /* the time limit has expired */
};

static int lines(const struct dd_buf *b)
{
    int n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == '\n';
    return n;
}

static void on_tell(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct bench *b = arg;
    char text[4096];
    ssize_t n = read(fd, text, sizeof(text));
    if (n > 0)
        assert_int_equal(dd_buf_append(&b->told, text, (size_t)n), 0);
    if (b->after_tells != NULL && lines(&b->told) >= b->tells) {
        void (*fn)(struct bench *b) = b->after_tells;
        b->after_tells = NULL;
        fn(b);
    }
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct bench *b = arg;
    b->late = true;
    event_base_loopbreak(b->base);
}

static void on_exit_(void *arg, const struct worker_exit *e)
{
    struct bench *b = arg;
    assert_true(b->nexits < MAX);
    b->exits[b->nexits++] = *e;
    if (b->after_exit != NULL)
        b->after_exit(b);
}

static void on_empty(void *arg)
{
    struct bench *b = arg;
    assert_false(b->empty);
    b->empty = true;
    event_base_loopbreak(b->base);
}

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    b->base = event_base_new();
    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/test_worker_group.XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(b->tell, sizeof(b->tell), "%s/tell", b->dir);
    assert_int_equal(mkfifo(b->tell, 0600), 0);
    b->tell_fd = open(b->tell, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    b->on_tell = event_new(b->base, b->tell_fd, EV_READ | EV_PERSIST, on_tell, b);
    b->on_limit = evtimer_new(b->base, on_limit, b);
    b->told = DD_BUF_INIT(1 << 20);
    event_add(b->on_tell, NULL);
    event_add(b->on_limit, &(struct timeval){.tv_sec = LIMIT_S});
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;
    worker_group_free(b->g);
    for (int i = 0; i < b->n; i++) {
        dd_strv_done(&b->specs[i].argv);
        dd_strv_done(&b->specs[i].env);
    }
    event_free(b->on_tell);
    event_free(b->on_limit);
    event_base_free(b->base);
    close(b->tell_fd);
    char cmd[100];
    (void)snprintf(cmd, sizeof(cmd), "rm -r %s", b->dir);
    int rc = system(cmd);
    dd_buf_done(&b->told);
    free(b);
    return rc;
}

/* Add a worker that runs sh -c SCRIPT. */
static struct worker_spec *sh(struct bench *b, const char *script)
{
    struct worker_spec *s = &b->specs[b->n];
    s->has_stdin = b->n == 0;
    s->rank = b->n++;
    assert_int_equal(dd_strv_push(&s->argv, "sh"), 0);
    assert_int_equal(dd_strv_push(&s->argv, "-c"), 0);
    assert_int_equal(dd_strv_push(&s->argv, script), 0);
    assert_int_equal(dd_env_set(&s->env, "PATH", "/usr/bin:/bin"), 0);
    assert_int_equal(dd_env_set(&s->env, "TELL", b->tell), 0);
    assert_int_equal(dd_env_set(&s->env, "DIR", b->dir), 0);
    return s;
}

static int start(struct bench *b, struct dd_err *err)
{
    static const struct dd_log log = {.level = DD_LOG_DEBUG, .fd = 2, .who = "test"};
    return worker_group_start(&b->g, b->base, b->specs, b->n,
                              &(struct worker_group_cfg){
                                  .log = &log, .on_exit = on_exit_, .on_empty = on_empty, .arg = b},
                              err);
}

static void run(struct bench *b)
{
    struct dd_err err = {0};
    int rc = start(b, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    event_base_dispatch(b->base);
    assert_false(b->late);
    assert_true(b->empty);
    assert_int_equal(b->nexits, b->n);
    for (int i = 0; i < b->n; i++)
        assert_int_equal(worker_group_pid(b->g, i), 0);
}

static const struct worker_exit *exit_of(const struct bench *b, int local_rank)
{
    for (int i = 0; i < b->nexits; i++)
        if (b->exits[i].local_rank == local_rank)
            return &b->exits[i];
    fail_msg("worker %d has not ended", local_rank);
    return b->exits;
}

/* Check that the process of every pid read from the FIFO has ended. */
static void assert_told_are_gone(struct bench *b)
{
    const char *p = dd_buf_str(&b->told);
    int n = 0;
    for (char *end; *p != '\0'; p = end, n++) {
        pid_t pid = (pid_t)strtol(p, &end, 10);
        assert_true(end > p);
        end += strspn(end, " \n");
        if (kill(pid, 0) == 0)
            fail_msg("process %d still lives", (int)pid);
    }
    assert_true(n > 0);
}

static void assert_no_children(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void stop_gently(struct bench *b)
{
    worker_group_stop(b->g, SIGTERM, LIMIT_S * 1000);
}

/* Workers or orphans ignore SIGTERM: reach their SIGKILL without waiting. */
static void stop_and_hurry(struct bench *b)
{
    stop_gently(b);
    clock_hurry(b->base, 2500);
}

static void hurry_after_last_exit(struct bench *b)
{
    if (b->nexits == b->n)
        clock_hurry(b->base, 4500);
}

enum { GRACE_MS = 30000 };

static void stop_with_grace(struct bench *b)
{
    worker_group_stop(b->g, SIGTERM, GRACE_MS);
}

static void end_grace(struct bench *b)
{
    if (b->nexits == 1)
        clock_skip(GRACE_MS);
}

static void group_reports_exit_codes_and_signals(void **state)
{
    static const struct {
        const char *script;
        int code, signal;
    } rows[] = {
        {"exit 0", 0, 0},
        {"exit 3", 3, 0},
        {"exit 255", 255, 0},
        {"kill -TERM $$", 143, SIGTERM},
        {"kill -KILL $$", 137, SIGKILL},
        {"kill -SEGV $$", 139, SIGSEGV},
        {"kill -HUP $$", 129, SIGHUP},
        {"kill -PIPE $$", 141, SIGPIPE},
    };
    struct bench *b = *state;
    size_t n = sizeof(rows) / sizeof(rows[0]);
    for (size_t i = 0; i < n; i++)
        sh(b, rows[i].script);
    run(b);
    for (size_t i = 0; i < n; i++) {
        const struct worker_exit *e = exit_of(b, (int)i);
        assert_int_equal(e->code, rows[i].code);
        assert_int_equal(e->signal, rows[i].signal);
        assert_true(e->pid > 0);
        assert_true(e->at_ns > 0);
    }
    assert_no_children();
}

static void group_start_fails_with_a_sentence_when_a_program_cannot_run(void **state)
{
    static const struct {
        const char *name, *content;
        int mode, rc;
        const char *says;
    } rows[] = {
        {"absent", NULL, 0, -ENOENT, "No such file"},
        {"plain", "text\n", 0644, -EACCES, "chmod +x"},
        {"noshebang", "text\n", 0755, -ENOEXEC, "#!/bin/bash"},
        {"badinterp", "#! /no/such -x\n", 0755, -ENOENT, "interpreter '/no/such' does not exist"},
        {"dos", "#!/bin/sh\r\necho\r\n", 0755, -ENOENT, "carriage return"},
        {"foreign", "\177ELF\2\1\1xx", 0755, -ENOEXEC, "another machine architecture"},
    };
    struct bench *b = *state;
    sh(b, "exec sleep 1000"); /* ended if the other worker cannot start */
    sh(b, "");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[200];
        (void)snprintf(path, sizeof(path), "%s/%s", b->dir, rows[i].name);
        if (rows[i].content != NULL) {
            FILE *f = fopen(path, "we");
            assert_non_null(f);
            (void)fputs(rows[i].content, f);
            (void)fchmod(fileno(f), (mode_t)rows[i].mode);
            assert_int_equal(fclose(f), 0);
        }
        free(b->specs[1].argv.v[0]);
        b->specs[1].argv.v[0] = strdup(path);
        struct dd_err err = {0};
        assert_int_equal(start(b, &err), rows[i].rc);
        assert_non_null(strstr(err.text, rows[i].says));
        assert_non_null(strstr(err.text, rows[i].name));
        assert_no_children();
    }
    free(b->specs[1].argv.v[0]);
    b->specs[1].argv.v[0] = strdup("no-such-program");
    struct dd_err err = {0};
    assert_int_equal(start(b, &err), -ENOENT);
    assert_string_equal(err.text,
                        "cannot run 'no-such-program': not found in PATH (/usr/bin:/bin)");
}

static void group_start_refuses_no_workers(void **state)
{
    struct bench *b = *state;
    struct dd_err err = {0};
    assert_int_equal(start(b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "a node runs 1 to 65536"));
}

static void group_workers_have_clean_signals_and_no_other_files(void **state)
{
    struct bench *b = *state;
    sh(b, "grep -E '^Sig(Blk|Ign)' /proc/self/status >$DIR/signals;"
          "cut -d' ' -f1,5,6 /proc/$$/stat >$DIR/ids; readlink /proc/self/fd/0 >$DIR/stdin0");
    sh(b, "readlink /proc/self/fd/0 >$DIR/stdin1");
    sh(b, "exec ls /proc/self/fd >$DIR/fds");
    sigset_t blocked, saved;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigaddset(&blocked, SIGCHLD); /* exits are noticed nevertheless */
    sigprocmask(SIG_BLOCK, &blocked, &saved);
    (void)signal(SIGHUP, SIG_IGN); /* as in a task of PBS */
    (void)signal(SIGPIPE, SIG_IGN);
    int stray = dup2(2, 60); /* without FD_CLOEXEC */
    run(b);
    close(stray);
    (void)signal(SIGHUP, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &saved, NULL);

    static const char *const names[] = {"signals", "fds", "ids", "stdin0", "stdin1"};
    char own_stdin[200] = "", path[200];
    assert_true(readlink("/proc/self/fd/0", own_stdin, sizeof(own_stdin) - 2) > 0);
    struct dd_buf text[5];
    for (int i = 0; i < 5; i++) {
        text[i] = DD_BUF_INIT(10000);
        (void)snprintf(path, sizeof(path), "%s/%s", b->dir, names[i]);
        assert_int_equal(dd_read_file(path, &text[i], NULL), 0);
    }
    /* Programs that posix_spawn() starts, as make starts this test, ignore the C library's signals
     * 32 and 33 and cannot change that. Src: glibc 2.36, measured. */
    unsigned long long blk = 1, ign = 1;
    assert_int_equal(sscanf(dd_buf_str(&text[0]), "SigBlk:\t%llx\nSigIgn:\t%llx\n", &blk, &ign), 2);
    assert_int_equal(blk, 0);
    assert_int_equal(ign & ~0x180000000ULL, 0);
    assert_string_equal(dd_buf_str(&text[1]), "0\n1\n2\n3\n"); /* 3: the directory that ls reads */
    int pid, pgid, sid;
    assert_int_equal(sscanf(dd_buf_str(&text[2]), "%d %d %d", &pid, &pgid, &sid), 3);
    assert_int_equal(pid, exit_of(b, 0)->pid);
    assert_int_equal(pid, pgid);
    assert_int_equal(pid, sid);
    strcat(own_stdin, "\n");
    assert_string_equal(dd_buf_str(&text[3]), own_stdin);
    assert_string_equal(dd_buf_str(&text[4]), "/dev/null\n");
    for (int i = 0; i < 5; i++)
        dd_buf_done(&text[i]);
}

static void group_binds_workers_to_the_cpus_asked_for(void **state)
{
    struct bench *b = *state;
    cpu_set_t all, one, none;
    CPU_ZERO(&one);
    CPU_ZERO(&none); /* invalid: logs a warning, the worker runs */
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    int last = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        last = CPU_ISSET(i, &all) ? i : last;
    CPU_SET(last, &one);
    struct worker_spec *s = sh(b, "grep ^Cpus_allowed_list /proc/self/status >$TELL");
    s->cpus = &one;
    s->cpus_size = sizeof(one);
    s = sh(b, "exit 7");
    s->cpus = &none;
    s->cpus_size = sizeof(none);
    run(b);
    char want[60];
    (void)snprintf(want, sizeof(want), "Cpus_allowed_list:\t%d\n", last);
    char got[60] = "";
    if (b->told.len == 0)
        (void)!read(b->tell_fd, got, sizeof(got) - 1);
    assert_string_equal(b->told.len > 0 ? dd_buf_str(&b->told) : got, want);
    assert_int_equal(exit_of(b, 1)->code, 7);
}

static void group_stop_kills_who_ignores_term_after_the_grace(void **state)
{
    struct bench *b = *state;
    sh(b, "trap '' TERM; echo $$ >$TELL; while :; do sleep 1000; done");
    sh(b, "trap 'exit 9' TERM; echo $$ >$TELL; sleep 1000 & wait");
    b->tells = 2;
    b->after_tells = stop_with_grace;
    b->after_exit = end_grace;
    run(b);
    assert_int_equal(b->exits[0].code, 9); /* within the grace period */
    assert_int_equal(exit_of(b, 0)->signal, SIGKILL);
    assert_no_children();
}

static void stop_twice(struct bench *b)
{
    worker_group_stop(b->g, SIGTERM, LIMIT_S * 1000);
    worker_group_stop(b->g, SIGTERM, 100);
    worker_group_stop(b->g, SIGTERM, LIMIT_S * 1000); /* does not extend the grace period */
}

static void group_stop_again_shortens_the_grace(void **state)
{
    struct bench *b = *state;
    sh(b, "trap '' TERM; echo $$ >$TELL; while :; do sleep 1000; done");
    b->tells = 1;
    b->after_tells = stop_twice;
    run(b);
    assert_int_equal(exit_of(b, 0)->signal, SIGKILL);
}

static void stop_the_stopped(struct bench *b)
{
    worker_group_signal(b->g, SIGSTOP);
    siginfo_t si = {0}; /* waits for the stop without reaping */
    assert_int_equal(waitid(P_ALL, 0, &si, WSTOPPED), 0);
    worker_group_stop(b->g, SIGTERM, LIMIT_S * 1000);
}

static void group_stop_reaches_stopped_workers(void **state)
{
    struct bench *b = *state;
    sh(b, "echo $$ >$TELL; exec sleep 1000");
    b->tells = 1;
    b->after_tells = stop_the_stopped;
    run(b);
    assert_int_equal(exit_of(b, 0)->signal, SIGTERM);
}

static void group_stop_leaves_the_grace_to_children_of_a_dead_shell(void **state)
{
    struct bench *b = *state;
    sh(b, "(trap 'echo saving >$TELL; sleep 0.3; echo saved >$DIR/checkpoint; exit' TERM;"
          " echo $$ >$TELL; while :; do sleep 0.01; done) & wait");
    b->tells = 1;
    b->after_tells = stop_gently;
    run(b);
    assert_int_equal(exit_of(b, 0)->signal, SIGTERM);
    char path[100];
    (void)snprintf(path, sizeof(path), "%s/checkpoint", b->dir);
    assert_int_equal(access(path, F_OK), 0);
}

static void group_ends_what_workers_leave_behind(void **state)
{
    static const char *const rows[] = {
        /* in the worker's process group */
        "sleep 1000 & echo $! >$TELL",
        /* the same, its leader killed */
        "sleep 1000 & echo $! >$TELL; kill -KILL $$",
        /* in a process group of its own */
        "set -m; sh -c 'echo $$ >$TELL; exec sleep 1000' & read x <$DIR/never",
        /* a daemon: a session of its own, its parent has exited */
        "(setsid sh -c 'echo $$ >$TELL; exec sleep 1000' &) ; read x <$DIR/never",
        /* a daemon that ignores signals, with a child that ignores them, too */
        ("(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000 & echo $$ $! >$TELL; sleep 1000' &);"
         "read x <$DIR/never"),
    };
    struct bench *b = *state;
    char never[100];
    (void)snprintf(never, sizeof(never), "%s/never", b->dir);
    assert_int_equal(mkfifo(never, 0600), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        sh(b, rows[i]);
    b->tells = 5;
    b->after_tells = stop_and_hurry;
    run(b);
    assert_told_are_gone(b);
    assert_no_children();
}

static void group_ends_leftovers_without_a_stop(void **state)
{
    struct bench *b = *state;
    char ready[2][100];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(ready[i], sizeof(ready[i]), "%s/ready%d", b->dir, i);
        assert_int_equal(mkfifo(ready[i], 0600), 0);
    }
    sh(b, "sh -c 'trap \"\" TERM; echo $$ >$DIR/ready0; exec sleep 1000' & read x <$DIR/ready0;"
          "echo $x >$TELL; exit 4");
    sh(b, "(setsid sh -c 'trap \"\" TERM; echo $$ >$DIR/ready1; exec sleep 1000' &);"
          "read x <$DIR/ready1; echo $x >$TELL");
    b->after_exit = hurry_after_last_exit;
    run(b);
    assert_int_equal(exit_of(b, 0)->code, 4);
    assert_int_equal(lines(&b->told), 2);
    assert_told_are_gone(b);
    assert_no_children();
}

/* A zombie stays in the worker's process group as long as its parent, a daemon, does not reap it.
 */
static void group_does_not_wait_for_zombies(void **state)
{
    struct bench *b = *state;
    const uint64_t given_up_ns = dd_now_ns() + 12 * DD_NS_PER_S;
    char ready[100];
    (void)snprintf(ready, sizeof(ready), "%s/ready", b->dir);
    assert_int_equal(mkfifo(ready, 0600), 0);
    sh(b, "(true & exec setsid sh -c 'echo $$ >$DIR/ready; exec sleep 1000') & read x <$DIR/ready;"
          "echo $x >$TELL");
    run(b);
    assert_true(dd_now_ns() < given_up_ns);
    assert_told_are_gone(b);
    assert_no_children();
}

static void group_leaves_other_children_alone(void **state)
{
    struct bench *b = *state;
    pid_t before = fork();
    if (before == 0) {
        pause();
        _exit(0);
    }
    sh(b, "exit 0");
    struct dd_err err = {0};
    assert_int_equal(start(b, &err), 0);
    pid_t after = fork();
    if (after == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(worker_group_protect(b->g, after), 0);
    event_base_dispatch(b->base);
    assert_true(b->empty);
    pid_t pids[] = {before, after};
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, WNOHANG), 0); /* still running */
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    }
}

static void usr1_then_stop(struct bench *b)
{
    worker_group_signal(b->g, SIGUSR1);
    b->tells = 3;
    b->after_tells = stop_gently;
}

static void group_signal_usr1_reaches_only_who_has_a_handler(void **state)
{
    struct bench *b = *state;
    sh(b, "trap 'echo got >$TELL' USR1; echo r >$TELL; while :; do sleep 0.01; done");
    sh(b, "echo r >$TELL; exec sleep 1000");
    b->tells = 2;
    b->after_tells = usr1_then_stop;
    run(b);
    assert_non_null(strstr(dd_buf_str(&b->told), "got"));
    assert_int_equal(exit_of(b, 1)->signal, SIGTERM); /* not SIGUSR1 */
}

static void stop_on_first_exit(struct bench *b)
{
    worker_group_stop(b->g, SIGTERM, LIMIT_S * 1000);
}

static void group_stop_works_from_the_exit_callback(void **state)
{
    struct bench *b = *state;
    for (int i = 0; i < 4; i++)
        sh(b, "exec sleep 1000");
    sh(b, "exit 5");
    b->after_exit = stop_on_first_exit;
    run(b);
    assert_int_equal(b->exits[0].code, 5);
    for (int i = 0; i < 4; i++)
        assert_int_equal(exit_of(b, i)->signal, SIGTERM);
}

static void group_free_kills_at_once(void **state)
{
    struct bench *b = *state;
    sh(b, "trap '' TERM; (setsid sleep 1000 &); sleep 1000");
    struct dd_err err = {0};
    assert_int_equal(start(b, &err), 0);
    assert_true(worker_group_pid(b->g, 0) > 0);
    worker_group_free(b->g);
    b->g = NULL;
    assert_int_equal(b->nexits, 0);
    assert_no_children();
}

/* Run an agent with four workers, which write their pids, until the test kills it. */
static _Noreturn void doomed_agent(struct bench *b)
{
    struct event_base *base = event_base_new();
    b->base = base;
    if (start(b, NULL) < 0)
        _exit(1);
    event_base_dispatch(base);
    _exit(1);
}

static void group_dies_with_the_agent(void **state)
{
    struct bench *b = *state;
    for (int i = 0; i < 4; i++)
        sh(b, "trap '' TERM; echo $$ >$TELL; exec sleep 1000");
    pid_t agent = fork();
    if (agent == 0)
        doomed_agent(b);
    while (lines(&b->told) < 4) {
        event_base_loop(b->base, EVLOOP_ONCE);
        assert_false(b->late);
    }
    struct pollfd p[4];
    const char *s = dd_buf_str(&b->told);
    for (int i = 0; i < 4; i++) {
        char *end = NULL;
        pid_t pid = (pid_t)strtol(s, &end, 10);
        s = end;
        p[i] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
        if (p[i].fd < 0)
            skip();
    }
    assert_int_equal(kill(agent, SIGKILL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(poll(&p[i], 1, LIMIT_S * 1000), 1);
        close(p[i].fd);
    }
    while (waitpid(-1, NULL, 0) > 0) /* reap the orphans: this test is a subreaper */
        continue;
}

static void lookup_follows_path_like_a_shell(void **state)
{
    struct bench *b = *state;
    char dirs[300], *got = NULL;
    (void)snprintf(dirs, sizeof(dirs), "PATH=/no/such:%s:/usr/bin", b->dir);
    char *env[] = {dirs, NULL};
    assert_int_equal(spawn_lookup(&got, "env", env), 0);
    assert_string_equal(got, "/usr/bin/env");
    free(got);
    assert_int_equal(spawn_lookup(&got, "", env), -ENOENT);
    assert_int_equal(spawn_lookup(&got, "no-such-program", env), -ENOENT);
    assert_int_equal(spawn_lookup(&got, "tell", env), -EACCES); /* a FIFO */
    assert_int_equal(spawn_lookup(&got, "/usr/bin", env), -EACCES);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(group_start_fails_with_a_sentence_when_a_program_cannot_run),
        CASE(group_start_refuses_no_workers),
        CASE(group_reports_exit_codes_and_signals),
        CASE(group_workers_have_clean_signals_and_no_other_files),
        CASE(group_binds_workers_to_the_cpus_asked_for),
        CASE(group_stop_kills_who_ignores_term_after_the_grace),
        CASE(group_stop_again_shortens_the_grace),
        CASE(group_stop_reaches_stopped_workers),
        CASE(group_stop_leaves_the_grace_to_children_of_a_dead_shell),
        CASE(group_stop_works_from_the_exit_callback),
        CASE(group_ends_what_workers_leave_behind),
        CASE(group_ends_leftovers_without_a_stop),
        CASE(group_does_not_wait_for_zombies),
        CASE(group_leaves_other_children_alone),
        CASE(group_signal_usr1_reaches_only_who_has_a_handler),
        CASE(group_free_kills_at_once),
        CASE(group_dies_with_the_agent),
        CASE(lookup_follows_path_like_a_shell),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* as the agent is */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
