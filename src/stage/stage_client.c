#include "stage/stage_client.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/spawn.h"

#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { END_MS = 2000, SEND_S = 5 };

int stage_client_make_key(char ret[STAGE_KEY_TEXT], struct dd_err *err)
{
    unsigned char bytes[STAGE_KEY_TEXT / 2];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

union client_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(STAGE_CLIENT_FDS * sizeof(int))];
};

struct client_program {
    const char *helper, *mode;
    char *const *env;
};

static _Noreturn void client_exec(const struct client_program *p, int fd, pid_t agent)
{
    char name[] = "ddrun-stage";
    char mode[16];
    char *const argv[] = {name, mode, NULL};
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t none;
    (void)snprintf(mode, sizeof(mode), "%s", p->mode);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)sigaction(signals[i], &ignore, NULL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid(); /* Ctrl-C must not reach this process */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != agent ||
        (fd == STAGE_CLIENT_FD ? dd_fd_keep(fd) : dup2(fd, STAGE_CLIENT_FD)) < 0)
        _exit(127);
    spawn_close_from(STAGE_CLIENT_FD + 1);
    execve(p->helper, argv, p->env);
    _exit(127);
}

void stage_client_limit(int fd)
{
    const struct timeval limit = {.tv_sec = SEND_S};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

int stage_client_start(struct stage_client *c, const char *helper, const char *mode,
                       char *const *env, struct dd_err *err)
{
    const struct client_program program = {helper, mode, env};
    int pair[2];
    const pid_t agent = getpid();
    *c = (struct stage_client){.fd = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return dd_err_set(err, -errno, "cannot create a socket pair for '%s': %m", helper);
    const pid_t pid = fork();
    if (pid == 0)
        client_exec(&program, pair[1], agent);
    const int error = errno;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return dd_err_set(err, -error, "cannot create a process for '%s': %s", helper,
                          strerror(error));
    }
    c->pid = pid;
    c->fd = pair[0];
    stage_client_limit(c->fd);
    return 0;
}

int stage_client_send(int fd, enum stage_msg_type type, char *const *texts, const int *fds, int n)
{
    union client_control control = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(STAGE_MSG_MAX);
    const int rc = stage_msg_encode(&out, type, texts);
    struct iovec iov = {.iov_base = out.data, .iov_len = out.len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (rc < 0)
        return rc;
    if (n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
    }
    return sendmsg(fd, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

void stage_client_progress(int fd, const char *text)
{
    char copy[STAGE_PROGRESS_MAX];
    char *const texts[] = {copy, NULL};
    int unread;
    (void)snprintf(copy, sizeof(copy), "%s", text);
    if (ioctl(fd, SIOCOUTQ, &unread) == 0 && unread == 0)
        (void)stage_client_send(fd, STAGE_MSG_PROGRESS, texts, NULL, 0);
}

static int client_take_fds(struct msghdr *h, int fds[STAGE_CLIENT_FDS])
{
    int got = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            got = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(c), (size_t)got * sizeof(int));
        }
    return got;
}

int stage_client_receive(int fd, struct stage_msg *ret, int fds[STAGE_CLIENT_FDS])
{
    union client_control control;
    DD_AUTO(free) char *data = malloc(STAGE_MSG_MAX);
    struct iovec iov = {.iov_base = data, .iov_len = STAGE_MSG_MAX};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    *ret = (struct stage_msg){0};
    if (data == NULL)
        return -ENOMEM;
    const ssize_t n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return n == 0 ? -ECONNRESET : errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
    const int got = client_take_fds(&h, fds);
    const int rc = stage_msg_decode(ret, data, (size_t)n);
    for (int i = 0; i < got && rc < 0; i++)
        close(fds[i]);
    return rc < 0 ? rc : got;
}

int stage_client_take(int fd, struct stage_msg *ret)
{
    static char data[STAGE_MSG_MAX];
    *ret = (struct stage_msg){0};
    const ssize_t n = recv(fd, data, sizeof(data), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    return n <= 0 ? -ECONNRESET : stage_msg_decode(ret, data, (size_t)n);
}

void stage_client_close(struct stage_client *c)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    for (int i = 0; i < END_MS && c->pid > 0; i++)
        if (waitpid(c->pid, NULL, WNOHANG) != 0)
            c->pid = 0;
        else
            nanosleep(&ms, NULL);
    stage_client_end(c);
}

void stage_client_end(struct stage_client *c)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    if (c->pid <= 0)
        return;
    (void)kill(c->pid, SIGKILL);
    for (int i = 0; i < END_MS && waitpid(c->pid, NULL, WNOHANG) == 0; i++)
        nanosleep(&ms, NULL); /* a process that hangs in a file system is left to the guardian */
    c->pid = 0;
}
