/* worker/output: options, files, and what reaches the console from real processes. */
#include "base/auto.h"
#include "base/io.h"
#include "clock_world.h"
#include "worker/worker_group.h"
#include "worker/output.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MAX = 12, LIMIT_S = 60 };

/* --- real workers --- */

enum console_end { END_PIPE, END_SOCKET, END_FILE, END_TERMINAL, END_PIPE_NOT_TWICE };

struct bench {
    struct event_base *base;
    struct event *on_limit;
    struct event *on_console;
    struct event *on_stop;
    struct worker_output *out;
    struct worker_group *g;
    struct output_spec spec;
    enum console_end end;
    size_t read_at_once; /* bytes per turn of the loop, for a slow reader; 0: no limit */
    bool reader_leaves;  /* closes the console at the first byte */
    int saved[2], console_fd;
    struct dd_buf got; /* output on the console */
    const char *scripts[MAX];
    int n, first_rank;
    bool alone;
    int codes[MAX];
    char tail[MAX][1000]; /* at the end of the worker */
    bool empty, late;
    bool hurries;     /* the clock, after the exit of a worker */
    bool writes_last; /* rank 1 writes, and exits, when the exit of rank 0 is handled */
    bool has_output_after_exit;
    char dir[64];
};

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct bench *b = arg;
    b->late = true;
    event_base_loopbreak(b->base);
}

static ssize_t console_read(struct bench *b)
{
    static char text[65536];
    size_t want = b->read_at_once > 0 ? b->read_at_once : sizeof(text);
    ssize_t n = read(b->console_fd, text, want);
    if (n > 0)
        (void)dd_buf_append(&b->got, text, (size_t)n);
    return n;
}

static void on_console(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct bench *b = arg;
    if (!b->reader_leaves) {
        (void)console_read(b);
        return;
    }
    event_del(b->on_console);
    close(b->console_fd);
    b->console_fd = -1;
}

static void rank_1_writes(const struct bench *b)
{
    char path[100];
    siginfo_t info;
    (void)snprintf(path, sizeof(path), "%s/go", b->dir);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
}

static void on_exit_(void *arg, const struct worker_exit *e)
{
    struct bench *b = arg;
    b->codes[e->local_rank] = e->code;
    if (b->out != NULL && worker_output_first_ns(b->out, e->local_rank) > e->at_ns)
        b->has_output_after_exit = true;
    if (b->hurries)
        clock_hurry(b->base, 6000);
    if (b->writes_last && e->local_rank == 0)
        rank_1_writes(b);
    (void)snprintf(b->tail[e->local_rank], sizeof(b->tail[0]), "%s",
                   b->out == NULL ? "" : worker_output_tail(b->out, e->local_rank));
}

static void on_empty(void *arg)
{
    struct bench *b = arg;
    b->empty = true;
    event_base_loopbreak(b->base);
}

/* Create a console: fds[0] reads what is written to fds[1]. */
static void make_console(struct bench *b, int fds[2])
{
    char path[100];
    if (b->end == END_SOCKET) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    } else if (b->end == END_FILE) {
        (void)snprintf(path, sizeof(path), "%s/console", b->dir);
        fds[1] = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        fds[0] = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fds[0] >= 0 && fds[1] >= 0);
    } else if (b->end == END_TERMINAL) {
        fds[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_true(fds[0] >= 0);
        assert_int_equal(grantpt(fds[0]), 0);
        assert_int_equal(unlockpt(fds[0]), 0);
        fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_true(fds[1] >= 0);
        struct termios t;
        assert_int_equal(tcgetattr(fds[1], &t), 0);
        cfmakeraw(&t);
        assert_int_equal(tcsetattr(fds[1], TCSANOW, &t), 0);
        const struct winsize size = {.ws_row = 24, .ws_col = 80}; /* as that of a user */
        assert_int_equal(ioctl(fds[1], TIOCSWINSZ, &size), 0);
    } else {
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    }
}

static void console_begin(struct bench *b)
{
    int fds[2];
    make_console(b, fds);
    b->console_fd = fds[0];
    assert_int_equal(dd_fd_nonblock(fds[0]), 0);
    (void)fflush(stdout);
    for (int i = 0; i < 2; i++) {
        b->saved[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 10);
        assert_int_equal(dup2(fds[1], i + 1), i + 1);
    }
    close(fds[1]);
    if (b->end != END_FILE) {
        b->on_console = event_new(b->base, b->console_fd, EV_READ | EV_PERSIST, on_console, b);
        event_add(b->on_console, NULL);
    }
}

/* Restore stdout and stderr of the test, and read the rest of the console. */
static void console_end(struct bench *b)
{
    for (int i = 0; i < 2; i++) {
        (void)dup2(b->saved[i], i + 1);
        close(b->saved[i]);
    }
    if (b->on_console != NULL)
        event_free(b->on_console);
    b->on_console = NULL;
    while (b->console_fd >= 0 && console_read(b) > 0)
        continue;
    if (b->console_fd >= 0)
        close(b->console_fd);
}

static int make_output(struct bench *b, struct dd_err *err)
{
    struct rlimit old;
    if (b->end == END_PIPE_NOT_TWICE) { /* no descriptor is free */
        int next = dup(0);
        close(next);
        getrlimit(RLIMIT_NOFILE, &old);
        setrlimit(RLIMIT_NOFILE,
                  &(struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max});
    }
    int rc = worker_output_new(&b->out, b->base, &b->spec, err);
    if (b->end == END_PIPE_NOT_TWICE)
        setrlimit(RLIMIT_NOFILE, &old);
    return rc;
}

/* Run the workers (global rank = first_rank + local rank) with the output of spec. */
static int run_attempt(struct bench *b, int attempt, struct dd_err *err)
{
    struct worker_spec specs[MAX] = {{.rank = 0}};
    int ranks[MAX];
    int rc = 0;
    for (int i = 0; i < b->n; i++) {
        ranks[i] = specs[i].rank = b->first_rank + i;
        (void)dd_strv_push(&specs[i].argv, "/bin/sh");
        (void)dd_strv_push(&specs[i].argv, "-c");
        (void)dd_strv_push(&specs[i].argv, b->scripts[i]);
        (void)dd_env_set(&specs[i].env, "PATH", "/usr/bin:/bin");
        (void)dd_env_set(&specs[i].env, "DIR", b->dir);
        (void)dd_env_setf(&specs[i].env, "R", "%d", i);
    }
    if (b->out != NULL)
        rc = worker_output_begin(b->out, attempt, ranks, b->n, b->alone, err);
    if (rc == 0)
        rc = worker_group_start(
            &b->g, b->base, specs, b->n,
            &(struct worker_group_cfg){
                .out = b->out, .on_exit = on_exit_, .on_empty = on_empty, .arg = b},
            err);
    if (rc == 0)
        event_base_dispatch(b->base);
    worker_group_free(b->g);
    b->g = NULL;
    for (int i = 0; i < b->n; i++) {
        dd_strv_done(&specs[i].argv);
        dd_strv_done(&specs[i].env);
    }
    return rc;
}

static void run(struct bench *b)
{
    struct dd_err err = {0};
    console_begin(b);
    int rc = make_output(b, &err);
    if (rc == 0)
        rc = run_attempt(b, 0, &err);
    console_end(b);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    assert_false(b->late);
    assert_true(b->empty);
}

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    b->base = event_base_new();
    b->got = DD_BUF_INIT(64U << 20);
    b->first_rank = 100;
    b->on_limit = evtimer_new(b->base, on_limit, b);
    event_add(b->on_limit, &(struct timeval){.tv_sec = LIMIT_S});
    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/test_worker_output.XXXXXX");
    *state = b;
    return mkdtemp(b->dir) == NULL;
}

static int teardown(void **state)
{
    struct bench *b = *state;
    char cmd[100];
    worker_output_free(b->out);
    event_free(b->on_limit);
    event_base_free(b->base);
    (void)snprintf(cmd, sizeof(cmd), "rm -r %s", b->dir);
    int rc = system(cmd);
    dd_buf_done(&b->got);
    free(b);
    return rc;
}

static const char *got(struct bench *b)
{
    return dd_buf_str(&b->got);
}

static void output_is_nothing_when_all_is_raw(void **state)
{
    struct bench *b = *state;
    static const struct output_spec rows[] = {
        {.raw = true, .run_id = "1"},
        {.raw = true, .redirects = "", .tee = "", .local_ranks_filter = "", .log_dir = ""},
        {.raw = true, .redirects = "0", .tee = "0:0", .log_dir = "/dev/null"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        b->out = (struct worker_output *)b;
        assert_int_equal(worker_output_new(&b->out, b->base, &rows[i], NULL), 0);
        assert_null(b->out);
    }
}

static void output_names_the_option_that_is_wrong(void **state)
{
    struct bench *b = *state;
    static const struct {
        struct output_spec spec;
        const char *says;
    } rows[] = {
        {{.redirects = "7"}, "'7'"},
        {{.tee = "0:1,"}, "'0:1,'"},
        {{.local_ranks_filter = "a"}, "'a'"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct dd_err err = {0};
        assert_int_equal(worker_output_new(&b->out, b->base, &rows[i].spec, &err), -EINVAL);
        assert_non_null(strstr(err.text, rows[i].says));
    }
}

static void output_says_which_directory_cannot_be_made(void **state)
{
    struct bench *b = *state;
    char file[100], below[120];
    (void)snprintf(file, sizeof(file), "%s/file", b->dir);
    (void)snprintf(below, sizeof(below), "%s/sub", file);
    close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const char *const dirs[] = {file, below};
    for (int i = 0; i < 2; i++) {
        struct dd_err err = {0};
        b->spec.log_dir = dirs[i];
        assert_int_equal(worker_output_new(&b->out, b->base, &b->spec, &err), -ENOTDIR);
        assert_non_null(strstr(err.text, dirs[i]));
    }
}

static void output_labels_lines(void **state)
{
    struct bench *b = *state;
    b->spec.label = true;
    b->n = 1;
    b->scripts[0] = "printf 'one\\n\\ntwo\\r\\n 1%%\\r 2%%\\rlast' >&2; exit 3";
    run(b);
    assert_string_equal(got(b), "[100]: one\n[100]: \n[100]: two\r\n[100]:  1%\r[100]:  2%\r"
                                "[100]: last\n");
    assert_int_equal(b->codes[0], 3);
    assert_string_equal(b->tail[0], "one\n\ntwo\nlast\n");
}

/* Each rank writes numbered lines to both streams: none is lost or mixed with another, order is
 * kept. */
static void assert_numbered(struct bench *b, int ranks, int lines)
{
    int next[MAX][2] = {{0}};
    char *save = NULL;
    for (char *p = strtok_r((char *)(uintptr_t)got(b), "\n", &save); p != NULL;
         p = strtok_r(NULL, "\n", &save)) {
        int label, rank, no, end = 0;
        char stream;
        if (sscanf(p, "[%d]: %d %c %d xxxxxxxxxxxxxxxxxxxx%n", &label, &rank, &stream, &no, &end) !=
                4 ||
            p[end] != '\0' || label != 100 + rank || rank >= ranks)
            fail_msg("a line was mixed up: '%.100s'", p);
        int s = stream == 'e';
        if (no != next[rank][s] + 1)
            fail_msg("rank %d: line %d follows %d", rank, no, next[rank][s]);
        next[rank][s] = no;
    }
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < 2; s++)
            assert_int_equal(next[r][s], lines);
}

static void output_keeps_lines_whole_from_many_ranks(void **state)
{
    static const struct {
        enum console_end end;
        size_t read_at_once;
        int lines;
    } rows[] = {
        {END_PIPE, 0, 5000},  /* per stream: 8 x 10,000 in all */
        {END_PIPE, 700, 500}, /* a reader slower than the workers */
        {END_PIPE_NOT_TWICE, 0, 1000}, {END_PIPE_NOT_TWICE, 700, 500}, {END_SOCKET, 0, 1000},
        {END_SOCKET, 700, 500},        {END_TERMINAL, 0, 500},         {END_FILE, 0, 1000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bench *b;
        assert_int_equal(setup((void **)&b), 0);
        char script[200];
        (void)snprintf(script, sizeof(script),
                       "seq -f \"$R o %%g xxxxxxxxxxxxxxxxxxxx\" %d &"
                       "seq -f \"$R e %%g xxxxxxxxxxxxxxxxxxxx\" %d >&2; wait",
                       rows[i].lines, rows[i].lines);
        b->spec.label = true;
        b->end = rows[i].end;
        b->read_at_once = rows[i].read_at_once;
        b->n = 8;
        for (int r = 0; r < b->n; r++)
            b->scripts[r] = script;
        run(b);
        assert_numbered(b, b->n, rows[i].lines);
        assert_int_equal(teardown((void **)&b), 0);
    }
    (void)state;
}

/* Without a label: several ranks write pieces of lines to both streams, each with a write of its
 * own. */
static void output_keeps_lines_whole_by_default(void **state)
{
    static const enum console_end ends[] = {END_PIPE, END_SOCKET, END_FILE, END_TERMINAL,
                                            END_PIPE_NOT_TWICE};
    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct bench *b;
        assert_int_equal(setup((void **)&b), 0);
        b->end = ends[i];
        b->n = 4;
        for (int r = 0; r < b->n; r++)
            b->scripts[r] =
                "i=0; while [ $i -lt 200 ]; do i=$((i + 1));"
                "printf \"[10$R]: \"; printf \"[10$R]: $R \" >&2; printf \"$R \"; printf \"e $i \" >&2;"
                "printf \"o $i \"; echo xxxxxxxxxxxxxxxxxxxx; echo xxxxxxxxxxxxxxxxxxxx >&2; done";
        run(b);
        assert_numbered(b, b->n, 200);
        assert_int_equal(teardown((void **)&b), 0);
    }
}

static void output_was_written_before_the_exit(void **state)
{
    struct bench *b = *state;
    char path[100];
    (void)snprintf(path, sizeof(path), "%s/go", b->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    b->n = 2;
    b->writes_last = true;
    b->scripts[0] = "exit 0";
    b->scripts[1] = ": <\"$DIR/go\"; echo hello";
    run(b);
    assert_false(b->has_output_after_exit);
}

/* An incomplete last line gets a newline. */
static void output_ends_the_last_line_of_each_of_several(void **state)
{
    struct bench *b = *state;
    b->n = 2;
    b->scripts[0] = "printf 'a\nhalf'";
    b->scripts[1] = "printf 'b\n'";
    run(b);
    assert_true(strcmp(got(b), "a\nhalf\nb\n") == 0 || strcmp(got(b), "b\na\nhalf\n") == 0 ||
                strcmp(got(b), "a\nb\nhalf\n") == 0);
}

static void output_of_a_lone_worker_comes_as_it_was_written(void **state)
{
    struct bench *b = *state;
    b->n = 1;
    b->alone = true;
    b->scripts[0] = "printf a; printf b >&2; printf c; printf 'd\\n\\000e' >&2; printf f; exit 1";
    run(b);
    if (b->got.len != 8)
        fail_msg("'%s'", got(b));
    assert_memory_equal(got(b), "abcd\n\0ef", 8);
    assert_string_equal(b->tail[0], "abcd\n");
}

/* If stdout has a file of its own, the worker inherits it; stderr passes through the agent. */
static void output_of_a_lone_worker_is_its_own_where_nothing_else_goes(void **state)
{
    struct bench *b = *state;
    struct stat there, here;
    char path[100];
    b->n = 1;
    b->alone = true;
    (void)snprintf(path, sizeof(path), "%s/out", b->dir);
    b->scripts[0] = "stat -L -c %i /dev/stdout; echo trouble >&2; exit 1";
    console_begin(b);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    (void)dup2(fd, 1);
    (void)close(fd);
    struct dd_err err = {0};
    int rc = make_output(b, &err);
    if (rc == 0)
        rc = run_attempt(b, 0, &err);
    (void)fstat(1, &here);
    console_end(b);
    assert_int_equal(rc, 0);
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_ino, here.st_ino);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(100);
    assert_int_equal(dd_read_file(path, &text, NULL), 0);
    assert_int_equal(strtoul(dd_buf_str(&text), NULL, 10), there.st_ino);
    assert_string_equal(got(b), "trouble\n");
    assert_string_equal(b->tail[0], "trouble\n");
}

static void output_leaves_a_terminal_to_rank_0(void **state)
{
    struct bench *b = *state;
    b->end = END_TERMINAL;
    b->n = 2;
    b->first_rank = 0;
    b->scripts[0] = b->scripts[1] = "test -t 1 && test -t 2 && exec echo $R yes; echo $R no";
    run(b);
    assert_non_null(strstr(got(b), "0 yes"));
    assert_non_null(strstr(got(b), "1 no"));
    assert_string_equal(b->tail[0], "0 yes\n");
}

/* Output of another rank begins on a new line. */
static void output_does_not_append_to_what_rank_0_has_begun(void **state)
{
    struct bench *b = *state;
    b->end = END_TERMINAL;
    b->n = 2;
    b->first_rank = 0;
    /* rank 0 writes no more: its next bytes could overtake those in the pipe of rank 1 */
    b->scripts[0] =
        "mkfifo $DIR/go 2>/dev/null; printf '\\r 50%%'; echo >$DIR/go; read x <$DIR/back";
    b->scripts[1] =
        "mkfifo $DIR/go $DIR/back 2>/dev/null; read x <$DIR/go; echo other; echo >$DIR/back";
    run(b);
    /* the bytes of rank 1, in its pipe, can overtake those in the terminal of rank 0 */
    if (strcmp(got(b), "other\n\r 50%") != 0)
        assert_string_equal(got(b), "\r 50%\nother\n");
}

static void output_raw_is_inherited(void **state)
{
    struct bench *b = *state;
    b->spec.raw = true;
    b->spec.tee = "1:1"; /* otherwise there is no worker_output */
    b->spec.log_dir = b->dir;
    b->n = 2;
    b->scripts[0] = "echo unkept >&2; exit 1";
    b->scripts[1] = "true";
    run(b);
    assert_non_null(strstr(got(b), "unkept\n"));
    assert_string_equal(b->tail[0], "");
}

/* Filtered output is not written to the console, but kept for the tail. */
static void output_keeps_the_tail_of_a_rank_that_is_not_shown(void **state)
{
    struct bench *b = *state;
    b->spec.local_ranks_filter = "0";
    b->n = 2;
    b->scripts[0] = "true";
    b->scripts[1] = "echo silent; exit 1";
    run(b);
    assert_string_equal(got(b), "");
    assert_string_equal(b->tail[1], "silent\n");
}

/* If descriptors for pipes run out, further workers write to the console directly. */
static void output_does_without_pipes_when_descriptors_are_few(void **state)
{
    struct bench *b = *state;
    struct rlimit old;
    b->n = MAX;
    for (int r = 0; r < b->n; r++)
        b->scripts[r] = "echo $R";
    console_begin(b);
    int next = dup(0);
    (void)close(next);
    (void)getrlimit(RLIMIT_NOFILE, &old);
    (void)setrlimit(RLIMIT_NOFILE,
                    &(struct rlimit){.rlim_cur = (rlim_t)next + 75, .rlim_max = old.rlim_max});
    struct dd_err err = {0};
    int rc = make_output(b, &err);
    if (rc == 0)
        rc = run_attempt(b, 0, &err);
    (void)setrlimit(RLIMIT_NOFILE, &old);
    console_end(b);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    for (int r = 0; r < b->n; r++)
        assert_int_equal(b->codes[r], 0);
    assert_int_equal(b->got.len, 26); /* numbers 0 to 11, with newlines */
    assert_string_equal(b->tail[MAX - 1], "");
}

static void output_passes_long_lines_in_pieces(void **state)
{
    struct bench *b = *state;
    b->spec.label = true;
    b->n = 2;
    b->scripts[0] = "head -c 3000000 /dev/zero | tr '\\0' x";
    b->scripts[1] = "seq 100";
    run(b);
    size_t x = 0, newlines = 0;
    const char *text = got(b);
    for (size_t i = 0; i < b->got.len; i++) {
        x += text[i] == 'x';
        newlines += text[i] == '\n';
    }
    assert_int_equal(x, 3000000);
    assert_int_equal(newlines, 103);
    assert_non_null(strstr(text, "[101]: 100\n"));
}

static int nfiles;
static char listing[4000];

/* List files below the log directory as "NAME=content;", without the random part of names. */
static int list_file(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    const char *name = strstr(path, "/attempt_");
    if (flag != FTW_F || name == NULL)
        return 0;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(10000);
    assert_int_equal(dd_read_file(path, &text, NULL), 0);
    (void)snprintf(listing + strlen(listing), sizeof(listing) - strlen(listing), "%s=%s;", name + 1,
                   dd_buf_str(&text));
    nfiles++;
    return 0;
}

static const char *list_files(const char *dir)
{
    listing[0] = '\0';
    nfiles = 0;
    (void)nftw(dir, list_file, 10, FTW_PHYS);
    return listing;
}

static bool has_all(const char *text, const char *words)
{
    DD_AUTO(strv) struct dd_strv v = {0};
    assert_int_equal(dd_strv_split(&v, words, "+"), 0);
    for (size_t i = 0; i < v.n; i++)
        if (strstr(text, v.v[i]) == NULL)
            return false;
    return true;
}

/* Two ranks write "oR" to stdout and "eR" to stderr. console, files: the expected pieces, separated
 * by '+'; their total length is compared, too. */
static void output_goes_where_redirects_and_tee_say(void **state)
{
    (void)state;
    static const struct {
        const char *redirects, *tee, *filter;
        bool label, logs;
        const char *console, *files;
    } rows[] = {
        {"0", "0", "", false, true, "o0\n+e0\n+o1\n+e1\n", ""},
        {"3", "0", "", false, true, "",
         "0/stdout.log=o0\n;+0/stderr.log=e0\n;+1/stdout.log=o1\n;+"
         "1/stderr.log=e1\n;"},
        {"1", "0", "", false, true, "e0\n+e1\n", "0/stdout.log=o0\n;+1/stdout.log=o1\n;"},
        {"0:2", "0", "", false, true, "o0\n+o1\n+e1\n", "0/stderr.log=e0\n;"},
        {"0", "3", "", false, true,
         "[default0]:o0\n+[default0]:e0\n+[default1]:o1\n+[default1]:e1\n",
         "0/stdout.log=o0\n;+0/stderr.log=e0\n;+1/stdout.log=o1\n;+1/stderr.log=e1\n;"},
        {"0", "1:1", "", false, true, "o0\n+e0\n+[default1]:o1\n+e1\n", "1/stdout.log=o1\n;"},
        {"3", "0:1", "", false, true, "[default0]:o0\n",
         "0/stdout.log=o0\n;+0/stderr.log=e0\n;+1/stdout.log=o1\n;+1/stderr.log=e1\n;"},
        {"0", "3", "1", false, true, "[default1]:o1\n+[default1]:e1\n",
         "0/stdout.log=o0\n;+0/stderr.log=e0\n;+1/stdout.log=o1\n;+1/stderr.log=e1\n;"},
        {"0", "0", "1", false, true, "o1\n+e1\n", ""},
        {"0", "0", "0,1", true, true, "[100]: o0\n+[100]: e0\n+[101]: o1\n+[101]: e1\n", ""},
        {"2", "1", "0", true, true, "[100]: o0\n",
         "0/stdout.log=o0\n;+0/stderr.log=e0\n;+1/stdout.log=o1\n;+1/stderr.log=e1\n;"},
        {"0", "3", "", false, false,
         "[default0]:o0\n+[default0]:e0\n+[default1]:o1\n+[default1]:e1\n", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bench *b;
        char logs[100];
        assert_int_equal(setup((void **)&b), 0);
        (void)snprintf(logs, sizeof(logs), "%s/a/logs", b->dir);
        b->spec = (struct output_spec){.redirects = rows[i].redirects,
                                       .tee = rows[i].tee,
                                       .local_ranks_filter = rows[i].filter,
                                       .label = rows[i].label,
                                       .log_dir = rows[i].logs ? logs : NULL,
                                       .run_id = "job/7"};
        b->n = 2;
        b->scripts[0] = b->scripts[1] = "echo o$R; echo e$R >&2";
        run(b);
        const char *files = list_files(b->dir);
        size_t plus = 0, fplus = 0;
        for (const char *p = rows[i].console; *p != '\0'; p++)
            plus += *p == '+';
        for (const char *p = rows[i].files; *p != '\0'; p++)
            fplus += *p == '+';
        if (!has_all(got(b), rows[i].console) || b->got.len != strlen(rows[i].console) - plus)
            fail_msg("row %zu: the console has '%s'", i, got(b));
        if (!has_all(files, rows[i].files) ||
            nfiles != (rows[i].files[0] == '\0' ? 0 : (int)fplus + 1))
            fail_msg("row %zu: files are '%s'", i, files);
        assert_int_equal(teardown((void **)&b), 0);
    }
}

static void output_without_log_dir_redirects_below_tmp(void **state)
{
    struct bench *b = *state;
    b->spec.redirects = "3";
    b->spec.tmp_dir = b->dir;
    b->n = 1;
    b->scripts[0] = "echo out; echo err >&2";
    run(b);
    assert_string_equal(got(b), "");
    assert_true(
        has_all(list_files(b->dir), "attempt_0/0/stdout.log=out\n;+attempt_0/0/stderr.log=err"));
    assert_string_equal(b->tail[0], "err\n"); /* read from the file */
    const char *path = worker_output_error_file(b->out, 0);
    assert_true(strncmp(path, b->dir, strlen(b->dir)) == 0);
    assert_non_null(strstr(path, "/attempt_0/0/error.json"));
}

static void output_to_dev_null_makes_no_directories(void **state)
{
    struct bench *b = *state;
    b->spec = (struct output_spec){.redirects = "1", .log_dir = "/dev/null", .tmp_dir = b->dir};
    b->n = 1;
    b->scripts[0] = "echo out; echo err >&2";
    run(b);
    assert_string_equal(got(b), "err\n");
    assert_string_equal(list_files(b->dir), "");
    assert_string_equal(worker_output_error_file(b->out, 0), "");
}

static void output_of_each_attempt_has_its_own_directory(void **state)
{
    struct bench *b = *state;
    struct dd_err err = {0};
    b->spec = (struct output_spec){
        .tee = "3", .log_dir = b->dir, .run_id = "id", .role = "trainer"};
    b->n = 1;
    b->scripts[0] = "echo first; echo trouble >&2";
    console_begin(b);
    int rc = make_output(b, &err);
    if (rc == 0)
        rc = run_attempt(b, 0, &err);
    b->scripts[0] = "echo second";
    if (rc == 0)
        rc = run_attempt(b, 1, &err);
    console_end(b);
    assert_int_equal(rc, 0);
    assert_true(has_all(got(b), "[trainer0]:first\n+[trainer0]:trouble\n+[trainer0]:second\n"));
    assert_true(has_all(list_files(b->dir),
                        "attempt_0/0/stdout.log=first\n;+attempt_0/0/stderr.log=trouble\n;+"
                        "attempt_1/0/stdout.log=second\n;+attempt_1/0/stderr.log=;"));
    assert_string_equal(b->tail[0],
                        "second\n"); /* of the second attempt, which wrote nothing to stderr */
    assert_non_null(strstr(worker_output_error_file(b->out, 0), "/id_"));
    assert_non_null(strstr(worker_output_error_file(b->out, 0), "/attempt_1/0/error.json"));
    assert_string_equal(worker_output_error_file(b->out, 1), "");
    /* a round that is not a restart has the same number: the logs get the next one */
    assert_int_equal(worker_output_begin(b->out, 1, (int[]){0}, 1, false, NULL), 0);
    assert_non_null(strstr(worker_output_error_file(b->out, 0), "/attempt_2/0/error.json"));
    assert_string_equal(worker_output_tail(b->out, 7), "");
}

static void output_ends_workers_when_the_reader_leaves(void **state)
{
    struct bench *b = *state;
    b->spec.label = true;
    b->n = 1;
    b->reader_leaves = true;
    b->scripts[0] = "exec yes";
    run(b);
    assert_int_equal(b->codes[0], 128 + SIGPIPE);
}

static void output_keeps_files_when_the_reader_leaves(void **state)
{
    struct bench *b = *state;
    b->spec = (struct output_spec){.tee = "1", .log_dir = b->dir, .run_id = "id"};
    b->n = 1;
    b->reader_leaves = true;
    b->scripts[0] = "seq 20000; echo end";
    run(b);
    assert_int_equal(b->codes[0], 0);
    const char *path = worker_output_error_file(b->out, 0);
    char log[300];
    (void)snprintf(log, sizeof(log), "%.*sstdout.log", (int)(strlen(path) - strlen("error.json")),
                   path);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    assert_int_equal(dd_read_file(log, &text, NULL), 0);
    assert_non_null(strstr(dd_buf_str(&text), "\n20000\nend\n"));
}

static void output_does_not_wait_for_a_survivor(void **state)
{
    struct bench *b = *state;
    b->spec.label = true;
    b->n = 1;
    /* without a subreaper, init adopts the survivor */
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    b->scripts[0] =
        "mkfifo $DIR/up; (setsid sh -c 'echo $$ >$DIR/pid; echo >$DIR/up; exec sleep 1000' &);"
        "read x <$DIR/up; echo end";
    run(b);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    char path[100];
    (void)snprintf(path, sizeof(path), "%s/pid", b->dir);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(100);
    assert_int_equal(dd_read_file(path, &text, NULL), 0);
    assert_int_equal(kill((pid_t)strtol(dd_buf_str(&text), NULL, 10), SIGKILL), 0);
    assert_string_equal(got(b), "[100]: end\n");
}

static void stop_soon(struct bench *b)
{
    struct dd_err err = {0};
    int rc = make_output(b, &err);
    event_del(b->on_console); /* the console is no longer read */
    if (rc == 0)
        rc = run_attempt(b, 0, &err);
    assert_int_equal(rc, 0);
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct bench *b = arg;
    int waiting = 0;
    if (ioctl(b->console_fd, FIONREAD, &waiting) < 0 || waiting == 0)
        return; /* the worker has not begun */
    event_del(b->on_stop);
    worker_group_stop(b->g, SIGTERM, LIMIT_S * 1000);
}

/* A console that is not read blocks the worker, not the loop; a stop ends the output after 5 s. */
static void output_gives_up_on_a_stuck_console_after_a_stop(void **state)
{
    struct bench *b = *state;
    b->spec.label = true;
    b->n = 1;
    b->scripts[0] = "exec yes";
    b->hurries = true;
    b->on_stop = event_new(b->base, -1, EV_PERSIST, on_stop, b);
    event_add(b->on_stop, &(struct timeval){.tv_usec = 10000});
    console_begin(b);
    stop_soon(b);
    console_end(b);
    event_free(b->on_stop);
    assert_true(b->empty);
    assert_int_equal(b->codes[0], 128 + SIGTERM);
    assert_true(b->got.len > 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(output_names_the_option_that_is_wrong),
        CASE(output_says_which_directory_cannot_be_made),
        CASE(output_is_nothing_when_all_is_raw),
        CASE(output_labels_lines),
        cmocka_unit_test(output_keeps_lines_whole_from_many_ranks),
        cmocka_unit_test(output_keeps_lines_whole_by_default),
        CASE(output_was_written_before_the_exit),
        CASE(output_ends_the_last_line_of_each_of_several),
        CASE(output_of_a_lone_worker_comes_as_it_was_written),
        CASE(output_of_a_lone_worker_is_its_own_where_nothing_else_goes),
        CASE(output_leaves_a_terminal_to_rank_0),
        CASE(output_does_not_append_to_what_rank_0_has_begun),
        CASE(output_raw_is_inherited),
        CASE(output_keeps_the_tail_of_a_rank_that_is_not_shown),
        CASE(output_does_without_pipes_when_descriptors_are_few),
        CASE(output_passes_long_lines_in_pieces),
        cmocka_unit_test(output_goes_where_redirects_and_tee_say),
        CASE(output_without_log_dir_redirects_below_tmp),
        CASE(output_to_dev_null_makes_no_directories),
        CASE(output_of_each_attempt_has_its_own_directory),
        CASE(output_ends_workers_when_the_reader_leaves),
        CASE(output_keeps_files_when_the_reader_leaves),
        CASE(output_does_not_wait_for_a_survivor),
        CASE(output_gives_up_on_a_stuck_console_after_a_stop),
    };
    (void)signal(SIGPIPE, SIG_IGN); /* as the agent does */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
