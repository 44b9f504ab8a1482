#include "agent/leader.h"

#include "agent/agent.h"
#include "base/io.h"
#include "base/process_name.h"
#include "base/screen.h"
#include "daemon/daemon.h"
#include "rdzv/successor.h"
#include "worker/child_watch.h"
#include "worker/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct leader {
    struct agent_loop *loop;
    struct uplink *uplink;
    const struct locators *locators;
    struct net_key key;
    bool has_key; /* `key` is set, and may lie in the home directory for other nodes */
    pid_t daemon; /* pid of ddrund; 0: not running */
    struct child_watch end;
};

/* Other nodes authenticate with the job's key. A job of one node uses a random one. */
static int leader_make_key(struct leader *l, struct dd_err *err)
{
    if (l->loop->cfg->alloc->nnodes > 1)
        return net_key_for_leader(&l->key, &l->locators->where.key_in, err);
    l->key.method = NET_KEY_SHARED;
    return net_key_random(l->key.bytes) < 0 ? dd_err_set(err, -EIO, "getrandom failed: %m") : 0;
}

static int check_host_list(const struct alloc *a, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf nodes = DD_BUF_INIT(MSG_MAX_BYTES / 2); /* the limit of a plan */
    int rc = hostlist_fold(a->nodes, &nodes);
    if (rc == -EMSGSIZE)
        return dd_err_set(
            err, rc,
            "the host list of the %zu nodes is longer than %d KiB, even folded as in node[1-50]"
            "\n  tip: use fewer nodes, or host names with a common prefix and a number",
            hostlist_count(a->nodes), MSG_MAX_BYTES / 2048);
    return rc < 0 ? dd_err_set(err, rc, "cannot fold the host list: %s", strerror(-rc)) : 0;
}

static struct rdzv_cfg rdzv_of(const struct leader *l)
{
    struct rdzv_cfg rdzv = l->loop->cfg->rdzv;
    rdzv.nodes = l->loop->cfg->alloc->nodes;
    rdzv.probes_first = l->loop->machine.epoch == 0 &&
                        (locate_peers_possible(l->loop->cfg) || l->loop->machine_cfg.etcd);
    if (l->loop->machine.epoch > 0)
        successor_cfg(&rdzv, l->loop->machine.epoch, l->loop->machine.index,
                      l->loop->cfg->grace_ms * DD_NS_PER_MS);
    return rdzv;
}

static struct job_stacks_cfg stacks_of(const struct stack_reader_cfg *s)
{
    return (struct job_stacks_cfg){
        .on_failure = s->mode == STACKS_AUTO || s->mode == STACKS_ON_FAILURE,
        .on_hang = s->mode != STACKS_OFF,
        .all = s->mode == STACKS_ON_FAILURE || s->mode == STACKS_ON_HANG,
        .limit_ns = s->timeout_ns * 17 / 20,
    };
}

/* Sockets of a new ddrund. */
struct daemon_ends {
    int listen_fd, leader_fd;
    uint16_t port;
};

/* Return the file of the timeline; each later daemon of the job has a file of its own. Called in
 * the child. */
static const char *timeline_of(const struct leader *l)
{
    char *later;
    const char *timeline = l->loop->cfg->timeline;
    const int64_t term = rdzv_term(l->loop->machine.epoch);
    if (timeline == NULL || term == 0 ||
        asprintf(&later, "%s.%lld", timeline, (long long)term + 1) < 0)
        return timeline;
    return later;
}

/* In the child: run ddrund, which borrows what it needs of the agent's memory. */
static int run_daemon(const struct leader *l, const struct daemon_ends *e, int screen_fd)
{
    const struct agent_cfg *a = l->loop->cfg;
    struct daemon_cfg cfg = {
        .job_id = a->alloc->job_id,
        .rdzv = rdzv_of(l),
        .heartbeat_ns = a->heartbeat_ns,
        .start_ns = a->start_ns,
        .listen_fd = e->listen_fd,
        .port = e->port,
        .leader_fd = e->leader_fd,
        .key = l->key,
        .key_in = {.env = environ,
                   .munge_socket = a->key_in.munge_socket,
                   .run = a->key_in.run,
                   .job_id = a->alloc->job_id,
                   .insecure = l->key.method == NET_KEY_NONE},
        .notify = a->notify,
        .web_helper = a->web_helper,
        .timeline = timeline_of(l),
        .stacks = stacks_of(&a->stacks),
        .profile = a->profile,
        .open_store = l->key.method == NET_KEY_NONE,
        .log = a->log,
    };
    return a->run_daemon(&cfg, screen_fd);
}

/* In the child: become ddrund, which gets SIGTERM when the agent dies. All signals are blocked
 * until ddrund handles them; it never runs the agent's event loop, whose descriptors are closed
 * here. */
__attribute__((noreturn)) static void become_daemon(const struct leader *l,
                                                    const struct daemon_ends *e, pid_t parent)
{
    const int screen = dd_screen_memory(l->loop->cfg->log->screen);
    const int keep[] = {e->listen_fd, e->leader_fd, screen};
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    spawn_drop_handlers();
    spawn_close_except(keep, sizeof(keep) / sizeof(keep[0]));
    dd_process_name("ddrund");
    _exit(run_daemon(l, e, screen));
}

/* Fork ddrund instead of executing it: loading the program again would double the start time. */
static pid_t fork_daemon(const struct leader *l, const struct daemon_ends *e)
{
    struct spawn_mask mask;
    const pid_t self = getpid();
    spawn_begin(&mask);
    const pid_t pid = fork();
    if (pid == 0)
        become_daemon(l, e, self);
    const int error = errno;
    spawn_end(&mask);
    errno = error;
    return pid;
}

static void on_daemon_end(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct leader *l = arg;
    if (waitpid(l->daemon, NULL, WNOHANG) != l->daemon)
        return;
    child_watch_end(&l->end);
    l->daemon = 0;
    agent_step(l->loop, (struct am_event){.kind = AM_DAEMON_ENDED});
}

static int watch_daemon(struct leader *l, struct dd_err *err)
{
    return child_watch_begin(&l->end, l->loop->base, l->daemon, on_daemon_end, l) < 0
               ? dd_err_set(err, -ENOMEM, "cannot watch ddrund: out of memory")
               : 0;
}

static void remove_key(struct leader *l)
{
    if (l->has_key && l->loop->cfg->alloc->nnodes > 1)
        net_key_cleanup(&l->key, &l->locators->where.key_in);
    l->has_key = false;
}

void leader_stop(struct leader *l)
{
    if (l->daemon > 0) {
        kill(l->daemon, SIGKILL);
        (void)waitpid(l->daemon, NULL, 0);
        l->daemon = 0;
    }
    remove_key(l);
    child_watch_end(&l->end);
}

static int host_start(struct leader *l, int *ret_fd, struct dd_err *err)
{
    uint16_t port;
    int pair[2];
    /* Bind the port before making the key, so that a failed bind leaves no key file behind. */
    DD_AUTO(fd) int listen_fd = locate_etcd_take_listener(l->locators->etcd, &port);
    if (listen_fd < 0)
        listen_fd = locate_bind(&l->locators->where, &port, err);
    if (listen_fd < 0)
        return listen_fd;
    int rc = leader_make_key(l, err);
    if (rc < 0)
        return rc;
    l->has_key = true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return dd_err_set(err, -errno, "cannot create a socket pair: %m");
    DD_AUTO(fd) int mine = pair[0];
    DD_AUTO(fd) int theirs = pair[1];
    rc = check_host_list(l->loop->cfg->alloc, err);
    if (rc < 0)
        return rc;
    const pid_t pid = fork_daemon(
        l, &(struct daemon_ends){.listen_fd = listen_fd, .leader_fd = theirs, .port = port});
    if (pid < 0)
        return dd_err_set(err, -errno, "cannot fork ddrund: %m");
    l->daemon = pid;
    if (l->key.method == NET_KEY_NONE)
        dd_log(l->loop->cfg->log, DD_LOG_WARN,
               "--insecure: anyone who can reach port %u of this machine can join the job and read "
               "its store",
               port);
    if (l->key.guessable)
        dd_log(l->loop->cfg->log, DD_LOG_WARN, "%s", NET_KEY_COOKIE_WARNING);
    if (l->loop->cfg->alloc->nnodes > 1)
        dd_log(l->loop->cfg->log, DD_LOG_INFO, "leading job '%s' on port %u; key source: %s",
               l->loop->cfg->alloc->job_id, port, l->key.source);
    rc = watch_daemon(l, err);
    if (rc < 0) { /* the exit of ddrund would go unnoticed */
        leader_stop(l);
        return rc;
    }
    *ret_fd = DD_TAKE_FD(mine);
    locate_etcd_hosting(l->locators->etcd, port);
    return 0;
}

int leader_start(struct leader *l, struct dd_err *err)
{
    const struct link_cb none = {0};
    struct link *link;
    int fd;
    const uint64_t begun = dd_now_ns();
    int rc = host_start(l, &fd, err);
    if (rc < 0)
        return rc;
    rc = link_new_trusted(&link, l->loop->base, fd, &none, err);
    if (rc < 0) {
        close(fd);
        leader_stop(l);
        return rc;
    }
    link_times(link)->begun = begun;
    uplink_join(l->uplink, link);
    return 0;
}

pid_t leader_daemon(const struct leader *l)
{
    return l->daemon;
}

void leader_signal(const struct leader *l, int sig)
{
    if (l->daemon > 0)
        (void)kill(l->daemon, sig); /* AM_DAEMON_ENDED follows */
}

int leader_new(struct leader **ret, struct agent_loop *loop, struct uplink *uplink,
               const struct locators *locators)
{
    struct leader *l = *ret = calloc(1, sizeof(*l));
    if (l == NULL)
        return -ENOMEM;
    *l = (struct leader){
        .loop = loop, .uplink = uplink, .locators = locators, .end = CHILD_WATCH_NONE};
    return 0;
}

void leader_free(struct leader *l)
{
    if (l != NULL)
        leader_stop(l);
    free(l);
}
