#include "net/resolve.h"

#include "base/auto.h"
#include "base/io.h"
#include "net/resolve_child_inner.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { END_WAIT_MS = 200 };

struct net_resolve {
    pid_t pid; /* 0: no child */
    int fd;
    struct event *readable, *timer;
    struct net_addr addrs[NET_RESOLVE_MAX];
    size_t n;
    struct resolve_piece piece; /* received so far */
    size_t have;
    char why[220];
    struct net_resolve_cfg cfg; /* name is borrowed during the start only */
};

/* A child that hangs in the kernel (a dead file server) must not block this process: leave it as a
 * zombie. */
static void resolve_end_child(pid_t pid)
{
    int status;
    (void)kill(-pid, SIGKILL); /* including scontrol, which the child may run */
    (void)kill(pid, SIGKILL);
#ifdef SYS_pidfd_open
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (p.fd >= 0) {
        (void)poll(&p, 1, END_WAIT_MS);
        (void)close(p.fd);
        (void)waitpid(pid, &status, WNOHANG);
        return;
    }
#endif
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
}

static void stop(struct net_resolve *r)
{
    if (r->pid > 0)
        resolve_end_child(r->pid);
    r->pid = 0;
    if (r->readable != NULL)
        event_free(DD_TAKE(r->readable));
    if (r->timer != NULL)
        event_free(DD_TAKE(r->timer));
    if (r->fd >= 0)
        (void)close(DD_TAKE_FD(r->fd));
}

void net_resolve_free(struct net_resolve *r)
{
    if (r == NULL)
        return;
    stop(r);
    free(r);
}

static void resolve_add(struct net_resolve *r, const struct net_addr *a)
{
    for (size_t i = 0; i < r->n; i++)
        if (net_addr_same_host(&r->addrs[i], a))
            return;
    if (r->n < NET_RESOLVE_MAX)
        r->addrs[r->n++] = *a;
}

static void resolve_finish(struct net_resolve *r, const char *why)
{
    stop(r);
    r->cfg.done(r->cfg.arg, r->addrs, r->n,
                r->n > 0            ? ""
                : r->why[0] != '\0' ? r->why
                                    : why); /* may free r */
}

static void resolve_on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct net_resolve *r = arg;
    (void)what;
    ssize_t n = read(fd, (char *)&r->piece + r->have, sizeof(r->piece) - r->have);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        resolve_finish(r, "name resolution ended without an answer");
        return;
    }
    r->have += (size_t)n;
    if (r->have < sizeof(r->piece))
        return;
    r->have = 0;
    if (r->piece.addr.len > 0)
        resolve_add(r, &r->piece.addr);
    else
        (void)snprintf(r->why, sizeof(r->why), "%.*s", (int)sizeof(r->piece.why) - 1, r->piece.why);
}

static void resolve_on_timer(evutil_socket_t fd, short what, void *arg)
{
    const struct net_resolve *r = arg;
    (void)fd;
    (void)what;
    resolve_finish(arg, r->cfg.slurm == NET_RESOLVE_SLURM_NEVER
                            ? "the name service does not respond"
                            : "the name service or scontrol does not respond");
}

static void close_all_but(int keep)
{
    struct rlimit lim = {.rlim_cur = 1024};
#ifdef SYS_close_range
    if ((keep == 3 || syscall(SYS_close_range, 3, keep - 1, 0) == 0) &&
        syscall(SYS_close_range, keep + 1, ~0U, 0) == 0)
        return;
#endif
    (void)getrlimit(RLIMIT_NOFILE, &lim);
    for (int fd = 3; (rlim_t)fd < lim.rlim_cur && fd < 65536; fd++)
        if (fd != keep)
            (void)close(fd);
}

/* Detach the child from its parent: signals, event loop, descriptors. */
static void be_child(int fd, const char *name, enum net_resolve_slurm slurm)
{
    sigset_t none;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    close_all_but(fd);
    net_resolve_child(fd, name, slurm);
    _exit(0);
}

static int start_child(struct net_resolve *r, const char *name, enum net_resolve_slurm slurm)
{
    int pipes[2];
    sigset_t all;
    sigset_t old;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &old); /* until the child has reset its handlers */
    r->pid = fork();
    if (r->pid == 0)
        be_child(pipes[1], name, slurm);
    int rc = r->pid < 0 ? -errno : 0;
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    (void)close(pipes[1]);
    if (rc < 0) {
        r->pid = 0;
        (void)close(pipes[0]);
        return rc;
    }
    (void)setpgid(r->pid, r->pid); /* parent and child both set it: either may run first */
    r->fd = pipes[0];
    return dd_fd_nonblock(r->fd);
}

static int resolve_start(struct net_resolve *r, struct event_base *base)
{
    struct timeval limit = dd_timeval(r->cfg.timeout_ms * DD_NS_PER_MS);
    struct net_addr a;
    r->timer = evtimer_new(base, resolve_on_timer, r);
    if (r->timer == NULL)
        return -ENOMEM;
    if (net_addr_parse(&a, r->cfg.name, 0) ==
        0) { /* numeric: no child; the result still comes from the event loop */
        resolve_add(r, &a);
        limit = (struct timeval){0, 0};
    } else {
        int rc = start_child(r, r->cfg.name, r->cfg.slurm);
        if (rc < 0)
            return rc;
        r->readable = event_new(base, r->fd, EV_READ | EV_PERSIST, resolve_on_readable, r);
        if (r->readable == NULL || event_add(r->readable, NULL) < 0)
            return -ENOMEM;
    }
    return evtimer_add(r->timer, &limit) < 0 ? -ENOMEM : 0;
}

int net_resolve_start(struct net_resolve **ret, struct event_base *base,
                      const struct net_resolve_cfg *cfg, struct dd_err *err)
{
    const char *name = cfg->name;
    if (name == NULL || name[0] == '\0' || name[0] == '-' || strlen(name) > 255)
        return dd_err_set(err, -EINVAL, "'%.255s' is not a host name", name != NULL ? name : "");
    struct net_resolve *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory while resolving '%s'", name);
    r->fd = -1;
    r->cfg = *cfg;
    int rc = resolve_start(r, base);
    r->cfg.name = NULL;
    if (rc < 0) {
        net_resolve_free(r);
        errno = -rc;
        return dd_err_set(err, rc, "cannot resolve '%s': %m", name);
    }
    *ret = r;
    return 0;
}
