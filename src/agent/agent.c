#include "agent/agent.h"

#include "agent/discover.h"
#include "agent/error_files.h"
#include "agent/health_check.h"
#include "agent/held_ports.h"
#include "agent/inner.h"
#include "agent/success_criteria.h"
#include "base/io.h"
#include "net/addr.h"
#include "net/loop.h"
#include "rdzv/elect.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ATTEMPT_MS = 3000, DAEMON_END_S = 8 };

/* ---- leaving ---- */

static void on_daemon_too_slow(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    if (a->host.daemon > 0)
        kill(a->host.daemon, SIGKILL); /* its end is an event */
}

void agent_leave(struct agent *a, int code)
{
    struct timeval t = {.tv_sec = DAEMON_END_S};
    a->code = code;
    link_find_free(a->find);
    a->find = NULL;
    succession_end(a);
    search_end(a);
    link_free(a->link);
    a->link = NULL;
    if (a->host.daemon <= 0) {
        a->state = AGENT_LEAVING;
        if (!requeue_is_busy(a))
            event_base_loopbreak(a->base);
    } else if (a->state != AGENT_LEAVING) {
        a->state = AGENT_LEAVING; /* ddrund leaves when the other agents have */
        if (event_base_once(a->base, -1, EV_TIMEOUT, on_daemon_too_slow, a, &t) < 0)
            on_daemon_too_slow(-1, EV_TIMEOUT, a);
    }
}

/* ---- messages ---- */

void agent_tell(struct link *l, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    int rc = msg_encode(&text, m);
    if (rc == 0)
        rc = link_send(l, FRAME_CONTROL, text, strlen(text));
    if (rc < 0 && rc != -EPIPE) /* it would wait for it for ever */
        link_fail(l, msg_type_name(m->type), rc);
}

void agent_send(struct agent *a, const struct msg *m)
{
    if (a->link != NULL)
        agent_tell(a->link, m);
}

void agent_protect(struct agent *a, pid_t pid)
{
    if (a->round != NULL)
        round_protect(a->round, pid);
}

static int parse_endpoint(struct net_addr *ret, const char *text)
{
    char host[256];
    uint16_t port;
    int rc = net_split_hostport(text, host, sizeof(host), &port, NULL);
    return rc < 0 ? rc : net_addr_parse(ret, host, port);
}

/* The daemon asks whether a connection from this machine is ours. */
static void on_whois(struct agent *a, const struct msg_whois *m)
{
    struct net_addr local;
    struct net_addr remote;
    uid_t other;
    bool ok = parse_endpoint(&local, m->local) == 0 && parse_endpoint(&remote, m->remote) == 0 &&
              net_peer_own(a->peer, &local, &remote, &other) == 0;
    agent_send(a, MSG(WHOIS_REPLY, .id = m->id, .ok = ok));
}

/* The first line like any other of ours, the others below it. */
static void tell_user(const struct agent *a, const struct msg_finish *m)
{
    struct dd_err err = {0};
    const char *rest = strchrnul(m->text, '\n');
    struct dd_log patient = *a->cfg->log; /* nothing runs any more */
    patient.waits_ms = 0;
    if (m->text[0] != '\0')
        dd_log(&patient, DD_LOG_ERR, "%.*s", (int)(rest - m->text), m->text);
    if (rest[0] != '\0' && rest[1] != '\0')
        (void)dd_write_full(a->cfg->log->fd, rest + 1, strlen(rest + 1));
    if (a->cfg->report != NULL &&
        dd_write_file(a->cfg->report, m->detail, strlen(m->detail), &err) < 0)
        dd_log(a->cfg->log, DD_LOG_ERR, "--report=%s: %s", a->cfg->report, err.text);
}

void agent_end(struct agent *a, int code, int sig)
{
    a->code = code;
    if (!round_is_running(a->round)) {
        agent_leave(a, code);
        return;
    }
    a->state = AGENT_ALONE; /* never leave workers behind */
    round_stop(a->round, sig, a->cfg->grace_ms);
}

static void on_finish(struct agent *a, const struct msg_finish *m)
{
    if (m->report)
        tell_user(a, m);
    a->code = m->code;
    discover_over(a);
    requeue_start(a, m);
    agent_end(a, a->code, SIGTERM);
}

/* Another daemon goes on, or may. */
static void on_probe_request(struct agent *a, const struct msg_probe_request *m)
{
    struct dd_err err = {0};
    if (m->addr[0] != '\0') {
        link_free(DD_TAKE(a->link));
        int rc = a->cfg->etcd != NULL ? discover_begin(a, &err) : agent_seek(a, m->addr, &err);
        if (rc < 0) {
            dd_log(a->cfg->log, DD_LOG_ERR, "%s", err.text);
            agent_leave(a, 2);
        }
    } else if (a->search != NULL) {
        search_wanted(a);
    } else if (discover_check(a)) {
        return;
    } else if (a->succession == NULL && a->memory.last.n > 1) {
        succession_begin(a, false);
    }
}

static void on_message(struct agent *a, const struct msg *m)
{
    switch (m->type) {
    case MSG_STATUS:
        dd_log(a->cfg->log, DD_LOG_NOTICE, "%s", m->status.text);
        break;
    case MSG_REFUSE:
        if (succession_refused(a, m->refuse.text))
            break;
        dd_log(a->cfg->log, DD_LOG_ERR, "%s", m->refuse.text);
        agent_end(a, 2, SIGTERM);
        break;
    case MSG_WELCOME:
        break; /* matters only where another daemon is asked (succession.c) */
    case MSG_PLAN:
        succession_end(a);
        search_end(a);
        if (!round_is_running(a->round))
            rounds_start(a, &m->plan);
        discover_changed(a);
        break;
    case MSG_ROUND_STARTED:
        succession_end(a);
        search_end(a);
        discover_begun(a);
        break;
    case MSG_PROBE_REQUEST:
        on_probe_request(a, &m->probe_request);
        break;
    case MSG_STOP:
        evtimer_del(a->alone);
        if (m->stop.round == a->round->plan.round)
            round_stop(a->round, m->stop.signal > 0 ? m->stop.signal : SIGTERM, a->cfg->grace_ms);
        break;
    case MSG_FINISH:
        evtimer_del(a->alone);
        on_finish(a, &m->finish);
        break;
    case MSG_SIGNAL:
        if (m->signal.end_near)
            rounds_presignal(a, m->signal.signal);
        else
            signals_announce(a, m->signal.signal);
        break;
    case MSG_WHOIS:
        on_whois(a, &m->whois);
        break;
    case MSG_COMMIT:
        memory_committed(a, &m->commit);
        break;
    case MSG_ROUND_MEMBERS:
        memory_observe(a, &m->round_members);
        break;
    case MSG_CTL_REPLY:
        control_take(a, &m->ctl_reply);
        break;
    case MSG_IDENTITY:
    case MSG_CTL_REQUEST:
    case MSG_JOIN:
    case MSG_PROBE_RESULT:
    case MSG_STARTED:
    case MSG_SUCCESS_CRITERIA_MET:
    case MSG_EXIT:
    case MSG_DONE:
    case MSG_STOP_REQUEST:
    case MSG_SIGNAL_REQUEST:
    case MSG_WHOIS_REPLY:
    case MSG_TYPE_MAX:
    default:
        break; /* an agent's own messages: not for it */
    }
}

/* The daemon would wait for what this node does not know it is to do: it gets the reason, and this
 * node leaves when that has been read, and its workers are gone. */
static void not_understood(struct agent *a, const char *what)
{
    char why[LINK_WHY_MAX];
    (void)snprintf(why, sizeof(why), "a message of the daemon cannot be read by %.90s: %.260s",
                   a->cfg->node_name, what);
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", why);
    if (link_send(a->link, FRAME_BYE, why, strlen(why)) < 0) {
        agent_end(a, 2, SIGTERM);
        return;
    }
    a->parted = true;
    a->code = 2;
    a->state = AGENT_ALONE;
    round_stop(a->round, SIGTERM, a->cfg->grace_ms);
}

void agent_take_frame(struct agent *a, const struct frame *f)
{
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    if (a->parted)
        return;
    if (f->type == FRAME_EXCHANGE)
        rounds_take_piece(a, f);
    if (f->type != FRAME_CONTROL)
        return;
    int rc = msg_decode(&m, f->data, f->len, &err);
    if (rc == 0)
        on_message(a, &m);
    else if (rc == -ENOMSG)
        dd_log(a->cfg->log, DD_LOG_DEBUG, "event=skip why=%s", err.text);
    else
        not_understood(a, err.text);
}

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    (void)l;
    agent_take_frame(arg, f);
}

/* Without a daemon this node's workers cannot go on. Others may, under another one. */
static bool seek_another(struct agent *a, const char *why)
{
    if (a->state == AGENT_SEEKING || a->state == AGENT_LEAVING || !succession_possible(a))
        return false;
    dd_log(a->cfg->log, DD_LOG_NOTICE,
           "the daemon is lost: %s; %s looks for the node that takes its place", why,
           a->cfg->node_name);
    a->state = AGENT_ORPHAN;
    if (round_is_running(a->round))
        round_stop(a->round, SIGTERM, a->cfg->grace_ms);
    else
        succession_begin(a, true);
    return true;
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    (void)l;
    (void)clean;
    struct agent *a = arg;
    char text[256];
    (void)snprintf(text, sizeof(text), "%s", why);
    link_free(a->link);
    a->link = NULL;
    control_lost(a);
    if (a->parted) {
        agent_end(a, a->code, SIGTERM);
        return;
    }
    if (seek_another(a, text) || discover_again(a, text))
        return;
    dd_log(a->cfg->log, DD_LOG_ERR, "the daemon on %s is lost: %s; ending this node's workers",
           hostlist_nth(a->cfg->alloc->nodes, 0), text);
    agent_end(a, a->signals.last != 0 ? signals_code(a) : 1, SIGTERM);
}

/* Where the workers find the store. A guest has reached it, unless they are to use another network
 * than the link: then it is for the host, which alone knows its address there. NULL: not for us to
 * say. */
static const char *store_addr(const struct agent *a, const struct link *l,
                              const struct net_iface *ifs, size_t n, char out[NET_ADDR_TEXT])
{
    struct net_addr addr = *link_peer(l);
    bool host = addr.len == 0;
    if (host && a->cfg->iface == NULL)
        return a->cfg->listen_addr; /* NULL unless it has only one */
    if (a->cfg->iface != NULL && (!host || net_iface_addr(ifs, n, a->cfg->iface, &addr) < 0))
        return NULL;
    return net_addr_host(&addr, out);
}

void agent_send_join(struct agent *a, struct link *l)
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    DD_AUTO(free) char *cannot = NULL;
    DD_AUTO(strv) struct dd_strv addrs = {0};
    DD_AUTO(buf) struct dd_buf spent = DD_BUF_INIT(1024);
    size_t n = 0;
    char addr[NET_ADDR_TEXT] = "";
    (void)net_ifaces(&ifs, &n, NULL);
    for (size_t i = 0; i < n && addrs.n < MSG_MAX_LIST; i++) {
        char text[NET_ADDR_TEXT];
        if (!ifs[i].loopback)
            (void)dd_strv_push(&addrs, net_addr_host(&ifs[i].addr, text));
    }
    if (a->cfg->cannot !=
            NULL && /* one sentence for the whole job, from the node that reports its end */
        asprintf(&cannot, "%s: %s", a->cfg->node_name, a->cfg->cannot) < 0)
        cannot = NULL;
    memory_write_spent(a, &spent);
    agent_tell(l, MSG(JOIN, .index = a->index, .epoch = a->epoch,
                      .elsewhere = a->link != NULL && a->link != l,
                      .ended_well = a->round->ended_well || success_criteria_met(a->round),
                      .nnodes = a->cfg->rdzv.max_nodes, .min_nodes = a->cfg->rdzv.min_nodes,
                      .members = a->memory.members, .committed = a->memory.committed,
                      .spent = dd_buf_str(&spent), .slots = a->cfg->slots, .pid = getpid(),
                      .name = a->cfg->node_name, .addr = store_addr(a, l, ifs, n, addr),
                      .addrs = &addrs, .unfit = health_unfit(a->health),
                      .ports = held_ports_text(a->round), .text = cannot,
                      .sent_ns = (int64_t)dd_now_ns()));
}

void agent_use_link(struct agent *a, struct link *l)
{
    control_lost(a);
    a->link = l;
    a->state = AGENT_JOINED;
    if (link_peer(l)->len > 0) { /* another node is the host, and sends the signal before the end */
        timeout_free(a);
        endtime_free(a);
        search_end(a);
        discover_following(a);
    }
    link_find_free(DD_TAKE(a->find));
    evtimer_del(a->progress);
    evtimer_del(a->deadline);
    link_set_cb(l, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = a});
    (void)link_set_heartbeat(l, (unsigned)(a->cfg->heartbeat_ns / DD_NS_PER_MS));
}

void agent_join(struct agent *a, struct link *l)
{
    agent_use_link(a, l);
    agent_send_join(a, l);
    signals_joined(a);
}

/* ---- seeking the host ---- */

static void on_found(void *arg, struct link *l)
{
    struct agent *a = arg;
    link_find_free(DD_TAKE(a->find));
    if (a->link == NULL)
        agent_join(a, l);
    else
        link_free(l);
}

/* NULL: nothing is sought. */
static const char *seek_status(struct agent *a)
{
    return a->find != NULL ? link_find_status(a->find) : discover_status(a);
}

static void on_progress(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    uint64_t waited = (dd_now_ns() - a->cfg->start_ns) / DD_NS_PER_S;
    struct timeval t = {.tv_sec = (time_t)(waited < 5 ? 5 : waited < 60 ? waited : 60)};
    const char *status = seek_status(a);
    if (status == NULL)
        return;
    if (a->cfg->cannot != NULL) { /* nobody there to be told: tell the user, and be gone */
        dd_log(a->cfg->log, DD_LOG_ERR, "%s", a->cfg->cannot);
        agent_leave(a, 2);
        return;
    }
    dd_log(a->cfg->log, DD_LOG_NOTICE, "waiting for the job's daemon: %s", status);
    evtimer_add(a->progress, &t);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    const char *status = seek_status(a);
    if (status == NULL)
        return;
    dd_log(a->cfg->log, DD_LOG_ERR, "%s timed out after %.0f s: %s", a->cfg->node_name,
           (double)a->cfg->rdzv_timeout_ns / 1e9, status);
    agent_leave(a, 1);
}

size_t agent_ports(const struct agent *a, uint16_t out[AGENT_PORTS], size_t *ret_near)
{
    const struct alloc *al = a->cfg->alloc;
    const size_t given = (size_t)al->nports;
    memcpy(out, al->ports, given * sizeof(out[0]));
    *ret_near = given > 0 ? given : ELECT_PORTS;
    if (al->port_is_fixed)
        return given;
    elect_ports(al->job_id, net_key_seed(&a->key_in), out + given, ELECT_WALK);
    return given + ELECT_WALK;
}

void agent_find_cfg(struct agent *a, struct link_find_cfg *ret, uint16_t ports[AGENT_PORTS])
{
    size_t near;
    const size_t all = agent_ports(a, ports, &near);
    const struct alloc *al = a->cfg->alloc;
    const char *first = hostlist_nth(al->nodes, 0);
    const char *mine = al->index >= 0 ? hostlist_nth(al->nodes, (size_t)al->index) : NULL;
    *ret = (struct link_find_cfg){
        .job_id = al->job_id,
        .node = a->cfg->node_name,
        .host = al->host_addr != NULL ? al->host_addr : first,
        .try_scontrol = al->on_slurm,
        /* said explicitly, or several agents on one machine: then a loopback address is meant */
        .host_is_me = al->host_addr != NULL ||
                      (mine != NULL && first != NULL && strcmp(mine, first) == 0),
        .ports = ports,
        .nports = near,
        .nfurther = all - near,
        .bind_addr = a->cfg->source_addr,
        .key_in = &a->key_in,
        .log = a->cfg->log,
        .attempt_ms = ATTEMPT_MS,
    };
}

void agent_seek_begin(struct agent *a)
{
    struct timeval first_word = {.tv_sec = 5};
    struct timeval limit = dd_timeval(a->cfg->rdzv_timeout_ns);
    a->state = AGENT_SEEKING;
    evtimer_add(a->progress, &first_word);
    evtimer_add(a->deadline, &limit);
}

int agent_connect(struct agent *a, const struct link_find_cfg *cfg, struct dd_err *err)
{
    link_find_free(DD_TAKE(a->find));
    return link_find_start(&a->find, a->base, cfg, on_found, a, err);
}

int agent_seek(struct agent *a, const char *addr, struct dd_err *err)
{
    struct link_find_cfg cfg;
    uint16_t ports[AGENT_PORTS];
    agent_find_cfg(a, &cfg, ports);
    if (addr != NULL) {
        cfg.host = addr;
        cfg.host_is_me = true;
        cfg.try_scontrol = false;
    }
    agent_seek_begin(a);
    search_start(a);
    return agent_connect(a, &cfg, err);
}

int agent_be_host(struct agent *a, struct dd_err *err)
{
    const struct link_cb none = {0};
    struct link *l;
    int fd;
    int rc = host_start(a, &fd, err);
    if (rc < 0)
        return rc;
    rc = link_new_trusted(&l, a->base, fd, &none, err);
    if (rc < 0) {
        close(fd);
        host_stop(a);
        return rc;
    }
    agent_join(a, l);
    rc = timeout_start(a, err);
    return rc < 0 ? rc : endtime_start(a, err);
}

/* ---- the whole ---- */

/* The state of the node is known: others may know it. */
static void begin(void *arg)
{
    struct agent *a = arg;
    struct dd_err err = {0};
    if (a->state == AGENT_LEAVING)
        return;
    int rc = timeout_start(a, &err);
    if (rc == 0)
        rc = a->cfg->alloc->index == 0 ? agent_be_host(a, &err)
             : a->cfg->etcd != NULL    ? discover_begin(a, &err)
                                       : agent_seek(a, NULL, &err);
    if (rc == 0 && a->cfg->alloc->index == 0)
        search_start(a);
    if (rc == 0 || follow_begin(a, &err) == 0)
        return;
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", err.text);
    agent_leave(a, 2);
}

static int agent_start(struct agent *a, struct dd_err *err)
{
    int rc = signals_new(a, err);
    if (rc == 0 && net_peer_new(&a->peer) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    control_start(a);
    if (rc == 0)
        rc = rounds_new(a, err);
    if (rc < 0)
        return rc;
    a->progress = evtimer_new(a->base, on_progress, a);
    a->deadline = evtimer_new(a->base, on_deadline, a);
    if (a->progress == NULL || a->deadline == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    rc = health_new(&a->health, a->round, err);
    if (rc == 0)
        health_check(a->health, begin, a);
    return rc;
}

static void agent_done(struct agent *a)
{
    link_find_free(a->find);
    succession_end(a);
    search_end(a);
    link_free(a->link);
    follow_free(a);
    health_free(a->health);
    timeout_free(a);
    endtime_free(a);
    requeue_free(a);
    round_free(a->round);
    memory_free(a);
    host_stop(a);
    discover_free(a);
    signals_free(a);
    if (a->progress != NULL)
        event_free(a->progress);
    if (a->deadline != NULL)
        event_free(a->deadline);
    control_free(a);
    net_peer_free(a->peer);
    if (a->base != NULL)
        event_base_free(a->base);
}

int agent_run(const struct agent_cfg *cfg)
{
    struct agent a = {.cfg = cfg,
                      .key_in = cfg->key_in,
                      .index = cfg->alloc->index,
                      .host = {.end = CHILD_WATCH_NONE},
                      .signals = {.fd = -1},
                      .memory = {.last = RDZV_MEMBERS_NONE}};
    struct dd_err err = {0};
    a.key_in.job_id = cfg->alloc->job_id;
    a.base = net_loop_new();
    int rc = a.base == NULL ? dd_err_set(&err, -ENOMEM, "cannot make an event loop")
                            : agent_start(&a, &err);
    if (rc < 0) {
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
        a.code = 2;
    } else if (a.state != AGENT_LEAVING) {
        event_base_dispatch(a.base);
    }
    if (a.code != 0)
        error_files_copy(a.round, dd_env_get_nonempty(cfg->env, "TORCHELASTIC_ERROR_FILE"));
    agent_done(&a);
    return a.code;
}
