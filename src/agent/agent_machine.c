#include "agent/agent_machine.h"

#include "rdzv/successor.h"

#include <signal.h>

enum {
    STOP_ANSWER_MS = 2000,
    PEERS_ANSWER_MS = 3000, /* to JOIN */
    LIMIT_AGAIN_MS = 1000,
    DAEMON_END_MS = 8000,
    TOLD_MS = 600, /* for ddrund, which waits 300 ms for a better reason than SIGTERM */
};

void agent_machine_init(struct agent_machine *m, const struct am_cfg *cfg,
                        const struct rdzv_members *last)
{
    *m = (struct agent_machine){.cfg = cfg, .last = last, .index = -1};
    for (int i = 0; i < AM_TIMERS; i++)
        m->due[i] = RDZV_NEVER;
}

/* ---- what edges are made of ---- */

static void push_arg(struct agent_machine *m, enum am_action_kind kind, int arg)
{
    enum { MOST = sizeof(m->actions) / sizeof(m->actions[0]) };
    if (m->end - m->first == MOST)
        m->overflow = true;
    else
        m->actions[m->end++ % MOST] = (struct am_action){.kind = kind, .arg = arg};
}

static void push(struct agent_machine *m, enum am_action_kind kind)
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

static void end_looks(struct agent_machine *m)
{
    cancel(m, AM_PEERS_DUE);
    cancel(m, AM_TURN);
    cancel(m, AM_AGAIN);
    cancel(m, AM_LIMIT);
    push(m, AM_DO_END_LOOKS);
}

static void begin_peers(struct agent_machine *m, uint64_t now, bool leads)
{
    m->peers_ms = 0;
    m->peers_since = now;
    m->wanted = m->refused = m->reported = false;
    if (m->cfg->asks_peers && m->epoch == 0)
        arm(m, AM_PEERS_DUE, now + search_wait_ms(&m->peers_ms, leads));
}

static void begin_asking_members(struct agent_machine *m)
{
    cancel(m, AM_TURN);
    cancel(m, AM_AGAIN);
    cancel(m, AM_LIMIT);
    m->again_ms = 0;
    push(m, AM_DO_END_LOOKS);
    push(m, AM_DO_ASK_MEMBERS);
}

static void begin_failing_over(struct agent_machine *m, uint64_t now)
{
    const int place = successor_place(m->last, m->index);
    const bool again = m->lost_at != 0; /* that other daemon was lost, too: give all nodes time */
    if (!again)
        m->lost_at = now;
    begin_asking_members(m);
    arm(m, AM_LIMIT, m->lost_at + successor_limit_ms(m->last, m->cfg->rejoin_ms, m->cfg->grace_ms));
    if (place >= 0)
        arm(m, AM_TURN, now + successor_turn_ms(place, again));
}

static void send_stop(struct agent_machine *m, uint64_t now)
{
    push_arg(m, AM_DO_SEND_STOP, m->sig);
    arm(m, AM_UNANSWERED, now + STOP_ANSWER_MS);
}

/* ---- edges ---- */

typedef void edge_do(struct agent_machine *m, const struct am_event *e, uint64_t now);
#define EDGE(name) static void name(struct agent_machine *m, const struct am_event *e, uint64_t now)

EDGE(go)
{
    (void)m;
    (void)e;
    (void)now;
}

/* -- finding a daemon -- */

EDGE(seek)
{
    (void)e;
    arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    begin_peers(m, now, false);
    push(m, AM_DO_LOCATE);
}

static void start_daemon(struct agent_machine *m)
{
    push(m, AM_DO_STOP_DAEMON); /* one that has given way may not be gone yet */
    push(m, AM_DO_START_DAEMON);
    m->pending |= AM_PENDING_DAEMON;
}

EDGE(lead)
{
    (void)e;
    end_looks(m);
    start_daemon(m);
    begin_peers(m, now, true);
    if (m->sig != 0)
        send_stop(m, now);
}

EDGE(follow)
{
    (void)e;
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    if (m->due[AM_SEEK_LIMIT - AM_FIRST_TIMER] == RDZV_NEVER) /* else it has been seeking before */
        arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    begin_peers(m, now, false);
    push(m, AM_DO_LOCATE);
}

EDGE(cannot_lead)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    m->code = 2;
    push_arg(m, AM_DO_REPORT, AM_REPORT_CANNOT_LEAD);
}

EDGE(join)
{
    (void)e;
    cancel(m, AM_SEEK_LIMIT);
    cancel(m, AM_PEERS_DUE);
    push(m, AM_DO_JOIN);
    if (m->sig != 0)
        send_stop(m, now);
}

EDGE(drop_found)
{
    (void)e;
    (void)now;
    push(m, AM_DO_DROP);
}

EDGE(ask_found)
{
    (void)e;
    (void)now;
    push(m, AM_DO_ASK);
}

EDGE(failed)
{
    (void)now;
    m->code = e->code;
}

EDGE(seek_limit)
{
    (void)e;
    (void)now;
    m->code = 1;
    push_arg(m, AM_DO_REPORT, AM_REPORT_SEEK_LIMIT);
}

/* Another daemon goes on: this one has said so, and is left. */
EDGE(seek_there)
{
    (void)e;
    end_looks(m);
    push(m, AM_DO_DROP_LINK);
    arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    begin_peers(m, now, false);
    push(m, AM_DO_LOCATE_THERE);
}

static void give_way(struct agent_machine *m)
{
    end_looks(m);
    push(m, AM_DO_GIVE_WAY);
}

EDGE(follow_there)
{
    (void)e;
    (void)now;
    push(m, AM_DO_LOCATE_THERE);
}

EDGE(give_way_and_seek)
{
    (void)e;
    give_way(m);
    arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    push(m, AM_DO_LOCATE_THERE);
}

EDGE(give_way_and_stop)
{
    (void)e;
    (void)now;
    give_way(m);
    push_arg(m, AM_DO_STOP_WORKERS, SIGTERM);
}

/* -- asking the peers -- */

EDGE(ask_peers)
{
    (void)e;
    (void)now;
    m->refused = false;
    push(m, AM_DO_ASK_PEERS);
}

/* The daemon waits for the outcome before the first round. */
EDGE(look_for_daemon)
{
    if (m->cfg->etcd) {
        push(m, AM_DO_CHECK_CLAIM);
    } else if (m->cfg->asks_peers) {
        m->wanted = true;
        cancel(m, AM_PEERS_DUE);
        ask_peers(m, e, now);
    }
}

EDGE(peers_asked)
{
    if (e->open) { /* else all of it again */
        arm(m, AM_PEERS_DUE, now + PEERS_ANSWER_MS);
        return;
    }
    if (!m->refused && m->wanted)
        push(m, AM_DO_SEND_LOOKED);
    m->wanted = m->wanted && m->refused;
    arm(m, AM_PEERS_DUE,
        now + (m->refused ? search_refused_ms() : search_wait_ms(&m->peers_ms, is_leader(m))));
}

EDGE(peers_limit)
{
    (void)e;
    (void)now;
    m->code = 1;
    push_arg(m, AM_DO_REPORT, AM_REPORT_PEERS_LIMIT);
}

EDGE(peer_refuses)
{
    (void)now;
    push(m, AM_DO_DROP_OTHER);
    if (e->epoch <= m->epoch) /* the own daemon, by another of this machine's names */
        return;
    m->refused = true;
    if (!m->reported)
        push_arg(m, AM_DO_REPORT, AM_REPORT_OTHER_REFUSES);
    m->reported = true;
}

EDGE(drop_other)
{
    (void)e;
    (void)now;
    push(m, AM_DO_DROP_OTHER);
}

/* The own daemon has begun nothing, and sends its nodes after this one. */
EDGE(move_after)
{
    (void)e;
    push(m, AM_DO_MOVE_AFTER);
    end_looks(m);
    if (m->sig != 0)
        send_stop(m, now);
}

/* -- failing over -- */

EDGE(fail_over)
{
    (void)e;
    push_arg(m, AM_DO_REPORT, AM_REPORT_FAIL_OVER);
    push(m, AM_DO_DROP_LINK);
    begin_failing_over(m, now);
}

EDGE(stop_then_fail_over)
{
    (void)e;
    (void)now;
    push_arg(m, AM_DO_REPORT, AM_REPORT_FAIL_OVER);
    push(m, AM_DO_DROP_LINK);
    push_arg(m, AM_DO_STOP_WORKERS, SIGTERM);
}

EDGE(workers_gone_fail_over)
{
    (void)e;
    m->pending &= ~(unsigned)AM_PENDING_WORKERS;
    begin_failing_over(m, now);
}

EDGE(ask_members)
{
    (void)e;
    (void)now;
    push(m, AM_DO_ASK_MEMBERS);
}

EDGE(ask_members_later)
{
    (void)e;
    push(m, AM_DO_DROP_OTHER);
    arm(m, AM_AGAIN, now + successor_again_ms(&m->again_ms));
}

/* The daemon may not have noticed yet that the one before it is lost: ask again, or another one. */
EDGE(refused_ask_again)
{
    (void)e;
    push_arg(m, AM_DO_REPORT, AM_REPORT_RETRY);
    push(m, AM_DO_DROP_LINK);
    arm(m, AM_AGAIN, now + successor_again_ms(&m->again_ms));
}

EDGE(take_over)
{
    (void)e;
    (void)now;
    const int64_t known = m->epoch > m->last->epoch ? m->epoch : m->last->epoch;
    m->epoch = rdzv_next_epoch(known, m->index);
    start_daemon(m);
    if (m->sig != 0)
        send_stop(m, now);
}

EDGE(cannot_take_over)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    push_arg(m, AM_DO_REPORT, AM_REPORT_CANNOT_LEAD);
}

/* Another daemon takes this node: the own one is needed no longer. */
EDGE(adopt)
{
    (void)e;
    push(m, AM_DO_DROP_LINK);
    push(m, AM_DO_STOP_DAEMON);
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    push(m, AM_DO_MOVE);
    end_looks(m);
    if (m->sig != 0)
        send_stop(m, now);
}

EDGE(fail_over_limit)
{
    (void)e;
    (void)now;
    m->code = 1;
    push_arg(m, AM_DO_REPORT, AM_REPORT_FAIL_OVER_LIMIT);
}

/* The daemon in use has a limit of its own; but it may be about to refuse. */
EDGE(limit_later)
{
    (void)e;
    arm(m, AM_LIMIT, now + LIMIT_AGAIN_MS);
}

EDGE(contend)
{
    (void)e;
    (void)now;
    begin_asking_members(m);
}

/* -- rounds -- */

EDGE(start_round)
{
    (void)e;
    (void)now;
    end_looks(m);
    m->lost_at = 0;
    m->pending |= AM_PENDING_WORKERS;
    push(m, AM_DO_START_ROUND);
}

EDGE(begun)
{
    (void)e;
    (void)now;
    m->begun = true;
    end_looks(m);
}

EDGE(observed)
{
    (void)e;
    (void)now;
    m->lost_at = 0;
}

EDGE(not_started)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_WORKERS;
    push(m, AM_DO_CHECK_HEALTH);
}

EDGE(drain_signals_before_verdict)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_WORKERS;
    push(m, AM_DO_DRAIN_SIGNALS);
}

EDGE(check_health_before_done)
{
    (void)e;
    (void)now;
    push(m, AM_DO_CHECK_HEALTH);
}

EDGE(send_done)
{
    (void)e;
    (void)now;
    push(m, AM_DO_SEND_DONE);
}

EDGE(stop_workers)
{
    (void)now;
    cancel(m, AM_UNANSWERED);
    if (e->code != 0)
        push_arg(m, AM_DO_STOP_WORKERS, e->code);
}

EDGE(answered)
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

EDGE(requeue_before_leaving)
{
    (void)now;
    cancel(m, AM_UNANSWERED);
    m->code = e->code;
    m->pending |= AM_PENDING_REQUEUE;
    push(m, AM_DO_REQUEUE);
    stop_if_running(m, SIGTERM);
}

EDGE(refused)
{
    (void)e;
    (void)now;
    m->code = 2;
    push_arg(m, AM_DO_REPORT, AM_REPORT_REFUSED);
    stop_if_running(m, SIGTERM);
}

EDGE(lost)
{
    (void)e;
    (void)now;
    m->code = m->sig != 0 ? agent_machine_signal_code(m) : 1;
    push_arg(m, AM_DO_REPORT, AM_REPORT_LOST);
    push(m, AM_DO_DROP_LINK);
    stop_if_running(m, SIGTERM);
}

EDGE(lost_before)
{
    (void)e;
    push_arg(m, AM_DO_REPORT, AM_REPORT_BEFORE);
    push(m, AM_DO_DROP_LINK);
    arm(m, AM_SEEK_LIMIT, now + m->cfg->seek_ms);
    begin_peers(m, now, false);
    push(m, AM_DO_LOCATE);
}

EDGE(drop_link)
{
    (void)e;
    (void)now;
    push(m, AM_DO_DROP_LINK);
}

/* The daemon would wait for what this node does not know: it gets the reason. */
EDGE(part)
{
    (void)e;
    (void)now;
    m->code = 2;
    push(m, AM_DO_SEND_BYE);
    stop_if_running(m, SIGTERM);
}

EDGE(workers_gone_leave)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_WORKERS;
}

EDGE(daemon_ended)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_DAEMON;
    cancel(m, AM_DAEMON_SLOW);
    cancel(m, AM_TOLD);
}

EDGE(requeued)
{
    (void)e;
    (void)now;
    m->pending &= ~(unsigned)AM_PENDING_REQUEUE;
}

EDGE(kill_daemon)
{
    (void)e;
    (void)now;
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGKILL);
}

EDGE(term_daemon)
{
    (void)e;
    (void)now;
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGTERM);
}

/* -- signals -- */

EDGE(ask_to_stop)
{
    (void)e;
    send_stop(m, now);
}

EDGE(kill_workers)
{
    (void)e;
    (void)now;
    push(m, AM_DO_KILL_WORKERS);
}

EDGE(signalled_again)
{
    (void)now;
    m->code = 128 + e->sig;
}

EDGE(end_by_signal)
{
    (void)e;
    (void)now;
    m->code = agent_machine_signal_code(m);
    stop_if_running(m, m->sig);
}

EDGE(leave_at_once)
{
    m->code = 128 + e->sig;
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGTERM);
    arm(m, AM_TOLD, now + TOLD_MS);
}

/* As if the agent had been killed: a job that may lose a node goes on without this one. */
EDGE(guardian_lost)
{
    (void)now;
    m->code = 128 + e->sig;
    end_looks(m);
    push(m, AM_DO_DROP_LINK);
    push_arg(m, AM_DO_SIGNAL_DAEMON, SIGTERM);
    stop_if_running(m, e->sig);
}

/* ---- the table ---- */

/* Rows that several states share: a cell that is empty in a state's own row is that of the row
 * above it. */
enum { ROW_ANY = AM_STATES, ROW_FREE, ROW_LINKED, ROW_BUSY, ROWS };

enum { SAME = AM_STATES };

struct edge {
    edge_do *act; /* NULL: none */
    int next;
};

static const int row_above[ROWS] = {
    [AM_STARTING] = ROW_FREE,   [AM_SEEKING] = ROW_FREE,  [AM_LEADING] = ROW_LINKED,
    [AM_JOINED] = ROW_LINKED,   [AM_RUNNING] = ROW_BUSY,  [AM_SETTLING] = ROW_LINKED,
    [AM_CHECKING] = ROW_LINKED, [AM_IDLE] = ROW_LINKED,   [AM_STRANDED] = ROW_BUSY,
    [AM_ORPHAN] = ROW_FREE,     [AM_TRYING] = ROW_LINKED, [AM_CONTENDING] = ROW_LINKED,
    [AM_PARTING] = ROW_FREE,    [AM_ENDING] = ROW_BUSY,   [AM_LEAVING] = ROW_ANY,
    [ROW_FREE] = ROW_ANY,       [ROW_LINKED] = ROW_FREE,  [ROW_BUSY] = ROW_ANY,
    [ROW_ANY] = ROWS,
};

static const struct edge edges[ROWS][AM_EVENTS] =
    {
        /* Any state. */
        [ROW_ANY] =
            {
                [AM_FOUND] = {drop_found, SAME},
                [AM_OTHER_TAKES] = {drop_other, SAME},
                [AM_OTHER_REFUSES] = {drop_other, SAME},
                [AM_OTHER_ENDED] = {drop_other, SAME},
                [AM_OTHER_GONE] = {drop_other, SAME},
                [AM_OBSERVED] = {observed, SAME},
                [AM_STOP] = {answered, SAME},
                [AM_LOST] = {drop_link, SAME},
                [AM_LOST_FAIL_OVER] = {drop_link, SAME},
                [AM_DAEMON_ENDED] = {daemon_ended, SAME},
                [AM_REQUEUED] = {requeued, SAME},
            },
        /* No workers. */
        [ROW_FREE] =
            {
                [AM_FAILED] = {failed, AM_LEAVING},
                [AM_SIGNAL] = {ask_to_stop, SAME},
                [AM_UNANSWERED] = {end_by_signal, AM_LEAVING},
                [AM_AT_ONCE] = {leave_at_once, AM_LEAVING},
                [AM_GUARDIAN_LOST] = {guardian_lost, AM_LEAVING},
            },
        /* No workers, and a daemon. */
        [ROW_LINKED] =
            {
                [AM_PLAN] = {start_round, AM_RUNNING},
                [AM_BEGUN] = {begun, SAME},
                [AM_LOOK] = {contend, AM_CONTENDING},
                [AM_REDIRECT] = {seek_there, AM_SEEKING},
                [AM_ELSEWHERE] = {give_way_and_seek, AM_SEEKING},
                [AM_FINISH] = {requeue_before_leaving, AM_LEAVING},
                [AM_REFUSE] = {refused, AM_LEAVING},
                [AM_UNREADABLE] = {part, AM_PARTING},
                [AM_LOST] = {lost, AM_LEAVING},
                [AM_LOST_FAIL_OVER] = {fail_over, AM_ORPHAN},
                [AM_CANNOT_LEAD] = {cannot_lead, AM_LEAVING},
            },
        /* Workers. */
        [ROW_BUSY] =
            {
                [AM_STOP] = {stop_workers, SAME},
                [AM_FINISH] = {requeue_before_leaving, AM_ENDING},
                [AM_REFUSE] = {refused, AM_ENDING},
                [AM_UNREADABLE] = {part, AM_ENDING},
                [AM_LOST] = {lost, AM_ENDING},
                [AM_SIGNAL] = {ask_to_stop, SAME},
                [AM_SIGNAL_AGAIN] = {kill_workers, SAME},
                [AM_UNANSWERED] = {end_by_signal, AM_ENDING},
                [AM_GUARDIAN_LOST] = {guardian_lost, AM_ENDING},
            },

        [AM_STARTING] =
            {
                [AM_SEEK] = {seek, AM_SEEKING},
                [AM_LEAD] = {lead, AM_LEADING},
                [AM_SIGNAL_AGAIN] = {signalled_again, AM_LEAVING},
            },
        [AM_SEEKING] =
            {
                [AM_LEAD] = {lead, AM_LEADING},
                [AM_FOUND] = {join, AM_JOINED},
                [AM_SEEK_LIMIT] = {seek_limit, AM_LEAVING},
                [AM_PEERS_DUE] = {ask_peers, SAME},
                [AM_LOOK_OVER] = {peers_asked, SAME},
                [AM_SIGNAL_AGAIN] = {signalled_again, AM_LEAVING},
            },
        [AM_LEADING] =
            {
                [AM_PORT_TAKEN] = {follow, AM_SEEKING},
                [AM_BEGUN] = {begun, AM_JOINED},
                [AM_LOOK] = {look_for_daemon, SAME},
                [AM_PEERS_DUE] = {ask_peers, SAME},
                [AM_FOUND] = {ask_found, SAME},
                [AM_OTHER_TAKES] = {move_after, AM_JOINED},
                [AM_OTHER_REFUSES] = {peer_refuses, SAME},
                [AM_LOOK_OVER] = {peers_asked, SAME},
                [AM_PEERS_LIMIT] = {peers_limit, AM_LEAVING},
            },
        [AM_JOINED] =
            {
                [AM_LOST_BEFORE] = {lost_before, AM_SEEKING},
            },
        [AM_RUNNING] =
            {
                [AM_NOT_STARTED] = {not_started, AM_CHECKING},
                [AM_WORKERS_GONE] = {drain_signals_before_verdict, AM_SETTLING},
                [AM_LOST_FAIL_OVER] = {stop_then_fail_over, AM_STRANDED},
                [AM_ELSEWHERE] = {give_way_and_stop, AM_STRANDED},
            },
        [AM_SETTLING] =
            {
                [AM_SETTLED] = {check_health_before_done, AM_CHECKING},
            },
        [AM_CHECKING] =
            {
                [AM_CHECKED] = {send_done, AM_IDLE},
            },
        [AM_IDLE] = {{0}},
        [AM_STRANDED] =
            {
                [AM_WORKERS_GONE] = {workers_gone_fail_over, AM_ORPHAN},
            },
        [AM_ORPHAN] =
            {
                [AM_FOUND] = {join, AM_TRYING},
                [AM_ELSEWHERE] = {follow_there, SAME},
                [AM_AGAIN] = {ask_members, SAME},
                [AM_TURN] = {take_over, AM_CONTENDING},
                [AM_LIMIT] = {fail_over_limit, AM_LEAVING},
                [AM_SIGNAL_AGAIN] = {signalled_again, AM_LEAVING},
            },
        [AM_TRYING] =
            {
                [AM_BEGUN] = {begun, AM_JOINED},
                [AM_LOOK] = {go, SAME},
                [AM_REFUSE] = {refused_ask_again, AM_ORPHAN},
                [AM_LIMIT] = {limit_later, SAME},
            },
        [AM_CONTENDING] =
            {
                [AM_BEGUN] = {begun, AM_JOINED},
                [AM_LOOK] = {go, SAME},
                [AM_CANNOT_LEAD] = {cannot_take_over, AM_ORPHAN},
                [AM_FOUND] = {ask_found, SAME},
                [AM_AGAIN] = {ask_members, SAME},
                [AM_OTHER_TAKES] = {adopt, AM_JOINED},
                [AM_OTHER_ENDED] = {adopt, AM_JOINED},
                [AM_OTHER_REFUSES] = {ask_members_later, SAME},
                [AM_OTHER_GONE] = {ask_members_later, SAME},
                [AM_LIMIT] = {limit_later, SAME},
            },
        [AM_PARTING] =
            {
                [AM_LOST] = {drop_link, AM_LEAVING},
                [AM_LOST_FAIL_OVER] = {drop_link, AM_LEAVING},
            },
        [AM_ENDING] =
            {
                [AM_WORKERS_GONE] = {workers_gone_leave, AM_LEAVING},
                [AM_LOST] = {drop_link, SAME},
                [AM_SIGNAL] = {go, SAME},
            },
        [AM_LEAVING] =
            {
                [AM_SIGNAL_AGAIN] = {term_daemon, SAME},
                [AM_AT_ONCE] = {leave_at_once, SAME},
                [AM_GUARDIAN_LOST] = {term_daemon, SAME},
                [AM_TOLD] = {term_daemon, SAME},
                [AM_DAEMON_SLOW] = {kill_daemon, SAME},
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

/* What kind of loss this is. A job that is being stopped goes on nowhere. */
static enum am_event_kind refine_loss(const struct agent_machine *m)
{
    const bool before = m->cfg->etcd && !m->begun && m->last->n == 0;
    if (m->sig != 0 || m->state == AM_LEAVING)
        return AM_LOST;
    if (successor_possible(m->cfg->rdzv, m->last))
        return AM_LOST_FAIL_OVER;
    return before && m->state == AM_JOINED ? AM_LOST_BEFORE : AM_LOST;
}

/* The event that the table knows; AM_EVENTS: none of its business. */
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
    if (e->kind == AM_LOOK && !leads && m->last->n <= 1) /* no member could be asked */
        return AM_EVENTS;
    if (e->kind == AM_OTHER_TAKES && leads && e->epoch <= m->epoch) /* it is the own daemon */
        return AM_OTHER_GONE;
    if (e->kind == AM_LOOK_OVER && !e->open && m->refused && now - m->peers_since > m->cfg->seek_ms)
        return AM_PEERS_LIMIT;
    return e->kind;
}

static void enter_leaving(struct agent_machine *m, uint64_t now)
{
    for (int i = 0; i < AM_TIMERS; i++)
        if (AM_FIRST_TIMER + i != AM_TOLD)
            m->due[i] = RDZV_NEVER;
    push(m, AM_DO_LEAVE);
    if ((m->pending & AM_PENDING_DAEMON) != 0) /* it ends when the other nodes have left */
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
        push(m, AM_DO_EXIT);
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

/* ---- names, for the trace ---- */

static const char *const state_names[AM_STATES] = {
    [AM_STARTING] = "starting", [AM_SEEKING] = "seeking", [AM_LEADING] = "leading",
    [AM_JOINED] = "joined",     [AM_RUNNING] = "running", [AM_SETTLING] = "settling",
    [AM_CHECKING] = "checking", [AM_IDLE] = "idle",       [AM_STRANDED] = "stranded",
    [AM_ORPHAN] = "orphan",     [AM_TRYING] = "trying",   [AM_CONTENDING] = "contending",
    [AM_PARTING] = "parting",   [AM_ENDING] = "ending",   [AM_LEAVING] = "leaving",
};

static const char *const event_names[AM_EVENTS] = {
    [AM_SEEK] = "seek",
    [AM_LEAD] = "lead",
    [AM_PORT_TAKEN] = "port-taken",
    [AM_CANNOT_LEAD] = "cannot-lead",
    [AM_FOUND] = "found",
    [AM_ELSEWHERE] = "elsewhere",
    [AM_FAILED] = "failed",
    [AM_LOOK_OVER] = "look-over",
    [AM_PEERS_LIMIT] = "peers-limit",
    [AM_OTHER_TAKES] = "other-takes",
    [AM_OTHER_REFUSES] = "other-refuses",
    [AM_OTHER_ENDED] = "other-ended",
    [AM_OTHER_GONE] = "other-gone",
    [AM_PLAN] = "plan",
    [AM_BEGUN] = "begun",
    [AM_OBSERVED] = "observed",
    [AM_LOOK] = "look",
    [AM_REDIRECT] = "redirect",
    [AM_STOP] = "stop",
    [AM_FINISH] = "finish",
    [AM_REFUSE] = "refuse",
    [AM_UNREADABLE] = "unreadable",
    [AM_LOST] = "lost",
    [AM_LOST_FAIL_OVER] = "lost-fail-over",
    [AM_LOST_BEFORE] = "lost-before",
    [AM_NOT_STARTED] = "not-started",
    [AM_WORKERS_GONE] = "workers-gone",
    [AM_SETTLED] = "settled",
    [AM_CHECKED] = "checked",
    [AM_SIGNAL] = "signal",
    [AM_SIGNAL_AGAIN] = "signal-again",
    [AM_AT_ONCE] = "at-once",
    [AM_GUARDIAN_LOST] = "guardian-lost",
    [AM_DAEMON_ENDED] = "daemon-ended",
    [AM_REQUEUED] = "requeued",
    [AM_SEEK_LIMIT] = "seek-limit",
    [AM_PEERS_DUE] = "peers-due",
    [AM_TURN] = "turn",
    [AM_AGAIN] = "again",
    [AM_LIMIT] = "limit",
    [AM_UNANSWERED] = "unanswered",
    [AM_TOLD] = "told",
    [AM_DAEMON_SLOW] = "daemon-slow",
};

const char *agent_machine_state_name(enum am_state s)
{
    return state_names[s];
}

const char *agent_machine_event_name(enum am_event_kind e)
{
    return event_names[e];
}
