/* ddrun on a node that the ddrun of another node has started with --launched=TICKET. */
#include "cmd/ddrun_launched.h"

#include "base/io.h"
#include "cmd/common.h"
#include "launch/launcher.h"
#include "worker/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FETCH_MS = 60000, HEX = 2 * NET_KEY_LEN };

/* Read the line with the key byte by byte: the bytes after it belong to another reader. */
static int launched_read_key(char out[HEX + 1], struct dd_err *err)
{
    size_t n = 0;
    ssize_t got = 0;
    char c = '\0';
    while (n < HEX && (got = read(STDIN_FILENO, &c, 1)) == 1 && c != '\n')
        out[n++] = c;
    out[n] = '\0';
    if (got < 0)
        return dd_err_set(err, -errno, "cannot read the job's key from standard input: %m");
    return n == HEX ? 0
                    : dd_err_set(err, -EPROTO,
                                 "standard input has only %zu of the %d characters of the job's "
                                 "key",
                                 n, HEX);
}

/* Move stdin to another descriptor, which the workers do not inherit, and return it: the starter
 * keeps its end open as long as the ddrun that launches this node runs. */
static int launched_keep_stdin(void)
{
    int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0)
        (void)dup2(null, STDIN_FILENO);
    if (null > STDERR_FILENO)
        close(null);
    return fd;
}

static int launched_adopt_payload(const struct bootstrap_payload *p, struct dd_err *err)
{
    static struct dd_strv env; /* becomes environ: valid until the process exits */
    if (bootstrap_payload_env(&env, p->env.v, environ) < 0 ||
        dd_env_set(&env, "PWD", p->directory) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    environ = env.v;
    (void)umask((mode_t)p->umask);
    (void)signal(SIGHUP, SIG_DFL); /* Src: OpenPBS starts tasks with SIGHUP ignored */
    for (uint32_t i = 0; i < p->limits_n; i++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)i, &limit) < 0)
            continue;
        limit.rlim_cur = p->limits[i] < limit.rlim_max ? p->limits[i] : limit.rlim_max;
        (void)setrlimit((__rlimit_resource_t)i, &limit);
    }
    if (chdir(p->directory) < 0)
        return dd_err_set(err, -errno, "cannot change to the starting node's directory '%s': %m",
                          p->directory);
    return 0;
}

struct launched {
    uint64_t begun_ns;
    launched_node_f *node;
    struct local_machine machine;
    struct dd_log log;
    struct launch_ticket ticket;
    struct net_key_input key_in; /* sources of the key, for the parent and for the nodes that this
                                    node starts */
    struct launch_ticket next;   /* ticket for the nodes that this node starts */
    struct dd_strv key_env;
    char key_line[HEX + 2], ddrun[PATH_MAX];
    struct net_key key;
    struct bootstrap_payload payload;
    struct launch_task task;
    struct parent_link *parent;
    int stdin_fd;
};

static int launched_key_from_stdin(struct launched *n, struct dd_err *err)
{
    char hex[HEX + 1] = "";
    int rc = launched_read_key(hex, err);
    if (rc == 0 && dd_env_set(&n->key_env, "DDRUN_KEY", hex) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    (void)snprintf(n->key_line, sizeof(n->key_line), "%s\n", hex);
    explicit_bzero(hex, sizeof(hex));
    return rc;
}

/* Use the key source that the ticket names: only a process of this user can have passed the ticket.
 */
static int launched_find_key(struct launched *n, struct dd_err *err)
{
    const struct launch_ticket *t = &n->ticket;
    const char *home = dd_env_get_nonempty(environ, "HOME");
    int rc = t->key == LAUNCH_KEY_STDIN ? launched_key_from_stdin(n, err) : 0;
    if (rc == 0 && t->key != LAUNCH_KEY_STDIN && home != NULL &&
        dd_env_set(&n->key_env, "HOME", home) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    const bool cookie = t->key == LAUNCH_KEY_COOKIE;
    n->key_in = (struct net_key_input){
        .env = n->key_env.v,
        .key_file = t->key == LAUNCH_KEY_FILE ? t->path : NULL,
        .munge_socket = t->key == LAUNCH_KEY_MUNGE ? t->path : NULL,
        .cookie = cookie ? dd_env_get_nonempty(environ, "PBS_JOBCOOKIE") : NULL,
        .use_cookie = cookie,
        .job_id = t->id};
    return rc;
}

/* Run the agent, in the child, after closing the descriptors of the parent. */
static int launched_run_agent_process(void *arg, int index)
{
    struct launched *n = arg;
    spawn_close_from(STDERR_FILENO + 1);
    const int code = n->node(&n->payload, &n->machine, index, n->begun_ns);
    net_key_cleanup(&n->key, &n->key_in); /* the parent may have been killed before it removed the
                                             key */
    return code;
}

/* Prepare to start the next nodes by the launcher that started this one. */
static int launched_prepare_starting(struct launched *n, struct launcher_cfg *cfg,
                                     struct dd_err *err)
{
    cfg->starter = starter_find(NULL, n->task.starter, "");
    const ssize_t len = readlink("/proc/self/exe", n->ddrun, sizeof(n->ddrun) - 1);
    if (len <= 0)
        return dd_err_set(err, -errno,
                          "cannot start further nodes: cannot read the link /proc/self/exe: %m");
    if (cfg->starter == NULL)
        return dd_err_set(err, -EPROTO,
                          "cannot start further nodes: the starting node sent an unknown launcher, "
                          "'%.60s'"
                          "\n  tip: install the same version of ddrun on all nodes",
                          n->task.starter);
    n->next.key = n->ticket.key;
    n->next.path = DD_TAKE(n->ticket.path);
    int rc = net_key_for_leader(&n->key, &n->key_in, err);
    return rc < 0 ? rc
                  : local_machine_addresses(&n->machine, &n->next.hosts, n->payload.alloc,
                                            n->ticket.index, err);
}

static int launched_run_started(struct launched *n, struct dd_err *err)
{
    struct launcher_cfg cfg = {.program = n->task.program != NULL ? n->task.program : "",
                               .words = n->task.words,
                               .ddrun = n->ddrun,
                               .payload = &n->payload,
                               .here = n->ticket.index,
                               .fanout = n->task.fanout,
                               .id = n->ticket.id,
                               .key = &n->key,
                               .key_in = &n->key_in,
                               .key_for_stdin = n->ticket.key == LAUNCH_KEY_STDIN ? n->key_line
                                                                                  : NULL,
                               .ticket = &n->next,
                               .grace_ms = n->task.grace_ms,
                               .node = launched_run_agent_process,
                               .arg = n,
                               .log = &n->log,
                               .parent = n->parent,
                               .task = &n->task,
                               .stdin_fd = n->stdin_fd};
    int rc = n->ticket.index < n->payload.alloc->nnodes
                 ? 0
                 : dd_err_set(err, -EPROTO, "node index %d is out of range: the job has %d node%s",
                              n->ticket.index, n->payload.alloc->nnodes,
                              n->payload.alloc->nnodes == 1 ? "" : "s");
    if (rc == 0)
        rc = launched_adopt_payload(&n->payload, err);
    if (rc == 0)
        rc = local_machine_discover(&n->machine, err);
    if (rc == 0 && n->task.n > 0)
        rc = launched_prepare_starting(n, &cfg, err);
    return rc < 0 ? rc : launcher_run(&cfg);
}

/* Report the error to the parent: over the link if the starter returns no output, otherwise on
 * stderr. Then report the exit code. */
static void launched_say_why(struct launched *n, const struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(2048);
    if (n->parent == NULL || !n->task.output)
        dd_log(&n->log, DD_LOG_ERR, "%s", err->text);
    else if (dd_buf_printf(&line, "%s: error: %s\n", n->log.who, err->text) == 0)
        parent_link_write(n->parent, 1, line.data, line.len);
    if (n->parent != NULL)
        parent_link_send(n->parent, LAUNCH_EXITED, n->ticket.index, EXIT_USAGE);
}

static void launched_done(struct launched *n)
{
    parent_link_free(n->parent);
    net_key_cleanup(&n->key, &n->key_in);
    launch_ticket_done(&n->ticket);
    bootstrap_payload_done(&n->payload);
    struct launch_msg m = {.task = n->task};
    launch_msg_done(&m);
    local_machine_done(&n->machine);
    dd_strv_done(&n->key_env);
    launch_ticket_done(&n->next);
    explicit_bzero(n->key_line, sizeof(n->key_line));
    explicit_bzero(&n->key, sizeof(n->key));
}

int launched_main(const char *ticket, launched_node_f *node)
{
    char name[64] = "";
    struct dd_err err = {0};
    struct launched n = {.begun_ns = dd_now_ns(),
                         .node = node,
                         .stdin_fd = -1,
                         .log = {.fd = STDERR_FILENO,
                                 .colours = dd_log_has_colours(STDERR_FILENO),
                                 .who = "ddrun",
                                 .waits_ms = CMD_LOG_WAIT_MS}};
    if (gethostname(name, sizeof(name) - 1) == 0)
        (void)snprintf(n.log.who, sizeof(n.log.who), "ddrun[%.60s]", name);
    int rc = launch_ticket_parse(&n.ticket, ticket, &err);
    if (rc == 0)
        rc = launched_find_key(&n, &err);
    if (rc == 0 && n.ticket.key == LAUNCH_KEY_STDIN)
        n.stdin_fd = launched_keep_stdin();
    const struct bootstrap_fetch_cfg fetch = {.ticket = &n.ticket,
                                              .key_in = &n.key_in,
                                              .log = &n.log,
                                              .limit_ms = FETCH_MS,
                                              .stdin_fd = n.stdin_fd};
    if (rc == 0)
        rc = bootstrap_fetch(&n.parent, &n.payload, &n.task, &fetch, &err);
    if (rc == 0)
        rc = launched_run_started(&n, &err);
    if (rc < 0)
        launched_say_why(&n, &err);
    launched_done(&n);
    return rc < 0 ? EXIT_USAGE : rc;
}
