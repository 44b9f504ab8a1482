#include "pmi/pmix.h"

#include "base/auto.h"
#include "base/io.h"
#include "pmi/hmsg.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { READY_MS = 10000, END_MS = 2000, SEND_S = 5 };

struct pmix {
    struct pmix_cfg cfg;
    pid_t pid; /* 0: none */
    int fd;
    struct event *ev;
    struct dd_buf in;
    struct dd_strv *env;   /* [local_size] variables for each worker */
    struct pmix_end *ends; /* [local_size] */
    bool failed;           /* the helper sent FAILED, with the reason in why */
    bool ready;
    char why[400];
    char name[32];   /* name of the round's directories */
    char *tmp, *shm; /* paths of the directories; NULL: not created */
};

DD_AUTO_DEFINE(pmix, struct pmix *, pmix_free);

/* ---- starting the helper ---- */

/* Execute the helper. It ignores signals and exits when the agent's end of the socket pair closes.
 */
__attribute__((noreturn)) static void pmix_exec_helper(const struct pmix_cfg *cfg, int fd,
                                                       char *const *env)
{
    char name[] = "ddrun-pmix";
    char *const argv[] = {name, NULL};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t none;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)sigaction(signals[i], &ignore, NULL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if ((fd == HMSG_FD ? dd_fd_keep(fd) : dup2(fd, HMSG_FD)) < 0)
        _exit(127);
    (void)setsid(); /* Ctrl-C must not reach the helper */
    execve(cfg->helper, argv, env);
    _exit(127);
}

static int helper_env(struct dd_strv *env, char *const *from)
{
    int rc = dd_strv_copy(env, from);
    /* the hash component uses sockets only, no files, and is equally fast (measured) */
    if (rc == 0 && dd_env_get(env->v, "PMIX_MCA_gds") == NULL)
        rc = dd_env_set(env, "PMIX_MCA_gds", "hash");
    return rc;
}

static int pmix_start(struct pmix *p, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv env = {0};
    struct timeval limit = {.tv_sec = SEND_S};
    int pair[2];
    if (helper_env(&env, p->cfg.env) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return dd_err_set(err, -errno, "PMIx: cannot create a socket pair: %m");
    p->fd = pair[0];
    (void)setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    p->pid = fork();
    if (p->pid == 0)
        pmix_exec_helper(&p->cfg, pair[1], env.v);
    int rc = p->pid < 0 ? -errno : 0;
    close(pair[1]);
    if (rc < 0)
        p->pid = 0;
    return rc < 0 ? dd_err_set(err, rc, "PMIx: cannot fork to start '%s': %s", p->cfg.helper,
                               strerror(-rc))
                  : 0;
}

/* ---- messages of the helper ---- */

static bool is_worker(const struct pmix *p, uint32_t id)
{
    return id < (uint32_t)p->cfg.local_size;
}

static int pmix_on_ready(struct pmix *p, const struct hmsg *m)
{
    size_t at = 0;
    for (int i = 0; i < p->cfg.local_size; i++) {
        const char *text;
        while ((text = hmsg_text(m, &at)) != NULL && *text != '\0')
            if (dd_strv_push(&p->env[i], text) < 0)
                return -ENOMEM;
        if (text == NULL)
            return -EPROTO;
    }
    p->ready = true;
    return 0;
}

static int on_gather(struct pmix *p, const struct hmsg *m)
{
    size_t at = 0;
    const char *name = hmsg_text(m, &at);
    if (name == NULL)
        return -EPROTO;
    p->cfg.on_gather(p->cfg.arg, m->id, name, m->data + at, m->len - at);
    return 0;
}

static int on_aborted(struct pmix *p, const struct hmsg *m)
{
    if (!is_worker(p, m->id))
        return -EPROTO;
    p->ends[m->id].aborted = true;
    p->ends[m->id].code = m->code;
    p->cfg.on_abort(p->cfg.arg, (int)m->id);
    return 0;
}

static int on_message(struct pmix *p, const struct hmsg *m)
{
    size_t at = 0;
    const char *text;
    switch (m->type) {
    case HMSG_READY:
        return p->ready ? -EPROTO : pmix_on_ready(p, m);
    case HMSG_FAILED:
        text = hmsg_text(m, &at);
        (void)snprintf(p->why, sizeof(p->why), "%s",
                       text != NULL ? text : "the helper failed without a reason");
        p->failed = true;
        return 0;
    case HMSG_GATHER:
        return on_gather(p, m);
    case HMSG_CONNECTED:
    case HMSG_FINALIZED:
        if (!is_worker(p, m->id))
            return -EPROTO;
        p->ends[m->id].open = m->type == HMSG_CONNECTED;
        return 0;
    case HMSG_ABORTED:
        return on_aborted(p, m);
    case HMSG_SETUP:
    case HMSG_GATHERED:
    case HMSG_END:
    case HMSG_TYPE_MAX:
    default:
        return -EPROTO;
    }
}

/* Read available data. 0, or < 0: the helper is lost. */
static int pmix_read_some(struct pmix *p)
{
    int rc = dd_buf_reserve(&p->in, 65536);
    if (rc < 0)
        return rc;
    ssize_t got = recv(p->fd, p->in.data + p->in.len, p->in.cap - p->in.len, MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 ? -errno : -ECONNRESET;
    p->in.len += (size_t)got;
    struct hmsg m;
    size_t at = 0;
    int n;
    while ((n = hmsg_decode(&m, p->in.data + at, p->in.len - at)) > 0 && rc == 0) {
        rc = on_message(p, &m);
        at += (size_t)n;
    }
    dd_buf_consume(&p->in, at);
    return n < 0 ? n : rc;
}

static int read_all(struct pmix *p)
{
    int rc;
    do
        rc = p->fd >= 0 ? pmix_read_some(p) : -EBADF;
    while (rc == 0 || rc == -EINTR);
    return rc == -EAGAIN ? 0 : rc;
}

static void pmix_on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct pmix *p = arg;
    if (read_all(p) == 0)
        return;
    event_del(p->ev);
    p->cfg.on_lost(p->cfg.arg);
}

/* ---- messages to the helper ---- */

static int send_message(struct pmix *p, const struct hmsg *m)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HMSG_MAX + HMSG_HEAD);
    int rc = hmsg_encode(&out, m);
    for (size_t at = 0; rc == 0 && at < out.len;) {
        ssize_t n = send(p->fd, out.data + at, out.len - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            rc = -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    return rc;
}

static int send_setup(struct pmix *p)
{
    const struct pmix_cfg *c = &p->cfg;
    char node_rank[16];
    char attempt[16];
    DD_AUTO(buf) struct dd_buf sizes = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf data = DD_BUF_INIT(HMSG_MAX);
    (void)snprintf(node_rank, sizeof(node_rank), "%d", c->node_rank);
    (void)snprintf(attempt, sizeof(attempt), "%d", c->attempt);
    int rc = plan_sizes_format(&sizes, c->sizes, c->nnodes);
    const char *const texts[HMSG_SETUP_MAX] = {
        [HMSG_NSPACE] = c->nspace, [HMSG_DIRECTORY] = p->tmp,         [HMSG_SHM] = p->shm,
        [HMSG_NODES] = c->nodes,   [HMSG_SIZES] = dd_buf_str(&sizes), [HMSG_NODE_RANK] = node_rank,
        [HMSG_ATTEMPT] = attempt,
    };
    for (int i = 0; i < HMSG_SETUP_MAX && rc == 0; i++)
        rc = hmsg_put_text(&data, texts[i] != NULL ? texts[i] : "");
    return rc < 0 ? rc
                  : send_message(
                        p, &(struct hmsg){.type = HMSG_SETUP, .data = data.data, .len = data.len});
}

/* Reap the helper, which has closed its socket. SIGKILL does not change the exit status of a helper
 * that is already exiting. */
static int pmix_explain_exit(struct pmix *p, struct dd_err *err)
{
    int status = 0;
    (void)kill(p->pid, SIGKILL);
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    p->pid = 0;
    if (WIFSIGNALED(status))
        return dd_err_set(err, -EIO, "PMIx: '%s' was killed by signal %d before it was ready",
                          p->cfg.helper, WTERMSIG(status));
    return dd_err_set(err, -EIO,
                      "PMIx: '%s' exited with status %d before it was ready"
                      "\n  tip: check its libraries with ldd",
                      p->cfg.helper, WEXITSTATUS(status));
}

static int pmix_wait_ready(struct pmix *p, struct dd_err *err)
{
    const uint64_t end = dd_now_ns() + READY_MS * DD_NS_PER_MS;
    int rc = 0;
    while (rc == 0 && !p->ready && !p->failed && dd_now_ns() < end) {
        struct pollfd f = {.fd = p->fd, .events = POLLIN};
        (void)poll(&f, 1, (int)((end - dd_now_ns()) / DD_NS_PER_MS) + 1);
        rc = read_all(p);
    }
    if (p->ready)
        return 0;
    if (p->failed)
        return dd_err_set(err, -EIO, "PMIx: %s", p->why);
    if (rc == -ECONNRESET)
        return pmix_explain_exit(p, err);
    return rc < 0 ? dd_err_set(err, -EIO, "PMIx: cannot read from '%s': %s", p->cfg.helper,
                               strerror(-rc))
                  : dd_err_set(err, -ETIMEDOUT, "PMIx: '%s' was not ready within %d s",
                               p->cfg.helper, READY_MS / 1000);
}

/* ---- directories ---- */

static int make_directory(const struct pmix *p, const struct dd_scratch *in, char **ret,
                          struct dd_err *err)
{
    int rc = dd_scratch_mkdir(in, p->name, err);
    if (rc < 0)
        return dd_err_where(err, rc, "PMIx");
    return asprintf(ret, "%s/%s", in->path, p->name) < 0 ? dd_err_set(err, -ENOMEM, "out of memory")
                                                         : 0;
}

static int make_directories(struct pmix *p, struct dd_err *err)
{
    (void)snprintf(p->name, sizeof(p->name), "pmix.%d", p->cfg.round);
    int rc = make_directory(p, p->cfg.tmp, &p->tmp, err);
    return rc == 0 && p->cfg.shm->path != NULL ? make_directory(p, p->cfg.shm, &p->shm, err) : rc;
}

static void remove_directories(struct pmix *p)
{
    if (p->tmp != NULL)
        (void)dd_scratch_clear(p->cfg.tmp, p->name);
    if (p->shm != NULL)
        (void)dd_scratch_clear(p->cfg.shm, p->name);
    free(p->tmp);
    free(p->shm);
}

const char *pmix_shm(const struct pmix *p)
{
    return p->shm;
}

/* ---- life ---- */

static int pmix_watch(struct pmix *p, struct dd_err *err)
{
    p->ev = event_new(p->cfg.base, p->fd, EV_READ | EV_PERSIST, pmix_on_readable, p);
    return p->ev == NULL || event_add(p->ev, NULL) < 0 ? dd_err_set(err, -ENOMEM, "out of memory")
                                                       : 0;
}

int pmix_new(struct pmix **ret, const struct pmix_cfg *cfg, struct dd_err *err)
{
    DD_AUTO(pmix) struct pmix *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    p->cfg = *cfg;
    p->fd = -1;
    p->in = DD_BUF_INIT(HMSG_MAX + HMSG_HEAD + 65536);
    p->env = calloc((size_t)cfg->local_size, sizeof(*p->env));
    p->ends = calloc((size_t)cfg->local_size, sizeof(*p->ends));
    int rc = p->env == NULL || p->ends == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    if (rc == 0)
        rc = make_directories(p, err);
    if (rc == 0)
        rc = pmix_start(p, err);
    if (rc == 0 && (rc = send_setup(p)) < 0 &&
        rc != -EPIPE) /* after EPIPE, pmix_wait_ready() reports the helper's reason */
        return dd_err_set(err, rc, "PMIx: cannot send the configuration to '%s': %s", cfg->helper,
                          strerror(-rc));
    if (rc == 0 || rc == -EPIPE)
        rc = pmix_wait_ready(p, err);
    if (rc == 0)
        rc = pmix_watch(p, err);
    if (rc == 0)
        *ret = DD_TAKE(p);
    return rc;
}

int pmix_env(const struct pmix *p, int local_rank, struct dd_strv *env)
{
    const struct dd_strv *more = &p->env[local_rank];
    int rc = 0;
    for (size_t i = 0; i < more->n && rc == 0; i++) {
        char *value = strchr(more->v[i], '=');
        if (value == NULL)
            continue;
        *value = '\0';
        rc = dd_env_set(env, more->v[i], value + 1);
        *value = '=';
    }
    return rc;
}

void pmix_gathered(struct pmix *p, uint32_t id, const void *parts, size_t len)
{
    const struct hmsg m = {.type = HMSG_GATHERED,
                           .id = id,
                           .code = parts != NULL ? 0 : -1,
                           .data = parts,
                           .len = parts != NULL ? len : 0};
    int rc = send_message(p, &m);
    /* on EPIPE, pmix_on_readable() reports that the helper has exited */
    if (rc < 0 && rc != -EPIPE)
        dd_log(p->cfg.log, DD_LOG_WARN,
               "PMIx: cannot send the data of other nodes to ddrun-pmix: %s", strerror(-rc));
}

struct pmix_end pmix_ended(struct pmix *p, int local_rank)
{
    (void)read_all(p);
    return p->ends[local_rank];
}

bool pmix_has_ranks(const struct pmix *p)
{
    bool has = false;
    for (int i = 0; i < p->cfg.local_size && !has; i++)
        has = p->ends[i].open;
    return has;
}

static void pmix_reap(pid_t pid)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    for (int i = 0; i < END_MS && waitpid(pid, NULL, WNOHANG) == 0; i++) {
        if (i == END_MS - 1)
            (void)kill(pid, SIGKILL);
        nanosleep(&ms, NULL);
    }
    (void)waitpid(pid, NULL, 0);
}

void pmix_free(struct pmix *p)
{
    if (p == NULL)
        return;
    if (p->ev != NULL)
        event_free(p->ev);
    if (p->pid > 0) /* without END, the helper assumes that the agent died, and removes directories
                       that the next round needs */
        (void)send_message(p, &(struct hmsg){.type = HMSG_END});
    if (p->fd >= 0)
        close(p->fd);
    if (p->pid > 0)
        pmix_reap(p->pid);
    remove_directories(p);
    for (int i = 0; p->env != NULL && i < p->cfg.local_size; i++)
        dd_strv_done(&p->env[i]);
    free(p->env);
    free(p->ends);
    dd_buf_done(&p->in);
    free(p);
}
