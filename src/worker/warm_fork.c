#include "worker/warm_fork.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/warm_msg.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FDS_MAX = 16 };

int warm_memory_file(const void *data, size_t len, struct dd_err *err)
{
    DD_AUTO(fd) int fd = memfd_create("ddrun-warm", MFD_CLOEXEC);
    int rc = fd < 0 ? -errno : dd_write_full(fd, data, len);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot make a file in memory: %s", strerror(-rc));
    return DD_TAKE_FD(fd);
}

int warm_send(int fd, char type, const int *fds, int nfds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = &type, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds > FDS_MAX)
        return -EINVAL;
    if (nfds > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
    }
    return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Wait for the socket. Return 0, or -ETIMEDOUT at the end of the batch's time. */
static int wait_for(const struct warm_batch *b, short events)
{
    struct pollfd p = {.fd = b->from->fd, .events = events};
    for (uint64_t now; (now = dd_now_ns()) < b->end_ns;)
        if (poll(&p, 1, (int)((b->end_ns - now) / DD_NS_PER_MS) + 1) > 0)
            return 0;
    return -ETIMEDOUT;
}

static int send_all(const struct warm_batch *b, char type, const int *fds, int nfds,
                    struct dd_err *err)
{
    int rc;
    while ((rc = warm_send(b->from->fd, type, fds, nfds)) == -EAGAIN || rc == -ETOOMANYREFS) {
        if (rc == -ETOOMANYREFS) /* too many descriptors are in flight */
            (void)nanosleep(&(struct timespec){.tv_nsec = (long)DD_NS_PER_MS}, NULL);
        if ((rc = wait_for(b, POLLOUT)) < 0)
            break;
    }
    return rc < 0
               ? dd_err_set(err, rc, "cannot send a request to the interpreter: %s", strerror(-rc))
               : 0;
}

static bool fits_not(char why[WARM_FORK_WHY], const char *text)
{
    (void)snprintf(why, WARM_FORK_WHY, "%s", text);
    return false;
}

bool warm_fork_fits(const struct warm_fork *w, const struct worker_spec *spec,
                    char why[WARM_FORK_WHY])
{
    if (spec->must_execute != NULL)
        return fits_not(why, spec->must_execute);
    const size_t same = w->command->arguments;
    for (size_t i = 0; i < same; i++)
        if (i >= spec->argv.n || strcmp(spec->argv.v[i], w->argv->v[i]) != 0)
            return fits_not(why, "its program differs from that of the other workers");
    if (spec->argv.n != w->argv->n)
        return fits_not(why, "its number of arguments differs from that of the other workers");
    DD_AUTO(free) char *name = warm_env_difference(w->env->v, spec->env.v);
    if (name != NULL)
        (void)snprintf(why, WARM_FORK_WHY,
                       "its variable %.60s differs from that of the interpreter", name);
    return name == NULL;
}

int warm_batch_begin(struct warm_batch *b, const struct warm_fork *from, int report_fd,
                     struct dd_err *err)
{
    *b = (struct warm_batch){
        .from = from, .gate = {-1, -1}, .end_ns = dd_now_ns() + from->limit_ms * DD_NS_PER_MS};
    if (pipe2(b->gate, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "cannot create a pipe: %m");
    return send_all(b, 'R', (const int[]){report_fd, b->gate[0]}, 2, err);
}

static bool is_unbuffered(const struct warm_fork *w, const struct worker_spec *spec)
{
    return w->command->unbuffered || dd_env_get_nonempty(spec->env.v, "PYTHONUNBUFFERED") != NULL;
}

int warm_batch_add(struct warm_batch *b, const struct spawn_request *r, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf request = DD_BUF_INIT(WARM_REQUEST_MAX);
    int fds[1 + 3 + WORKER_MAX_FDS];
    int rc = warm_request_encode(&request, r, is_unbuffered(b->from, r->spec),
                                 b->from->records && r->index == 0);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot pass arguments and environment of rank %d: %s",
                          r->spec->rank, strerror(-rc));
    DD_AUTO(fd) int file = warm_memory_file(request.data, request.len, err);
    if (file < 0)
        return file;
    int n = 0;
    fds[n++] = file;
    for (int i = 0; i < 3; i++)
        fds[n++] = r->fds[i] >= 0 ? r->fds[i] : i;
    for (int i = 0; i < r->spec->nfds; i++)
        fds[n++] = r->spec->fds[i];
    rc = send_all(b, 'W', fds, n, err);
    b->n += rc == 0;
    return rc;
}

/* status: of the process that forks the workers, from waitpid() */
static int fork_failed(int status, struct dd_err *err)
{
    return dd_err_set(err, -EIO, "fork failed: the process that forks the workers %s %d",
                      WIFSIGNALED(status) ? "was killed by signal" : "exited with code",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Take a message. Return 1 if it reports that the process that forked the workers has exited. */
static int take(const struct warm_batch *b, const struct warm_msg *m, pid_t *pids, int npids,
                struct dd_err *err)
{
    (void)b;
    if (m->type == WARM_BATCH)
        return m->a == 0 ? 1 : fork_failed((int)m->a, err);
    if (m->type != WARM_WORKER)
        return 0;
    if (m->a >= (uint32_t)npids || m->b < 2 || m->b > INT32_MAX || pids[m->a] != 0)
        return dd_err_set(err, -EPROTO,
                          "the interpreter sent an unexpected report of worker %u, process %u",
                          m->a, m->b);
    pids[m->a] = (pid_t)m->b;
    return 0;
}

/* Check that each worker is a child of this process, and none is named twice. */
static int check_children(const struct warm_batch *b, const pid_t *pids, int npids,
                          struct dd_err *err)
{
    int n = 0;
    for (int i = 0; i < npids; i++) {
        siginfo_t si;
        if (pids[i] == 0)
            continue;
        n++;
        if (waitid(P_PID, (id_t)pids[i], &si, WEXITED | WNOHANG | WNOWAIT) < 0)
            return dd_err_set(err, -errno, "process %d is not a child of ddrun: %m", (int)pids[i]);
        for (int k = 0; k < i; k++)
            if (pids[k] == pids[i])
                return dd_err_set(err, -EPROTO, "process %d was reported for two workers",
                                  (int)pids[i]);
    }
    return n == b->n ? 0
                     : dd_err_set(err, -EIO, "the interpreter forked %d worker%s instead of %d", n,
                                  n == 1 ? "" : "s", b->n);
}

/* True if all workers have reported their pids. A worker may do so after the process that forked it
 * has exited. */
static bool complete(const struct warm_batch *b, const pid_t *pids, int npids)
{
    int n = 0;
    for (int i = 0; i < npids; i++)
        n += pids[i] != 0;
    return n >= b->n;
}

static int timed_out(const struct warm_batch *b, bool all_forked, struct dd_err *err)
{
    if (all_forked)
        return dd_err_set(err, -ETIMEDOUT,
                          "timed out after %.3g s waiting for the process that forks the workers "
                          "to exit",
                          b->from->limit_ms / 1e3);
    return dd_err_set(err, -ETIMEDOUT, "timed out after %.3g s forking %d worker%s",
                      b->from->limit_ms / 1e3, b->n, b->n == 1 ? "" : "s");
}

int warm_batch_collect(struct warm_batch *b, pid_t *pids, int npids, struct dd_err *err)
{
    bool gone = false;
    int rc = send_all(b, 'E', NULL, 0, err);
    while (rc >= 0 && (!gone || !complete(b, pids, npids))) {
        struct warm_msg m;
        unsigned char data[WARM_MSG_MAX + 1];
        rc = wait_for(b, POLLIN);
        if (rc < 0)
            return timed_out(b, complete(b, pids, npids), err);
        const ssize_t n = recv(b->from->fd, data, sizeof(data), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return dd_err_set(err, -EPIPE,
                              n < 0 ? "cannot read from the interpreter: %m"
                                    : "the interpreter exited");
        if (warm_msg_decode(&m, data, (size_t)n) < 0)
            return dd_err_set(err, -EPROTO, "the interpreter sent a malformed message");
        rc = take(b, &m, pids, npids, err);
        gone |= rc == 1;
    }
    return rc < 0 ? rc : check_children(b, pids, npids, err);
}

int warm_batch_release(const struct warm_batch *b, struct dd_err *err)
{
    char go[256];
    memset(go, 'g', sizeof(go));
    int rc = 0;
    for (int left = b->n; left > 0 && rc == 0; left -= (int)sizeof(go))
        rc = dd_write_full(b->gate[1], go, left < (int)sizeof(go) ? (size_t)left : sizeof(go));
    return rc < 0 ? dd_err_set(err, rc, "cannot release the workers: %s", strerror(-rc)) : 0;
}

void warm_batch_done(struct warm_batch *b)
{
    for (int i = 0; i < 2; i++)
        if (b->gate[i] >= 0)
            close(DD_TAKE_FD(b->gate[i]));
}
