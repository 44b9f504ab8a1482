#include "cmd/ddctl_submit_run.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { POLL_MS = 250 };

static void signals_of_user(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGHUP);
}

void submit_hold_signals(sigset_t *before)
{
    sigset_t set;
    signals_of_user(&set);
    (void)sigprocmask(SIG_BLOCK, &set, before);
}

/* Execute the command, in the child. */
static void run(const char *const *argv, int in, int out)
{
    const int null = in < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : in;
    sigset_t set;
    (void)setsid();
    (void)signal(SIGPIPE, SIG_DFL);
    signals_of_user(&set);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && dup2(null, STDIN_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0)
        (void)execv(argv[0], (char *const *)(const void *)argv);
    _exit(127);
}

/* Open a pseudoterminal in raw mode: ends[0] reads what is written to ends[1]. */
static int open_terminal(int ends[2])
{
    char path[64];
    struct termios mode;
    DD_AUTO(fd) int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
        return -errno;
    const int rc = ptsname_r(master, path, sizeof(path));
    if (rc != 0)
        return -rc;
    DD_AUTO(fd) int slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || tcgetattr(slave, &mode) < 0)
        return -errno;
    cfmakeraw(&mode);
    if (tcsetattr(slave, TCSANOW, &mode) < 0)
        return -errno;
    ends[0] = DD_TAKE_FD(master);
    ends[1] = DD_TAKE_FD(slave);
    return 0;
}

int submit_start(struct submit_process *ret, const char *const *argv, int in, bool terminal)
{
    int ends[2];
    const int opened = terminal ? open_terminal(ends) : pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
    if (opened < 0)
        return opened;
    const pid_t pid = fork();
    if (pid == 0)
        run(argv, in, ends[1]);
    const int rc = pid < 0 ? -errno : 0;
    close(ends[1]);
    if (rc < 0)
        close(ends[0]);
    *ret = (struct submit_process){.pid = pid, .out = rc < 0 ? -1 : ends[0]};
    return rc;
}

static int status_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int submit_wait(struct submit_process *p)
{
    int status = 0;
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(p->out);
    return status_of(status);
}

static ssize_t read_some(int fd, void *data, size_t n)
{
    ssize_t k;
    do
        k = read(fd, data, n);
    while (k < 0 && errno == EINTR);
    return k;
}

int submit_read_line(const struct submit_process *p, struct dd_buf *out)
{
    char c;
    ssize_t k;
    while ((k = read_some(p->out, &c, 1)) == 1 && c != '\n') {
        int rc = dd_buf_append(out, &c, 1);
        if (rc < 0)
            return rc;
    }
    return k < 0 ? -errno : out->len > 0 ? 0 : -ENODATA;
}

int submit_capture(const char *const *argv, int in, struct dd_buf *out)
{
    struct submit_process p;
    char data[4096];
    ssize_t n;
    int rc = submit_start(&p, argv, in, false);
    if (rc < 0)
        return rc;
    while ((n = read_some(p.out, data, sizeof(data))) > 0 && rc == 0)
        rc = dd_buf_append(out, data, (size_t)n);
    const int status = submit_wait(&p);
    return rc < 0 ? rc : status;
}

/* Copy the file from offset *at to stdout. Open it anew each time: only then do network file
 * systems check whether another node has written. False: stdout cannot be written. */
static bool copy_log(const char *log, off_t *at)
{
    char data[65536];
    ssize_t n = 0;
    DD_AUTO(fd) int fd = open(log, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    while (fd >= 0 && (n = pread(fd, data, sizeof(data), *at)) > 0) {
        if (dd_write_full(STDOUT_FILENO, data, (size_t)n) < 0)
            return false;
        *at += n;
    }
    return true;
}

static void leave(struct submit_process *p)
{
    (void)kill(p->pid, SIGKILL); /* the process only waits for the job, which continues */
    (void)submit_wait(p);
}

int submit_follow(struct submit_process *p, const char *log)
{
    static const struct timespec tick = {.tv_nsec = POLL_MS * 1000000L};
    sigset_t set;
    off_t at = 0;
    int status = 0, sig;
    bool ended = false;
    signals_of_user(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    while (!ended) {
        ended = waitpid(p->pid, &status, WNOHANG) == p->pid;
        sig = copy_log(log, &at) ? 0 : SIGPIPE;
        if (sig == 0 && !ended)
            sig = sigtimedwait(&set, NULL, &tick);
        if (sig > 0 && sig != SIGCHLD && !ended) {
            leave(p);
            return SUBMIT_LEFT;
        }
    }
    close(p->out);
    return status_of(status);
}
