#include "worker/command.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/child_watch.h"
#include "worker/spawn.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    OUT_MAX = 65536,
    CHUNK = 4096,
    END_WAIT_MS = 1000,
    GIVE_UP_MS = 2000, /* after SIGKILL: the process may be stuck in the kernel, on a failed GPU or
                          file server */
};

struct command {
    pid_t pid; /* also the session ID; 0: reaped, or given up */
    struct child_watch end;
    int out_fd;
    struct event *on_out, *on_limit;
    struct dd_buf out;
    bool late;
    command_done_f *done;
    void *arg;
};

DD_AUTO_DEFINE(command, struct command *, command_free);

/* Read all available output. Output beyond the limit is discarded, so that the writer does not
 * block. Return false at the end. */
static bool read_out(struct command *c)
{
    char text[CHUNK];
    ssize_t n;
    while ((n = read(c->out_fd, text, sizeof(text))) > 0) {
        size_t room = c->out.max - 1 - c->out.len;
        (void)dd_buf_append(&c->out, text, (size_t)n < room ? (size_t)n : room);
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static void on_out(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct command *c = arg;
    if (!read_out(c))
        event_del(c->on_out);
}

/* The command has exited, or is given up. */
static void finish(struct command *c, int code)
{
    c->pid = 0;
    (void)read_out(c);
    child_watch_end(&c->end);
    event_del(c->on_out);
    event_del(c->on_limit);
    const char *text = dd_buf_str(&c->out);
    c->done(c->arg, code, text == NULL ? "" : text);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval more = {.tv_sec = GIVE_UP_MS / 1000};
    (void)fd;
    (void)what;
    struct command *c = arg;
    if (c->late) {
        finish(c, COMMAND_TOO_LATE); /* report it now: the caller must not wait forever */
        return;
    }
    c->late = true;
    (void)kill(-c->pid, SIGKILL); /* the exit will be reported as an event */
    event_add(c->on_limit, &more);
}

static void on_end(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct command *c = arg;
    int status = 0;
    if (waitpid(c->pid, &status, WNOHANG) != c->pid) {
        if (child_watch_is_exact(&c->end))
            event_del(c->end.ev); /* killed, but held by a debugger: keep the time limit */
        return;
    }
    (void)kill(-c->pid, SIGKILL); /* kill processes that the command has left behind */
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    finish(c, c->late ? COMMAND_TOO_LATE : code);
}

/* Move each descriptor down to its number. The order is ascending, so no later one is overwritten.
 */
static int child_keep(const struct command_spec *spec)
{
    for (size_t i = 0; i < spec->nkeep; i++) {
        const int to = COMMAND_FIRST_KEPT + (int)i;
        if (spec->keep[i] < to || (spec->keep[i] > to && dup2(spec->keep[i], to) < 0))
            return -1;
    }
    spawn_close_from(COMMAND_FIRST_KEPT + (unsigned)spec->nkeep);
    return 0;
}

static _Noreturn void child_run(const struct command_spec *spec, pid_t agent, int null, int out)
{
    (void)setsid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != agent || dup2(null, 0) < 0 ||
        dup2(out, 1) < 0 || dup2(out, 2) < 0 || child_keep(spec) < 0)
        _exit(127);
    _exit(spec->run(spec->run_arg));
}

static pid_t fork_child(const struct command_spec *spec, const char *path, int null, int out,
                        struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(strv) struct dd_strv env = {0};
    pid_t agent = getpid();
    if (spec->run != NULL) {
        pid_t pid = fork();
        if (pid == 0)
            child_run(spec, agent, null, out);
        return pid < 0 ? dd_err_set(err, -errno, "cannot start a helper process: %m") : pid;
    }
    int rc = dd_strv_copy(&env, spec->env);
    for (const char *const *arg = spec->argv; *arg != NULL && rc == 0; arg++)
        rc = dd_strv_push(&argv, *arg);
    if (rc < 0)
        return dd_err_set(err, rc, "out of memory");
    const struct worker_spec worker = {.rank = -1, .argv = argv, .env = env};
    struct spawn_parent parent;
    spawn_parent_read(&parent);
    return spawn_child(&(struct spawn_request){.parent = &parent,
                                               .spec = &worker,
                                               .path = path,
                                               .fds = {null, out, out},
                                               .report_fd = null},
                       err);
}

/* path: of the program; NULL: none, for spec->run */
static int start(struct command *c, const struct command_spec *spec, const char *path,
                 struct dd_err *err)
{
    struct spawn_mask mask;
    int fds[2];
    DD_AUTO(fd) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || pipe2(fds, O_CLOEXEC) < 0)
        return path == NULL ? dd_err_set(err, -errno, "cannot start a helper process: %m")
                            : dd_err_set(err, -errno, "cannot start '%s': %m", path);
    c->out_fd = fds[0];
    DD_AUTO(fd) int theirs = fds[1];
    (void)dd_fd_nonblock(c->out_fd);
    spawn_begin(&mask);
    pid_t pid = fork_child(spec, path, null, theirs, err);
    spawn_end(&mask);
    if (pid < 0)
        return pid;
    c->pid = pid;
    return 0;
}

static int find(char **ret, const struct command_spec *spec)
{
    DD_AUTO(free) char *path = NULL;
    int rc = spawn_lookup(ret, spec->argv[0], spec->env);
    if (rc != -ENOENT || spec->directory == NULL)
        return rc;
    if (asprintf(&path, "%s/%s", spec->directory, spec->argv[0]) < 0)
        return -ENOMEM;
    return spawn_lookup(ret, path, spec->env);
}

int command_start(struct command **ret, struct event_base *base, const struct command_spec *spec,
                  command_done_f *done, void *arg, struct dd_err *err)
{
    DD_AUTO(free) char *path = NULL;
    int rc = spec->run == NULL ? find(&path, spec) : 0;
    if (rc < 0)
        return dd_err_set(err, rc, "cannot run '%s': %s", spec->argv[0],
                          rc == -ENOENT ? "not found" : strerror(-rc));
    DD_AUTO(command) struct command *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *c = (struct command){.end = CHILD_WATCH_NONE,
                          .out_fd = -1,
                          .out = DD_BUF_INIT((spec->most_out > 0 ? spec->most_out : OUT_MAX) + 1),
                          .done = done,
                          .arg = arg};
    rc = start(c, spec, path, err);
    if (rc < 0)
        return rc;
    c->on_out = event_new(base, c->out_fd, EV_READ | EV_PERSIST, on_out, c);
    c->on_limit = evtimer_new(base, on_limit, c);
    const struct timeval limit = dd_timeval(spec->limit_ms * DD_NS_PER_MS);
    if (c->on_out == NULL || c->on_limit == NULL || event_add(c->on_out, NULL) < 0 ||
        event_add(c->on_limit, &limit) < 0 ||
        child_watch_begin(&c->end, base, c->pid, on_end, c) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *ret = DD_TAKE(c);
    return 0;
}

pid_t command_pid(const struct command *c)
{
    return c->pid;
}

void command_wait(struct command *c, unsigned limit_ms)
{
    int status;
    const uint64_t end = dd_now_ns() + limit_ms * DD_NS_PER_MS;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (c != NULL && c->pid > 0 && dd_now_ns() < end) {
        const pid_t got = waitpid(c->pid, &status, WNOHANG);
        if (got == c->pid || (got < 0 && errno != EINTR))
            c->pid = 0;
        else
            (void)nanosleep(&pause, NULL);
    }
}

const char *command_out(struct command *c)
{
    if (!read_out(c))
        event_del(c->on_out);
    const char *text = dd_buf_str(&c->out);
    return text == NULL ? "" : text;
}

void command_kill(struct command *c)
{
    if (c->pid > 0)
        (void)kill(-c->pid, SIGKILL);
}

/* Kill the command and wait at most END_WAIT_MS for its exit. */
static void end_now(const struct command *c)
{
    (void)kill(-c->pid, SIGKILL);
    (void)kill(c->pid, SIGKILL); /* in case the child has not created its session yet */
    child_reap_within(c->pid, END_WAIT_MS);
}

void command_free(struct command *c)
{
    if (c == NULL)
        return;
    if (c->pid > 0)
        end_now(c);
    child_watch_end(&c->end);
    struct event *events[] = {c->on_out, c->on_limit};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    if (c->out_fd >= 0)
        close(c->out_fd);
    dd_buf_done(&c->out);
    free(c);
}
