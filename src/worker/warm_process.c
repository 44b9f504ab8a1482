#include "worker/warm_process.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/child_watch.h"
#include "worker/spawn.h"
#include "worker/warm_archive.h"
#include "worker/warm_fork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ARCHIVE_FD = WORKER_FIRST_FD + 1,
    ARCHIVE_MAX = 1 << 20,
    PROBE_MS = 60000, /* Python may come from a slow file system */
    END_MS = 1000,
};

/* worker/warm_program.py */
static const unsigned char program[] = {
#include "src/worker/warm_program.py.inc"
};

static int make_archive(struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(ARCHIVE_MAX);
    int rc = warm_archive_make(&b, "sitecustomize.py", program, sizeof(program));
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : warm_memory_file(b.data, b.len, err);
}

static int set_python_path(struct dd_strv *env)
{
    DD_AUTO(free) char *value = NULL;
    const char *had = dd_env_get_nonempty(env->v, "PYTHONPATH");
    if (asprintf(&value, "/proc/self/fd/%d%s%s", ARCHIVE_FD, had != NULL ? ":" : "",
                 had != NULL ? had : "") < 0)
        return -ENOMEM;
    return dd_env_set(env, "PYTHONPATH", value);
}

static int send_config(int fd, const struct warm_config *c, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(WARM_REQUEST_MAX);
    int rc = warm_config_encode(&b, c);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot encode the request to the interpreter: %s",
                          strerror(-rc));
    DD_AUTO(fd) int file = warm_memory_file(b.data, b.len, err);
    if (file < 0)
        return file;
    rc = warm_send(fd, 'C', &file, 1);
    return rc < 0 ? dd_err_set(err, rc, "cannot write to the interpreter: %s", strerror(-rc)) : 0;
}

static int start_program(pid_t *ret, const struct spawn_request *r, struct dd_err *err)
{
    struct spawn_mask mask;
    spawn_begin(&mask);
    pid_t pid = spawn_child(r, err);
    spawn_end(&mask);
    if (pid < 0)
        return pid;
    *ret = pid;
    return 0;
}

/* theirs: the interpreter's end of the socket. */
static int start_with(struct warm_process *ret, struct worker_spec *spec, int theirs, bool quiet,
                      struct dd_err *err)
{
    DD_AUTO(free) char *path = NULL;
    DD_AUTO(fd) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    DD_AUTO(fd) int archive = make_archive(err);
    if (archive < 0)
        return archive;
    int rc = null < 0            ? -errno
             : spec->via != NULL ? 0
                                 : spawn_lookup(&path, spec->argv.v[0], spec->env.v);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot run '%s': %s", spec->argv.v[0], strerror(-rc));
    spec->nfds = 0;
    (void)worker_spec_fd(spec, theirs);
    (void)worker_spec_fd(spec, archive);
    struct worker_spec via = *spec;
    if (spec->via != NULL && worker_spec_via(&via, spec) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    struct spawn_parent parent;
    spawn_parent_read(&parent);
    const struct spawn_request r = {.parent = &parent,
                                    .spec = &via,
                                    .path = spec->via != NULL ? spec->via : path,
                                    .fds = {null, quiet ? null : -1, quiet ? null : -1},
                                    .report_fd = null};
    rc = start_program(&ret->pid, &r, err);
    if (spec->via != NULL)
        dd_strv_done(&via.argv);
    return rc;
}

int warm_process_start(struct warm_process *ret, const struct worker_spec *spec,
                       const struct warm_config *c, bool quiet, struct dd_err *err)
{
    int ends[2];
    struct worker_spec mine = *spec;
    DD_AUTO(strv) struct dd_strv env = {0};
    *ret = (struct warm_process){.fd = -1};
    if (dd_strv_copy(&env, spec->env.v) < 0 || set_python_path(&env) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return dd_err_set(err, -errno, "cannot create a socket pair: %m");
    DD_AUTO(fd) int ours = ends[0];
    DD_AUTO(fd) int theirs = ends[1];
    mine.env = env;
    (void)dd_fd_nonblock(ours);
    int rc = send_config(ours, c, err);
    if (rc == 0)
        rc = start_with(ret, &mine, theirs, quiet, err);
    env = mine.env;
    if (rc == 0)
        ret->fd = DD_TAKE_FD(ours);
    return rc;
}

void warm_process_end(struct warm_process *p)
{
    if (p->pid > 0) {
        (void)kill(p->pid, SIGKILL);
        child_reap_within(p->pid, END_MS);
    }
    if (p->fd >= 0)
        close(p->fd);
    *p = (struct warm_process){.fd = -1};
}

int warm_process_receive(const struct warm_process *p, struct warm_msg *ret)
{
    unsigned char data[WARM_MSG_MAX + 1];
    const ssize_t n = recv(p->fd, data, sizeof(data), MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    int rc = n == 0 ? -EPIPE : warm_msg_decode(ret, data, (size_t)n);
    return rc < 0 ? rc : 1;
}

/* ---- the probe ---- */

static int wait_for_answer(const struct warm_process *p, struct warm_msg *ret)
{
    const uint64_t end = dd_now_ns() + PROBE_MS * DD_NS_PER_MS;
    struct pollfd wait = {.fd = p->fd, .events = POLLIN};
    for (uint64_t now; (now = dd_now_ns()) < end;) {
        if (poll(&wait, 1, (int)((end - now) / DD_NS_PER_MS) + 1) <= 0)
            continue;
        int rc = warm_process_receive(p, ret);
        if (rc != 0)
            return rc;
    }
    return -ETIMEDOUT;
}

static int check_answer(const struct warm_msg *m, int rc, const char *python, struct dd_err *err)
{
    if (rc == -ETIMEDOUT)
        return dd_err_set(err, -EINVAL, "--warm: '%s' did not answer within %d s", python,
                          PROBE_MS / 1000);
    if (rc < 0 || (m->type != WARM_PROBED && m->type != WARM_FAILED))
        return dd_err_set(err, -EINVAL,
                          "--warm: '%s' is not a Python interpreter that reads PYTHONPATH and runs "
                          "the module sitecustomize from it",
                          python);
    if (m->type == WARM_FAILED)
        return dd_err_set(err, -EINVAL, "--warm: '%s' cannot fork workers: %s", python, m->text);
    if (m->a < 3 || (m->a == 3 && m->b < 8))
        return dd_err_set(err, -EINVAL, "--warm needs Python 3.8 or later: '%s' is Python %u.%u",
                          python, m->a, m->b);
    return 0;
}

int warm_process_probe(struct warm_msg *ret, const struct warm_command *command,
                       const struct worker_spec *spec, const struct dd_strv *modules,
                       struct dd_err *err)
{
    const struct warm_config c = {.mode = WARM_PROBE,
                                  .modules = modules,
                                  .kind = command->kind,
                                  .target = command->target,
                                  .agent = getpid()};
    struct worker_spec probe = *spec;
    struct warm_process p = {.fd = -1};
    DD_AUTO(strv) struct dd_strv argv = {0};
    /* the user's program must not run if the interpreter ignores PYTHONPATH */
    if (dd_strv_push(&argv, spec->argv.v[0]) < 0 || dd_strv_copy(&argv, command->options.v) < 0 ||
        dd_strv_push(&argv, "-c") < 0 || dd_strv_push(&argv, "pass") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    probe.argv = argv;
    int rc = warm_process_start(&p, &probe, &c, true, err);
    if (rc < 0)
        return rc;
    rc = wait_for_answer(&p, ret);
    warm_process_end(&p);
    return check_answer(ret, rc, spec->argv.v[0], err);
}
