#include "agent/agent_machine.h"

#include "rdzv/successor.h"

#include <signal.h>

enum {
    STOP_ANSWER_MS = 2000,
    PEERS_ANSWER_MS = 3000, /* time for an answer to JOIN */
    LIMIT_AGAIN_MS = 1000,
    DAEMON_END_MS = 30000,
    TOLD_MS = 600, /* ddrund waits 300 ms for a more precise reason than SIGTERM */
};

void agent_machine_init(struct agent_machine *m, const struct am_cfg *cfg,
                        const struct rdzv_members *last)
{
    *m = (struct agent_machine){.cfg = cfg, .last = last, .index = -1};
    for (int i = 0; i < AM_TIMERS; i++)
        m->due[i] = RDZV_NEVER;
}

void agent_machine_set_index(struct agent_machine *m, int index)
{
    m->index = index;
}

/* ---- building blocks of edges ---- */

static void push_arg(struct agent_machine *m, enum am_action_kind kind, int arg)
{
    enum { MOST = sizeof(m->actions) / sizeof(m->actions[0]) };
    if (m->end - m->first == MOST)
        m->overflow = true;
    else
        m->actions[m->end++ % MOST] = (struct am_action){.kind = kind, .arg = arg};
}

static void agent_machine_push(struct agent_machine *m, enum am_action_kind kind)
{
    push_arg(m, kind, 0);
}

static void arm(struct agent_machine *m, enum am_event_kind timer, uint64_t at)
{
    m->due[timer - AM_FIRST_TIMER] = at;
}

static void cancel(struct agent_machine *m, enum am_event_kind timer)
{
    arm(m, timer, RDZV_NEVER);
}

int agent_machine_signal_code(const struct agent_machine *m)
{
    return m->stop_code > 0 ? m->stop_code : 128 + m->sig;
}

static bool is_leader(const struct agent_machine *m)
{
    return m->state == AM_LEADING;
}

static void agent_machine_end_searches(struct agent_machine *m)
{
    cancel(m, AM_PEERS_DUE);
    cancel(m, AM_TAKEOVER_DUE);
    cancel(m, AM_RETRY_DUE);
    cancel(m, AM_FAIL_OVER_LIMIT);
    agent_machine_push(m, AM_DO_END_SEARCHES);
}

static void begin_peers(struct agent_machine *m, uint64_t now, bool leads)
{
    m->peers_ms = 0;
    m->peers_since = now;
    m->wanted = m->refused = m->reported = false;
    if (m->cfg->asks_peers && m->epoch == 0)
        arm(m, AM_PEERS_DUE, now + successor_search_wait_ms(&m->peers_ms, leads));
}

static void begin_asking_members(struct agent_machine *m)
{
    cancel(m, AM_TAKEOVER_DUE);
    cancel(m, AM_RETRY_DUE);
    cancel(m, AM_FAIL_OVER_LIMIT);
    m->again_ms = 0;
    agent_machine_push(m, AM_DO_END_SEARCHES);
    agent_machine_push(m, AM_DO_ASK_MEMBERS);
}

static void begin_failing_over(struct agent_machine *m, uint64_t now)
{
    const int place = successor_place(m->last, m->index);
    const bool again = m->lost_at != 0; /* the successor was lost as well: give all nodes time */
    if (!again)
        m->lost_at = now;
    begin_asking_members(m);
    arm(m, AM_FAIL_OVER_LIMIT,
        m->lost_at + successor_limit_ms(m->last, m->cfg->rejoin_ms, m->cfg->grace_ms));
    if (place >= 0)
        arm(m, AM_TAKEOVER_DUE, now + successor_turn_ms(place, again));
}

static void send_stop(struct agent_machine *m, uint64_t now)
{
    push_arg(m, AM_DO_SEND_STOP, m->sig);
    arm(m, AM_UNANSWERED, now + STOP_ANSWER_MS);
}

/* ---- edges ---- */

typedef void edge_do(struct agent_machine *m, const struct am_event *e, uint64_t now);
#define EDGE(name) static void name(struct agent_machine *m, const struct am_event *e, uint64_t now)

EDGE(edge_go)
{
    (void)m;
    (void)e;
    (void)now;
}

/* -- finding a daemon -- */

EDGE(edge_seek)
{
    (void)e;
    arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    begin_peers(m, now, false);
    agent_machine_push(m, AM_DO_LOCATE);
}

static void start_daemon(struct agent_machine *m)
{
    agent_machine_push(m, AM_DO_STOP_DAEMON); /* a daemon that has given way may still run */
    agent_machine_push(m, AM_DO_START_DAEMON);
    m->pending |= AM_PENDING_DAEMON;
}

EDGE(edge_lead)
{
    (void)e;
    m->index = 0;
    agent_machine_end_searches(m);
    start_daemon(m);
    begin_peers(m, now, true);
    if (m->sig != 0)
        send_stop(m, now);
}

EDGE(edge_follow)
{
    (void)e;
    m->index = -1; /* the agent with the port is the first node */
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    if (m->due[AM_SEEK_LIMIT - AM_FIRST_TIMER] == RDZV_NEVER) /* else an earlier search set it */
        arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    begin_peers(m, now, false);
    agent_machine_push(m, AM_DO_LOCATE);
}

EDGE(edge_cannot_lead)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    m->code = 2;
    push_arg(m, AM_DO_REPORT, AM_REPORT_CANNOT_LEAD);
}

EDGE(edge_join)
{
    (void)e;
    cancel(m, AM_SEEK_LIMIT);
    cancel(m, AM_PEERS_DUE);
    agent_machine_push(m, AM_DO_JOIN);
    if (m->sig != 0)
        send_stop(m, now);
}

EDGE(edge_drop_found)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_DROP);
}

EDGE(edge_ask_found)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_ASK);
}

EDGE(edge_failed)
{
    (void)now;
    m->code = e->code;
}

EDGE(edge_seek_limit)
{
    (void)e;
    (void)now;
    m->code = 1;
    push_arg(m, AM_DO_REPORT, AM_REPORT_SEEK_LIMIT);
}

/* The daemon has redirected this node to another one. */
EDGE(edge_seek_there)
{
    (void)e;
    agent_machine_end_searches(m);
    agent_machine_push(m, AM_DO_DROP_LINK);
    arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    begin_peers(m, now, false);
    agent_machine_push(m, AM_DO_LOCATE_THERE);
}

static void give_way(struct agent_machine *m)
{
    m->index = -1; /* the other daemon already has a first node */
    agent_machine_end_searches(m);
    agent_machine_push(m, AM_DO_GIVE_WAY);
}

EDGE(edge_follow_there)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_LOCATE_THERE);
}

EDGE(edge_give_way_and_seek)
{
    (void)e;
    give_way(m);
    arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    agent_machine_push(m, AM_DO_LOCATE_THERE);
}

EDGE(edge_give_way_and_stop)
{
    (void)e;
    (void)now;
    give_way(m);
    push_arg(m, AM_DO_STOP_WORKERS, SIGTERM);
}

/* -- asking the peers -- */

EDGE(edge_ask_peers)
{
    (void)e;
    (void)now;
    m->refused = false;
    agent_machine_push(m, AM_DO_ASK_PEERS);
}

/* The daemon starts no first round before it has the result. */
EDGE(edge_probe_peers)
{
    if (m->cfg->etcd) {
        agent_machine_push(m, AM_DO_CHECK_CLAIM);
    } else if (m->cfg->asks_peers) {
        m->wanted = true;
        cancel(m, AM_PEERS_DUE);
        edge_ask_peers(m, e, now);
    }
}

EDGE(edge_peers_asked)
{
    if (e->open) { /* retry if no daemon answers in time */
        arm(m, AM_PEERS_DUE, now + PEERS_ANSWER_MS);
        return;
    }
    if (!m->refused && m->wanted)
        agent_machine_push(m, AM_DO_SEND_PROBE_RESULT);
    m->wanted = m->wanted && m->refused;
    arm(m, AM_PEERS_DUE,
        now + (m->refused ? successor_search_refused_ms()
                          : successor_search_wait_ms(&m->peers_ms, is_leader(m))));
}

EDGE(edge_peers_limit)
{
    (void)e;
    (void)now;
    m->code = 1;
    push_arg(m, AM_DO_REPORT, AM_REPORT_PEERS_LIMIT);
}

EDGE(edge_peer_refuses)
{
    (void)now;
    agent_machine_push(m, AM_DO_DROP_OTHER);
    if (e->epoch <= m->epoch) /* this node's daemon, under another name of the machine */
        return;
    m->refused = true;
    if (!m->reported)
        push_arg(m, AM_DO_REPORT, AM_REPORT_OTHER_REFUSES);
    m->reported = true;
}

EDGE(edge_drop_other)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_DROP_OTHER);
}

/* This node's daemon has started no round: let it redirect its nodes to the other daemon. */
EDGE(edge_move_after)
{
    (void)e;
    agent_machine_push(m, AM_DO_MOVE_AFTER);
    agent_machine_end_searches(m);
    if (m->sig != 0)
        send_stop(m, now);
}

/* -- failing over -- */

EDGE(edge_fail_over)
{
    (void)e;
    push_arg(m, AM_DO_REPORT, AM_REPORT_FAIL_OVER);
    agent_machine_push(m, AM_DO_DROP_LINK);
    begin_failing_over(m, now);
}

EDGE(edge_stop_then_fail_over)
{
    (void)e;
    (void)now;
    push_arg(m, AM_DO_REPORT, AM_REPORT_FAIL_OVER);
    agent_machine_push(m, AM_DO_DROP_LINK);
    push_arg(m, AM_DO_STOP_WORKERS, SIGTERM);
}

EDGE(edge_workers_gone_fail_over)
{
    (void)e;
    m->pending &= ~(unsigned)AM_PENDING_WORKERS;
    begin_failing_over(m, now);
}

EDGE(edge_ask_members)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_ASK_MEMBERS);
}

EDGE(edge_ask_members_later)
{
    (void)e;
    agent_machine_push(m, AM_DO_DROP_OTHER);
    arm(m, AM_RETRY_DUE, now + successor_again_ms(&m->again_ms));
}

/* The other daemon may not know of the loss yet: retry. */
EDGE(edge_refused_ask_again)
{
    (void)e;
    push_arg(m, AM_DO_REPORT, AM_REPORT_RETRY);
    agent_machine_push(m, AM_DO_DROP_LINK);
    arm(m, AM_RETRY_DUE, now + successor_again_ms(&m->again_ms));
}

EDGE(edge_take_over)
{
    (void)e;
    (void)now;
    const int64_t known = m->epoch > m->last->epoch ? m->epoch : m->last->epoch;
    m->epoch = rdzv_next_epoch(known, m->index);
    start_daemon(m);
    if (m->sig != 0)
        send_stop(m, now);
}

EDGE(edge_cannot_take_over)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    push_arg(m, AM_DO_REPORT, AM_REPORT_CANNOT_LEAD);
}

/* Another daemon takes this node, or reports that the job has ended: stop the daemon that this node
 * runs. */
EDGE(edge_adopt)
{
    (void)e;
    agent_machine_push(m, AM_DO_DROP_LINK);
    agent_machine_push(m, AM_DO_STOP_DAEMON);
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    agent_machine_push(m, AM_DO_MOVE);
    agent_machine_end_searches(m);
    if (m->sig != 0)
        send_stop(m, now);
}

EDGE(edge_fail_over_limit)
{
    (void)e;
    (void)now;
    m->code = 1;
    push_arg(m, AM_DO_REPORT, AM_REPORT_FAIL_OVER_LIMIT);
}

/* Postpone the limit: a daemon is in use, but may still refuse this node. */
EDGE(edge_limit_later)
{
    (void)e;
    arm(m, AM_FAIL_OVER_LIMIT, now + LIMIT_AGAIN_MS);
}

EDGE(edge_contend)
{
    (void)e;
    (void)now;
    begin_asking_members(m);
}

/* -- rounds -- */

EDGE(edge_start_round)
{
    (void)e;
    (void)now;
    agent_machine_end_searches(m);
    m->lost_at = 0;
    m->pending |= AM_PENDING_WORKERS;
    agent_machine_push(m, AM_DO_START_ROUND);
}

EDGE(edge_round_started)
{
    (void)e;
    (void)now;
    m->begun = true;
    agent_machine_end_searches(m);
}

EDGE(edge_round_members)
{
    (void)e;
    (void)now;
    m->lost_at = 0;
}

EDGE(edge_not_started)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_WORKERS;
    agent_machine_push(m, AM_DO_CHECK_HEALTH);
}

EDGE(edge_drain_signals_before_verdict)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_WORKERS;
    agent_machine_push(m, AM_DO_DRAIN_SIGNALS);
}

EDGE(edge_check_health_before_done)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_CHECK_HEALTH);
}

EDGE(edge_send_done)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_SEND_DONE);
}

EDGE(edge_stop_workers)
{
    (void)now;
    cancel(m, AM_UNANSWERED);
    if (e->code != 0)
        push_arg(m, AM_DO_STOP_WORKERS, e->code);
}

EDGE(edge_answered)
{
    (void)e;
    (void)now;
    cancel(m, AM_UNANSWERED);
}

/* -- the end -- */

static void stop_if_running(struct agent_machine *m, int sig)
{
    if ((m->pending & AM_PENDING_WORKERS) != 0)
        push_arg(m, AM_DO_STOP_WORKERS, sig);
}

EDGE(edge_requeue_before_leaving)
{
    (void)now;
    cancel(m, AM_UNANSWERED);
    m->code = e->code;
    m->pending |= AM_PENDING_REQUEUE;
    agent_machine_push(m, AM_DO_REQUEUE);
    stop_if_running(m, SIGTERM);
}

EDGE(edge_refused)
{
    (void)e;
    (void)now;
    m->code = 2;
    push_arg(m, AM_DO_REPORT, AM_REPORT_REFUSED);
    stop_if_running(m, SIGTERM);
}

EDGE(edge_lost)
{
    (void)e;
    (void)now;
    m->code = m->sig != 0 ? agent_machine_signal_code(m) : 1;
    push_arg(m, AM_DO_REPORT, AM_REPORT_LOST);
    agent_machine_push(m, AM_DO_DROP_LINK);
    stop_if_running(m, SIGTERM);
}

/* Leave as if the agent had been killed: an elastic job continues without this node. SIGTERM ends
 * this node's daemon, which would otherwise wait for the other nodes. */
EDGE(edge_lost_no_memory)
{
    (void)e;
    (void)now;
    const bool started = m->last->n > 0 || m->begun || (m->pending & AM_PENDING_WORKERS) != 0;
    m->code = m->sig != 0 ? agent_machine_signal_code(m) : started ? 1 : 2;
    push_arg(m, AM_DO_REPORT, AM_REPORT_NO_MEMORY);
    agent_machine_push(m, AM_DO_DROP_LINK);
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGTERM);
    stop_if_running(m, SIGTERM);
}

EDGE(edge_lost_before)
{
    (void)e;
    push_arg(m, AM_DO_REPORT, AM_REPORT_BEFORE);
    agent_machine_push(m, AM_DO_DROP_LINK);
    arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    begin_peers(m, now, false);
    agent_machine_push(m, AM_DO_LOCATE);
}

EDGE(edge_drop_link)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_DROP_LINK);
}

/* Send the reason in BYE: the daemon would wait for an answer to the unreadable message. */
EDGE(edge_send_bye)
{
    (void)e;
    (void)now;
    m->code = 2;
    agent_machine_push(m, AM_DO_SEND_BYE);
    stop_if_running(m, SIGTERM);
}

EDGE(edge_workers_gone_leave)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_WORKERS;
}

EDGE(edge_daemon_ended)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    cancel(m, AM_DAEMON_SLOW);
    cancel(m, AM_DAEMON_REPORTED);
}

EDGE(edge_requeued)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_REQUEUE;
}

EDGE(edge_kill_daemon)
{
    (void)e;
    (void)now;
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGKILL);
}

EDGE(edge_term_daemon)
{
    (void)e;
    (void)now;
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGTERM);
}

/* -- signals -- */

EDGE(edge_ask_to_stop)
{
    (void)e;
    send_stop(m, now);
}

EDGE(edge_kill_workers)
{
    (void)e;
    (void)now;
    agent_machine_push(m, AM_DO_KILL_WORKERS);
}

EDGE(edge_signalled_again)
{
    (void)now;
    m->code = 128 + e->sig;
}

EDGE(edge_end_by_signal)
{
    (void)e;
    (void)now;
    m->code = agent_machine_signal_code(m);
    stop_if_running(m, m->sig);
}

EDGE(edge_stop_at_once)
{
    m->code = 128 + e->sig;
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGTERM);
    arm(m, AM_DAEMON_REPORTED, now + TOLD_MS);
}

/* Leave without BYE, as if the agent had been killed: an elastic job continues without this node.
 */
EDGE(edge_guardian_lost)
{
    (void)now;
    m->code = 128 + e->sig;
    agent_machine_end_searches(m);
    agent_machine_push(m, AM_DO_DROP_LINK);
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGTERM);
    stop_if_running(m, e->sig);
}

/* ---- the table ---- */

/* Rows that several states share: an empty cell in the row of a state inherits from the row above.
 */
enum { ROW_ANY = AM_STATES, ROW_FREE, ROW_LINKED, ROW_BUSY, ROWS };

enum { SAME = AM_STATES };

struct edge {
    edge_do *act; /* NULL: none */
    int next;
};

static const int row_above[ROWS] = {
    [AM_STARTING] = ROW_FREE,   [AM_SEEKING] = ROW_FREE,
    [AM_LEADING] = ROW_LINKED,  [AM_JOINED] = ROW_LINKED,
    [AM_RUNNING] = ROW_BUSY,    [AM_SETTLING] = ROW_LINKED,
    [AM_CHECKING] = ROW_LINKED, [AM_IDLE] = ROW_LINKED,
    [AM_STRANDED] = ROW_BUSY,   [AM_FAILING_OVER] = ROW_FREE,
    [AM_TRYING] = ROW_LINKED,   [AM_CONTENDING] = ROW_LINKED,
    [AM_BYE_SENT] = ROW_FREE,   [AM_ENDING] = ROW_BUSY,
    [AM_LEAVING] = ROW_ANY,     [ROW_FREE] = ROW_ANY,
    [ROW_LINKED] = ROW_FREE,    [ROW_BUSY] = ROW_ANY,
    [ROW_ANY] = ROWS,
};

static const struct edge edges[ROWS][AM_EVENTS] =
    {
        /* Any state. */
        [ROW_ANY] =
            {
                [AM_FOUND] = {edge_drop_found, SAME},
                [AM_OTHER_TAKES] = {edge_drop_other, SAME},
                [AM_OTHER_REFUSES] = {edge_drop_other, SAME},
                [AM_OTHER_ENDED] = {edge_drop_other, SAME},
                [AM_OTHER_GONE] = {edge_drop_other, SAME},
                [AM_ROUND_MEMBERS] = {edge_round_members, SAME},
                [AM_STOP] = {edge_answered, SAME},
                [AM_LOST] = {edge_drop_link, SAME},
                [AM_LOST_FAIL_OVER] = {edge_drop_link, SAME},
                [AM_LOST_NO_MEMORY] = {edge_drop_link, SAME},
                [AM_DAEMON_ENDED] = {edge_daemon_ended, SAME},
                [AM_REQUEUED] = {edge_requeued, SAME},
            },
        /* No workers. */
        [ROW_FREE] =
            {
                [AM_FAILED] = {edge_failed, AM_LEAVING},
                [AM_SIGNAL] = {edge_ask_to_stop, SAME},
                [AM_UNANSWERED] = {edge_end_by_signal, AM_LEAVING},
                [AM_STOP_AT_ONCE] = {edge_stop_at_once, AM_LEAVING},
                [AM_GUARDIAN_LOST] = {edge_guardian_lost, AM_LEAVING},
            },
        /* No workers, and a daemon. */
        [ROW_LINKED] =
            {
                [AM_PLAN] = {edge_start_round, AM_RUNNING},
                [AM_ROUND_STARTED] = {edge_round_started, SAME},
                [AM_PROBE_REQUEST] = {edge_contend, AM_CONTENDING},
                [AM_REDIRECT] = {edge_seek_there, AM_SEEKING},
                [AM_ELSEWHERE] = {edge_give_way_and_seek, AM_SEEKING},
                [AM_FINISH] = {edge_requeue_before_leaving, AM_LEAVING},
                [AM_REFUSE] = {edge_refused, AM_LEAVING},
                [AM_UNREADABLE] = {edge_send_bye, AM_BYE_SENT},
                [AM_LOST] = {edge_lost, AM_LEAVING},
                [AM_LOST_FAIL_OVER] = {edge_fail_over, AM_FAILING_OVER},
                [AM_LOST_NO_MEMORY] = {edge_lost_no_memory, AM_LEAVING},
                [AM_CANNOT_LEAD] = {edge_cannot_lead, AM_LEAVING},
            },
        /* Workers. */
        [ROW_BUSY] =
            {
                [AM_STOP] = {edge_stop_workers, SAME},
                [AM_FINISH] = {edge_requeue_before_leaving, AM_ENDING},
                [AM_REFUSE] = {edge_refused, AM_ENDING},
                [AM_UNREADABLE] = {edge_send_bye, AM_ENDING},
                [AM_LOST] = {edge_lost, AM_ENDING},
                [AM_LOST_NO_MEMORY] = {edge_lost_no_memory, AM_ENDING},
                [AM_SIGNAL] = {edge_ask_to_stop, SAME},
                [AM_SIGNAL_AGAIN] = {edge_kill_workers, SAME},
                [AM_UNANSWERED] = {edge_end_by_signal, AM_ENDING},
                [AM_GUARDIAN_LOST] = {edge_guardian_lost, AM_ENDING},
            },

        [AM_STARTING] =
            {
                [AM_SEEK] = {edge_seek, AM_SEEKING},
                [AM_LEAD] = {edge_lead, AM_LEADING},
                [AM_SIGNAL_AGAIN] = {edge_signalled_again, AM_LEAVING},
            },
        [AM_SEEKING] =
            {
                [AM_LEAD] = {edge_lead, AM_LEADING},
                [AM_FOUND] = {edge_join, AM_JOINED},
                [AM_SEEK_LIMIT] = {edge_seek_limit, AM_LEAVING},
                [AM_PEERS_DUE] = {edge_ask_peers, SAME},
                [AM_PEERS_PROBED] = {edge_peers_asked, SAME},
                [AM_SIGNAL_AGAIN] = {edge_signalled_again, AM_LEAVING},
            },
        [AM_LEADING] =
            {
                [AM_PORT_TAKEN] = {edge_follow, AM_SEEKING},
                [AM_ROUND_STARTED] = {edge_round_started, AM_JOINED},
                [AM_PROBE_REQUEST] = {edge_probe_peers, SAME},
                [AM_PEERS_DUE] = {edge_ask_peers, SAME},
                [AM_FOUND] = {edge_ask_found, SAME},
                [AM_OTHER_TAKES] = {edge_move_after, AM_JOINED},
                [AM_OTHER_REFUSES] = {edge_peer_refuses, SAME},
                [AM_PEERS_PROBED] = {edge_peers_asked, SAME},
                [AM_PEERS_LIMIT] = {edge_peers_limit, AM_LEAVING},
            },
        [AM_JOINED] =
            {
                [AM_LOST_BEFORE] = {edge_lost_before, AM_SEEKING},
            },
        [AM_RUNNING] =
            {
                [AM_NOT_STARTED] = {edge_not_started, AM_CHECKING},
                [AM_WORKERS_GONE] = {edge_drain_signals_before_verdict, AM_SETTLING},
                [AM_LOST_FAIL_OVER] = {edge_stop_then_fail_over, AM_STRANDED},
                [AM_ELSEWHERE] = {edge_give_way_and_stop, AM_STRANDED},
            },
        [AM_SETTLING] =
            {
                [AM_SETTLED] = {edge_check_health_before_done, AM_CHECKING},
            },
        [AM_CHECKING] =
            {
                [AM_CHECKED] = {edge_send_done, AM_IDLE},
            },
        [AM_IDLE] = {{0}},
        [AM_STRANDED] =
            {
                [AM_WORKERS_GONE] = {edge_workers_gone_fail_over, AM_FAILING_OVER},
            },
        [AM_FAILING_OVER] =
            {
                [AM_FOUND] = {edge_join, AM_TRYING},
                [AM_ELSEWHERE] = {edge_follow_there, SAME},
                [AM_RETRY_DUE] = {edge_ask_members, SAME},
                [AM_TAKEOVER_DUE] = {edge_take_over, AM_CONTENDING},
                [AM_FAIL_OVER_LIMIT] = {edge_fail_over_limit, AM_LEAVING},
                [AM_SIGNAL_AGAIN] = {edge_signalled_again, AM_LEAVING},
            },
        [AM_TRYING] =
            {
                [AM_ROUND_STARTED] = {edge_round_started, AM_JOINED},
                [AM_PROBE_REQUEST] = {edge_go, SAME},
                [AM_REFUSE] = {edge_refused_ask_again, AM_FAILING_OVER},
                [AM_FAIL_OVER_LIMIT] = {edge_limit_later, SAME},
            },
        [AM_CONTENDING] =
            {
                [AM_ROUND_STARTED] = {edge_round_started, AM_JOINED},
                [AM_PROBE_REQUEST] = {edge_go, SAME},
                [AM_CANNOT_LEAD] = {edge_cannot_take_over, AM_FAILING_OVER},
                [AM_FOUND] = {edge_ask_found, SAME},
                [AM_RETRY_DUE] = {edge_ask_members, SAME},
                [AM_OTHER_TAKES] = {edge_adopt, AM_JOINED},
                [AM_OTHER_ENDED] = {edge_adopt, AM_JOINED},
                [AM_OTHER_REFUSES] = {edge_ask_members_later, SAME},
                [AM_OTHER_GONE] = {edge_ask_members_later, SAME},
                [AM_FAIL_OVER_LIMIT] = {edge_limit_later, SAME},
            },
        [AM_BYE_SENT] =
            {
                [AM_LOST] = {edge_drop_link, AM_LEAVING},
                [AM_LOST_FAIL_OVER] = {edge_drop_link, AM_LEAVING},
                [AM_LOST_NO_MEMORY] = {edge_drop_link, AM_LEAVING},
            },
        [AM_ENDING] =
            {
                [AM_WORKERS_GONE] = {edge_workers_gone_leave, AM_LEAVING},
                [AM_LOST] = {edge_drop_link, SAME},
                [AM_LOST_NO_MEMORY] = {edge_drop_link, SAME},
                [AM_SIGNAL] = {edge_go, SAME},
            },
        [AM_LEAVING] =
            {
                [AM_SIGNAL_AGAIN] = {edge_term_daemon, SAME},
                [AM_STOP_AT_ONCE] = {edge_stop_at_once, SAME},
                [AM_GUARDIAN_LOST] = {edge_term_daemon, SAME},
                [AM_DAEMON_REPORTED] = {edge_term_daemon, SAME},
                [AM_DAEMON_SLOW] = {edge_kill_daemon, SAME},
            },
};

static const struct edge *find_edge(int row, enum am_event_kind kind)
{
    for (; row < ROWS; row = row_above[row])
        if (edges[row][kind].act != NULL)
            return &edges[row][kind];
    return NULL;
}

enum am_state agent_machine_edge(enum am_state s, enum am_event_kind e)
{
    const struct edge *found = find_edge((int)s, e);
    return found == NULL ? AM_STATES : found->next == SAME ? s : (enum am_state)found->next;
}

/* ---- a step ---- */

/* Classify the loss of the link. A job that is being stopped does not fail over. */
static enum am_event_kind refine_loss(const struct agent_machine *m)
{
    const bool before = m->cfg->etcd && !m->begun && m->last->n == 0;
    if (m->sig != 0 || m->state == AM_LEAVING)
        return AM_LOST;
    if (successor_possible(m->cfg->rdzv, m->last))
        return AM_LOST_FAIL_OVER;
    return before && m->state == AM_JOINED ? AM_LOST_BEFORE : AM_LOST;
}

/* Return the event to look up in the table; AM_EVENTS: ignore the event. */
static enum am_event_kind refine(const struct agent_machine *m, const struct am_event *e,
                                 uint64_t now)
{
    const bool leads = m->state == AM_LEADING;
    if (e->kind == AM_LOST)
        return refine_loss(m);
    if (e->kind == AM_SIGNAL && m->sig != 0)
        return AM_SIGNAL_AGAIN;
    if (e->kind == AM_GUARDIAN_LOST && m->sig != 0)
        return AM_EVENTS;
    if (e->kind == AM_PROBE_REQUEST && !leads && m->last->n <= 1) /* no other member to probe */
        return AM_EVENTS;
    if (e->kind == AM_OTHER_TAKES && leads &&
        e->epoch <= m->epoch) /* the answer is from this node's daemon */
        return AM_OTHER_GONE;
    if (e->kind == AM_PEERS_PROBED && !e->open && m->refused &&
        now - m->peers_since > m->cfg->seek_ms)
        return AM_PEERS_LIMIT;
    return e->kind;
}

static void enter_leaving(struct agent_machine *m, uint64_t now)
{
    for (int i = 0; i < AM_TIMERS; i++)
        if (AM_FIRST_TIMER + i != AM_DAEMON_REPORTED)
            m->due[i] = RDZV_NEVER;
    agent_machine_push(m, AM_DO_LEAVE);
    if ((m->pending & AM_PENDING_DAEMON) != 0) /* ddrund exits once the other nodes have left */
        arm(m, AM_DAEMON_SLOW, now + DAEMON_END_MS);
}

void agent_machine_step(struct agent_machine *m, const struct am_event *e, uint64_t now)
{
    const enum am_event_kind kind = refine(m, e, now);
    const struct edge *edge = kind < AM_EVENTS ? find_edge((int)m->state, kind) : NULL;
    if (kind == AM_SIGNAL || kind == AM_SIGNAL_AGAIN || kind == AM_GUARDIAN_LOST)
        m->sig = e->sig;
    if (kind == AM_SIGNAL)
        m->stop_code = e->code;
    if (edge == NULL)
        return;
    const enum am_state from = m->state;
    edge->act(m, e, now);
    if (edge->next != SAME)
        m->state = (enum am_state)edge->next;
    if (m->state == AM_LEAVING && from != AM_LEAVING)
        enter_leaving(m, now);
    if (m->state == AM_LEAVING && m->pending == 0 && !m->gone) {
        m->gone = true;
        agent_machine_push(m, AM_DO_EXIT);
    }
}

bool agent_machine_next(struct agent_machine *m, struct am_action *ret)
{
    enum { MOST = sizeof(m->actions) / sizeof(m->actions[0]) };
    if (m->first == m->end)
        return false;
    *ret = m->actions[m->first++ % MOST];
    return true;
}

uint64_t agent_machine_timer(const struct agent_machine *m)
{
    uint64_t at = RDZV_NEVER;
    for (int i = 0; i < AM_TIMERS; i++)
        at = m->due[i] < at ? m->due[i] : at;
    return at;
}

void agent_machine_postpone(struct agent_machine *m, uint64_t ms)
{
    for (int i = 0; i < AM_TIMERS; i++)
        m->due[i] += m->due[i] != RDZV_NEVER ? ms : 0;
    m->lost_at += m->lost_at != 0 ? ms : 0;
}

enum am_event_kind agent_machine_due(struct agent_machine *m, uint64_t now)
{
    const uint64_t at = agent_machine_timer(m);
    if (at == RDZV_NEVER || at > now)
        return AM_EVENTS;
    int i = 0;
    while (m->due[i] != at)
        i++;
    m->due[i] = RDZV_NEVER;
    return (enum am_event_kind)(AM_FIRST_TIMER + i);
}

bool agent_machine_is_linked(enum am_state s)
{
    return s == AM_RUNNING || row_above[s] == ROW_LINKED;
}
