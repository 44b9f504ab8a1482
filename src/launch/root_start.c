/* The processes that a starting process starts. */
#include "launch/root_inner.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void in_child(const struct root *r)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
    (void)setrlimit(RLIMIT_NOFILE, &r->files);
}

/* An open end of a starter's stdin would keep its node alive. Not event_free(): the loop is shared. */
static void close_ours(const struct root *r)
{
    for (int i = 0; i < r->nnodes; i++)
        if (r->children[i].stdin_fd >= 0)
            close(r->children[i].stdin_fd);
    close(r->signal_fd);
    if (r->door != NULL)
        launch_door_leave(r->door);
}

/* Before any of the others, so that there is not much that it must not keep. */
int root_start_here(struct root *r, struct child *c)
{
    const pid_t self = getpid();
    c->pid = fork();
    if (c->pid < 0)
        return -errno;
    if (c->pid == 0) {
        in_child(r);
        close_ours(r);
        _exit(getppid() != self ? 1 : r->cfg->node(r->cfg->arg, c->index));
    }
    c->state = CHILD_CAME;
    r->left++;
    return 0;
}

static _Noreturn void become_starter(const struct root *r, char *const *argv, const int fds[3], pid_t parent)
{
    in_child(r);
    (void)setpgid(0, 0); /* Ctrl-C is for the agents; the starters bring the last lines */
    if (r->cfg->starter->must_outlive) {
        (void)signal(SIGTERM, SIG_IGN);
        (void)signal(SIGUSR1, SIG_IGN);
    }
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0 && dup2(fds[i], i) < 0)
            _exit(126);
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

static int start_argv(struct root *r, struct child *c, char *const *argv)
{
    const struct root_cfg *cfg = r->cfg;
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    const pid_t self = getpid();
    int rc = make_pipes(pipes, cfg->starter->takes_stdin);
    c->pid = rc < 0 ? -1 : fork();
    if (c->pid == 0)
        become_starter(r, argv, (const int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, self);
    if (c->pid < 0) {
        c->pid = 0;
        rc = rc < 0 ? rc : -errno;
        close_pipes(pipes);
        return rc;
    }
    r->left++;
    for (int i = 0; i < LAUNCH_STREAMS && rc == 0; i++) {
        rc = stream_read(&c->streams[i], r->base, &r->out[i], pipes[i + 1][0]);
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

static int start_there(struct root *r, struct child *c)
{
    const struct root_cfg *cfg = r->cfg;
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(free) char *ticket =
        launch_door_argument(r->door, c->index, cfg->starter->takes_stdin, cfg->addresses);
    char *command[] = {(char *)(uintptr_t)cfg->ddrun, ticket, NULL};
    const struct start s = {.program = cfg->program,
                            .words = cfg->words,
                            .host = root_name_of(r, c->index),
                            .nnodes = r->nnodes,
                            .command = command};
    c->lead = c->index;
    c->state = CHILD_STARTING;
    if (ticket == NULL || starter_command(&argv, cfg->starter, &s) < 0)
        return -ENOMEM;
    return start_argv(r, c, argv.v);
}

static int give_share(struct root *r, struct child *c, const int *nodes, int n)
{
    free(c->share);
    c->share = NULL;
    c->nshare = 0;
    if (n == 0)
        return 0;
    c->share = calloc((size_t)n, sizeof(*c->share));
    if (c->share == NULL)
        return -ENOMEM;
    memcpy(c->share, nodes, (size_t)n * sizeof(*nodes));
    c->nshare = n;
    for (int i = 0; i < n; i++) {
        r->children[nodes[i]].lead = c->index;
        r->children[nodes[i]].state = CHILD_STARTING;
    }
    return 0;
}

int root_start_nodes(struct root *r, const int *nodes, int n, struct dd_err *err)
{
    int at = 0;
    int size;
    int failed = 0;
    for (int k = 0; (size = launch_share(n, r->cfg->fanout, k, &at)) > 0; k++) {
        struct child *c = &r->children[nodes[at]];
        int rc = give_share(r, c, nodes + at + 1, size - 1);
        if (rc == 0)
            rc = start_there(r, c);
        if (rc < 0)
            failed = dd_err_set(err, rc, "cannot start ddrun on %s: %s", root_name_of(r, c->index), strerror(-rc));
    }
    return failed;
}
