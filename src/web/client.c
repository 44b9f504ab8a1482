#include "web/client.h"

#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { WAITING_MAX = 64, TRIES_MAX = 3 };

struct request {
    TAILQ_ENTRY(request) entry;
    char *text;
    web_done_f *done;
    void *arg;
    int tries; /* number of helpers that could not be started, or ended while serving this request
                */
    int rc;    /* why the request could not be sent: negative errno; 0: it has been sent */
};

struct web {
    struct web_cfg cfg;
    pid_t pid; /* 0: not running */
    int fd;
    struct event *readable;        /* event on fd; NULL: the helper is not running */
    struct event *later;           /* fails requests that could not be sent, from the loop */
    TAILQ_HEAD(, request) waiting; /* the first one has been sent if `sent` is set */
    int nwaiting;
    bool sent;
};

/* ---- the helper ---- */

/* Execute the helper, with signals ignored and without inherited descriptors other than stderr. */
__attribute__((noreturn)) static void web_exec_helper(const struct web_cfg *cfg, int fd,
                                                      pid_t parent)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    char name[] = "ddrun-web";
    char *const argv[] = {name, NULL};
    sigset_t none;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)sigaction(signals[i], &ignore, NULL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if ((fd == WEB_FD ? dd_fd_keep(fd) : dup2(fd, WEB_FD)) < 0)
        _exit(127);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
        _exit(127);
    (void)setsid();
    execve(cfg->helper, argv, cfg->env);
    _exit(127);
}

/* Stop and reap the helper. Return its wait status. */
static int end_helper(struct web *w)
{
    int status = 0;
    if (w->readable != NULL)
        event_free(DD_TAKE(w->readable));
    if (w->fd >= 0)
        close(DD_TAKE_FD(w->fd));
    if (w->pid > 0) { /* the helper has no state that needs to be saved */
        (void)kill(w->pid, SIGKILL);
        (void)waitpid(w->pid, &status, 0);
    }
    w->pid = 0;
    w->sent = false;
    return status;
}

static void web_on_readable(evutil_socket_t fd, short what, void *arg);

static int start_helper(struct web *w)
{
    int pair[2];
    const pid_t self = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    w->fd = pair[0];
    w->pid = fork();
    if (w->pid == 0)
        web_exec_helper(&w->cfg, pair[1], self);
    const int rc = w->pid < 0 ? -errno : -ENOMEM; /* result if the start fails */
    close(pair[1]);
    if (w->pid < 0)
        w->pid = 0;
    w->readable = w->pid > 0
                      ? event_new(w->cfg.base, w->fd, EV_READ | EV_PERSIST, web_on_readable, w)
                      : NULL;
    if (w->readable == NULL || event_add(w->readable, NULL) < 0) {
        (void)end_helper(w);
        return rc;
    }
    if (w->cfg.started != NULL)
        w->cfg.started(w->cfg.arg, w->pid);
    return 0;
}

/* ---- requests ---- */

static void request_free(struct request *r)
{
    free(r->text);
    free(r);
}

static struct request *take_first(struct web *w)
{
    struct request *r = TAILQ_FIRST(&w->waiting);
    if (r == NULL)
        return NULL;
    TAILQ_REMOVE(&w->waiting, r, entry);
    w->nwaiting--;
    w->sent = false;
    return r;
}

static void send_next(struct web *w);

static void complete(struct web *w, const struct web_answer *a)
{
    struct request *r = take_first(w);
    if (r == NULL)
        return;
    r->done(r->arg, a);
    request_free(r);
}

static void fail_first(struct web *w, const char *why)
{
    const struct web_answer none = {.set_up = true, .body = "", .error = why};
    complete(w, &none);
}

static void on_later(evutil_socket_t fd, short what, void *arg)
{
    struct web *w = arg;
    const struct request *r = TAILQ_FIRST(&w->waiting);
    char why[200];
    (void)fd;
    (void)what;
    (void)snprintf(why, sizeof(why),
                   "cannot start the helper ddrun-web, or send it the request: %s",
                   strerror(r != NULL ? -r->rc : 0));
    fail_first(w, why);
    send_next(w);
}

static void send_next(struct web *w)
{
    const struct timeval now = {0};
    struct request *r = TAILQ_FIRST(&w->waiting);
    if (r == NULL || w->sent ||
        evtimer_pending(w->later, NULL)) /* requests are answered in order */
        return;
    for (; r->tries < TRIES_MAX;
         r->tries++) { /* the helper may have been killed while it was idle */
        r->rc = w->fd >= 0 ? 0 : start_helper(w);
        if (r->rc == 0 && send(w->fd, r->text, strlen(r->text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            r->rc = -errno;
        if (r->rc == 0) {
            w->sent = true;
            return;
        }
        (void)end_helper(w);
    }
    evtimer_add(w->later, &now);
}

/* If the helper was killed, start another one for the same request. If it exited by itself, a new
 * one would exit, too. rc: why its answer cannot be read, negative errno; 0: it has closed its
 * socket. */
static void on_lost_helper(struct web *w, int rc)
{
    struct request *r = w->sent ? TAILQ_FIRST(&w->waiting) : NULL;
    const int status = end_helper(w);
    const bool killed = WIFSIGNALED(status);
    char why[120];
    if (rc < 0)
        (void)snprintf(why, sizeof(why), "cannot read the answer of the helper ddrun-web: %s",
                       strerror(-rc));
    else
        (void)snprintf(
            why, sizeof(why),
            "the helper ddrun-web ended without an answer (%s %d; ddrun-web --check tests "
            "it)",
            killed ? "signal" : "exit status", killed ? WTERMSIG(status) : WEXITSTATUS(status));
    if (r != NULL && (++r->tries >= TRIES_MAX || !killed))
        fail_first(w, why);
}

/* Read one answer. True: there may be more. */
static bool web_read_answer(struct web *w)
{
    DD_AUTO(free) char *packet = malloc(WEB_PACKET_MAX);
    DD_AUTO(web_answer) struct web_answer a = {0};
    ssize_t n = packet != NULL ? recv(w->fd, packet, WEB_PACKET_MAX, MSG_DONTWAIT) : -1;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    int rc = n < 0 && errno != ECONNRESET ? -errno : 0;
    if (n > 0)
        rc = w->sent ? web_answer_decode(&a, packet, (size_t)n) : -EPROTO;
    if (n <= 0 || rc < 0)
        on_lost_helper(w, rc);
    else
        complete(w, &a);
    send_next(w);
    return true;
}

static void web_on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)web_read_answer(arg);
}

int web_post(struct web *w, const struct web_request *r, web_done_f *done, void *arg)
{
    if (w->nwaiting >= WAITING_MAX)
        return -ENOBUFS;
    struct request *q = calloc(1, sizeof(*q));
    int rc = q != NULL ? web_request_encode(&q->text, r) : -ENOMEM;
    if (rc < 0) {
        free(q);
        return rc;
    }
    q->done = done;
    q->arg = arg;
    TAILQ_INSERT_TAIL(&w->waiting, q, entry);
    w->nwaiting++;
    send_next(w);
    return 0;
}

/* ---- life ---- */

int web_new(struct web **ret, const struct web_cfg *cfg, struct dd_err *err)
{
    struct web *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for web requests");
    w->cfg = *cfg;
    w->fd = -1;
    TAILQ_INIT(&w->waiting);
    w->later = evtimer_new(cfg->base, on_later, w);
    if (w->later == NULL) {
        free(w);
        return dd_err_set(err, -ENOMEM, "out of memory for web requests");
    }
    *ret = w;
    return 0;
}

bool web_finish(struct web *w, unsigned limit_ms)
{
    const uint64_t end = dd_now_ns() + limit_ms * DD_NS_PER_MS;
    for (uint64_t now = dd_now_ns(); w->sent && now < end; now = dd_now_ns()) {
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        if (poll(&p, 1, (int)((end - now) / DD_NS_PER_MS) + 1) > 0)
            (void)web_read_answer(w);
    }
    return TAILQ_EMPTY(&w->waiting);
}

pid_t web_pid(const struct web *w)
{
    return w->pid;
}

void web_free(struct web *w)
{
    struct request *r;
    if (w == NULL)
        return;
    (void)end_helper(w);
    while ((r = take_first(w)) != NULL)
        request_free(r);
    event_free(w->later);
    free(w);
}
