#include "agent/uplink.h"

#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "base/io.h"
#include "net/addr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_MS = 3000, /* time for another daemon to answer JOIN */
    UPLINK_OTHERS = 8,
    NODE_MS = 1, /* for each node, time without a heartbeat beyond the limit, since ddrund sends all
                    plans before a heartbeat: 5.7 s for 12,500 nodes on a busy machine
                    (docs/performance.md) */
};

struct uplink {
    struct agent_loop *loop;
    struct uplink_cb cb;
    struct link *link;  /* link in use; NULL: none */
    bool bye_sent;      /* BYE sent on `link`: ignore anything received afterwards */
    struct link *found; /* link that a locator has found, not in use yet; NULL: none */
    struct link *others[UPLINK_OTHERS];
    struct link *answering; /* link of `others` whose answer is being handled; NULL: none */
};

/* ---- messages ---- */

void uplink_send_on(const struct uplink *u, struct link *l, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    int rc = msg_encode(&text, m);
    if (rc == 0)
        dd_trace(u->loop->cfg->log, DD_TRACE_LINK, "link=agent node=%s sent=%s bytes=%zu",
                 u->loop->cfg->node_name, msg_type_name(m->type), strlen(text));
    if (rc == 0)
        rc = link_send(l, FRAME_CONTROL, text, strlen(text));
    if (rc < 0 && rc != -EPIPE) /* without the message the daemon would wait forever */
        link_fail(l, msg_type_name(m->type), rc);
}

void uplink_send(struct uplink *u, const struct msg *m)
{
    if (u->link != NULL)
        uplink_send_on(u, u->link, m);
}

int uplink_send_piece(struct uplink *u, const void *piece, size_t len)
{
    return u->link != NULL ? link_send(u->link, FRAME_EXCHANGE, piece, len) : 0;
}

void uplink_send_store(struct uplink *u, const void *p, size_t n)
{
    if (u->link == NULL)
        return;
    int rc = p != NULL ? link_send(u->link, FRAME_STORE, p, n) : -ENOMEM;
    if (rc < 0 && rc != -EPIPE)
        link_fail(u->link, "a request of the store", rc);
}

void uplink_refuse_store(struct uplink *u)
{
    if (u->link != NULL)
        link_fail(u->link, "a malformed store message", -EPROTO);
}

/* ---- the link in use ---- */

const struct link *uplink_link(const struct uplink *u)
{
    return u->link;
}

bool uplink_is_up(const struct uplink *u)
{
    return u->link != NULL;
}

static void uplink_on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct uplink *u = arg;
    (void)l;
    if (!u->bye_sent)
        u->cb.on_frame(u->cb.arg, f);
}

static void uplink_on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct uplink *u = arg;
    const bool lacks_memory = link_lacks_memory(l);
    dd_trace(u->loop->cfg->log, DD_TRACE_LINK, "link=agent node=%s closed=%s why=%s",
             u->loop->cfg->node_name, clean ? "clean" : "lost", why);
    agent_because(u->loop, "%s", why);
    agent_step(u->loop, (struct am_event){.kind = lacks_memory ? AM_LOST_NO_MEMORY : AM_LOST});
}

void uplink_drop(struct uplink *u)
{
    link_free(DD_TAKE(u->link));
    u->cb.on_change(u->cb.arg);
}

void uplink_use(struct uplink *u, struct link *l)
{
    u->link = l;
    u->bye_sent = false;
    u->cb.on_change(u->cb.arg);
    link_set_cb(
        l, &(struct link_cb){.on_frame = uplink_on_frame, .on_close = uplink_on_close, .arg = u});
    (void)link_set_heartbeat(l, (unsigned)(u->loop->cfg->heartbeat_ns / DD_NS_PER_MS));
    link_set_patience(l, (unsigned)u->loop->cfg->rdzv.max_nodes * NODE_MS);
}

void uplink_join(struct uplink *u, struct link *l)
{
    uplink_use(u, l);
    u->cb.send_join(u->cb.arg, l);
}

int uplink_send_bye(struct uplink *u, const char *why)
{
    int rc = link_send(u->link, FRAME_BYE, why, strlen(why));
    u->bye_sent = rc == 0;
    return rc;
}

void uplink_give_way(struct uplink *u, const char *addr)
{
    struct link *own = DD_TAKE(u->link);
    if (own == NULL)
        return;
    uplink_send_on(u, own, MSG(PROBE_RESULT, .addr = addr));
    link_bye(own);
}

/* ---- a link that a locator has found ---- */

void uplink_found(struct uplink *u, struct link *l)
{
    u->found = l;
    agent_step(u->loop, (struct am_event){.kind = AM_FOUND});
}

void uplink_join_found(struct uplink *u)
{
    uplink_join(u, DD_TAKE(u->found));
}

void uplink_drop_found(struct uplink *u)
{
    link_free(DD_TAKE(u->found));
}

/* ---- links to other daemons, beside the one in use ---- */

static struct link **slot_of(struct uplink *u, const struct link *l)
{
    for (size_t i = 0; i < UPLINK_OTHERS; i++)
        if (u->others[i] == l)
            return &u->others[i];
    return NULL;
}

static struct link *take_answering(struct uplink *u)
{
    struct link *l = DD_TAKE(u->answering);
    struct link **slot = l != NULL ? slot_of(u, l) : NULL;
    if (slot != NULL)
        *slot = NULL;
    return l;
}

static void uplink_answers(struct uplink *u, struct link *l, struct am_event e)
{
    u->answering = l;
    agent_step(u->loop, e);
}

static void on_other_frame(void *arg, struct link *l, const struct frame *f)
{
    struct uplink *u = arg;
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    int rc = f->type == FRAME_CONTROL ? msg_decode(&m, f->data, f->len, &err) : -ENOMSG;
    if (rc == -ENOMSG)
        return;
    if (rc < 0) { /* the reply is unreadable: this daemon cannot take this node */
        agent_because(u->loop, "%s", err.text);
        uplink_answers(u, l, (struct am_event){.kind = AM_OTHER_REFUSES, .epoch = INT64_MAX});
    } else if (m.type == MSG_REFUSE) {
        /* without its tip, since the report appends text to the reason */
        agent_because(u->loop, "%.*s", (int)strcspn(m.refuse.text, "\n"), m.refuse.text);
        uplink_answers(u, l, (struct am_event){.kind = AM_OTHER_REFUSES, .epoch = m.refuse.epoch});
    } else if (m.type == MSG_WELCOME) {
        uplink_answers(u, l, (struct am_event){.kind = AM_OTHER_TAKES, .epoch = m.welcome.epoch});
    } else if (m.type == MSG_FINISH) {
        uplink_answers(u, l, (struct am_event){.kind = AM_OTHER_ENDED});
        if (u->link == l)
            u->cb.on_frame(u->cb.arg, f);
    }
}

static void on_other_close(void *arg, struct link *l, bool clean, const char *why)
{
    (void)clean;
    (void)why;
    uplink_answers(arg, l, (struct am_event){.kind = AM_OTHER_GONE});
}

void uplink_ask_found(struct uplink *u)
{
    struct link *l = DD_TAKE(u->found);
    struct link **slot = slot_of(u, NULL);
    if (slot == NULL) {
        link_free(l);
        return;
    }
    *slot = l;
    link_set_cb(
        l, &(struct link_cb){.on_frame = on_other_frame, .on_close = on_other_close, .arg = u});
    if (u->loop->machine.state ==
        AM_LEADING) /* while failing over, a slow daemon may be the only one that continues */
        (void)link_set_heartbeat(l, ANSWER_MS);
    u->cb.send_join(u->cb.arg, l);
}

void uplink_move(struct uplink *u, bool gives_way)
{
    char addr[NET_ADDR_TEXT];
    struct link *l = take_answering(u);
    if (gives_way) {
        dd_log(u->loop->cfg->log, DD_LOG_NOTICE, "joining the job's current daemon on %s",
               net_addr_host(link_peer(l), addr));
        uplink_give_way(u, addr);
    } else {
        dd_log(u->loop->cfg->log, DD_LOG_NOTICE, "joining another daemon of this job on %s",
               net_addr_host(link_peer(l), addr));
    }
    uplink_use(u, l);
}

void uplink_drop_other(struct uplink *u)
{
    link_free(take_answering(u));
}

void uplink_drop_others(struct uplink *u)
{
    for (size_t i = 0; i < UPLINK_OTHERS; i++)
        link_free(DD_TAKE(u->others[i]));
    u->answering = NULL;
}

bool uplink_asks(const struct uplink *u)
{
    bool asks = false;
    for (size_t i = 0; i < UPLINK_OTHERS; i++)
        asks |= u->others[i] != NULL;
    return asks;
}

/* ---- beginning and end ---- */

int uplink_new(struct uplink **ret, struct agent_loop *loop, const struct uplink_cb *cb)
{
    struct uplink *u = *ret = calloc(1, sizeof(*u));
    if (u == NULL)
        return -ENOMEM;
    *u = (struct uplink){.loop = loop, .cb = *cb};
    return 0;
}

void uplink_close(struct uplink *u)
{
    if (u == NULL)
        return;
    uplink_drop_others(u);
    link_free(DD_TAKE(u->link));
}

void uplink_free(struct uplink *u)
{
    if (u == NULL)
        return;
    uplink_close(u);
    uplink_drop_found(u);
    free(u);
}
