#include "base/io.h"
#include "doctor/pair.h"
#include "net/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNPROVEN_MAX = 16, PIECE = 256 << 10 };

/* A connection that has not sent the whole token. */
struct unproven_client {
    int fd;
    size_t got;
    char token[PAIR_TOKEN];
};

struct serving {
    int listen_fd;
    const char *token;
    struct unproven_client v[UNPROVEN_MAX]; /* the oldest one first */
    size_t n;
};

static bool pair_is_token(const char *a, const char *b)
{
    unsigned char differs = 0;
    for (size_t i = 0; i < PAIR_TOKEN; i++) /* in constant time */
        differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

static void pair_drop(struct serving *s, size_t i)
{
    close(s->v[i].fd);
    memmove(&s->v[i], &s->v[i + 1], (s->n - i - 1) * sizeof(s->v[0]));
    s->n--;
}

static void pair_accept(struct serving *s)
{
    const int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (s->n == UNPROVEN_MAX)
        pair_drop(s, 0);
    s->v[s->n++] = (struct unproven_client){.fd = fd};
}

/* Return the descriptor of a client that has sent the token, else -1. */
static int pair_read_token(struct serving *s, size_t i)
{
    struct unproven_client *c = &s->v[i];
    const ssize_t n = recv(c->fd, c->token + c->got, PAIR_TOKEN - c->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -1;
    if (n > 0 && (c->got += (size_t)n) < PAIR_TOKEN)
        return -1;
    const int fd = n > 0 && pair_is_token(c->token, s->token) ? dup(c->fd) : -1;
    pair_drop(s, i);
    return fd;
}

/* Wait for a client with the token. -1: none has come. */
static int pair_await(struct serving *s, uint64_t until_ns)
{
    for (uint64_t now; (now = dd_now_ns()) < until_ns;) {
        struct pollfd p[UNPROVEN_MAX + 1];
        for (size_t i = 0; i < s->n; i++)
            p[i] = (struct pollfd){.fd = s->v[i].fd, .events = POLLIN};
        p[s->n] = (struct pollfd){.fd = s->listen_fd, .events = POLLIN};
        if (poll(p, s->n + 1, (int)((until_ns - now) / DD_NS_PER_MS) + 1) <= 0)
            continue;
        const bool called = (p[s->n].revents & POLLIN) != 0;
        for (size_t i = s->n; i-- > 0;) {
            const int fd = p[i].revents != 0 ? pair_read_token(s, i) : -1;
            if (fd >= 0)
                return fd;
        }
        if (called)
            pair_accept(s);
    }
    return -1;
}

/* Echo bytes until the client asks for the stream; then receive and discard the stream. */
static void pair_serve_client(int fd, char *piece)
{
    const uint64_t until = dd_now_ns() + PAIR_MS_MAX * DD_NS_PER_MS;
    char byte = PAIR_ECHO;
    if (pair_set_up(fd) < 0)
        return;
    while (byte == PAIR_ECHO && dd_now_ns() < until)
        if (recv(fd, &byte, 1, 0) != 1 || (byte == PAIR_ECHO && send(fd, &byte, 1, 0) != 1))
            return;
    while (byte == PAIR_STREAM && dd_now_ns() < until && recv(fd, piece, PIECE, 0) > 0)
        ;
}

/* Run the server in the child process. */
__attribute__((noreturn)) static void pair_be_server(struct serving *s, pid_t parent,
                                                     unsigned limit_ms)
{
    char *piece = malloc(PIECE);
    sigset_t none;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || piece == NULL)
        _exit(1);
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, sig == SIGPIPE ? SIG_IGN : SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    const int fd = pair_await(s, dd_now_ns() + limit_ms * DD_NS_PER_MS);
    if (fd >= 0)
        pair_serve_client(fd, piece);
    _exit(0);
}

static int pair_fork(struct pair_server *ret, struct serving *s, unsigned limit_ms)
{
    int pipes[2];
    sigset_t all;
    sigset_t old;
    const pid_t parent = getpid();
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &old); /* until the child has reset its handlers */
    ret->pid = fork();
    if (ret->pid == 0)
        pair_be_server(s, parent, limit_ms);
    const int rc = ret->pid < 0 ? -errno : 0;
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    close(pipes[1]);
    if (rc < 0)
        close(pipes[0]);
    else
        ret->alive = pipes[0];
    return rc;
}

int pair_serve(struct pair_server *ret, unsigned limit_ms, struct dd_err *err)
{
    static const char digits[] = "0123456789abcdef";
    const uint16_t any = 0;
    unsigned char random[PAIR_TOKEN];
    *ret = (struct pair_server){.alive = -1};
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    for (size_t i = 0; i < PAIR_TOKEN; i++)
        ret->token[i] = digits[random[i] % 16];
    DD_AUTO(fd) int fd = net_listen(NULL, &any, 1, &ret->port, err);
    if (fd < 0)
        return fd;
    struct serving s = {.listen_fd = fd, .token = ret->token};
    int rc = pair_fork(ret, &s, limit_ms);
    if (rc < 0) {
        *ret = (struct pair_server){.alive = -1};
        return dd_err_set(err, rc, "cannot start a process for the measurement: %s", strerror(-rc));
    }
    return 0;
}

void pair_server_done(struct pair_server *s, unsigned wait_ms)
{
    struct pollfd p = {.fd = s->alive, .events = POLLIN};
    if (s->pid <= 0)
        return;
    (void)poll(&p, 1, (int)wait_ms);
    (void)kill(s->pid, SIGKILL);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(s->alive);
    *s = (struct pair_server){.alive = -1};
}

int pair_offer(const struct pair_server *s, const char *address, char *out, size_t size)
{
    const int n = s->pid > 0 ? snprintf(out, size, "%s/%u/%s", address, (unsigned)s->port, s->token)
                             : snprintf(out, size, "%s", address);
    return n >= 0 && (size_t)n < size ? 0 : -E2BIG;
}
