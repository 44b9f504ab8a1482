/* Messages of the daemon: each becomes an event of the agent's machine, or a call of the part that
 * handles it. Also makes JOIN, with data of many parts. */
#include "agent/held_ports.h"
#include "agent/agent_parts.h"
#include "agent/features.h"
#include "agent/phase_recorder.h"
#include "agent/success_criteria.h"
#include "base/io.h"
#include "net/addr.h"
#include "net/peer_uid.h"
#include "rdzv/charges.h"
#include "report/profile_text.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int parse_endpoint(struct net_addr *ret, const char *text)
{
    char host[256];
    uint16_t port;
    int rc = net_split_hostport(text, host, sizeof(host), &port, NULL);
    return rc < 0 ? rc : net_addr_parse(ret, host, port);
}

/* Answer WHOIS: does the user of this job own a connection from this machine? */
static void message_whois(struct agent *a, const struct msg *m)
{
    struct net_addr local;
    struct net_addr remote;
    uid_t other;
    bool ok = parse_endpoint(&local, m->whois.local) == 0 &&
              parse_endpoint(&remote, m->whois.remote) == 0 &&
              net_peer_own(a->round->peer, &local, &remote, &other) == 0;
    uplink_send(a->uplink, MSG(WHOIS_REPLY, .id = m->whois.id, .ok = ok));
}

/* Log the first line of the report; write the remaining lines below it without a prefix. */
static void report_to_user(const struct agent *a, const struct msg_finish *m)
{
    struct dd_err err = {0};
    const char *rest = strchrnul(m->text, '\n');
    struct dd_log patient = *a->loop.cfg->log; /* the job has ended: writing may block */
    patient.waits_ms = 0;
    if (m->text[0] != '\0')
        dd_log(&patient, DD_LOG_ERR, "%.*s", (int)(rest - m->text), m->text);
    if (rest[0] != '\0' && rest[1] != '\0')
        dd_log_more(&patient, rest + 1, strlen(rest + 1));
    if (a->loop.cfg->report != NULL &&
        dd_write_file(a->loop.cfg->report, m->detail, strlen(m->detail), &err) < 0)
        dd_log(a->loop.cfg->log, DD_LOG_ERR, "--report=%s: %s", a->loop.cfg->report, err.text);
}

static void message_status(struct agent *a, const struct msg *m)
{
    dd_log(a->loop.cfg->log, DD_LOG_NOTICE, "%s", m->status.text);
}

static void message_refuse(struct agent *a, const struct msg *m)
{
    agent_because(&a->loop, "%s", m->refuse.text);
    agent_step(&a->loop, (struct am_event){.kind = AM_REFUSE});
}

static void message_plan(struct agent *a, const struct msg *m)
{
    agent_loop_set_round(&a->loop, m->plan.round);
    agent_step(&a->loop, (struct am_event){.kind = AM_PLAN});
    locate_etcd_changed(a->locators.etcd);
}

static void message_record_phases(struct agent *a, const struct msg *m)
{
    (void)m;
    phase_recorder_ask(a->round);
}

static void message_round_started(struct agent *a, const struct msg *m)
{
    (void)m;
    agent_step(&a->loop, (struct am_event){.kind = AM_ROUND_STARTED});
    locate_etcd_changed(a->locators.etcd);
}

static void message_probe_request(struct agent *a, const struct msg *m)
{
    const bool redirects = m->probe_request.addr[0] != '\0';
    agent_step(&a->loop, (struct am_event){.kind = redirects ? AM_REDIRECT : AM_PROBE_REQUEST});
}

static void message_stop(struct agent *a, const struct msg *m)
{
    const bool current = m->stop.round == a->round->plan.round;
    const int signal = m->stop.signal > 0 ? m->stop.signal : SIGTERM;
    if (current && m->stop.first_lost)
        rounds_first_lost(a);
    agent_step(&a->loop, (struct am_event){.kind = AM_STOP, .code = current ? signal : 0});
}

static void message_finish(struct agent *a, const struct msg *m)
{
    if (m->finish.report)
        report_to_user(a, &m->finish);
    charges_file_finish(a->charges_file, m->finish.code);
    locate_etcd_over(a->locators.etcd);
    agent_step(&a->loop, (struct am_event){.kind = AM_FINISH, .code = m->finish.code});
}

static void message_signal(struct agent *a, const struct msg *m)
{
    int reached = -EAGAIN; /* unknown */
    if (m->signal.end_near)
        rounds_presignal(a, m->signal.signal);
    else
        reached = signals_announce(a->signals, m->signal.signal);
    if (m->signal.id > 0 && reached >= 0)
        uplink_send(a->uplink, MSG(SIGNALLED, .id = m->signal.id, .reached = reached));
}

static void message_stacks_request(struct agent *a, const struct msg *m)
{
    rounds_take_stacks(a, &m->stacks_request);
}

static void message_usage_request(struct agent *a, const struct msg *m)
{
    rounds_take_usage(a, &m->usage_request);
}

static void message_stacks_taken(struct agent *a, const struct msg *m)
{
    if (m->stacks_taken.round == a->round->plan.round)
        round_message(a->round, &(struct round_message){.type = ROUND_STACKS_TAKEN});
}

static void message_hung(struct agent *a, const struct msg *m)
{
    if (m->hung.round == a->round->plan.round)
        round_message(a->round, &(struct round_message){.type = ROUND_HUNG});
}

static void message_commit(struct agent *a, const struct msg *m)
{
    if (m->commit.round == a->round->plan.round)
        round_history_commit(&a->history);
}

static void message_round_members(struct agent *a, const struct msg *m)
{
    struct dd_err err = {0};
    if (round_history_observe(&a->history, &m->round_members, &err) < 0)
        dd_log(a->loop.cfg->log, DD_LOG_WARN,
               "cannot record the members of the round (%s): if the leader is lost, this node may "
               "not find the next one",
               err.text);
    agent_step(&a->loop, (struct am_event){.kind = AM_ROUND_MEMBERS});
}

/* Print the profile of the store. The daemon sends the profile before FINISH, which carries the
 * report. */
static void profile_to_user(const struct agent *a, const char *json)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    json_t *o = json_loads(json, 0, NULL);
    struct dd_log patient = *a->loop.cfg->log;
    patient.waits_ms = 0;
    if (o != NULL && profile_text(o, &text) == 0) {
        dd_log(&patient, DD_LOG_NOTICE, "profile of the store:");
        dd_log_more(&patient, (const char *)text.data, text.len);
    }
    json_decref(o);
}

static void message_ctl_reply(struct agent *a, const struct msg *m)
{
    if (m->ctl_reply.id == CONTROL_ID_METRICS)
        metrics_file_take(a->metrics_file, m->ctl_reply.detail);
    else if (m->ctl_reply.id == CONTROL_ID_CHARGES)
        charges_file_take(a->charges_file, m->ctl_reply.ok ? m->ctl_reply.detail : "");
    else if (m->ctl_reply.id == CONTROL_ID_PROFILE)
        profile_to_user(a, m->ctl_reply.detail);
    else if (m->ctl_reply.id == CONTROL_ID_WAITING)
        status_line_answer(a->status_line, &m->ctl_reply);
    else
        control_take(a->control, &m->ctl_reply);
}

typedef void agent_message_f(struct agent *a, const struct msg *m);

/* Messages that agents send have no handler, nor has WELCOME: only uplink_ask_found() expects it.
 */
static agent_message_f *const agent_message_handlers[MSG_TYPE_MAX] = {
    [MSG_STATUS] = message_status,
    [MSG_REFUSE] = message_refuse,
    [MSG_PLAN] = message_plan,
    [MSG_RECORD_PHASES] = message_record_phases,
    [MSG_ROUND_STARTED] = message_round_started,
    [MSG_PROBE_REQUEST] = message_probe_request,
    [MSG_STOP] = message_stop,
    [MSG_FINISH] = message_finish,
    [MSG_SIGNAL] = message_signal,
    [MSG_STACKS_REQUEST] = message_stacks_request,
    [MSG_HUNG] = message_hung,
    [MSG_STACKS_TAKEN] = message_stacks_taken,
    [MSG_USAGE_REQUEST] = message_usage_request,
    [MSG_WHOIS] = message_whois,
    [MSG_COMMIT] = message_commit,
    [MSG_ROUND_MEMBERS] = message_round_members,
    [MSG_CTL_REPLY] = message_ctl_reply,
};

static void agent_on_message(struct agent *a, const struct msg *m)
{
    a->message = m;
    if (m->type < MSG_TYPE_MAX && agent_message_handlers[m->type] != NULL)
        agent_message_handlers[m->type](a, m);
}

/* The daemon would wait for an answer to a message that this node cannot read: report the reason to
 * the daemon. The node leaves once its workers have exited or, without workers, once the daemon has
 * closed the link. */
static void on_unreadable(struct agent *a, const char *what)
{
    agent_because(&a->loop, "%.90s cannot read a message from the daemon: %.260s",
                  a->loop.cfg->node_name, what);
    dd_log(a->loop.cfg->log, DD_LOG_ERR, "%s", a->loop.why);
    agent_step(&a->loop, (struct am_event){.kind = AM_UNREADABLE});
}

void agent_receive(void *arg, const struct frame *f)
{
    struct agent *a = arg;
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    if (f->type == FRAME_EXCHANGE)
        rounds_take_piece(a, f);
    if (f->type == FRAME_STORE)
        rounds_take_store(a, f);
    if (f->type != FRAME_CONTROL)
        return;
    int rc = msg_decode(&m, f->data, f->len, &err);
    if (rc == 0)
        dd_trace(a->loop.cfg->log, DD_TRACE_LINK, "link=agent node=%s received=%s bytes=%u",
                 a->loop.cfg->node_name, msg_type_name(m.type), f->len);
    if (rc == 0)
        agent_on_message(a, &m);
    else if (rc == -ENOMSG)
        dd_log(a->loop.cfg->log, DD_LOG_DEBUG, "event=skip why=%s", err.text);
    else
        on_unreadable(a, err.text);
    a->message = NULL;
}

/* ---- JOIN ---- */

/* Return the address of the store for the workers: the address at which this node reached the
 * daemon. With --iface the workers use another network, in which only the leader has the address of
 * the store. NULL: unknown to this node; on the leader without --iface: the daemon listens on all
 * addresses. */
static const char *store_addr(const struct agent *a, const struct link *l,
                              const struct net_iface *ifs, size_t n, char out[NET_ADDR_TEXT])
{
    struct net_addr addr = *link_peer(l);
    bool host = addr.len == 0;
    if (host && a->loop.cfg->iface == NULL)
        return a->loop.cfg->listen_addr;
    if (a->loop.cfg->iface != NULL &&
        (!host || net_iface_addr(ifs, n, a->loop.cfg->iface, &addr) < 0))
        return NULL;
    return net_addr_host(&addr, out);
}

void agent_send_join(void *arg, struct link *l)
{
    struct agent *a = arg;
    const bool elsewhere = uplink_is_up(a->uplink) && uplink_link(a->uplink) != l;
    DD_AUTO(free) struct net_iface *ifs = NULL;
    DD_AUTO(free) char *cannot = NULL;
    DD_AUTO(strv) struct dd_strv addrs = {0};
    DD_AUTO(buf) struct dd_buf spent = DD_BUF_INIT(1024);
    DD_AUTO(buf) struct dd_buf charges = DD_BUF_INIT(CHARGES_BYTES);
    size_t n = 0;
    char addr[NET_ADDR_TEXT] = "";
    /* the daemon finds the node of a worker by these addresses */
    if (a->loop.cfg->rdzv.max_nodes > 1 || a->loop.cfg->iface != NULL)
        (void)net_ifaces(&ifs, &n, NULL);
    for (size_t i = 0; i < n && addrs.n < MSG_MAX_LIST; i++) {
        char text[NET_ADDR_TEXT];
        if (!ifs[i].loopback)
            (void)dd_strv_push(&addrs, net_addr_host(&ifs[i].addr, text));
    }
    if (a->loop.cfg->cannot != NULL && /* the job's report quotes the text: name the node */
        asprintf(&cannot, "%s: %s", a->loop.cfg->node_name, a->loop.cfg->cannot) < 0)
        cannot = NULL;
    round_history_write_ages(&a->history, &spent);
    round_history_write_charges(&a->history, &charges);
    phase_recorder_joined(a->round, link_times(l));
    uplink_send_on(
        a->uplink, l,
        MSG(JOIN, .index = a->loop.machine.index, .epoch = a->loop.machine.epoch,
            .elsewhere = elsewhere,
            .ended_well = a->round->ended_well || success_criteria_met(a->round),
            .nnodes = a->loop.cfg->rdzv.max_nodes, .min_nodes = a->loop.cfg->rdzv.min_nodes,
            .members = a->history.members, .committed = a->history.committed,
            .spent = dd_buf_str(&spent), .charges = dd_buf_str(&charges),
            .slots = a->loop.cfg->slots, .pid = getpid(), .name = a->loop.cfg->node_name,
            .addr = store_addr(a, l, ifs, n, addr), .addrs = &addrs,
            .unfit = health_unfit(a->health), .check = health_failed_check(a->health),
            .ports = held_ports_text(a->round), .text = cannot, .sent_ns = (int64_t)dd_now_ns()));
    if (health_warnings(a->health)[0] != '\0')
        uplink_send_on(a->uplink, l, MSG(WARNINGS, .text = health_warnings(a->health)));
}
