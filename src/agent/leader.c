/* The daemon of this node. The agent starts ddrund on a socket that already listens, so no port is
 * raced for, and is connected to it by a socket pair. */
#include "agent/inner.h"
#include "agent/metrics_file.h"

#include "base/io.h"
#include "daemon/config.h"
#include "rdzv/successor.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Other nodes prove the job's key. A single node uses a random one. */
static int leader_make_key(struct agent *a, struct dd_err *err)
{
    if (a->loop.cfg->alloc->nnodes > 1)
        return net_key_for_leader(&a->leader.key, &a->locators.where.key_in, err);
    a->leader.key.method = NET_KEY_SHARED;
    return net_key_random(a->leader.key.bytes) < 0
               ? dd_err_set(err, -EIO, "no random bytes from the kernel")
               : 0;
}

/* In the child: exec ddrund with three descriptors; it gets SIGTERM when the agent dies. ddrund
 * unblocks the signals that the agent has blocked once it handles them. */
__attribute__((noreturn)) static void exec_daemon(const char *path, const int keep[3], pid_t parent)
{
    char arg[32];
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    for (int i = 0; i < 3; i++)
        (void)dd_fd_keep(keep[i]);
    (void)snprintf(arg, sizeof(arg), "--job-fd=%d", keep[0]);
    execl(path, "ddrund", arg, (char *)NULL);
    _exit(127);
}

static int config_fd(const struct agent *a, int listen_fd, int leader_fd, uint16_t port,
                     struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf nodes = DD_BUF_INIT(MSG_MAX_BYTES / 2); /* the limit of a plan */
    int rc = hostlist_fold(a->loop.cfg->alloc->nodes, &nodes);
    if (rc == -EMSGSIZE)
        return dd_err_set(
            err, rc,
            "the host list of the %zu nodes is longer than %d KiB, even folded as in node[1-50]"
            "\n  tip: use fewer nodes, or host names with a common prefix and a number",
            hostlist_count(a->loop.cfg->alloc->nodes), MSG_MAX_BYTES / 2048);
    if (rc < 0 || dd_buf_str(&nodes) == NULL)
        return dd_err_set(err, rc < 0 ? rc : -ENOMEM, "cannot fold the host list");
    struct rdzv_cfg rdzv = a->loop.cfg->rdzv;
    rdzv.probes_first = a->loop.machine.epoch == 0 &&
                        (locate_peers_possible(a->loop.cfg) || a->loop.machine_cfg.etcd);
    if (a->loop.machine.epoch > 0)
        successor_cfg(&rdzv, a->loop.machine.epoch, a->loop.machine.index,
                      a->loop.cfg->grace_ms * DD_NS_PER_MS);
    DD_AUTO(free) char *later = NULL;
    const char *timeline = a->loop.cfg->timeline;
    const int64_t term = rdzv_term(a->loop.machine.epoch);
    if (timeline != NULL && term > 0 && /* keep the file of the daemon before */
        asprintf(&later, "%s.%lld", timeline, (long long)term + 1) < 0)
        later = NULL;
    const struct daemon_config c = {
        .job_id = a->loop.cfg->alloc->job_id,
        .nodes = (const char *)nodes.data,
        .rdzv = rdzv,
        .heartbeat_ns = a->loop.cfg->heartbeat_ns,
        .start_ns = a->loop.cfg->start_ns,
        .port = port,
        .listen_fd = listen_fd,
        .leader_fd = leader_fd,
        .log_level = (int)a->loop.cfg->log->level,
        .trace = (int)a->loop.cfg->log->trace,
        .key = a->leader.key,
        .munge_socket = a->loop.cfg->key_in.munge_socket,
        .run = a->loop.cfg->key_in.run,
        .notify = a->loop.cfg->notify,
        .web_helper = a->loop.cfg->notify != NULL ? a->loop.cfg->web_helper : NULL,
        .timeline = later != NULL ? later : timeline,
    };
    return daemon_config_write(&c, err);
}

static void on_daemon_end(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    int status = 0;
    if (waitpid(a->leader.daemon, &status, WNOHANG) != a->leader.daemon)
        return;
    child_watch_end(&a->leader.end);
    a->leader.daemon = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        dd_log(a->loop.cfg->log, DD_LOG_ERR, "cannot start '%s'", a->loop.cfg->ddrund);
    agent_step(&a->loop, (struct am_event){.kind = AM_DAEMON_ENDED});
}

static int watch_daemon(struct agent *a, struct dd_err *err)
{
    return child_watch_begin(&a->leader.end, a->loop.base, a->leader.daemon, on_daemon_end, a) < 0
               ? dd_err_set(err, -ENOMEM, "cannot watch ddrund")
               : 0;
}

static void remove_key(struct agent *a)
{
    if (a->leader.has_key && a->loop.cfg->alloc->nnodes > 1)
        net_key_cleanup(&a->leader.key, &a->locators.where.key_in);
    a->leader.has_key = false;
}

void leader_stop(struct agent *a)
{
    if (a->leader.daemon > 0) {
        kill(a->leader.daemon, SIGKILL);
        (void)waitpid(a->leader.daemon, NULL, 0);
        a->leader.daemon = 0;
    }
    remove_key(a);
    child_watch_end(&a->leader.end);
}

static int host_start(struct agent *a, int *ret_fd, struct dd_err *err)
{
    uint16_t port;
    int pair[2];
    DD_AUTO(fd) int listen_fd = locate_etcd_take_listener(a->locators.etcd, &port);
    if (listen_fd < 0)
        listen_fd = locate_bind(&a->locators.where, &port,
                                err); /* before the key: without a port no key is left behind */
    if (listen_fd < 0)
        return listen_fd;
    int rc = leader_make_key(a, err);
    if (rc < 0)
        return rc;
    a->leader.has_key = true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return dd_err_set(err, -errno, "cannot create a socket pair: %m");
    DD_AUTO(fd) int mine = pair[0];
    DD_AUTO(fd) int theirs = pair[1];
    DD_AUTO(fd) int conf = config_fd(a, listen_fd, theirs, port, err);
    if (conf < 0)
        return conf;
    const int keep[3] = {conf, listen_fd, theirs};
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return dd_err_set(err, -errno, "cannot fork: %m");
    if (pid == 0)
        exec_daemon(a->loop.cfg->ddrund, keep, self);
    a->leader.daemon = pid;
    if (a->leader.key.method == NET_KEY_NONE)
        dd_log(a->loop.cfg->log, DD_LOG_WARN,
               "--insecure: anyone who can reach port %u of this machine can join the job and read "
               "its store",
               port);
    if (a->leader.key.guessable)
        dd_log(a->loop.cfg->log, DD_LOG_WARN, "%s", NET_KEY_COOKIE_WARNING);
    if (a->loop.cfg->alloc->nnodes > 1)
        dd_log(a->loop.cfg->log, DD_LOG_INFO, "leading job '%s' on port %u; key source: %s",
               a->loop.cfg->alloc->job_id, port, a->leader.key.source);
    rc = watch_daemon(a, err);
    if (rc < 0) { /* its exit would go unnoticed */
        leader_stop(a);
        return rc;
    }
    *ret_fd = DD_TAKE_FD(mine);
    locate_etcd_hosting(a->locators.etcd, port);
    return 0;
}

int leader_start(struct agent *a, struct dd_err *err)
{
    const struct link_cb none = {0};
    struct link *l;
    int fd;
    const uint64_t begun = dd_now_ns();
    int rc = host_start(a, &fd, err);
    if (rc < 0)
        return rc;
    rc = link_new_trusted(&l, a->loop.base, fd, &none, err);
    if (rc < 0) {
        close(fd);
        leader_stop(a);
        return rc;
    }
    link_times(l)->begun = begun;
    uplink_join(a->uplink, l);
    metrics_file_start(a);
    rc = timeout_start(a, err);
    if (rc == 0)
        rc = endtime_start(a, err);
    if (rc < 0) {
        uplink_drop(
            a->uplink); /* AM_LOST of this link would be taken for the loss of a later daemon */
        leader_stop(a);
    }
    return rc;
}
