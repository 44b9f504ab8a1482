/* The processes that a starting process starts. */
#include "launch/launcher_inner.h"

#include "base/core.h"
#include "base/io.h"
#include "worker/console.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void in_child(const struct launcher *l)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    (void)setrlimit(RLIMIT_NOFILE, &l->files);
    dd_core_like(l->started_by);
}

/* An open end of a starter's stdin would keep its node alive. Not event_free(): the loop is shared.
 */
static void close_ours(const struct launcher *l)
{
    for (int i = 0; i < l->nnodes; i++)
        if (l->children[i].stdin_fd >= 0)
            close(l->children[i].stdin_fd);
    close(l->signal_fd);
    if (l->server != NULL)
        bootstrap_server_close_listener(l->server);
}

static void close_pair(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Into a pipe whole lines of up to PIPE_BUF can be written beside each other, and longer ones
 * cannot: where others' output goes to one from here, that of our agent comes here, too. Stays -1
 * where it does not. */
static int pipes_for_lines(const struct launcher *l, int pipes[LAUNCH_STREAMS][2])
{
    struct stat st;
    if (l->cfg->parent != NULL || l->nnodes == 1) /* one that was started has seen to it: relay.c */
        return 0;
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (fstat(k + 1, &st) == 0 && S_ISFIFO(st.st_mode) && (k == 0 || !console_same(1, 2)) &&
            pipe2(pipes[k], O_CLOEXEC) < 0)
            return -errno;
    return 0;
}

static void write_lines_to(int pipes[LAUNCH_STREAMS][2])
{
    const bool same = console_same(1, 2); /* and are to stay so: what comes first is told first */
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        if (pipes[k][1] >= 0)
            (void)dup2(pipes[k][1], k + 1);
    if (same)
        (void)dup2(1, 2);
    for (int k = 0; k < LAUNCH_STREAMS; k++)
        close_pair(pipes[k]);
}

/* Before any of the others, so that there is not much that it must not keep. */
int launcher_start_here(struct launcher *l, struct child *c)
{
    const pid_t self = getpid();
    int pipes[LAUNCH_STREAMS][2] = {{-1, -1}, {-1, -1}};
    int rc = pipes_for_lines(l, pipes);
    c->pid = rc < 0 ? -1 : fork();
    if (c->pid == 0) {
        in_child(l);
        if (l->cfg->parent != NULL)
            (void)setpgid(0, 0); /* Grid Engine kills the group of what it has started: the guardian
                                    is to see to the rest */
        close_ours(l);
        write_lines_to(pipes);
        _exit(getppid() != self ? 1 : l->cfg->node(l->cfg->arg, c->index));
    }
    if (c->pid < 0) {
        c->pid = 0;
        rc = rc < 0 ? rc : -errno;
    } else {
        c->state = CHILD_CONNECTED;
        l->left++;
    }
    for (int k = 0; k < LAUNCH_STREAMS; k++) {
        if (rc == 0 && pipes[k][0] >= 0) {
            rc = output_source_read(&c->streams[k], l->base, &l->out[k], pipes[k][0]);
            pipes[k][0] = -1;
        }
        close_pair(pipes[k]);
    }
    return rc;
}

/* The package brings them. A starter that hands its environment on may leave it where others read
 * it: Grid Engine writes it into its spool directory. */
static const char *const kept_back[] = {"DDRUN_KEY", "DDRUN_ETCD_PASSWORD", "DDRUN_NOTIFY",
                                        "DDRUN_NOTIFY_TOKEN"};

static _Noreturn void become_starter(const struct launcher *l, char *const *argv, const int fds[3],
                                     pid_t parent)
{
    in_child(l);
    (void)setpgid(0, 0); /* Ctrl-C is for the agents; the starters bring the last lines */
    if (l->cfg->starter->must_outlive) {
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

static int start_argv(struct launcher *l, struct child *c, char *const *argv)
{
    const struct launcher_cfg *cfg = l->cfg;
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    const pid_t self = getpid();
    int rc = make_pipes(pipes, cfg->starter->takes_stdin);
    c->pid = rc < 0 ? -1 : fork();
    if (c->pid == 0)
        become_starter(l, argv, (const int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, self);
    if (c->pid < 0) {
        c->pid = 0;
        rc = rc < 0 ? rc : -errno;
        close_pipes(pipes);
        return rc;
    }
    (void)setpgid(c->pid, c->pid); /* here too: it may be ended before it has come to that */
    l->left++;
    for (int i = 0; i < LAUNCH_STREAMS && rc == 0; i++) {
        rc = output_source_read(&c->streams[i], l->base, &l->out[i], pipes[i + 1][0]);
        pipes[i + 1][0] = -1;
    }
    c->stdin_fd = pipes[0][1];
    pipes[0][1] = -1;
    close_pipes(pipes);
    const char *key = cfg->key_for_stdin;
    if (c->stdin_fd >= 0 && key != NULL) /* one that is gone already is told of when it is reaped */
        (void)dd_write_full(c->stdin_fd, key, strlen(key));
    return rc;
}

static int start_there(struct launcher *l, struct child *c)
{
    const struct launcher_cfg *cfg = l->cfg;
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(free) char *ticket = bootstrap_server_argument(l->server, c->index, cfg->ticket);
    const char *command[] = {cfg->ddrun, ticket, NULL};
    const struct start s = {.program = cfg->program,
                            .words = cfg->words,
                            .host = launcher_name_of(l, c->index),
                            .nnodes = l->nnodes,
                            .command = command};
    c->parent = c->index;
    c->state = CHILD_STARTING;
    if (ticket == NULL || starter_command(&argv, cfg->starter, &s) < 0)
        return -ENOMEM;
    return start_argv(l, c, argv.v);
}

static int give_subtree(struct launcher *l, struct child *c, const int *nodes, int n)
{
    free(c->subtree);
    c->subtree = NULL;
    c->nsubtree = 0;
    if (n == 0)
        return 0;
    c->subtree = calloc((size_t)n, sizeof(*c->subtree));
    if (c->subtree == NULL)
        return -ENOMEM;
    memcpy(c->subtree, nodes, (size_t)n * sizeof(*nodes));
    c->nsubtree = n;
    for (int i = 0; i < n; i++) {
        l->children[nodes[i]].parent = c->index;
        l->children[nodes[i]].state = CHILD_STARTING;
    }
    return 0;
}

int launcher_start_nodes(struct launcher *l, const int *nodes, int n, struct dd_err *err)
{
    int at = 0;
    int size;
    int failed = 0;
    for (int k = 0; (size = launch_subtree(n, l->cfg->fanout, k, &at)) > 0; k++) {
        struct child *c = &l->children[nodes[at]];
        int rc = give_subtree(l, c, nodes + at + 1, size - 1);
        if (rc == 0)
            rc = start_there(l, c);
        if (rc < 0)
            failed = dd_err_set(err, rc, "cannot start ddrun on %s: %s",
                                launcher_name_of(l, c->index), strerror(-rc));
    }
    return failed;
}
