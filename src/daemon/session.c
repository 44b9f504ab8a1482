#include "daemon/session.h"

#include "base/io.h"
#include "hostlist/hostlist.h"
#include "rdzv/ports.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_PIECE = 128 << 10
}; /* JSON escaping may double the size, which still fits into a message */

/* ---- life ---- */

static void session_release(struct session *s, bool bye)
{
    struct session_set *set = s->set;
    if (s->id >= 0) {
        set->by_id[s->id] = NULL;
        set->free_ids[set->nfree++] = s->id;
    }
    if (set->leader == s)
        set->leader = NULL;
    set->cfg.ops.gone(set->cfg.ops.arg, s);
    LIST_REMOVE(s, entry);
    for (size_t i = 0; i < s->naddrs; i++)
        addr_table_remove(&set->addrs, &s->addrs[i].entry);
    set->n--;
    if (bye)
        link_bye(s->link);
    else
        link_free(s->link);
    free(s->addrs);
    free(s->ports);
    free(s->warnings);
    free(s);
}

void session_free(struct session *s)
{
    session_release(s, false);
}

void session_bye(struct session *s)
{
    session_release(s, true);
}

int session_set_init(struct session_set *set, const struct session_cfg *cfg)
{
    *set = (struct session_set){.cfg = *cfg};
    LIST_INIT(&set->sessions);
    set->by_id = calloc((size_t)cfg->capacity, sizeof(struct session *));
    set->free_ids = calloc((size_t)cfg->capacity, sizeof(*set->free_ids));
    if (set->by_id == NULL || set->free_ids == NULL)
        return -ENOMEM;
    for (int id = cfg->capacity - 1; id >= 0; id--)
        set->free_ids[set->nfree++] = id;
    return 0;
}

void session_set_done(struct session_set *set)
{
    while (!LIST_EMPTY(&set->sessions))
        session_free(LIST_FIRST(&set->sessions));
    addr_table_done(&set->addrs);
    free(set->by_id);
    free(set->free_ids);
}

/* ---- identity ---- */

int session_take_id(struct session *s)
{
    struct session_set *set = s->set;
    if (set->nfree == 0)
        return -1;
    s->id = set->free_ids[--set->nfree];
    set->by_id[s->id] = s;
    return s->id;
}

struct session *session_of_id(const struct session_set *set, int id)
{
    return id >= 0 && id < set->cfg.capacity ? set->by_id[id] : NULL;
}

struct session *session_of_addr(const struct session_set *set, const struct net_addr *a)
{
    const struct addr_entry *e = addr_table_find(&set->addrs, a);
    struct session *s = e != NULL ? ((const struct session_addr *)(const void *)e)->session : NULL;
    return s != NULL && s->id >= 0 ? s : NULL;
}

struct session *session_of_admission(struct admission_node *n)
{
    return (struct session *)(void *)((char *)n - offsetof(struct session, admission));
}

static int session_add_addr(struct session *s, const struct net_addr *addr)
{
    struct session_addr *a = &s->addrs[s->naddrs];
    *a = (struct session_addr){.entry = {.addr = *addr}, .session = s};
    int rc = addr_table_add(&s->set->addrs, &a->entry);
    s->naddrs += rc == 0;
    return rc;
}

int session_set_addrs(struct session *s, const struct dd_strv *addrs)
{
    struct net_addr addr;
    int rc = 0;
    s->addrs = calloc(addrs->n + 1, sizeof(*s->addrs));
    if (s->addrs == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < addrs->n && rc == 0; i++)
        if (net_addr_parse(&addr, addrs->v[i], 0) == 0)
            rc = session_add_addr(s, &addr);
    /* the address of the link's peer is always included */
    const struct net_addr *peer = link_peer(s->link);
    return rc == 0 && peer->len > 0 ? session_add_addr(s, peer) : rc;
}

void session_set_ports(struct session *s, const char *ports)
{
    int n = ports_count(ports);
    if (n < 0)
        dd_log(s->set->cfg.log, DD_LOG_WARN, "ignoring the malformed port list of %s", s->name);
    free(s->ports);
    s->ports = n > 0 ? strdup(ports) : NULL;
}

void session_set_warnings(struct session *s, const char *warnings)
{
    free(s->warnings);
    s->warnings = warnings[0] != '\0' ? strdup(warnings) : NULL;
}

bool session_has_warning(const struct session *s, const char *warning)
{
    return s->warnings != NULL && strstr(s->warnings, warning) != NULL;
}

static void session_trace(const struct session *s, const char *peer, const char *how,
                          enum msg_type type, size_t bytes)
{
    dd_trace(s->set->cfg.log, DD_TRACE_LINK, "link=daemon epoch=%lld peer=%s %s=%s bytes=%zu",
             (long long)s->set->cfg.epoch, peer, how, msg_type_name(type), bytes);
}

/* ---- out ---- */

void session_send(struct session *s, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    int rc = msg_encode(&text, m);
    if (rc == 0)
        session_trace(s, s->name, "sent", m->type, strlen(text));
    if (rc == 0)
        rc = link_send(s->link, FRAME_CONTROL, text, strlen(text));
    if (rc < 0 && rc != -EPIPE)
        link_fail(s->link, msg_type_name(m->type), rc);
}

void session_refuse(struct session *s, const char *why)
{
    dd_log(s->set->cfg.log, DD_LOG_WARN, "refused %s: %s", s->name, why);
    session_send(s, MSG(REFUSE, .epoch = s->set->cfg.epoch, .text = why));
    session_bye(s);
}

/* Check the queue of the link first, so that room for the job's own messages remains. */
int session_answer(struct session *s, int64_t id, const char *text, size_t n, bool ends)
{
    const size_t queued = link_queued(s->link);
    int rc = n <= SESSION_ANSWER_MAX && queued <= SESSION_ANSWER_MAX - n ? 0 : -ENOBUFS;
    for (size_t at = 0; rc == 0 && (at < n || at == 0); at += ANSWER_PIECE) {
        const size_t len = n - at < ANSWER_PIECE ? n - at : ANSWER_PIECE;
        DD_AUTO(free) char *piece = strndup(n > 0 ? text + at : "", len);
        DD_AUTO(free) char *out = NULL;
        rc = piece == NULL ? -ENOMEM
                           : msg_encode(&out, MSG(CTL_REPLY, .id = id, .ok = true,
                                                  .ends = ends && at + len >= n, .detail = piece));
        if (rc == 0)
            rc = link_send(s->link, FRAME_CONTROL, out, strlen(out));
    }
    return rc;
}

/* ---- in ---- */

/* Return the peer's name for a trace line. The name in a JOIN is not checked yet: use it only if it
 * is valid, so that it cannot forge a line. */
static const char *session_peer_of(const struct session *s, const struct msg *m)
{
    return m->type == MSG_JOIN && hostlist_name_ok(m->join.name) ? m->join.name : s->name;
}

static void session_on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct session *s = arg;
    const struct session_ops *ops = &s->set->cfg.ops;
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    (void)l;
    if (f->type == FRAME_EXCHANGE)
        ops->exchange(ops->arg, s, f);
    if (f->type == FRAME_STORE)
        ops->store(ops->arg, s, f);
    if (f->type != FRAME_CONTROL)
        return;
    int rc = msg_decode(&m, f->data, f->len, &err);
    if (rc == 0)
        session_trace(s, session_peer_of(s, &m), "received", m.type, f->len);
    if (rc == 0)
        ops->message(ops->arg, s, &m);
    else if (rc == -ENOMSG)
        dd_log(s->set->cfg.log, DD_LOG_DEBUG, "event=skip node=%s why=%s", s->name, err.text);
    else
        ops->malformed(ops->arg, s, err.text);
}

static void session_on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct session *s = arg;
    const struct session_ops *ops = &s->set->cfg.ops;
    (void)l;
    dd_trace(s->set->cfg.log, DD_TRACE_LINK, "link=daemon epoch=%lld peer=%s closed=%s why=%s",
             (long long)s->set->cfg.epoch, s->name, clean ? "clean" : "lost", why);
    ops->closed(ops->arg, s, clean, why);
}

struct session *session_new(struct session_set *set, struct link *link, bool is_leader)
{
    struct session *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        link_free(link);
        return NULL;
    }
    *s = (struct session){.set = set, .link = link, .id = -1, .is_leader = is_leader};
    admission_node_init(&s->admission);
    const char *node = link_node(link);
    (void)dd_log_escape(s->name, sizeof(s->name), node, strlen(node));
    LIST_INSERT_HEAD(&set->sessions, s, entry);
    set->n++;
    if (is_leader)
        set->leader = s;
    link_set_cb(link, &(struct link_cb){
                          .on_frame = session_on_frame, .on_close = session_on_close, .arg = s});
    (void)link_set_heartbeat(link, (unsigned)(set->cfg.heartbeat_ns / DD_NS_PER_MS));
    return s;
}
