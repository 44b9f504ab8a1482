/* The agents: from their links to the machine's events, and from its actions to messages. */
#include "daemon/inner.h"
#include "report/report.h"

#include "base/io.h"
#include "rdzv/spent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    START_MS = 20000
}; /* for an agent that starts workers: files may come slowly, and so may ddrun-pmix */

/* ---- out ---- */

void guest_send(struct guest *g, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    int rc = msg_encode(&text, m);
    if (rc == 0)
        rc = link_send(g->link, FRAME_CONTROL, text, strlen(text));
    if (rc < 0 && rc != -EPIPE) /* it would wait for it for ever */
        link_fail(g->link, msg_type_name(m->type), rc);
}

static void guest_free(struct guest *g, bool bye)
{
    struct daemon *d = g->daemon;
    if (g->id >= 0) {
        d->by_id[g->id] = NULL;
        d->free_ids[d->nfree++] = g->id;
    }
    admission_guest_gone(g);
    events_forget(d, g, -1);
    LIST_REMOVE(g, entry);
    d->nguests--;
    if (bye)
        link_bye(g->link);
    else
        link_free(g->link);
    free(g->addrs);
    free(g->ports);
    free(g);
}

/* Where a node may look for the daemon that comes after this one. */
static void add_addrs(struct daemon *d, struct dd_strv *out)
{
    char text[NET_ADDR_TEXT];
    for (int k = 0; k <= RDZV_SUCCESSORS; k++) {
        int id = rdzv_id_of_rank(d->machine, k);
        const struct guest *g = id < 0 ? NULL : d->by_id[id];
        if (g == NULL)
            break;
        const struct net_addr *peer = link_peer(g->link);
        (void)dd_strv_push(out, peer->len > 0 ? net_addr_host(peer, text) : "");
    }
}

/* What is the same in all plans of a round is written once: there may be thousands. */
static int write_texts(struct daemon *d, const struct plan *p)
{
    DD_AUTO(buf) struct dd_buf sizes = DD_BUF_INIT(MSG_MAX_BYTES / 2);
    DD_AUTO(buf) struct dd_buf members = DD_BUF_INIT(MSG_MAX_BYTES / 2);
    if (d->texts_round == p->round)
        return 0;
    int rc = plan_sizes_format(&sizes, p->sizes, p->nnodes);
    if (rc == 0)
        rc = rdzv_members_format(&members, rdzv_planned(d->machine));
    if (rc < 0)
        return rc;
    free(d->sizes_text);
    free(d->members_text);
    free(d->ports_text);
    d->sizes_text = dd_buf_steal(&sizes);
    d->members_text = dd_buf_steal(&members);
    d->ports_text = guests_ports_text(d, p);
    if (d->sizes_text == NULL || d->members_text == NULL || d->ports_text == NULL)
        return -ENOMEM;
    d->texts_round = p->round;
    return 0;
}

/* When the last restarts were; "": it does not matter. */
static void write_spent(const struct daemon *d, struct dd_buf *out)
{
    uint64_t ages[RDZV_SPENT_MAX];
    int n = rdzv_ages(d->machine, dd_now_ns(), ages, RDZV_SPENT_MAX);
    for (int i = 0; i < n; i++)
        ages[i] /= DD_NS_PER_MS;
    (void)rdzv_spent_format(out, ages, n);
}

static void send_plan(struct guest *g)
{
    struct daemon *d = g->daemon;
    DD_AUTO(plan) struct plan p = {0};
    int rc = rdzv_plan(d->machine, g->id, &p);
    if (rc == 0)
        rc = write_texts(d, &p);
    if (rc < 0) {
        dd_log(d->cfg.log, DD_LOG_ERR, "cannot make the plan of %s: %s", g->name, strerror(-rc));
        link_fail(g->link, msg_type_name(MSG_PLAN), rc); /* it would wait for it for ever */
        return;
    }
    DD_AUTO(buf) struct dd_buf spent = DD_BUF_INIT(1024);
    write_spent(d, &spent);
    DD_AUTO(strv) struct dd_strv addrs = {0};
    add_addrs(d, &addrs);
    guest_send(g, MSG(PLAN, .round = p.round, .node_rank = p.node_rank,
                      .restart_count = p.restart_count, .max_restarts = p.max_restarts,
                      .addr = p.master_addr, .master_port = p.master_port, .addrs = &addrs,
                      .sizes = d->sizes_text, .nodes = p.nodes, .members = d->members_text,
                      .spent = dd_buf_str(&spent), .ports = d->ports_text, .token = d->token));
    link_excuse(g->link, START_MS);
}

static void send_round(struct guest *g)
{
    struct daemon *d = g->daemon;
    DD_AUTO(plan) struct plan p = {0};
    int rc = rdzv_plan(d->machine, rdzv_id_of_rank(d->machine, 0), &p);
    if (rc == 0)
        rc = write_texts(d, &p);
    if (rc < 0) { /* it goes without: it waits for a place in any case */
        dd_log(d->cfg.log, DD_LOG_WARN, "cannot inform %s of the round: %s", g->name,
               strerror(-rc));
        return;
    }
    DD_AUTO(strv) struct dd_strv addrs = {0};
    add_addrs(d, &addrs);
    guest_send(
        g, MSG(ROUND_MEMBERS, .addr = p.master_addr, .addrs = &addrs, .members = d->members_text));
}

/* The one that tells the user gets all there is to tell. */
static void send_finish(struct guest *g, bool report)
{
    struct daemon *d = g->daemon;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(REPORT_TEXT_MAX);
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(REPORT_JSON_MAX);
    if (report)
        account_texts(d->account, &text, &json);
    guest_send(g, MSG(FINISH, .code = account_code(d->account, d),
                      .lost = d->lost || rdzv_misses_nodes(d->machine), .asked = d->asked,
                      .report = report, .text = dd_buf_str(&text), .detail = dd_buf_str(&json)));
}

static void run_action(struct daemon *d, struct rdzv_action *a)
{
    struct guest *g = a->id >= 0 ? d->by_id[a->id] : NULL;
    if (a->kind == RDZV_DROP_STORE) {
        door_drop_workers(d->door);
        store_server_reset(d->store);
        tell_new_round(d);
    }
    if (g == NULL)
        return;
    switch (a->kind) {
    case RDZV_SEND_REFUSE:
        dd_log(d->cfg.log, DD_LOG_WARN, "refused %s: %s", g->name, a->text);
        guest_send(g, MSG(REFUSE, .epoch = d->cfg.rdzv.epoch, .text = a->text));
        guest_free(g, true);
        break;
    case RDZV_SEND_WELCOME:
        guest_send(g, MSG(WELCOME, .epoch = d->cfg.rdzv.epoch));
        break;
    case RDZV_SEND_PLAN:
        d->lost = false;
        send_plan(g);
        break;
    case RDZV_SEND_LOOK:
        guest_send(g, MSG(PROBE_REQUEST, .addr = ""));
        break;
    case RDZV_SEND_BEGUN:
        guest_send(g, &(struct msg){.type = MSG_ROUND_STARTED});
        break;
    case RDZV_SEND_COMMIT:
        if (rdzv_id_of_rank(d->machine, 0) == g->id)
            events_add(d,
                       &(struct happened){.kind = EVENT_STARTED, .round = rdzv_round(d->machine)});
        guest_send(g, MSG(COMMIT, .round = rdzv_round(d->machine)));
        break;
    case RDZV_SEND_ROUND:
        send_round(g);
        break;
    case RDZV_SEND_STOP:
        tell_stop(d, a->signal);
        guest_send(g, MSG(STOP, .round = rdzv_round(d->machine), .signal = a->signal));
        break;
    case RDZV_SEND_NOTE:
        guest_send(g, MSG(STATUS, .text = a->text));
        break;
    case RDZV_SEND_FINISH:
        send_finish(g, a->report);
        break;
    case RDZV_DROP_STORE:
        break;
    }
}

void guests_run_actions(struct daemon *d)
{
    struct rdzv_action a;
    while (rdzv_next_action(d->machine, &a))
        run_action(d, &a);
}

/* ---- in ---- */

static int take_addrs(struct guest *g, const struct dd_strv *addrs)
{
    g->addrs = calloc(addrs->n + 1, sizeof(*g->addrs));
    if (g->addrs == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < addrs->n; i++)
        if (net_addr_parse(&g->addrs[g->naddrs], addrs->v[i], 0) == 0)
            g->naddrs++;
    const struct net_addr *peer = link_peer(g->link); /* what it came from counts in any case */
    if (peer->len > 0)
        g->addrs[g->naddrs++] = *peer;
    return 0;
}

/* Somebody who waits for a plan must not wait in vain. */
static void refuse(struct guest *g, const char *why)
{
    dd_log(g->daemon->cfg.log, DD_LOG_WARN, "refused %s: %s", g->name, why);
    guest_send(g, MSG(REFUSE, .epoch = g->daemon->cfg.rdzv.epoch, .text = why));
    guest_free(g, true);
}

/* Our own node has found a later daemon: everybody is to go there, and nothing is begun here. */
static void hand_over(struct daemon *d, const char *addr)
{
    struct guest *g;
    struct guest *next;
    (void)snprintf(d->elsewhere, sizeof(d->elsewhere), "%s", addr);
    for (g = LIST_FIRST(&d->guests); g != NULL; g = next) {
        next = LIST_NEXT(g, entry);
        if (!g->is_host && g->id >= 0)
            guest_send(g, MSG(PROBE_REQUEST, .addr = d->elsewhere));
        if (g->is_host || g->id >= 0)
            guest_free(g, true);
    }
    daemon_handed_over(d);
}

static void on_probe_result(struct guest *g, const struct msg_probe_result *m)
{
    if (!g->is_host)
        return;
    if (m->addr[0] == '\0')
        daemon_step(g->daemon, &(struct rdzv_event){.kind = RDZV_LOOKED, .id = g->id});
    else if (!rdzv_has_begun(g->daemon->machine))
        hand_over(g->daemon, m->addr);
    /* else our plans have crossed this: with our node we are lost, to nodes that run workers */
}

/* Our own node, which looks for another daemon where a machine has two names in the host list. */
static bool is_ourselves(const struct daemon *d, const struct msg_join *m)
{
    const struct guest *g;
    LIST_FOREACH (g, &d->guests, entry)
        if (g->is_host && g->id >= 0)
            return m->elsewhere && g->pid == m->pid && m->epoch == d->cfg.rdzv.epoch &&
                   strcmp(g->name, m->name) == 0;
    return false;
}

static void on_join(struct guest *g, const struct msg_join *m)
{
    struct daemon *d = g->daemon;
    if (g->id >= 0)
        return;
    if (d->elsewhere[0] != '\0') {
        guest_send(g, MSG(PROBE_REQUEST, .addr = d->elsewhere));
        guest_free(g, true);
        return;
    }
    if (is_ourselves(d, m)) {
        dd_log(d->cfg.log, DD_LOG_DEBUG, "event=found-itself node=%s", g->name);
        guest_send(g, MSG(REFUSE, .epoch = d->cfg.rdzv.epoch, .text = "this is your own daemon"));
        guest_free(g, true);
        return;
    }
    (void)snprintf(g->name, sizeof(g->name), "%s", m->name);
    g->pid = m->pid;
    if (d->nfree == 0) {
        refuse(g, "all nodes of this job are here already");
        return;
    }
    DD_AUTO(rdzv_members) struct rdzv_members committed = RDZV_MEMBERS_NONE;
    DD_AUTO(rdzv_members) struct rdzv_members planned = RDZV_MEMBERS_NONE;
    struct dd_err err = {0};
    uint64_t ages[RDZV_SPENT_MAX];
    int nages = rdzv_spent_parse(ages, m->spent, &err);
    for (int i = 0; i < nages; i++)
        ages[i] *= DD_NS_PER_MS;
    if (nages < 0 || rdzv_members_parse(&committed, m->committed, &err) < 0 ||
        rdzv_members_parse(&planned, m->members, &err) < 0) {
        refuse(g, err.text);
        return;
    }
    if (take_addrs(g, m->addrs) < 0) {
        refuse(g, "the daemon is out of memory");
        return;
    }
    guest_take_ports(g, m->ports);
    g->id = d->free_ids[--d->nfree];
    d->by_id[g->id] = g;
    dd_log(d->cfg.log, DD_LOG_DEBUG, "event=join node=%s index=%d slots=%d", g->name, m->index,
           m->slots);
    events_add(d, &(struct happened){.kind = EVENT_JOIN,
                                     .node = g->name,
                                     .workers = m->slots,
                                     .address = link_peer(g->link)});
    daemon_step(d, &(struct rdzv_event){.kind = RDZV_JOIN,
                                        .id = g->id,
                                        .index = m->index,
                                        .nnodes = m->nnodes,
                                        .min_nodes = m->min_nodes,
                                        .epoch = m->epoch,
                                        .ages = ages,
                                        .nages = nages,
                                        .ended_well = m->ended_well,
                                        .elsewhere = m->elsewhere,
                                        .committed = &committed,
                                        .planned = &planned,
                                        .slots = m->slots,
                                        .name = g->name,
                                        .addr = m->addr,
                                        .unfit = m->unfit,
                                        .text = m->text});
}

static void on_signal_request(struct guest *g, const struct msg_signal_request *m)
{
    if (m->heard)
        tell_signal(g->daemon, m->signal);
    else
        (void)guests_announce(g, m->signal, m->end_near);
}

static void on_stop_request(struct guest *g, const struct msg_stop_request *m)
{
    struct daemon *d = g->daemon;
    if (!d->asked) /* a scheduler signals all nodes */
        events_add(d,
                   &(struct happened){
                       .kind = EVENT_STOP, .node = g->name, .signal = m->signal, .text = m->text});
    d->asked = true;
    daemon_step(d, &(struct rdzv_event){.kind = RDZV_STOP_REQUEST,
                                        .id = g->id,
                                        .code = m->code,
                                        .signal = m->signal,
                                        .text = m->text});
}

static void on_exit_msg(struct guest *g, const struct msg_exit *m)
{
    daemon_step(g->daemon, &(struct rdzv_event){.kind = RDZV_EXIT,
                                                .id = g->id,
                                                .round = m->round,
                                                .local_rank = m->local_rank,
                                                .code = m->code,
                                                .signal = m->signal,
                                                .text = account_why(g->daemon->account)});
}

static void on_done(struct guest *g, const struct msg_done *m)
{
    link_excuse(g->link, 0);
    guest_take_ports(g, m->ports);
    daemon_step(
        g->daemon,
        &(struct rdzv_event){.kind = RDZV_DONE, .id = g->id, .round = m->round, .unfit = m->unfit});
}

/* A message that only carries its round. */
static void step_round(struct guest *g, enum rdzv_event_kind kind, int round)
{
    daemon_step(g->daemon, &(struct rdzv_event){.kind = kind, .id = g->id, .round = round});
}

static void on_message(struct guest *g, const struct msg *m)
{
    struct daemon *d = g->daemon;
    if (m->type != MSG_JOIN && g->id < 0)
        return; /* nothing counts before JOIN */
    account_msg(d->account, d, g, m);
    switch (m->type) {
    case MSG_JOIN:
        on_join(g, &m->join);
        break;
    case MSG_PROBE_RESULT:
        on_probe_result(g, &m->probe_result);
        break;
    case MSG_WHOIS_REPLY:
        admission_reply(d->admission, g, &m->whois_reply);
        break;
    case MSG_SIGNAL_REQUEST:
        on_signal_request(g, &m->signal_request);
        break;
    case MSG_CTL_REQUEST:
        control_ask(g, &m->ctl_request);
        break;
    case MSG_STARTED:
        link_excuse(g->link, 0);
        step_round(g, RDZV_STARTED, m->started.round);
        break;
    case MSG_EXIT:
        on_exit_msg(g, &m->exit);
        break;
    case MSG_SUCCESS_CRITERIA_MET:
        step_round(g, RDZV_ENOUGH, m->success_criteria_met.round);
        break;
    case MSG_DONE:
        on_done(g, &m->done);
        break;
    case MSG_STOP_REQUEST:
        on_stop_request(g, &m->stop_request);
        break;
    case MSG_STATUS:
    case MSG_REFUSE:
    case MSG_WELCOME:
    case MSG_PLAN:
    case MSG_PROBE_REQUEST:
    case MSG_ROUND_STARTED:
    case MSG_COMMIT:
    case MSG_ROUND_MEMBERS:
    case MSG_STOP:
    case MSG_FINISH:
    case MSG_SIGNAL:
    case MSG_WHOIS:
    case MSG_IDENTITY:
    case MSG_CTL_REPLY:
    case MSG_TYPE_MAX:
    default:
        break; /* messages of the daemon and of ddctl */
    }
}

static void lose(struct guest *g, bool clean, const char *text, bool bye)
{
    struct daemon *d = g->daemon;
    const int id = g->id;
    const bool was_host = g->is_host;
    if (id >= 0)
        events_add(d, &(struct happened){.kind = EVENT_LEAVE, .node = g->name, .text = text});
    guest_free(g, bye);
    if (id >= 0 && rdzv_state(d->machine) != RDZV_FINISHED)
        d->lost = true;
    if (was_host && (id < 0 || rdzv_may_go_on(d->machine, dd_now_ns())))
        daemon_over(d, 1); /* dies with its node; another node takes its place */
    else if (id >= 0)
        daemon_step(
            d, &(struct rdzv_event){.kind = RDZV_LOST, .id = id, .clean = clean, .text = text});
}

/* One side would wait for ever for the answer to what the other has not read. */
static void not_understood(struct guest *g, const char *what)
{
    char why[LINK_WHY_MAX];
    (void)snprintf(why, sizeof(why), "a message of %.100s cannot be read: %.260s", g->name, what);
    if (g->id < 0) { /* it cannot have been another one than JOIN that counts */
        refuse(g, why);
        return;
    }
    guest_send(g, MSG(REFUSE, .epoch = g->daemon->cfg.rdzv.epoch, .text = why));
    lose(g, false, why, true); /* for all we know it goes on elsewhere */
}

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    (void)l;
    struct guest *g = arg;
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    if (f->type == FRAME_EXCHANGE)
        guest_take_exchange(g, f);
    if (f->type != FRAME_CONTROL)
        return;
    int rc = msg_decode(&m, f->data, f->len, &err);
    if (rc == 0)
        on_message(g, &m);
    else if (rc == -ENOMSG)
        dd_log(g->daemon->cfg.log, DD_LOG_DEBUG, "event=skip node=%s why=%s", g->name, err.text);
    else
        not_understood(g, err.text);
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    (void)l;
    struct guest *g = arg;
    char text[LINK_WHY_MAX];
    const bool left = clean && strcmp(why, LINK_GOODBYE) == 0;
    (void)snprintf(text, sizeof(text), "%s",
                   g->is_host ? "its ddrun ended"
                   : left     ? "it left the job"
                              : why);
    dd_log(g->daemon->cfg.log, DD_LOG_DEBUG, "event=leave node=%s clean=%d why=%s", g->name, clean,
           why);
    lose(g, clean, text, false);
}

void guest_new(struct daemon *d, struct link *link, bool is_host)
{
    struct guest *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        link_free(link);
        return;
    }
    *g = (struct guest){.daemon = d, .link = link, .id = -1, .is_host = is_host};
    TAILQ_INIT(&g->questions);
    char name[256];
    (void)snprintf(g->name, sizeof(g->name), "%s",
                   dd_log_escape(name, sizeof(name), link_node(link), strlen(link_node(link))));
    LIST_INSERT_HEAD(&d->guests, g, entry);
    d->nguests++;
    link_set_cb(link, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = g});
    (void)link_set_heartbeat(link, (unsigned)(d->cfg.heartbeat_ns / DD_NS_PER_MS));
}

int guests_add_host(struct daemon *d, int fd, struct dd_err *err)
{
    struct link *link;
    const struct link_cb none = {0};
    int rc = link_new_trusted(&link, d->base, fd, &none, err);
    if (rc == 0)
        guest_new(d, link, true);
    return rc;
}

struct guest *guests_find_addr(struct daemon *d, const struct net_addr *a)
{
    struct guest *g;
    LIST_FOREACH (g, &d->guests, entry)
        for (size_t i = 0; g->id >= 0 && i < g->naddrs; i++)
            if (net_addr_same_host(&g->addrs[i], a))
                return g;
    return NULL;
}

void guests_free(struct daemon *d)
{
    guests_accept_end(d);
    while (!LIST_EMPTY(&d->guests))
        guest_free(LIST_FIRST(&d->guests), false);
}
