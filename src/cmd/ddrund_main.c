/* ddrund: the daemon of one job, forked by the leader's agent, or a standing store. */
#include "cmd/ddrund_main.h"

#include "base/core.h"
#include "base/io.h"
#include "base/screen.h"
#include "base/uid.h"
#include "cmd/common.h"
#include "cmd/ddrund_options.h"
#include "daemon/confine.h"
#include "daemon/daemon.h"
#include "daemon/store_memory.h"
#include "net/addr.h"
#include "net/listen.h"
#include "net/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct main_loop {
    struct event_base *base;
    struct daemon *daemon;
    struct event *signals[5];
    int code;
};

static void ddrund_on_over(void *arg, int code)
{
    struct main_loop *l = arg;
    (void)code; /* ddrun returns the code of the job; ddrund returns 0 if it has served the job */
    event_base_loopbreak(l->base);
}

static void ddrund_on_signal(evutil_socket_t sig, short what, void *arg)
{
    (void)what;
    struct main_loop *l = arg;
    if (l->daemon != NULL && sig != SIGUSR1 && sig != SIGUSR2)
        daemon_stop(l->daemon);
}

static int ddrund_watch_signals(struct main_loop *l)
{
    static const int sigs[] = {SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
        l->signals[i] = evsignal_new(l->base, sigs[i], ddrund_on_signal, l);
        if (l->signals[i] == NULL || event_add(l->signals[i], NULL) < 0)
            return -ENOMEM;
    }
    (void)signal(SIGHUP, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); /* the parent may have blocked signals */
    return 0;
}

static void ddrund_raise_nofile(void)
{
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
        return;
    rl.rlim_cur = rl.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &rl);
}

static int ddrund_serve(struct main_loop *l, struct daemon_cfg *cfg, struct dd_err *err)
{
    l->base = net_loop_new_of_many();
    if (l->base == NULL || ddrund_watch_signals(l) < 0)
        return dd_err_set(err, -ENOMEM,
                          "cannot create the event loop: out of memory or file descriptors");
    cfg->on_over = ddrund_on_over;
    cfg->arg = l;
    int rc = net_key_prepare(cfg->key.method, err);
    if (rc == 0)
        rc = daemon_new(&l->daemon, l->base, cfg, err);
    if (cfg->notify != NULL)
        confine_privileges(); /* no filter: the web hook's helper may be restarted, and would
                                 inherit it */
    else
        confine(cfg->log, net_key_waits(cfg->key.method));
    if (rc == 0)
        event_base_dispatch(l->base);
    daemon_free(l->daemon);
    for (size_t i = 0; i < sizeof(l->signals) / sizeof(l->signals[0]); i++)
        if (l->signals[i] != NULL)
            event_free(l->signals[i]);
    event_base_free(l->base);
    return rc;
}

static enum store_old_clients ddrund_old_clients(const char *name)
{
    return strcmp(name, "1.13") == 0  ? STORE_OLD_113
           : strcmp(name, "2.1") == 0 ? STORE_OLD_21
                                      : STORE_OLD_REFUSE;
}

static int ddrund_check_key(const struct ddrund_options *o, struct dd_err *err)
{
    struct net_key key;
    const struct net_key_input in = {.env = environ, .key_file = o->key_file, .job_id = ""};
    if (o->insecure)
        return 0;
    int rc = dd_uid_check(err);
    if (rc == 0)
        rc = net_key_for_agent(&key, &in, err);
    if (rc == 0 && key.method != NET_KEY_SHARED)
        rc = dd_err_set(
            err, -ENOKEY,
            "no key: anyone who can reach the port could use the store"
            "\n  tip: use --key-file=FILE, or --insecure to serve without authentication");
    return rc;
}

/* Parse "ADDR:PORT"; port 0 selects any free port. */
static int ddrund_split_listen(const char *text, char *host, size_t size, uint16_t *port,
                               struct dd_err *err)
{
    char copy[300];
    size_t len = strlen(text);
    bool any = len > 2 && len < sizeof(copy) && strcmp(text + len - 2, ":0") == 0;
    if (!any)
        return net_split_hostport(text, host, size, port, err);
    memcpy(copy, text, len - 2);
    copy[len - 2] = '\0';
    return net_split_hostport(copy, host, size, port, err);
}

static int ddrund_run_standing(const struct ddrund_options *o, const struct dd_log *log,
                               const struct store_limits *limits, struct dd_err *err)
{
    struct main_loop l = {0};
    char host[256];
    uint16_t port;
    struct net_addr addr;
    char text[NET_ADDR_TEXT + 8];
    int rc = ddrund_split_listen(o->listen, host, sizeof(host), &port, err);
    if (rc < 0)
        return dd_err_where(err, rc, "--listen");
    rc = ddrund_check_key(o, err);
    if (rc < 0)
        return rc;
    int fd = net_listen(host, &port, 1, &port, err);
    if (fd < 0)
        return fd;
    struct daemon_cfg cfg = {.listen_fd = fd,
                             .port = port,
                             .leader_fd = -1,
                             .limits = *limits,
                             .old = ddrund_old_clients(o->old_clients),
                             .open_store = o->insecure,
                             .log = log};
    if (net_addr_parse(&addr, host[0] != '\0' ? host : "::", port) < 0)
        (void)snprintf(text, sizeof(text), "%.40s:%u", host, port);
    else
        (void)net_addr_text(&addr, text);
    (void)printf("ddrund: listening on %s\n", text);
    (void)fflush(stdout);
    return ddrund_serve(&l, &cfg, err);
}

static struct dd_log ddrund_log(void)
{
    return (struct dd_log){.fd = STDERR_FILENO,
                           .colours = dd_log_has_colours(STDERR_FILENO),
                           .never_waits = true,
                           .who = "ddrund"};
}

static struct store_limits ddrund_limits(const struct ddrund_options *o)
{
    struct store_limits limits;
    store_limits_default(&limits);
    limits.max_bytes = o->max_memory;
    limits.max_value = o->max_value;
    return limits;
}

int ddrund_run_job(struct daemon_cfg *cfg, int screen_fd)
{
    char name[] = "ddrund";
    struct main_loop l = {0};
    struct ddrund_options o = {0};
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct dd_err err = {0};
    struct dd_log log = ddrund_log();
    int code = cmd_options(&ddrund_options, &o, 1, (char *[]){name, NULL}, &res);
    if (code >= 0)
        return code;
    log.level = cfg->log->level;
    log.trace = cfg->log->trace;
    log.screen = dd_screen_open(STDERR_FILENO, screen_fd);
    cfg->log = &log;
    cfg->limits = ddrund_limits(&o);
    cfg->share_memory = !opt_is_given(&res, &ddrund_options, "max-memory");
    ddrund_raise_nofile();
    int rc = ddrund_serve(&l, cfg, &err);
    if (rc < 0)
        dd_log(&log, DD_LOG_ERR, "%s", err.text);
    dd_screen_free(log.screen);
    return rc < 0 ? EXIT_USAGE : 0;
}

int ddrund_main(int argc, char **argv)
{
    struct ddrund_options o = {0};
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct dd_err err = {0};
    cmd_sanitize_process();
    dd_core_empty();
    int code = cmd_options(&ddrund_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    struct dd_log log = ddrund_log();
    log.level = cmd_log_level(o.log_level);
    cmd_warn_of_misspelt(&ddrund_options, &log);
    struct store_limits limits = ddrund_limits(&o);
    if (!opt_is_given(&res, &ddrund_options, "max-memory"))
        limits.max_bytes = store_memory_share(limits.max_bytes);
    ddrund_raise_nofile();
    int rc = 0;
    if (res.script < argc)
        rc = dd_err_set(&err, -EINVAL, "unexpected argument '%s': ddrund takes options only",
                        argv[res.script]);
    else if (o.listen != NULL)
        rc = ddrund_run_standing(&o, &log, &limits, &err);
    else
        rc = dd_err_set(&err, -EINVAL,
                        "--listen is missing"
                        "\n  tip: for example --listen=127.0.0.1:29500");
    if (rc < 0)
        dd_log(&log, DD_LOG_ERR, "%s", err.text);
    return rc < 0 ? EXIT_USAGE : 0;
}
