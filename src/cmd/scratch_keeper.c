#include "cmd/scratch_keeper.h"

#include "worker/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 600, TRY_MS = 50, FIRST_FD = 3 };

/* Move descriptor `from` to number `to`. */
static int keep_at(int from, int to)
{
    return from == to ? to : dup2(from, to);
}

/* Close all descriptors but the pipe and the directories, or a reader of ddrun's output would wait
 * for this process. Move the descriptors to high numbers first, so that dup2() overwrites none. */
static int keep_only(int *pipe_fd, struct dd_scratch dirs[NODE_DIRS], int n)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int high = fcntl(*pipe_fd, F_DUPFD_CLOEXEC, FIRST_FD + NODE_DIRS + 1);
    if (null < 0 || high < 0)
        return -errno;
    for (int i = 0; i < n; i++)
        dirs[i].fd = fcntl(dirs[i].fd, F_DUPFD_CLOEXEC, FIRST_FD + NODE_DIRS + 1);
    for (int fd = 0; fd < FIRST_FD; fd++)
        (void)dup2(null, fd);
    *pipe_fd = keep_at(high, FIRST_FD);
    for (int i = 0; i < n; i++)
        dirs[i].fd = keep_at(dirs[i].fd, FIRST_FD + 1 + i);
    spawn_close_from(FIRST_FD + 1 + n);
    return *pipe_fd < 0 ? -errno : 0;
}

/* Retry: workers and helpers that are being killed may still create files. */
static void remove_all(const struct dd_scratch dirs[NODE_DIRS], int n)
{
    bool left = true;
    for (int i = 0; left && i < TRIES; i++) {
        left = false;
        for (int k = 0; k < n; k++)
            left = dd_scratch_remove(&dirs[k]) < 0 || left;
        if (left)
            nanosleep(&(struct timespec){.tv_nsec = TRY_MS * 1000000L}, NULL);
    }
}

__attribute__((noreturn)) static void keeper_run(int pipe_fd, struct dd_scratch dirs[NODE_DIRS],
                                                 int n)
{
    char done;
    ssize_t got;
    sigset_t all;
    (void)prctl(PR_SET_NAME, "ddrun-keeper");
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid(); /* Ctrl-C and signals to the process group must not reach the keeper */
    if (chdir("/") < 0 || keep_only(&pipe_fd, dirs, n) < 0)
        _exit(1);
    while ((got = read(pipe_fd, &done, 1)) < 0 && errno == EINTR)
        ;
    if (got == 0)
        remove_all(dirs, n);
    _exit(0);
}

void scratch_keeper_start(struct scratch_keeper *k, const struct node_dirs *dirs)
{
    struct dd_scratch exist[NODE_DIRS];
    int n = 0;
    int ends[2];
    *k = (struct scratch_keeper){.fd = -1};
    for (int i = 0; i < NODE_DIRS; i++)
        if (dirs->of[i].path != NULL)
            exist[n++] = dirs->of[i];
    if (n == 0 || pipe2(ends, O_CLOEXEC) < 0)
        return;
    k->pid = fork();
    if (k->pid == 0) {
        (void)close(ends[1]);
        keeper_run(ends[0], exist, n);
    }
    (void)close(ends[0]);
    if (k->pid > 0) {
        k->fd = ends[1];
        return;
    }
    (void)close(ends[1]);
    k->pid = 0;
}

void scratch_keeper_end(struct scratch_keeper *k)
{
    if (k->pid == 0)
        return;
    /* Write a byte: a process that hangs in a file system may hold the pipe open, and delay EOF.
     * EPIPE: the keeper was killed. Do not kill k->pid: the guardian may have reaped the keeper,
     * and the kernel may have reused its pid. */
    const ssize_t n = write(k->fd, "", 1);
    (void)n;
    (void)close(k->fd);
    (void)waitpid(k->pid, NULL, 0);
    *k = (struct scratch_keeper){.fd = -1};
}
