/* The other nodes of the host list, asked for a daemon of this job: who was started again, by
 * whomever, knows nothing of the daemons that came after the first one.
 *
 * The host asks while its first daemon has too few nodes, and once more when that one wants to
 * begin with fewer than all (LOOK): a round is not begun beside another daemon's. What it finds is
 * a later daemon, for only the first node ever starts one unasked; the host joins it, and its own
 * sends whoever has come already there, too (LOOKED). A guest asks where the first node has no
 * daemon. */
#include "agent/inner.h"

#include "base/io.h"
#include "net/addr.h"
#include "rdzv/successor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ATTEMPT_MS = 1000,
    ANSWER_MS = 3000, /* to JOIN */
    GUEST_NODES = 16, /* that a guest asks at once: there may be thousands of guests */
    ASKED_MAX = 8,
};

struct search {
    struct agent *agent;
    struct link_look *look;
    struct link *asked[ASKED_MAX]; /* daemons that have been sent JOIN */
    struct event *again;
    unsigned wait_ms;
    size_t next;  /* of a guest: the first node to ask */
    bool wanted;  /* our daemon waits for what we find */
    bool refused; /* there is another daemon, but it does not take us, or not yet */
    bool told;
    uint64_t since_ns;
};

static bool is_host(const struct agent *a)
{
    return a->cfg->alloc->index == 0;
}

bool search_possible(const struct agent *a)
{
    const struct alloc *al = a->cfg->alloc;
    return al->nnodes > 1 && hostlist_count(al->nodes) > 1 && a->cfg->source_addr == NULL &&
           a->epoch == 0 && (rdzv_is_elastic(&a->cfg->rdzv) || a->cfg->rdzv.max_restarts > 0);
}

static void end_look(struct search *s)
{
    link_look_free(DD_TAKE(s->look));
    for (size_t i = 0; i < ASKED_MAX; i++)
        link_free(DD_TAKE(s->asked[i]));
}

void search_end(struct agent *a)
{
    struct search *s = a->search;
    if (s == NULL)
        return;
    a->search = NULL;
    end_look(s);
    if (s->again != NULL)
        event_free(s->again);
    free(s);
}

static void look_later(struct search *s, unsigned ms)
{
    const struct timeval t = dd_timeval(ms * DD_NS_PER_MS);
    evtimer_add(s->again, &t);
}

/* ---- answers ---- */

/* All have answered. */
static void check_over(struct search *s)
{
    struct agent *a = s->agent;
    bool open = s->look != NULL;
    for (size_t i = 0; i < ASKED_MAX; i++)
        open |= s->asked[i] != NULL;
    if (open && s->look == NULL)
        look_later(s, ANSWER_MS); /* all of it again */
    if (open)
        return;
    if (s->refused && dd_now_ns() - s->since_ns > a->cfg->rdzv_timeout_ns) {
        dd_log(a->cfg->log, DD_LOG_ERR,
               "%s timed out after %.0f s: another daemon of this job does not take it",
               a->cfg->node_name, (double)a->cfg->rdzv_timeout_ns / 1e9);
        agent_leave(a, 1);
        return;
    }
    if (!s->refused && s->wanted)
        agent_send(a, MSG(PROBE_RESULT, .addr = ""));
    s->wanted = s->wanted && s->refused;
    look_later(s, s->refused ? search_refused_ms() : search_wait_ms(&s->wait_ms, is_host(a)));
}

static struct link *forget(struct search *s, struct link *l)
{
    for (size_t i = 0; i < ASKED_MAX; i++)
        if (s->asked[i] == l)
            s->asked[i] = NULL;
    return l;
}

/* Our own daemon has not begun anything; it tells its guests where we go. */
static void go_over(struct agent *a, struct link *l)
{
    char addr[NET_ADDR_TEXT];
    struct link *own = DD_TAKE(a->link);
    dd_log(a->cfg->log, DD_LOG_NOTICE,
           "this job goes on under the daemon on %s already: joining it",
           net_addr_host(link_peer(l), addr));
    agent_tell(own, MSG(PROBE_RESULT, .addr = addr));
    link_bye(own);
    search_end(a);
    agent_use_link(a, l);
    signals_joined(a);
}

static void on_refused(struct search *s, int64_t epoch, const char *why)
{
    const struct agent *a = s->agent;
    if (epoch <= a->epoch) /* our own, by another of this machine's names */
        return;
    s->refused = true;
    if (!s->told)
        dd_log(a->cfg->log, DD_LOG_NOTICE,
               "another daemon of this job does not take this node yet: %s", why);
    s->told = true;
}

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct search *s = arg;
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    int rc = f->type == FRAME_CONTROL ? msg_decode(&m, f->data, f->len, &err) : -ENOMSG;
    if (rc == -ENOMSG)
        return;
    if (rc == 0 && m.type == MSG_WELCOME && m.welcome.epoch > s->agent->epoch) {
        go_over(s->agent, forget(s, l));
        return;
    }
    if (rc < 0) /* there is one, and it cannot take us */
        on_refused(s, INT64_MAX, err.text);
    else if (m.type == MSG_REFUSE)
        on_refused(s, m.refuse.epoch, m.refuse.text);
    if (rc < 0 || m.type == MSG_REFUSE || m.type == MSG_WELCOME ||
        m.type == MSG_FINISH) { /* FINISH: of a run before this one */
        link_free(forget(s, l));
        check_over(s);
    }
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct search *s = arg;
    (void)clean;
    (void)why;
    link_free(forget(s, l));
    check_over(s);
}

/* ---- asking ---- */

static void ask(struct search *s, struct link *l)
{
    size_t i = 0;
    while (i < ASKED_MAX && s->asked[i] != NULL)
        i++;
    if (i == ASKED_MAX) {
        link_free(l);
        return;
    }
    s->asked[i] = l;
    link_set_cb(l, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = s});
    (void)link_set_heartbeat(l, ANSWER_MS);
    agent_send_join(s->agent, l);
}

static void on_found(void *arg, struct link *l)
{
    struct search *s = arg;
    struct agent *a = s->agent;
    if (is_host(a)) {
        ask(s, l);
    } else if (a->link != NULL) {
        link_free(l);
    } else {
        search_end(a);
        agent_join(a, l);
    }
}

static void on_done(void *arg)
{
    struct search *s = arg;
    link_look_free(DD_TAKE(s->look));
    check_over(s);
}

/* The nodes to ask; a name that follows itself stands for several agents of one machine. */
static int list_nodes(struct search *s, struct dd_strv *out)
{
    const struct alloc *al = s->agent->cfg->alloc;
    size_t n = hostlist_count(al->nodes);
    size_t most = is_host(s->agent) ? n : GUEST_NODES;
    int rc = 0;
    for (size_t i = 0; i < n && out->n < most && rc == 0; i++) {
        size_t k = is_host(s->agent) ? i : 1 + (s->next + i) % (n - 1);
        const char *name = hostlist_nth(al->nodes, k);
        bool again = out->n > 0 && strcmp(out->v[out->n - 1], name) == 0;
        if ((int)k != al->index && !again)
            rc = dd_strv_push(out, name);
    }
    s->next += most;
    return rc;
}

static void look_now(struct search *s)
{
    struct agent *a = s->agent;
    struct link_find_cfg cfg;
    uint16_t ports[AGENT_PORTS];
    struct dd_strv names = {0};
    struct dd_err err = {0};
    const struct link_look_cb cb = {.found = on_found, .done = on_done, .arg = s};
    end_look(s);
    s->refused = false;
    agent_find_cfg(a, &cfg, ports);
    cfg.host_is_me = false;
    cfg.attempt_ms = ATTEMPT_MS;
    int rc = list_nodes(s, &names);
    if (rc == 0)
        rc = link_look_start(&s->look, a->base, &cfg, names.v, names.n, &cb, &err);
    dd_strv_done(&names);
    if (rc == 0)
        return;
    dd_log(a->cfg->log, DD_LOG_WARN, "cannot look for another daemon of this job: %s", err.text);
    check_over(s);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    struct search *s = arg;
    (void)fd;
    (void)what;
    look_now(s);
}

void search_start(struct agent *a)
{
    if (a->search != NULL || !search_possible(a))
        return;
    struct search *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return;
    s->agent = a;
    s->since_ns = dd_now_ns();
    s->again = evtimer_new(a->base, on_again, s);
    a->search = s;
    if (s->again == NULL)
        search_end(a);
    else
        look_later(s, search_wait_ms(&s->wait_ms, is_host(a)));
}

void search_wanted(struct agent *a)
{
    if (a->search == NULL)
        return;
    a->search->wanted = true;
    evtimer_del(a->search->again);
    look_now(a->search);
}
