/* The daemon is lost, or cannot go on: look for another one on the nodes of the last round, in
 * their order, and be it when the nodes before this one do not come. Whether enough nodes are there
 * for a round is decided by each daemon (rdzv/machine.h), so two at once do no harm. */
#include "agent/inner.h"

#include "base/io.h"
#include "net/addr.h"
#include "rdzv/successor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct look {
    struct agent *agent;
    struct link_find *find;
};

struct succession {
    struct look looks[RDZV_SUCCESSORS];
    int nlooks;
    struct link *other;  /* asked, while we have a daemon of our own */
    struct event *turn;  /* to be the host */
    struct event *again; /* to look, after a refusal */
    struct event *limit;
    unsigned again_ms; /* grows with each refusal */
    bool lost;         /* there is no daemon: not only another one looked for */
};

static void end_looks(struct succession *s)
{
    for (int i = 0; i < s->nlooks; i++)
        link_find_free(s->looks[i].find);
    s->nlooks = 0;
}

void succession_end(struct agent *a)
{
    struct succession *s = a->succession;
    if (s == NULL)
        return;
    a->succession = NULL;
    end_looks(s);
    link_free(s->other);
    struct event *timers[] = {s->turn, s->again, s->limit};
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        if (timers[i] != NULL)
            event_free(timers[i]);
    free(s);
}

bool succession_possible(const struct agent *a)
{
    return successor_possible(&a->cfg->rdzv, &a->memory.last) && a->signals.last == 0;
}

/* ---- another daemon ---- */

static void look(struct agent *a);

static void look_again(struct agent *a)
{
    struct succession *s = a->succession;
    const struct timeval t = dd_timeval(successor_again_ms(&s->again_ms) * DD_NS_PER_MS);
    evtimer_add(s->again, &t);
}

/* It has taken us: whatever daemon we have ourselves is needed no longer. */
static void adopt(struct agent *a, const struct frame *f)
{
    struct link *l = DD_TAKE(a->succession->other);
    dd_log(a->cfg->log, DD_LOG_NOTICE, "another daemon of this job goes on: joining it");
    succession_end(a);
    link_free(a->link);
    a->link = NULL;
    host_stop(a);
    agent_use_link(a, l);
    signals_joined(a);
    agent_take_frame(a, f);
}

static void on_other_frame(void *arg, struct link *l, const struct frame *f)
{
    struct agent *a = arg;
    DD_AUTO(msg) struct msg m = {0};
    (void)l;
    if (f->type != FRAME_CONTROL)
        return;
    int rc = msg_decode(&m, f->data, f->len, NULL);
    if (rc == -ENOMSG)
        return;
    if (rc < 0 || m.type == MSG_REFUSE) {
        link_free(DD_TAKE(a->succession->other));
        look_again(a);
    } else if (m.type != MSG_WHOIS) {
        adopt(a, f);
    }
}

static void on_other_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct agent *a = arg;
    (void)l;
    (void)clean;
    (void)why;
    link_free(DD_TAKE(a->succession->other));
    look_again(a);
}

static void on_found(void *arg, struct link *l)
{
    struct agent *a = ((struct look *)arg)->agent;
    struct succession *s = a->succession;
    end_looks(s);
    if (a->link == NULL) {
        agent_join(a, l);
        return;
    }
    s->other = l;
    link_set_cb(
        l, &(struct link_cb){.on_frame = on_other_frame, .on_close = on_other_close, .arg = a});
    agent_send_join(a, l);
}

static void look_at(struct agent *a, const char *addr)
{
    struct succession *s = a->succession;
    struct look *l = &s->looks[s->nlooks];
    struct link_find_cfg cfg;
    uint16_t ports[AGENT_PORTS];
    struct dd_err err = {0};
    agent_find_cfg(a, &cfg, ports);
    cfg.host = addr;
    cfg.host_is_me = true; /* a numeric address that was in use */
    cfg.try_scontrol = false;
    l->agent = a;
    if (link_find_start(&l->find, a->base, &cfg, on_found, l, &err) == 0)
        s->nlooks++;
    else
        dd_log(a->cfg->log, DD_LOG_WARN, "cannot look for a daemon on %s: %s", addr, err.text);
}

static void look(struct agent *a)
{
    struct succession *s = a->succession;
    end_looks(s);
    const struct rdzv_members *last = &a->memory.last;
    for (size_t k = 0; k < a->memory.addrs.n && (int)k < last->n && s->nlooks < RDZV_SUCCESSORS;
         k++) {
        const char *addr = a->memory.addrs.v[k][0] != '\0' ? a->memory.addrs.v[k]
                                                           : a->round->plan.master_addr;
        if (last->index[k] != a->index)
            look_at(a, addr);
    }
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    look(arg);
}

/* ---- our turn ---- */

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    struct dd_err err = {0};
    if (a->link != NULL) /* joined one meanwhile */
        return;
    host_stop(a);
    a->epoch = rdzv_next_epoch(a->epoch > a->memory.last.epoch ? a->epoch : a->memory.last.epoch,
                               a->index);
    if (agent_be_host(a, &err) < 0)
        dd_log(a->cfg->log, DD_LOG_WARN, "cannot take the lost daemon's place: %s", err.text);
    else
        dd_log(a->cfg->log, DD_LOG_NOTICE, "%s takes the lost daemon's place", a->cfg->node_name);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct agent *a = arg;
    const struct timeval later = {.tv_sec = 1};
    if (a->link != NULL) { /* its daemon has a limit of its own; but it may be about to refuse us */
        evtimer_add(a->succession->limit, &later);
        return;
    }
    dd_log(a->cfg->log, DD_LOG_ERR,
           "%s found no daemon of this job within %.0f s on the nodes of the last round",
           a->cfg->node_name, (double)a->cfg->rdzv.rejoin_ns / 1e9);
    agent_leave(a, 1);
}

static int make_timers(struct agent *a, struct succession *s)
{
    const uint64_t now = dd_now_ns();
    const uint64_t rejoin_ms = a->cfg->rdzv.rejoin_ns / DD_NS_PER_MS;
    const uint64_t end = a->memory.orphan_ns +
                         successor_limit_ms(&a->memory.last, rejoin_ms, a->cfg->grace_ms) *
                             DD_NS_PER_MS;
    const struct timeval limit = dd_timeval(end > now ? end - now : 0);
    s->turn = evtimer_new(a->base, on_turn, a);
    s->again = evtimer_new(a->base, on_again, a);
    s->limit = evtimer_new(a->base, on_limit, a);
    if (s->turn == NULL || s->again == NULL || s->limit == NULL)
        return -1;
    return s->lost ? evtimer_add(s->limit, &limit) : 0;
}

/* The workers of this node are gone. */
void succession_begin(struct agent *a, bool lost)
{
    int place = successor_place(&a->memory.last, a->index);
    bool again = a->memory.orphan_ns !=
                 0; /* that other daemon was lost, too: give everybody time */
    struct timeval turn = dd_timeval(successor_turn_ms(place, again) * DD_NS_PER_MS);
    succession_end(a);
    if (lost && !again)
        a->memory.orphan_ns = dd_now_ns();
    struct succession *s = calloc(1, sizeof(*s));
    if (s != NULL) {
        a->succession = s;
        s->lost = lost;
    }
    if (s == NULL || make_timers(a, s) < 0) {
        succession_end(a);
        dd_log(a->cfg->log, DD_LOG_ERR, "out of memory");
        agent_leave(a, 1);
        return;
    }
    if (lost && place >= 0)
        evtimer_add(s->turn, &turn);
    look(a);
}

/* A daemon does not take us (the lost one may not have noticed yet): ask again, or another one. */
bool succession_refused(struct agent *a, const char *why)
{
    if (a->succession == NULL || a->host.daemon > 0)
        return false;
    dd_log(a->cfg->log, DD_LOG_DEBUG, "event=refused why=%s", why);
    link_free(a->link);
    a->link = NULL;
    a->state = AGENT_ORPHAN;
    look_again(a);
    return true;
}
