#include "daemon/job.h"

#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LATECOMER_S =
        3, /* time for nodes that are still starting, if the job ends before the first round */
    REDIRECT_S = 2, /* time to deliver messages to agents that are redirected, and to latecomers */
    GOODBYE_S = 5,  /* time for agents to leave by themselves after FINISH */
    /* A scheduler signals agents and daemon alike. Prefer an agent's message, which names the
     * signal and the node. */
    STOP_MS = 300,
    PROGRESS_S = 5, /* delay of the first report of missing nodes */
};

struct job {
    struct job_cfg cfg;
    struct rdzv *machine;
    uint64_t start_ns;
    struct event *progress, *timer, *stop, *end;
    int round;      /* last round that was published; -1: none */
    int stopping;   /* last round whose stop was published; -1: none */
    int charged;    /* number of charges that were published */
    bool started;   /* a round has begun, or no other node is expected */
    bool node_lost; /* a node was lost since the round began */
    bool stop_requested;
    bool published_end;
    bool all_left; /* finished, and all agents that joined have left */
    bool over;     /* cfg.over was called */
    struct stacks_collect *stacks;
    struct usage_collect *usage;
    struct signal_collect *signalled;
    int64_t reading; /* id of the question for the stacks of this round; 0: none is open */
    int read_round;  /* last round whose stacks were asked for; -1: none */
    int hung_round;  /* round whose agents have got HUNG, unless a node has been active since; -1:
                        none */
    bool holds_stop; /* STOP is sent after the stacks have been read */
    int held_signal;
    bool signals;      /* RDZV_SEND_SIGNAL has been carried out in this step */
    bool hung;         /* members with a hung worker wait for STACKS_TAKEN */
    char redirect[64]; /* address of the daemon that took over; "": none */
};

struct rdzv *job_machine(const struct job *j)
{
    return j->machine;
}

uint64_t job_start_ns(const struct job *j)
{
    return j->start_ns;
}

const char *job_redirect_addr(const struct job *j)
{
    return j->redirect;
}

void job_publish(struct job *j, const struct journal_event *e)
{
    journal_publish(j->cfg.journal, e);
}

bool job_is_round(const struct job *j, int round)
{
    return j->round >= 0 && j->round == round;
}

bool job_note_stop_request(struct job *j)
{
    const bool known = j->stop_requested;
    j->stop_requested = true;
    return known;
}

void job_signal_workers(struct job *j, int sig)
{
    if (rdzv_state(j->machine) == RDZV_RUNNING)
        worker_events_signal(j->cfg.worker_events, rdzv_round(j->machine), sig);
}

/* ---- actions ---- */

typedef void job_action_f(struct job *j, struct session *s, const struct rdzv_action *a);

static void job_send_refuse(struct job *j, struct session *s, const struct rdzv_action *a)
{
    (void)j;
    session_refuse(s, a->text);
}

static void job_send_welcome(struct job *j, struct session *s, const struct rdzv_action *a)
{
    (void)a;
    session_send(s, MSG(WELCOME, .epoch = j->cfg.rdzv.epoch));
}

static void job_send_plan(struct job *j, struct session *s, const struct rdzv_action *a)
{
    (void)a;
    j->node_lost = false;
    plan_cache_send_plan(j->cfg.plans, j->machine, s);
}

static void job_send_probe_request(struct job *j, struct session *s, const struct rdzv_action *a)
{
    (void)j;
    (void)a;
    session_send(s, MSG(PROBE_REQUEST, .addr = ""));
}

static void job_send_round_started(struct job *j, struct session *s, const struct rdzv_action *a)
{
    (void)j;
    (void)a;
    session_send(s, &(struct msg){.type = MSG_ROUND_STARTED});
}

static void job_send_commit(struct job *j, struct session *s, const struct rdzv_action *a)
{
    const int round = rdzv_round(j->machine);
    (void)a;
    if (rdzv_id_of_rank(j->machine, 0) == s->id)
        job_publish(j, &(struct journal_event){.kind = JOURNAL_STARTED, .round = round});
    session_send(s, MSG(COMMIT, .round = round));
}

static void job_send_members(struct job *j, struct session *s, const struct rdzv_action *a)
{
    (void)a;
    plan_cache_send_members(j->cfg.plans, j->machine, s);
}

static void job_send_stop(struct job *j, struct session *s, const struct rdzv_action *a)
{
    if (j->holds_stop) {
        j->held_signal = a->signal;
        return;
    }
    const int round = rdzv_round(j->machine);
    worker_events_stop(j->cfg.worker_events, round, a->signal, j->stop_requested);
    session_send(s, MSG(STOP, .round = round, .signal = a->signal,
                        .first_lost = rdzv_id_of_rank(j->machine, 0) < 0));
}

/* Return the exit code of the finished job. */
static int job_code(const struct job *j)
{
    const int code = rdzv_code(j->machine);
    return rdzv_code_is_ruled(j->machine) ? code : report_collect_code(j->cfg.report, code);
}

/* Send the whole report to the node that prints it for the user. */
static void job_send_finish(struct job *j, struct session *s, const struct rdzv_action *a)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(REPORT_TEXT_MAX);
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(REPORT_JSON_MAX);
    if (a->report)
        report_collect_texts(j->cfg.report, &text, &json);
    session_send(s, MSG(FINISH, .code = job_code(j),
                        .lost = j->node_lost || rdzv_misses_nodes(j->machine),
                        .asked = j->stop_requested, .report = a->report, .text = dd_buf_str(&text),
                        .detail = dd_buf_str(&json)));
}

/* Publish one event, although there is an action for each node. */
static void job_send_signal(struct job *j, struct session *s, const struct rdzv_action *a)
{
    if (!j->signals) {
        const struct session *leader = j->cfg.sessions->leader;
        j->signals = true;
        job_publish(j, &(struct journal_event){.kind = JOURNAL_SIGNAL,
                                               .signal = a->signal,
                                               .node = leader != NULL ? leader->name : s->name});
        job_signal_workers(j, a->signal);
    }
    session_send(s, MSG(SIGNAL, .signal = a->signal, .end_near = true));
}

static void job_send_note(struct job *j, struct session *s, const struct rdzv_action *a)
{
    (void)j;
    session_send(s, MSG(STATUS, .text = a->text));
}

static void job_note_excluded(struct job *j, struct session *s, const struct rdzv_action *a)
{
    job_publish(j,
                &(struct journal_event){.kind = JOURNAL_EXCLUDE, .node = s->name, .text = a->text});
}

static job_action_f *const job_actions[] = {
    [RDZV_SEND_REFUSE] = job_send_refuse,
    [RDZV_SEND_WELCOME] = job_send_welcome,
    [RDZV_SEND_PLAN] = job_send_plan,
    [RDZV_SEND_PROBE_REQUEST] = job_send_probe_request,
    [RDZV_SEND_COMMIT] = job_send_commit,
    [RDZV_SEND_ROUND_STARTED] = job_send_round_started,
    [RDZV_SEND_ROUND_MEMBERS] = job_send_members,
    [RDZV_SEND_STOP] = job_send_stop,
    [RDZV_SEND_FINISH] = job_send_finish,
    [RDZV_SEND_NOTE] = job_send_note,
    [RDZV_SEND_SIGNAL] = job_send_signal,
    [RDZV_EXCLUDED] = job_note_excluded,
};

static void job_run_actions(struct job *j)
{
    struct rdzv_action a;
    j->signals = false;
    while (rdzv_next_action(j->machine, &a)) {
        struct session *s = session_of_id(j->cfg.sessions, a.id);
        if (a.kind == RDZV_DROP_STORE) {
            j->cfg.round_over(j->cfg.arg);
            worker_events_new_round(j->cfg.worker_events);
        } else if (s != NULL) {
            job_actions[a.kind](j, s, &a);
        }
    }
}

/* ---- stacks ---- */

/* Return the number of workers on all nodes, from the plan of any member; 0: there is no plan. */
static int job_world_size(const struct job *j)
{
    for (int id = 0; id < j->cfg.rdzv.capacity; id++) {
        DD_AUTO(plan) struct plan p = {0};
        if (session_of_id(j->cfg.sessions, id) != NULL && rdzv_plan(j->machine, id, &p) == 0)
            return p.world_size;
    }
    return 0;
}

struct stacks_collect *job_stacks(const struct job *j)
{
    return j->stacks;
}

struct usage_collect *job_usage(const struct job *j)
{
    return j->usage;
}

struct signal_collect *job_signals(const struct job *j)
{
    return j->signalled;
}

/* Send the STOP that waited for the stacks. */
static void job_release_stop(struct job *j)
{
    struct rdzv_view v;
    const bool late = rdzv_state(j->machine) != RDZV_STOPPING ||
                      rdzv_round(j->machine) != j->read_round; /* the round is over */
    const bool held = j->holds_stop;
    j->holds_stop = false;
    if (!held || late)
        return;
    for (int id = 0; id < j->cfg.rdzv.capacity; id++) {
        struct session *s = session_of_id(j->cfg.sessions, id);
        if (s != NULL && rdzv_view(j->machine, id, &v) && v.part && !v.done)
            job_send_stop(j, s, &(struct rdzv_action){.id = id, .signal = j->held_signal});
    }
}

/* Report to all agents that the stacks have been read: they may end the workers that hang. */
static void job_send_taken(struct job *j)
{
    j->hung = false;
    for (int id = 0; id < j->cfg.rdzv.capacity; id++) {
        struct session *s = session_of_id(j->cfg.sessions, id);
        if (s != NULL)
            session_send(s, MSG(STACKS_TAKEN, .round = j->read_round));
    }
}

static void job_on_stacks(void *arg, int64_t id, struct stacks *found)
{
    struct job *j = arg;
    if (id != j->reading)
        return;
    j->reading = 0;
    if (found->n > 0 || found->collectives.n > 0 || found->ras.answered)
        job_publish(j, &(struct journal_event){
                           .kind = JOURNAL_STACKS, .round = j->read_round, .stacks = found});
    if (j->hung)
        job_send_taken(j);
    job_release_stop(j);
}

/* Ask for the stacks of the round, once in each round. Return whether they are being read. */
static bool job_read_stacks(struct job *j, uint64_t limit_ns)
{
    const struct stacks_question q = {.limit_ns = limit_ns,
                                      .all = j->cfg.stacks.all,
                                      .keep = true,
                                      .done = job_on_stacks,
                                      .arg = j};
    const int round = rdzv_round(j->machine);
    if (j->read_round != round) {
        const int64_t id = stacks_collect_ask(j->stacks, &q);
        j->read_round = round;
        j->reading = id > 0 ? id : 0;
    }
    return j->reading != 0;
}

/* True if the workers of all nodes that still run are idle, and one of them is not stopped: a user
 * or a scheduler may stop a whole job. */
static bool job_is_idle(const struct job *j, int round)
{
    struct rdzv_view v;
    bool hangs = false;
    for (int id = 0; id < j->cfg.rdzv.capacity; id++) {
        const struct session *s = session_of_id(j->cfg.sessions, id);
        if (!rdzv_view(j->machine, id, &v) || !v.part || v.done)
            continue;
        if (s == NULL || s->idle != (int64_t)round + 1)
            return false;
        hangs = hangs || !s->stopped;
    }
    return hangs;
}

void job_note_idle(struct job *j, struct session *s, const struct msg_idle *m)
{
    s->idle = m->idle ? (int64_t)m->round + 1 : 0;
    s->stopped = m->stopped;
    if (!m->idle)
        j->hung_round = -1;
    if (rdzv_state(j->machine) != RDZV_RUNNING || rdzv_round(j->machine) != m->round ||
        j->hung_round == m->round || !job_is_idle(j, m->round))
        return;
    j->hung_round = m->round;
    for (int id = 0; id < j->cfg.rdzv.capacity; id++) {
        struct session *to = session_of_id(j->cfg.sessions, id);
        if (to != NULL && to->idle == (int64_t)m->round + 1)
            session_send(to, MSG(HUNG, .round = m->round));
    }
}

void job_read_hang(struct job *j, struct session *s, int round)
{
    const bool current = rdzv_state(j->machine) == RDZV_RUNNING && rdzv_round(j->machine) == round;
    if (current && j->cfg.stacks.on_hang &&
        job_read_stacks(j, stacks_hang_ns(j->cfg.stacks.limit_ns)))
        j->hung = true;
    else
        session_send(s, MSG(STACKS_TAKEN, .round = round));
}

/* After the first failure, STOP waits until the stacks have been read. A request to stop the job
 * ends the reading, and so does the end of the round. */
static void job_hold_stop(struct job *j, const struct rdzv_event *e, enum rdzv_state before)
{
    const enum rdzv_state after = rdzv_state(j->machine);
    if (after == RDZV_STOPPING && before == RDZV_RUNNING && e->kind == RDZV_EXIT) {
        const bool reads = j->cfg.stacks.on_failure && job_world_size(j) > 1;
        j->holds_stop = reads ? job_read_stacks(j, j->cfg.stacks.limit_ns) : j->reading != 0;
    } else if (j->reading != 0) {
        const bool over = rdzv_round(j->machine) != j->read_round ||
                          (after != RDZV_RUNNING && after != RDZV_STOPPING);
        if (over || (after == RDZV_STOPPING && e->kind == RDZV_STOP_REQUEST))
            stacks_collect_end(j->stacks, j->reading);
    }
}

/* ---- the end ---- */

static void job_over(struct job *j, int code)
{
    if (j->over)
        return;
    j->over = true;
    j->cfg.over(j->cfg.arg, code);
}

static void job_on_end(evutil_socket_t fd, short what, void *arg)
{
    struct job *j = arg;
    uint64_t wait_ns;
    (void)fd;
    (void)what;
    if (!j->cfg.waits(j->cfg.arg, &wait_ns)) {
        job_over(j, rdzv_code(j->machine));
        return;
    }
    const struct timeval t = dd_timeval(wait_ns);
    evtimer_add(j->end, &t);
}

void job_end_now(struct job *j)
{
    const struct timeval now = {0};
    evtimer_add(j->end, &now);
}

/* End the daemon once the job has finished and all agents have left, since the store is no longer
 * needed. After the deadline do not wait for agents. */
static void job_check_end(struct job *j)
{
    if (rdzv_state(j->machine) != RDZV_FINISHED || j->over)
        return;
    const bool left = rdzv_members(j->machine) == 0;
    const bool now = left && (rdzv_all_finished(j->machine) || j->started);
    const struct timeval t = {.tv_sec = now ? 0 : left ? LATECOMER_S : GOODBYE_S};
    if (now || (left && !j->all_left) || !evtimer_pending(j->end, NULL))
        evtimer_add(j->end, &t);
    j->all_left |= left;
}

/* ---- steps ---- */

/* Publish that the failure of the round that has ended is charged to a node. */
static void job_publish_charge(struct job *j)
{
    struct rdzv_charges c = {0};
    const int charged = rdzv_last_charge(j->machine, dd_now_ns(), &c);
    if (charged == j->charged)
        return;
    j->charged = charged;
    job_publish(j, &(struct journal_event){.kind = JOURNAL_CHARGE,
                                           .round = j->round,
                                           .node = c.name,
                                           .count = c.n,
                                           .text = c.why});
}

static void job_publish_end(struct job *j)
{
    struct rdzv_unfit unfit;
    const bool is_unfit = rdzv_unfit_end(j->machine, &unfit);
    j->published_end = true;
    job_publish(j, &(struct journal_event){.kind = JOURNAL_FINISH,
                                           .code = job_code(j),
                                           .text = rdzv_text(j->machine),
                                           .verdict = rdzv_verdict(j->machine),
                                           .unfit = is_unfit ? &unfit : NULL});
}

/* Publish what the step has changed: a charge, a new round or the end of the job. */
static void job_publish_step(struct job *j)
{
    const enum rdzv_state s = rdzv_state(j->machine);
    job_publish_charge(j);
    if ((s == RDZV_RUNNING || s == RDZV_STOPPING) && j->round != rdzv_round(j->machine)) {
        j->round = rdzv_round(j->machine);
        job_publish(j, &(struct journal_event){.kind = JOURNAL_ROUND,
                                               .round = j->round,
                                               .nodes = rdzv_planned(j->machine)->n,
                                               .workers = job_world_size(j)});
    }
    if (s == RDZV_STOPPING && j->stopping != j->round) {
        j->stopping = j->round;
        job_publish(j, &(struct journal_event){.kind = JOURNAL_STOPPING, .round = j->round});
    }
    if (s == RDZV_FINISHED && !j->published_end)
        job_publish_end(j);
}

/* The machine has no clock; it returns the time of its next timer event. */
static void job_set_timer(struct job *j)
{
    const uint64_t at = rdzv_timer(j->machine);
    const uint64_t now = dd_now_ns();
    const struct timeval t = dd_timeval(at > now ? at - now : 0);
    if (at == RDZV_NEVER)
        evtimer_del(j->timer);
    else
        evtimer_add(j->timer, &t);
}

/* Copy the member's name before the step, which may remove the member. */
static int job_step_machine(struct job *j, const struct rdzv_event *e)
{
    const struct session *leader = j->cfg.sessions->leader;
    const enum rdzv_state from = rdzv_state(j->machine);
    const int round = rdzv_round(j->machine);
    struct rdzv_view member = {.name = e->name};
    char peer[256] = "-";
    char begins[24] = "";
    if (!dd_traces(j->cfg.log, DD_TRACE_MACHINE))
        return rdzv_step(j->machine, e, dd_now_ns());
    (void)rdzv_view(j->machine, e->id, &member);
    if (member.name != NULL)
        (void)snprintf(peer, sizeof(peer), "%s", member.name);
    const int rc = rdzv_step(j->machine, e, dd_now_ns());
    const enum rdzv_state to = rdzv_state(j->machine);
    if (to == RDZV_RUNNING && (from == RDZV_GATHERING || rdzv_round(j->machine) != round))
        (void)snprintf(begins, sizeof(begins), " begins=%d", rdzv_round(j->machine));
    dd_trace(j->cfg.log, DD_TRACE_MACHINE,
             "machine=daemon node=%s epoch=%lld peer=%s from=%s on=%s to=%s round=%d%s",
             leader != NULL ? leader->name : "-", (long long)j->cfg.rdzv.epoch, peer,
             rdzv_state_name(from), rdzv_event_name(e->kind), rdzv_state_name(to), round, begins);
    return rc;
}

void job_step(struct job *j, const struct rdzv_event *e)
{
    const enum rdzv_state before = rdzv_state(j->machine);
    const struct session *from = session_of_id(j->cfg.sessions, e->id);
    int rc = job_step_machine(j, e);
    if (rc == -ENOMEM) { /* the step is incomplete, so the machine's state is undefined */
        dd_log(j->cfg.log, DD_LOG_ERR, "ddrund is out of memory; exiting");
        job_over(j, 1);
        return;
    }
    if (rc < 0)
        dd_log(j->cfg.log, DD_LOG_WARN,
               "ddrund ignored the unexpected event '%s' (node: %s) while the job was '%s'",
               rdzv_event_name(e->kind), from != NULL ? from->name : "none or lost",
               rdzv_state_name(before));
    const enum rdzv_state after = rdzv_state(j->machine);
    j->started |= after == RDZV_RUNNING;
    if (after != RDZV_GATHERING)
        evtimer_del(j->progress);
    job_hold_stop(j, e, before);
    job_publish_step(j);
    job_run_actions(j);
    job_set_timer(j);
    job_check_end(j);
}

static void job_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct job *j = arg;
    (void)fd;
    (void)what;
    job_step(j, &(struct rdzv_event){.kind = RDZV_TIME, .id = -1});
    j->started |= rdzv_state(j->machine) == RDZV_FINISHED;
}

static void job_on_stop(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    job_step(arg, &(struct rdzv_event){.kind = RDZV_STOP_REQUEST,
                                       .id = -1,
                                       .signal = SIGTERM,
                                       .text = "stopped by a signal to ddrund"});
}

void job_stop_soon(struct job *j)
{
    const struct timeval t = {.tv_usec = STOP_MS * 1000};
    if (rdzv_state(j->machine) == RDZV_FINISHED)
        job_over(j, rdzv_code(j->machine));
    else if (!evtimer_pending(j->stop, NULL))
        evtimer_add(j->stop, &t);
}

/* Report "waiting for 1 of 4 nodes: node3; gives up in 4 min", at growing intervals. */
static void job_on_progress(evutil_socket_t fd, short what, void *arg)
{
    struct job *j = arg;
    const uint64_t waited = (dd_now_ns() - j->start_ns) / DD_NS_PER_S;
    const struct timeval t = {.tv_sec = (time_t)(waited < 60 ? waited : 60)};
    struct session *leader = j->cfg.sessions->leader;
    DD_AUTO(buf) struct dd_buf missing = DD_BUF_INIT(1 << 20);
    (void)fd;
    (void)what;
    struct rdzv_wait w;
    if (leader != NULL && !leader->shows_wait && rdzv_waiting(j->machine, dd_now_ns(), &w) &&
        rdzv_missing(j->machine, &missing) == 0) {
        char text[1024];
        const bool named = w.names[0] != '\0'; /* else `missing` is a number of nodes */
        waiting_notice(text, sizeof(text), &w, named ? dd_buf_str(&missing) : NULL);
        session_send(leader, MSG(STATUS, .text = text));
    }
    evtimer_add(j->progress, &t);
}

/* ---- sessions ---- */

void job_lose_session(struct job *j, struct session *s, bool clean, const char *why, bool bye)
{
    const int id = s->id;
    const bool was_leader = s->is_leader;
    if (id >= 0)
        job_publish(j,
                    &(struct journal_event){.kind = JOURNAL_LEAVE, .node = s->name, .text = why});
    if (bye)
        session_bye(s);
    else
        session_free(s);
    if (id >= 0 && rdzv_state(j->machine) != RDZV_FINISHED)
        j->node_lost = true;
    if (was_leader && (id < 0 || rdzv_may_continue(j->machine, dd_now_ns())))
        job_over(j, 1); /* a daemon without its leader ends; another node starts the next one */
    else if (id >= 0)
        job_step(j, &(struct rdzv_event){.kind = RDZV_LOST, .id = id, .clean = clean, .text = why});
}

void job_redirect(struct job *j, const char *addr)
{
    const struct timeval t = {.tv_sec = REDIRECT_S};
    struct session *s;
    struct session *next;
    (void)snprintf(j->redirect, sizeof(j->redirect), "%s", addr);
    for (s = LIST_FIRST(&j->cfg.sessions->sessions); s != NULL; s = next) {
        next = LIST_NEXT(s, entry);
        if (!s->is_leader && s->id >= 0)
            session_send(s, MSG(PROBE_REQUEST, .addr = j->redirect));
        if (s->is_leader || s->id >= 0)
            session_bye(s);
    }
    evtimer_del(j->progress);
    evtimer_del(j->timer);
    evtimer_del(j->stop);
    evtimer_add(j->end, &t);
}

/* ---- life ---- */

int job_new(struct job **ret, const struct job_cfg *cfg, struct dd_err *err)
{
    const struct timeval first = {.tv_sec = PROGRESS_S};
    struct job *j = calloc(1, sizeof(*j));
    if (j == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for the job");
    *j = (struct job){.cfg = *cfg,
                      .start_ns = dd_now_ns(),
                      .round = -1,
                      .stopping = -1,
                      .read_round = -1,
                      .hung_round = -1};
    j->timer = evtimer_new(cfg->base, job_on_timer, j);
    j->progress = evtimer_new(cfg->base, job_on_progress, j);
    j->stop = evtimer_new(cfg->base, job_on_stop, j);
    j->end = evtimer_new(cfg->base, job_on_end, j);
    if (rdzv_new(&j->machine, &cfg->rdzv, dd_now_ns()) < 0 || j->timer == NULL ||
        j->progress == NULL || j->stop == NULL || j->end == NULL ||
        evtimer_add(j->progress, &first) < 0) {
        job_free(j);
        return dd_err_set(err, -ENOMEM, "out of memory for %d node%s", cfg->rdzv.capacity,
                          cfg->rdzv.capacity == 1 ? "" : "s");
    }
    const struct stacks_collect_cfg stacks = {
        .base = cfg->base, .sessions = cfg->sessions, .machine = j->machine, .log = cfg->log};
    const struct usage_collect_cfg usage = {
        .base = cfg->base, .sessions = cfg->sessions, .machine = j->machine, .log = cfg->log};
    const struct signal_collect_cfg signals = {
        .base = cfg->base, .sessions = cfg->sessions, .machine = j->machine};
    if (stacks_collect_new(&j->stacks, &stacks) < 0 || usage_collect_new(&j->usage, &usage) < 0 ||
        signal_collect_new(&j->signalled, &signals) < 0) {
        job_free(j);
        return dd_err_set(err, -ENOMEM, "out of memory for requests to the nodes");
    }
    job_set_timer(j);
    *ret = j;
    return 0;
}

void job_free(struct job *j)
{
    if (j == NULL)
        return;
    struct event *timers[] = {j->progress, j->timer, j->stop, j->end};
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        if (timers[i] != NULL)
            event_free(timers[i]);
    stacks_collect_free(j->stacks);
    usage_collect_free(j->usage);
    signal_collect_free(j->signalled);
    rdzv_free(j->machine);
    free(j);
}
