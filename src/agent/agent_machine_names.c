/* Names of the states and events of the agent's machine, for the trace. */
#include "agent/agent_machine.h"

static const char *const state_names[AM_STATES] = {
    [AM_STARTING] = "starting", [AM_SEEKING] = "seeking",
    [AM_LEADING] = "leading",   [AM_JOINED] = "joined",
    [AM_RUNNING] = "running",   [AM_SETTLING] = "settling",
    [AM_CHECKING] = "checking", [AM_IDLE] = "idle",
    [AM_STRANDED] = "stranded", [AM_FAILING_OVER] = "failing-over",
    [AM_TRYING] = "trying",     [AM_CONTENDING] = "contending",
    [AM_BYE_SENT] = "bye-sent", [AM_ENDING] = "ending",
    [AM_LEAVING] = "leaving",
};

static const char *const event_names[AM_EVENTS] = {
    [AM_SEEK] = "seek",
    [AM_LEAD] = "lead",
    [AM_PORT_TAKEN] = "port-taken",
    [AM_CANNOT_LEAD] = "cannot-lead",
    [AM_FOUND] = "found",
    [AM_ELSEWHERE] = "elsewhere",
    [AM_FAILED] = "failed",
    [AM_PEERS_PROBED] = "peers-probed",
    [AM_PEERS_LIMIT] = "peers-limit",
    [AM_OTHER_TAKES] = "other-takes",
    [AM_OTHER_REFUSES] = "other-refuses",
    [AM_OTHER_ENDED] = "other-ended",
    [AM_OTHER_GONE] = "other-gone",
    [AM_PLAN] = "plan",
    [AM_ROUND_STARTED] = "round-started",
    [AM_ROUND_MEMBERS] = "round-members",
    [AM_PROBE_REQUEST] = "probe-request",
    [AM_REDIRECT] = "redirect",
    [AM_STOP] = "stop",
    [AM_FINISH] = "finish",
    [AM_REFUSE] = "refuse",
    [AM_UNREADABLE] = "unreadable",
    [AM_LOST] = "lost",
    [AM_LOST_FAIL_OVER] = "lost-fail-over",
    [AM_LOST_NO_MEMORY] = "lost-no-memory",
    [AM_LOST_BEFORE] = "lost-before",
    [AM_NOT_STARTED] = "not-started",
    [AM_WORKERS_GONE] = "workers-gone",
    [AM_SETTLED] = "settled",
    [AM_CHECKED] = "checked",
    [AM_SIGNAL] = "signal",
    [AM_SIGNAL_AGAIN] = "signal-again",
    [AM_STOP_AT_ONCE] = "stop-at-once",
    [AM_GUARDIAN_LOST] = "guardian-lost",
    [AM_DAEMON_ENDED] = "daemon-ended",
    [AM_REQUEUED] = "requeued",
    [AM_SEEK_LIMIT] = "seek-limit",
    [AM_PEERS_DUE] = "peers-due",
    [AM_TAKEOVER_DUE] = "takeover-due",
    [AM_RETRY_DUE] = "retry-due",
    [AM_FAIL_OVER_LIMIT] = "fail-over-limit",
    [AM_UNANSWERED] = "unanswered",
    [AM_DAEMON_REPORTED] = "daemon-reported",
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
