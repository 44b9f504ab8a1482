/* Messages of the daemon: each becomes an event of the agent's machine, or a call of the part that
 * it is for. */
#include "agent/inner.h"
#include "agent/locate_etcd.h"
#include "base/io.h"
#include "net/addr.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static int parse_endpoint(struct net_addr *ret, const char *text)
{
    char host[256];
    uint16_t port;
    int rc = net_split_hostport(text, host, sizeof(host), &port, NULL);
    return rc < 0 ? rc : net_addr_parse(ret, host, port);
}

/* The daemon asks whether the user of this job owns a connection from this machine. */
static void on_whois(struct agent *a, const struct msg_whois *m)
{
    struct net_addr local;
    struct net_addr remote;
    uid_t other;
    bool ok = parse_endpoint(&local, m->local) == 0 && parse_endpoint(&remote, m->remote) == 0 &&
              net_peer_own(a->peer, &local, &remote, &other) == 0;
    agent_send(a, MSG(WHOIS_REPLY, .id = m->id, .ok = ok));
}

/* Log the first line of the report; write the remaining lines below it without a prefix. */
static void report_to_user(const struct agent *a, const struct msg_finish *m)
{
    struct dd_err err = {0};
    const char *rest = strchrnul(m->text, '\n');
    struct dd_log patient = *a->cfg->log; /* the job has ended: a slow console delays nothing */
    patient.waits_ms = 0;
    if (m->text[0] != '\0')
        dd_log(&patient, DD_LOG_ERR, "%.*s", (int)(rest - m->text), m->text);
    if (rest[0] != '\0' && rest[1] != '\0')
        (void)dd_write_full(a->cfg->log->fd, rest + 1, strlen(rest + 1));
    if (a->cfg->report != NULL &&
        dd_write_file(a->cfg->report, m->detail, strlen(m->detail), &err) < 0)
        dd_log(a->cfg->log, DD_LOG_ERR, "--report=%s: %s", a->cfg->report, err.text);
}

static void agent_on_message(struct agent *a, const struct msg *m)
{
    a->message = m;
    switch (m->type) {
    case MSG_STATUS:
        dd_log(a->cfg->log, DD_LOG_NOTICE, "%s", m->status.text);
        break;
    case MSG_REFUSE:
        agent_because(a, "%s", m->refuse.text);
        agent_step(a, (struct am_event){.kind = AM_REFUSE});
        break;
    case MSG_WELCOME:
        break; /* expected only from a daemon that uplink_ask_found() has asked */
    case MSG_PLAN:
        agent_step(a, (struct am_event){.kind = AM_PLAN});
        locate_etcd_changed(a);
        break;
    case MSG_ROUND_STARTED:
        agent_step(a, (struct am_event){.kind = AM_ROUND_STARTED});
        locate_etcd_changed(a);
        break;
    case MSG_PROBE_REQUEST:
        agent_step(a,
                   (struct am_event){.kind = m->probe_request.addr[0] != '\0' ? AM_REDIRECT
                                                                              : AM_PROBE_REQUEST});
        break;
    case MSG_STOP:
        agent_step(a, (struct am_event){.kind = AM_STOP,
                                        .code = m->stop.round != a->round->plan.round ? 0
                                                : m->stop.signal > 0 ? m->stop.signal
                                                                     : SIGTERM});
        break;
    case MSG_FINISH:
        if (m->finish.report)
            report_to_user(a, &m->finish);
        locate_etcd_over(a);
        agent_step(a, (struct am_event){.kind = AM_FINISH, .code = m->finish.code});
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
        round_history_commit(a, &m->commit);
        break;
    case MSG_ROUND_MEMBERS:
        round_history_observe(a, &m->round_members);
        agent_step(a, (struct am_event){.kind = AM_ROUND_MEMBERS});
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
        break; /* messages that agents send */
    }
}

/* The daemon would wait for an answer to a message that this node cannot read: report the reason to
 * the daemon. The node leaves once the daemon has read it and the workers have exited. */
static void on_unreadable(struct agent *a, const char *what)
{
    agent_because(a, "%.90s cannot read a message from the daemon: %.260s", a->cfg->node_name,
                  what);
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", a->why);
    agent_step(a, (struct am_event){.kind = AM_UNREADABLE});
}

void agent_receive(struct agent *a, const struct frame *f)
{
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    if (f->type == FRAME_EXCHANGE)
        rounds_take_piece(a, f);
    if (f->type != FRAME_CONTROL)
        return;
    int rc = msg_decode(&m, f->data, f->len, &err);
    if (rc == 0)
        dd_trace(a->cfg->log, DD_TRACE_LINK, "link=agent node=%s received=%s bytes=%u",
                 a->cfg->node_name, msg_type_name(m.type), f->len);
    if (rc == 0)
        agent_on_message(a, &m);
    else if (rc == -ENOMSG)
        dd_log(a->cfg->log, DD_LOG_DEBUG, "event=skip why=%s", err.text);
    else
        on_unreadable(a, err.text);
    a->message = NULL;
}
