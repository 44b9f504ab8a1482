#include "daemon/dispatch.h"

#include "base/io.h"
#include "daemon/join.h"
#include "rdzv/blame.h"
#include "rdzv/marks.h"
#include "store/carried.h"
#include "store/store_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- messages ---- */

typedef void dispatch_f(struct dispatch *d, struct session *s, const struct msg *m);

/* Request phases before the node can get a plan: the plan ends a phase, too. */
static void dispatch_join_accepted(void *arg, struct session *s, const struct msg_join *m)
{
    const struct dispatch *d = arg;
    if (d->timeline == NULL)
        return;
    timeline_add_peer(d->timeline, &s->timeline, m,
                      s->is_leader || net_addr_is_loopback(link_peer(s->link)));
    session_send(s, &(struct msg){.type = MSG_RECORD_PHASES});
}

static void dispatch_join(struct dispatch *d, struct session *s, const struct msg *m)
{
    report_clock_update(&s->clock, m->join.sent_ns, dd_now_ns());
    join_take(d->job, s, &m->join, dispatch_join_accepted, d);
}

static void dispatch_probe_result(struct dispatch *d, struct session *s, const struct msg *m)
{
    if (!s->is_leader)
        return;
    if (m->probe_result.addr[0] == '\0')
        job_step(d->job, &(struct rdzv_event){.kind = RDZV_PROBE_RESULT, .id = s->id});
    else if (!rdzv_has_begun(job_machine(d->job)))
        job_redirect(d->job, m->probe_result.addr);
    /* otherwise a round has begun since the probe: ignore the result, because a redirect would
     * separate nodes that run workers from their daemon */
}

static void dispatch_phases(struct dispatch *d, struct session *s, const struct msg *m)
{
    report_clock_update(&s->clock, m->phases.sent_ns, dd_now_ns());
    if (d->timeline != NULL)
        timeline_take(d->timeline, &s->timeline, &s->clock, &m->phases);
}

/* Publish each warning of a node once. */
static void dispatch_warnings(struct dispatch *d, struct session *s, const struct msg *m)
{
    DD_AUTO(strv) struct dd_strv lines = {0};
    DD_AUTO(free) char *text = strdup(m->warnings.text);
    for (char *c = text; c != NULL && *c != '\0'; c++) /* ddctl prints the text */
        if (((unsigned char)*c < ' ' && *c != '\n') || *c == 127)
            *c = '?';
    if (text == NULL || dd_strv_split(&lines, text, "\n") < 0)
        return;
    for (size_t i = 0; i < lines.n && i < SESSION_WARNINGS_MAX; i++)
        if (!session_has_warning(s, lines.v[i]))
            job_publish(d->job, &(struct journal_event){
                                    .kind = JOURNAL_WARNING, .node = s->name, .text = lines.v[i]});
    session_set_warnings(s, text);
}

/* Publish which nodes get a mark of the scheduler, and which nodes lose it. */
static void dispatch_publish_marks(const struct dispatch *d, const struct rdzv_marks *to)
{
    struct rdzv_view v;
    for (int id = 0; id < d->sessions->cfg.capacity; id++) {
        if (!rdzv_view(job_machine(d->job), id, &v))
            continue;
        const char *why = rdzv_marks_why(to, v.name);
        if (why != NULL ? v.mark == NULL || strcmp(why, v.mark) != 0 : v.mark != NULL)
            job_publish(d->job, &(struct journal_event){.kind = why != NULL ? JOURNAL_MARK
                                                                            : JOURNAL_MARK_END,
                                                        .node = v.name,
                                                        .text = why});
    }
}

static void dispatch_node_marks(struct dispatch *d, struct session *s, const struct msg *m)
{
    DD_AUTO(marks) struct rdzv_marks to = {0};
    if (!s->is_leader || rdzv_marks_parse(&to, m->node_marks.text) < 0)
        return;
    dispatch_publish_marks(d, &to);
    job_step(d->job,
             &(struct rdzv_event){.kind = RDZV_MARKS, .id = -1, .text = m->node_marks.text});
}

static void dispatch_started(struct dispatch *d, struct session *s, const struct msg *m)
{
    link_excuse(s->link, 0);
    job_step(d->job,
             &(struct rdzv_event){.kind = RDZV_STARTED, .id = s->id, .round = m->started.round});
}

/* Publish a failure of the current round. why: receives the cause of the failure. */
static void dispatch_publish_exit(const struct dispatch *d, const struct report_exit *e, int round,
                                  struct dd_buf *why)
{
    if (!job_is_round(d->job, round))
        return;
    (void)report_why(e, why);
    job_publish(d->job, &(struct journal_event){
                            .kind = JOURNAL_EXIT,
                            .node = e->node,
                            .round = round,
                            .rank = e->rank,
                            .code = e->code,
                            .signal = e->signal,
                            .text = dd_buf_str(why),
                            .exit = rdzv_expects_exit(job_machine(d->job), e->code) ? NULL : e,
                            .by_itself = rdzv_state(job_machine(d->job)) == RDZV_RUNNING});
}

static void dispatch_exit(struct dispatch *d, struct session *s, const struct msg *m)
{
    const struct msg_exit *x = &m->exit;
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(512);
    report_clock_update(&s->clock, x->sent_ns, dd_now_ns());
    const struct report_exit e = {.rank = x->rank,
                                  .local_rank = x->local_rank,
                                  .pid = x->pid,
                                  .code = x->code,
                                  .signal = x->signal,
                                  .oom = x->oom,
                                  .at_ns = report_clock_time(&s->clock, x->ended_ns, dd_now_ns()),
                                  .node = s->name,
                                  .error = x->error,
                                  .trace = x->trace,
                                  .tail = x->text,
                                  .log = x->log};
    dispatch_publish_exit(d, &e, x->round, &why);
    job_step(d->job, &(struct rdzv_event){.kind = RDZV_EXIT,
                                          .id = s->id,
                                          .round = x->round,
                                          .local_rank = x->local_rank,
                                          .code = x->code,
                                          .signal = x->signal,
                                          .at = e.at_ns,
                                          .remote = blame_is_remote(&e, dd_buf_str(&why)),
                                          .text = dd_buf_str(&why)});
}

static void dispatch_progress(struct dispatch *d, struct session *s, const struct msg *m)
{
    job_step(d->job, &(struct rdzv_event){.kind = RDZV_PROGRESS,
                                          .id = s->id,
                                          .round = m->progress.round,
                                          .step = m->progress.step});
}

static void dispatch_steps(struct dispatch *d, struct session *s, const struct msg *m)
{
    step_collect_take(d->steps, s, &m->steps, dd_now_ns());
}

static void dispatch_load(struct dispatch *d, struct session *s, const struct msg *m)
{
    step_collect_take_load(d->steps, s, &m->load);
}

static void dispatch_success_criteria_met(struct dispatch *d, struct session *s,
                                          const struct msg *m)
{
    job_step(d->job, &(struct rdzv_event){.kind = RDZV_SUCCESS_CRITERIA_MET,
                                          .id = s->id,
                                          .round = m->success_criteria_met.round});
}

static void dispatch_left(struct dispatch *d, struct session *s, const struct msg *m)
{
    (void)s;
    remaining_ranks_take(d->remaining, &m->left);
}

static void dispatch_done(struct dispatch *d, struct session *s, const struct msg *m)
{
    const struct msg_done *x = &m->done;
    report_clock_update(&s->clock, x->sent_ns, dd_now_ns());
    const struct report_ends ends = {
        .left = x->left,
        .stopped = x->stopped,
        .killed = x->killed,
        .first_node = x->left > 0 && x->first_ns > 0 ? s->name : NULL,
        .first_rank = x->first_rank,
        .first_ns = report_clock_time(&s->clock, x->first_ns, dd_now_ns())};
    if (job_is_round(d->job, x->round))
        job_publish(d->job, &(struct journal_event){.kind = JOURNAL_NODE_DONE,
                                                    .node = s->name,
                                                    .round = x->round,
                                                    .ends = &ends});
    link_excuse(s->link, 0);
    session_set_ports(s, x->ports);
    job_step(d->job, &(struct rdzv_event){
                         .kind = RDZV_DONE, .id = s->id, .round = x->round, .unfit = x->unfit});
    if (job_is_round(d->job, x->round))
        remaining_ranks_node_done(d->remaining);
}

static void dispatch_stop_request(struct dispatch *d, struct session *s, const struct msg *m)
{
    const struct msg_stop_request *x = &m->stop_request;
    if (!job_note_stop_request(d->job)) /* a scheduler signals every node; count the request once */
        job_publish(d->job, &(struct journal_event){.kind = JOURNAL_STOP,
                                                    .node = s->name,
                                                    .signal = x->signal,
                                                    .text = x->text});
    job_step(d->job, &(struct rdzv_event){.kind = RDZV_STOP_REQUEST,
                                          .id = s->id,
                                          .code = x->code,
                                          .signal = x->signal,
                                          .text = x->text});
}

static void dispatch_signal_request(struct dispatch *d, struct session *s, const struct msg *m)
{
    const struct msg_signal_request *x = &m->signal_request;
    if (x->heard)
        signal_broadcast_heard(&d->broadcast, s, x->signal);
    else
        signal_broadcast(&d->broadcast, s, x->signal, x->end_near);
}

static void dispatch_idle(struct dispatch *d, struct session *s, const struct msg *m)
{
    job_note_idle(d->job, s, &m->idle);
}

static void dispatch_stacks_wanted(struct dispatch *d, struct session *s, const struct msg *m)
{
    job_read_hang(d->job, s, m->stacks_wanted.round);
}

static void dispatch_stacks(struct dispatch *d, struct session *s, const struct msg *m)
{
    stacks_collect_take(job_stacks(d->job), s, &m->stacks);
}

static void dispatch_signalled(struct dispatch *d, struct session *s, const struct msg *m)
{
    signal_collect_take(job_signals(d->job), s, &m->signalled);
}

static void dispatch_usage(struct dispatch *d, struct session *s, const struct msg *m)
{
    usage_collect_take(job_usage(d->job), s, &m->usage);
}

static void dispatch_whois_reply(struct dispatch *d, struct session *s, const struct msg *m)
{
    admission_reply(d->admission, &s->admission, m->whois_reply.id, m->whois_reply.ok);
}

static void dispatch_ctl_request(struct dispatch *d, struct session *s, const struct msg *m)
{
    ctl_request(&d->ctl, s, &m->ctl_request);
}

/* The daemon's own message types have no handler. */
static dispatch_f *const dispatch_handlers[MSG_TYPE_MAX] = {
    [MSG_JOIN] = dispatch_join,
    [MSG_PROBE_RESULT] = dispatch_probe_result,
    [MSG_PHASES] = dispatch_phases,
    [MSG_WARNINGS] = dispatch_warnings,
    [MSG_NODE_MARKS] = dispatch_node_marks,
    [MSG_STARTED] = dispatch_started,
    [MSG_EXIT] = dispatch_exit,
    [MSG_SUCCESS_CRITERIA_MET] = dispatch_success_criteria_met,
    [MSG_PROGRESS] = dispatch_progress,
    [MSG_STEPS] = dispatch_steps,
    [MSG_LOAD] = dispatch_load,
    [MSG_LEFT] = dispatch_left,
    [MSG_DONE] = dispatch_done,
    [MSG_STOP_REQUEST] = dispatch_stop_request,
    [MSG_SIGNAL_REQUEST] = dispatch_signal_request,
    [MSG_IDLE] = dispatch_idle,
    [MSG_STACKS_WANTED] = dispatch_stacks_wanted,
    [MSG_STACKS] = dispatch_stacks,
    [MSG_USAGE] = dispatch_usage,
    [MSG_SIGNALLED] = dispatch_signalled,
    [MSG_WHOIS_REPLY] = dispatch_whois_reply,
    [MSG_CTL_REQUEST] = dispatch_ctl_request,
};

bool dispatch_handles(enum msg_type type)
{
    return type < MSG_TYPE_MAX && dispatch_handlers[type] != NULL;
}

static void dispatch_on_message(void *arg, struct session *s, const struct msg *m)
{
    if (m->type != MSG_JOIN && s->id < 0)
        return; /* ignore messages before JOIN */
    if (dispatch_handles(m->type))
        dispatch_handlers[m->type](arg, s, m);
}

/* End the session: after a message that the daemon cannot parse, the agent could wait forever for a
 * reply. */
static void dispatch_on_malformed(void *arg, struct session *s, const char *what)
{
    const struct dispatch *d = arg;
    char why[LINK_WHY_MAX];
    (void)snprintf(why, sizeof(why), "cannot read a message from %.100s: %.260s", s->name, what);
    if (s->id < 0) { /* not joined: refuse */
        session_refuse(s, why);
        return;
    }
    session_send(s, MSG(REFUSE, .epoch = s->set->cfg.epoch, .text = why));
    job_lose_session(d->job, s, false, why, true); /* the node may rejoin */
}

static void dispatch_on_closed(void *arg, struct session *s, bool clean, const char *why)
{
    const struct dispatch *d = arg;
    const bool left = clean && strcmp(why, LINK_GOODBYE) == 0;
    char text[LINK_WHY_MAX];
    (void)snprintf(text, sizeof(text), "%s%.300s",
                   s->is_leader ? "its ddrun exited or does not respond: " : "",
                   left && !s->is_leader ? "it left the job" : why);
    job_lose_session(d->job, s, clean, text, false);
}

static void dispatch_on_gone(void *arg, struct session *s)
{
    const struct dispatch *d = arg;
    admission_node_gone(&s->admission);
    store_carrier_free(s->carrier);
    s->carrier = NULL;
    event_log_forget(d->events, s, -1);
    job_metrics_forget(d->metrics, s);
    charges_follow_forget(d->charges, s);
    if (d->job == NULL) /* the daemon ends, and has freed the job */
        return;
    stacks_collect_forget(job_stacks(d->job), s);
    usage_collect_forget(job_usage(d->job), s);
    signal_collect_forget(job_signals(d->job), s);
}

/* ---- exchanges ---- */

static void dispatch_on_exchange(void *arg, struct session *s, const struct frame *f)
{
    struct dispatch *d = arg;
    const struct rdzv *machine = job_machine(d->job);
    struct exchange_piece p;
    struct dd_err err;
    if (s->id < 0 || exchange_piece_decode(&p, f->data, f->len) < 0) {
        dd_log(s->set->cfg.log, DD_LOG_WARN, "ignoring an exchange message from %s: %s", s->name,
               s->id < 0 ? "this node has not joined the job" : "it is malformed");
        return;
    }
    /* While a round is being stopped, its nodes still agree on the files to collect (--collect). */
    if ((rdzv_state(machine) != RDZV_RUNNING && rdzv_state(machine) != RDZV_STOPPING) ||
        p.round != (uint32_t)rdzv_round(machine))
        return; /* a message of an earlier round */
    if (p.node_rank > INT32_MAX || rdzv_id_of_rank(machine, (int)p.node_rank) != s->id) {
        dd_log(s->set->cfg.log, DD_LOG_WARN,
               "ignoring a part of exchange '%s' from %s: this node does not have node rank %u",
               p.name, s->name, p.node_rank);
        return;
    }
    if (exchange_relay_take(&d->exchange, &p, rdzv_round(machine), rdzv_planned(machine)->n, &err) <
        0)
        job_step(d->job,
                 &(struct rdzv_event){.kind = RDZV_STOP_REQUEST, .id = s->id, .text = err.text});
}

int dispatch_send_exchange(void *arg, int node_rank, struct link_frames *f)
{
    const struct dispatch *d = arg;
    const int id = rdzv_id_of_rank(job_machine(d->job), node_rank);
    const struct session *s = session_of_id(d->sessions, id);
    return s != NULL ? link_send_frames(s->link, f) : 0;
}

/* ---- relays of the store ---- */

static void dispatch_send_store(void *arg, const void *p, size_t n)
{
    struct session *s = arg;
    int rc = p != NULL ? link_send(s->link, FRAME_STORE, p, n) : -ENOMEM;
    if (rc < 0 && rc != -EPIPE)
        link_fail(s->link, "a store reply", rc);
}

static void dispatch_on_store(void *arg, struct session *s, const struct frame *f)
{
    const struct dispatch *d = arg;
    const struct rdzv *machine = job_machine(d->job);
    const struct store_carrier_cfg cfg = {.send = dispatch_send_store, .arg = s};
    struct dd_err err = {0};
    if (s->id < 0 || (rdzv_state(machine) != RDZV_RUNNING && rdzv_state(machine) != RDZV_STOPPING))
        return;
    int rc = s->carrier == NULL ? store_server_carrier(d->store, &s->carrier, &cfg) : 0;
    if (rc == 0)
        rc = store_carrier_take(s->carrier, (uint32_t)rdzv_round(machine), f->data, f->len, &err);
    if (rc < 0) /* the node's workers could wait for a reply forever */
        link_fail(s->link, rc == -EPROTO ? "a malformed store message" : "a store reply", rc);
}

/* ---- requests of ddctl ---- */

static void dispatch_ctl_broadcast(void *arg, struct session *from, int64_t id, int sig)
{
    const struct dispatch *d = arg;
    signal_broadcast_counted(&d->broadcast, from, id, sig);
}

static void dispatch_ctl_stop(void *arg, struct session *from, int sig, const char *why)
{
    const struct dispatch *d = arg;
    (void)job_note_stop_request(d->job);
    job_publish(d->job, &(struct journal_event){
                            .kind = JOURNAL_STOP, .node = from->name, .signal = sig, .text = why});
    job_step(d->job, &(struct rdzv_event){
                         .kind = RDZV_STOP_REQUEST, .id = from->id, .signal = sig, .text = why});
}

static void dispatch_ctl_drain(void *arg, int id, const char *why)
{
    const struct dispatch *d = arg;
    job_step(d->job, &(struct rdzv_event){.kind = RDZV_DRAIN, .id = id, .text = why});
}

static int64_t dispatch_ctl_stacks(void *arg, const struct stacks_question *q)
{
    const struct dispatch *d = arg;
    return stacks_collect_ask(job_stacks(d->job), q);
}

static int dispatch_ctl_usage(void *arg, struct session *from, int64_t id, const char *ranks,
                              bool all_lines)
{
    const struct dispatch *d = arg;
    return usage_collect_ask(job_usage(d->job), from, id, ranks, all_lines);
}

const struct ctl_ops dispatch_ctl_ops = {.broadcast = dispatch_ctl_broadcast,
                                         .stop = dispatch_ctl_stop,
                                         .drain = dispatch_ctl_drain,
                                         .stacks = dispatch_ctl_stacks,
                                         .usage = dispatch_ctl_usage};

struct session_ops dispatch_session_ops(struct dispatch *d)
{
    return (struct session_ops){.message = dispatch_on_message,
                                .malformed = dispatch_on_malformed,
                                .exchange = dispatch_on_exchange,
                                .store = dispatch_on_store,
                                .closed = dispatch_on_closed,
                                .gone = dispatch_on_gone,
                                .arg = d};
}
