#include "agent/uplink.h"

#include "agent/health_check.h"
#include "agent/held_ports.h"
#include "agent/inner.h"
#include "agent/success_criteria.h"
#include "base/io.h"
#include "net/addr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MS = 3000 }; /* time for another daemon to answer JOIN */

/* ---- messages ---- */

static void send_on(const struct agent *a, struct link *l, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    int rc = msg_encode(&text, m);
    if (rc == 0)
        dd_trace(a->loop.cfg->log, DD_TRACE_LINK, "link=agent node=%s sent=%s bytes=%zu",
                 a->loop.cfg->node_name, msg_type_name(m->type), strlen(text));
    if (rc == 0)
        rc = link_send(l, FRAME_CONTROL, text, strlen(text));
    if (rc < 0 && rc != -EPIPE) /* without the message the daemon would wait forever */
        link_fail(l, msg_type_name(m->type), rc);
}

void agent_send(struct agent *a, const struct msg *m)
{
    if (a->uplink.link != NULL)
        send_on(a, a->uplink.link, m);
}

/* Address of the store for the workers: the address at which this node reached the daemon. With
 * --iface the workers use another network, and only the leader knows its address there. NULL:
 * unknown to this node. */
static const char *store_addr(const struct agent *a, const struct link *l,
                              const struct net_iface *ifs, size_t n, char out[NET_ADDR_TEXT])
{
    struct net_addr addr = *link_peer(l);
    bool host = addr.len == 0;
    if (host && a->loop.cfg->iface == NULL)
        return a->loop.cfg->listen_addr; /* NULL: the daemon listens on all addresses */
    if (a->loop.cfg->iface != NULL &&
        (!host || net_iface_addr(ifs, n, a->loop.cfg->iface, &addr) < 0))
        return NULL;
    return net_addr_host(&addr, out);
}

static void send_join(struct agent *a, struct link *l)
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
    if (a->loop.cfg->cannot != NULL && /* the job's report quotes it: name the node */
        asprintf(&cannot, "%s: %s", a->loop.cfg->node_name, a->loop.cfg->cannot) < 0)
        cannot = NULL;
    round_history_write_ages(&a->history, &spent);
    send_on(a, l,
            MSG(JOIN, .index = a->loop.machine.index, .epoch = a->loop.machine.epoch,
                .elsewhere = a->uplink.link != NULL && a->uplink.link != l,
                .ended_well = a->round->ended_well || success_criteria_met(a->round),
                .nnodes = a->loop.cfg->rdzv.max_nodes, .min_nodes = a->loop.cfg->rdzv.min_nodes,
                .members = a->history.members, .committed = a->history.committed,
                .spent = dd_buf_str(&spent), .slots = a->loop.cfg->slots, .pid = getpid(),
                .name = a->loop.cfg->node_name, .addr = store_addr(a, l, ifs, n, addr),
                .addrs = &addrs, .unfit = health_unfit(a->health),
                .ports = held_ports_text(a->round), .text = cannot,
                .sent_ns = (int64_t)dd_now_ns()));
}

/* ---- the link in use ---- */

static void uplink_on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct agent *a = arg;
    (void)l;
    if (!a->uplink.bye_sent)
        a->uplink.on_frame(a, f);
}

static void uplink_on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct agent *a = arg;
    (void)l;
    dd_trace(a->loop.cfg->log, DD_TRACE_LINK, "link=agent node=%s closed=%s why=%s",
             a->loop.cfg->node_name, clean ? "clean" : "lost", why);
    agent_because(&a->loop, "%s", why);
    agent_step(&a->loop, (struct am_event){.kind = AM_LOST});
}

void uplink_drop(struct agent *a)
{
    link_free(DD_TAKE(a->uplink.link));
    a->uplink.on_change(a);
}

void uplink_use(struct agent *a, struct link *l)
{
    a->uplink.link = l;
    a->uplink.bye_sent = false;
    a->uplink.on_change(a);
    link_set_cb(
        l, &(struct link_cb){.on_frame = uplink_on_frame, .on_close = uplink_on_close, .arg = a});
    (void)link_set_heartbeat(l, (unsigned)(a->loop.cfg->heartbeat_ns / DD_NS_PER_MS));
}

void uplink_join(struct agent *a, struct link *l)
{
    uplink_use(a, l);
    send_join(a, l);
}

int uplink_send_bye(struct agent *a, const char *why)
{
    int rc = link_send(a->uplink.link, FRAME_BYE, why, strlen(why));
    a->uplink.bye_sent = rc == 0;
    return rc;
}

void uplink_give_way(struct agent *a, const char *addr)
{
    struct link *own = DD_TAKE(a->uplink.link);
    if (own == NULL)
        return;
    send_on(a, own, MSG(PROBE_RESULT, .addr = addr));
    link_bye(own);
}

/* ---- a link that a locator has found ---- */

void uplink_found(struct agent *a, struct link *l)
{
    a->uplink.found = l;
    agent_step(&a->loop, (struct am_event){.kind = AM_FOUND});
}

void uplink_join_found(struct agent *a)
{
    uplink_join(a, DD_TAKE(a->uplink.found));
}

void uplink_drop_found(struct agent *a)
{
    link_free(DD_TAKE(a->uplink.found));
}

/* ---- daemons that are asked beside the one in use ---- */

static struct link **slot_of(struct agent *a, const struct link *l)
{
    for (size_t i = 0; i < UPLINK_OTHERS; i++)
        if (a->uplink.others[i] == l)
            return &a->uplink.others[i];
    return NULL;
}

static struct link *take_answering(struct agent *a)
{
    struct link *l = DD_TAKE(a->uplink.answering);
    struct link **slot = l != NULL ? slot_of(a, l) : NULL;
    if (slot != NULL)
        *slot = NULL;
    return l;
}

static void uplink_answers(struct agent *a, struct link *l, struct am_event e)
{
    a->uplink.answering = l;
    agent_step(&a->loop, e);
}

static void on_other_frame(void *arg, struct link *l, const struct frame *f)
{
    struct agent *a = arg;
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    int rc = f->type == FRAME_CONTROL ? msg_decode(&m, f->data, f->len, &err) : -ENOMSG;
    if (rc == -ENOMSG)
        return;
    if (rc < 0) { /* the reply is unreadable: this daemon cannot take this node */
        agent_because(&a->loop, "%s", err.text);
        uplink_answers(a, l, (struct am_event){.kind = AM_OTHER_REFUSES, .epoch = INT64_MAX});
    } else if (m.type == MSG_REFUSE) {
        agent_because(&a->loop, "%s", m.refuse.text);
        uplink_answers(a, l, (struct am_event){.kind = AM_OTHER_REFUSES, .epoch = m.refuse.epoch});
    } else if (m.type == MSG_WELCOME) {
        uplink_answers(a, l, (struct am_event){.kind = AM_OTHER_TAKES, .epoch = m.welcome.epoch});
    } else if (m.type == MSG_FINISH) {
        uplink_answers(a, l, (struct am_event){.kind = AM_OTHER_ENDED});
        if (a->uplink.link == l)
            a->uplink.on_frame(a, f);
    }
}

static void on_other_close(void *arg, struct link *l, bool clean, const char *why)
{
    (void)clean;
    (void)why;
    uplink_answers(arg, l, (struct am_event){.kind = AM_OTHER_GONE});
}

void uplink_ask_found(struct agent *a)
{
    struct link *l = DD_TAKE(a->uplink.found);
    struct link **slot = slot_of(a, NULL);
    if (slot == NULL) {
        link_free(l);
        return;
    }
    *slot = l;
    link_set_cb(
        l, &(struct link_cb){.on_frame = on_other_frame, .on_close = on_other_close, .arg = a});
    if (a->loop.machine.state ==
        AM_LEADING) /* while failing over, a slow daemon may be the only one that continues */
        (void)link_set_heartbeat(l, ANSWER_MS);
    send_join(a, l);
}

void uplink_move(struct agent *a, bool gives_way)
{
    char addr[NET_ADDR_TEXT];
    struct link *l = take_answering(a);
    if (gives_way) {
        dd_log(a->loop.cfg->log, DD_LOG_NOTICE, "joining the job's current daemon on %s",
               net_addr_host(link_peer(l), addr));
        uplink_give_way(a, addr);
    } else {
        dd_log(a->loop.cfg->log, DD_LOG_NOTICE, "joining another daemon of this job");
    }
    uplink_use(a, l);
}

void uplink_drop_other(struct agent *a)
{
    link_free(take_answering(a));
}

void uplink_drop_others(struct agent *a)
{
    for (size_t i = 0; i < UPLINK_OTHERS; i++)
        link_free(DD_TAKE(a->uplink.others[i]));
    a->uplink.answering = NULL;
}

bool uplink_asks(const struct agent *a)
{
    bool asks = false;
    for (size_t i = 0; i < UPLINK_OTHERS; i++)
        asks |= a->uplink.others[i] != NULL;
    return asks;
}
