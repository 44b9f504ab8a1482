#include "launch/launch_procs.h"

#include "base/core.h"
#include "base/io.h"
#include "base/sig.h"
#include "launch/codes.h"
#include "launch/launch_msg.h"
#include "worker/console.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct launch_proc {
    pid_t pid;    /* the node's starter, or this node's agent; 0: not running */
    int code;     /* exit code of the last process */
    int stdin_fd; /* pipe to the stdin of the started node, which detects by EOF that this process
                     has exited; -1: none */
};

struct launch_procs {
    struct launch_procs_cfg cfg;
    struct launch_proc *procs; /* [nnodes] */
    int left;
    struct rlimit files; /* RLIMIT_NOFILE at the start */
    pid_t started_by;    /* parent of this process, whose core file settings the children get */
};

int launch_procs_new(struct launch_procs **ret, const struct launch_procs_cfg *cfg)
{
    struct launch_procs *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    *p = (struct launch_procs){.cfg = *cfg, .started_by = getppid()};
    p->procs = calloc((size_t)cfg->nnodes, sizeof(*p->procs));
    if (p->procs == NULL) {
        free(p);
        return -ENOMEM;
    }
    for (int i = 0; i < cfg->nnodes; i++)
        p->procs[i].stdin_fd = -1;
    (void)getrlimit(RLIMIT_NOFILE, &p->files);
    const struct rlimit all = {p->files.rlim_max, p->files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &all);
    *ret = p;
    return 0;
}

void launch_procs_close_stdin(struct launch_procs *p, int index)
{
    struct launch_proc *c = &p->procs[index];
    if (c->stdin_fd >= 0)
        close(c->stdin_fd);
    c->stdin_fd = -1;
}

void launch_procs_free(struct launch_procs *p)
{
    if (p == NULL)
        return;
    for (int i = 0; i < p->cfg.nnodes; i++)
        launch_procs_close_stdin(p, i);
    free(p->procs);
    free(p);
}

bool launch_procs_is_running(const struct launch_procs *p, int index)
{
    return p->procs[index].pid > 0;
}

bool launch_procs_has_agent(const struct launch_procs *p)
{
    return p->cfg.here >= 0 && launch_procs_is_running(p, p->cfg.here);
}

int launch_procs_left(const struct launch_procs *p)
{
    return p->left;
}

int launch_procs_code(const struct launch_procs *p, int index)
{
    return p->procs[index].code;
}

/* ---- signals ---- */

void launch_procs_kill(const struct launch_procs *p, int index, int sig)
{
    const pid_t pid = p->procs[index].pid;
    if (pid > 0)
        kill(index == p->cfg.here ? pid : -pid, sig);
}

void launch_procs_tell_agent(const struct launch_procs *p, int sig, int how)
{
    const union sigval v = {.sival_int = how};
    if (launch_procs_has_agent(p) && sigqueue(p->procs[p->cfg.here].pid, sig, v) < 0)
        kill(p->procs[p->cfg.here].pid, sig);
}

static void launch_procs_reap_one(struct launch_procs *p, int index)
{
    struct launch_proc *c = &p->procs[index];
    int status;
    siginfo_t si = {.si_pid = 0};
    if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT) < 0 ||
        si.si_pid != c->pid)
        return;
    p->cfg.on_exiting(p->cfg.arg, index);
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    c->code = launch_exit_code(status);
    c->pid = 0;
    p->left--;
    launch_procs_close_stdin(p, index);
    if (index == p->cfg.here)
        output_forward_push_pipes(p->cfg.output, index);
    else
        output_forward_end_pipes(p->cfg.output, index);
    p->cfg.on_exit(p->cfg.arg, index, c->code);
}

void launch_procs_reap(struct launch_procs *p)
{
    for (int i = 0; i < p->cfg.nnodes; i++)
        launch_procs_reap_one(p, i);
}

/* ---- starting ---- */

static void launch_procs_in_child(const struct launch_procs *p)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    launch_signals_restore_mask(p->cfg.signals);
    (void)setrlimit(RLIMIT_NOFILE, &p->files);
    const struct dd_core core = dd_core_of(p->started_by);
    dd_core_apply(&core);
}

static void close_pair(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Make a pipe for each stream of this node's agent whose target is a pipe, if output of other nodes
 * passes through this process: writes of up to PIPE_BUF are atomic in a pipe, longer lines would
 * mix. pipes[k] stays {-1, -1} otherwise. */
static int pipes_for_lines(const struct launch_procs *p, int pipes[LAUNCH_STREAMS][2])
{
    struct stat st;
    if (p->cfg.relay || p->cfg.nnodes == 1) /* a relay captures its own output already */
        return 0;
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (fstat(k + 1, &st) == 0 && S_ISFIFO(st.st_mode) && (k == 0 || !console_same(1, 2)) &&
            pipe2(pipes[k], O_CLOEXEC) < 0)
            return -errno;
    return 0;
}

static void write_lines_to(int pipes[LAUNCH_STREAMS][2])
{
    const bool same = console_same(1, 2); /* one pipe for stdout and stderr keeps the order of
                                             lines */
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (pipes[k][1] >= 0)
            (void)dup2(pipes[k][1], k + 1);
    if (same)
        (void)dup2(1, 2);
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        close_pair(pipes[k]);
}

static int read_pipes(struct launch_procs *p, int pipes[LAUNCH_STREAMS][2], int rc)
{
    for (int k = 0; k < LAUNCH_STREAMS; k++) {
        if (rc == 0 && pipes[k][0] >= 0) {
            rc = output_forward_read(p->cfg.output, p->cfg.here, k, pipes[k][0]);
            pipes[k][0] = -1;
        }
        close_pair(pipes[k]);
    }
    return rc;
}

int launch_procs_start_agent(struct launch_procs *p)
{
    struct launch_proc *c = &p->procs[p->cfg.here];
    const pid_t self = getpid();
    int pipes[LAUNCH_STREAMS][2] = {{-1, -1}, {-1, -1}};
    int rc = pipes_for_lines(p, pipes);
    c->pid = rc < 0 ? -1 : fork();
    if (c->pid == 0) {
        launch_procs_in_child(p);
        if (p->cfg.relay)
            (void)setpgid(0, 0); /* Grid Engine kills the process group of its tasks; the guardian
                                    must survive to clean up */
        launch_signals_close(p->cfg.signals); /* not event_free(): it would change the epoll set
                                                 that the parent shares */
        write_lines_to(pipes);
        _exit(getppid() != self ? 1 : p->cfg.agent(p->cfg.arg, p->cfg.here));
    }
    if (c->pid < 0) {
        c->pid = 0;
        rc = rc < 0 ? rc : -errno;
    } else {
        p->left++;
    }
    return read_pipes(p, pipes, rc);
}

/* The payload contains these variables. A starter that forwards its environment may expose them:
 * Grid Engine writes it to its spool directory. */
static const char *const kept_back[] = {"DDRUN_KEY", "DDRUN_ETCD_PASSWORD", "DDRUN_NOTIFY",
                                        "DDRUN_NOTIFY_TOKEN"};

static _Noreturn void become_starter(const struct launch_procs *p, char *const *argv,
                                     const int fds[3], pid_t parent)
{
    launch_procs_in_child(p);
    (void)setpgid(0, 0); /* the starters must survive Ctrl-C, to forward the last output */
    if (p->cfg.starter->must_outlive) {
        (void)signal(SIGTERM, SIG_IGN);
        (void)signal(SIGUSR1, SIG_IGN);
    }
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0 && dup2(fds[i], i) < 0)
            _exit(126);
    for (size_t i = 0; i < sizeof(kept_back) / sizeof(kept_back[0]); i++)
        (void)unsetenv(kept_back[i]);
    if (getppid() == parent)
        (void)execvp(argv[0], argv);
    _exit(127);
}

static int make_pipes(int pipes[3][2], bool takes_stdin)
{
    int rc = takes_stdin ? pipe2(pipes[0], O_CLOEXEC) : 0;
    if (!takes_stdin)
        pipes[0][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 1; i < 3 && rc == 0; i++)
        rc = pipe2(pipes[i], O_CLOEXEC);
    return rc < 0 || pipes[0][0] < 0 ? -errno : 0;
}

static void close_pipes(int pipes[3][2])
{
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++)
            if (pipes[i][k] >= 0)
                close(pipes[i][k]);
}

int launch_procs_start_starter(struct launch_procs *p, int index, char *const *argv)
{
    const struct launch_procs_cfg *cfg = &p->cfg;
    struct launch_proc *c = &p->procs[index];
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    const pid_t self = getpid();
    int rc = make_pipes(pipes, cfg->starter->takes_stdin);
    c->pid = rc < 0 ? -1 : fork();
    if (c->pid == 0)
        become_starter(p, argv, (const int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, self);
    if (c->pid < 0) {
        c->pid = 0;
        rc = rc < 0 ? rc : -errno;
        close_pipes(pipes);
        return rc;
    }
    (void)setpgid(c->pid, c->pid); /* also in the parent: the child may be signalled before it has
                                      set its group */
    p->left++;
    for (int i = 0; i < LAUNCH_STREAMS && rc == 0; i++) {
        rc = output_forward_read(cfg->output, index, i, pipes[i + 1][0]);
        pipes[i + 1][0] = -1;
    }
    c->stdin_fd = pipes[0][1];
    pipes[0][1] = -1;
    close_pipes(pipes);
    const char *key = cfg->key_for_stdin;
    /* an error means that the starter has exited, which launch_procs_reap() reports */
    if (c->stdin_fd >= 0 && key != NULL)
        (void)dd_write_full(c->stdin_fd, key, strlen(key));
    return rc;
}
