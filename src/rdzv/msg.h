/* Control messages between agents and the daemon, and between ddctl and an agent: JSON objects, one
 * per control frame. msg.c has one table that describes all of them; it drives encoding, decoding
 * and the check of docs/protocol/control-1.md. Pure.
 *
 * Ownership: the sender owns what a message points to while it is encoded. A decoded message owns
 * what it points to until msg_clear().
 */
#ifndef DD_RDZV_MSG_H
#define DD_RDZV_MSG_H

#include "base/auto.h"
#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MSG_VERSION = 1, MSG_MAX_BYTES = 1 << 20, MSG_MAX_LIST = 256 };

enum msg_type {
    MSG_JOIN,          /* agent: take part with this node */
    MSG_STATUS,        /* daemon: progress of the rendezvous, for the user */
    MSG_REFUSE,        /* daemon: this node cannot take part */
    MSG_WELCOME,       /* daemon, to an agent of another daemon: this node takes part here */
    MSG_PLAN,          /* daemon: start the workers */
    MSG_ROUND_STARTED, /* daemon, to its own node: a round runs without this node; stop the
                          search for another daemon */
    MSG_RECORD_PHASES, /* daemon: record phases for --timeline, and send them */
    MSG_PHASES,        /* agent: phases of this node, for --timeline */
    MSG_WARNINGS,      /* agent: sentences of its health check that do not exclude the node */
    MSG_NODE_MARKS, /* agent of the daemon's node: nodes that the scheduler takes out of service */
    MSG_STARTED,    /* agent: the workers run */
    MSG_COMMIT,     /* daemon: the workers of all nodes of the round run */
    MSG_ROUND_MEMBERS, /* daemon, to a spare node: the nodes of the round and their addresses */
    MSG_PROBE_REQUEST, /* daemon: search for another daemon of this job, or join the given one */
    MSG_PROBE_RESULT,  /* agent, to its own daemon: the other daemon, if there is one */
    MSG_EXIT,          /* agent: a worker failed */
    MSG_SUCCESS_CRITERIA_MET, /* agent: the workers that the job waits for have succeeded here */
    MSG_PROGRESS,             /* agent: the program has reached a step */
    MSG_STEPS,                /* agent: the times of the last steps of its workers */
    MSG_LOAD,                 /* agent: loads that keep its workers from computing */
    MSG_LEFT,                 /* agent: some workers of the round have exited with 0; others run */
    MSG_DONE,                 /* agent: all workers of the round have ended */
    MSG_STOP_REQUEST,         /* agent: end the job */
    MSG_STOP,                 /* daemon: stop the workers, then send DONE */
    MSG_FINISH,               /* daemon: the job has ended; exit with this code */
    MSG_SIGNAL_REQUEST,       /* agent: pass a signal to the workers of all nodes */
    MSG_SIGNAL,               /* daemon: pass a signal to the workers */
    MSG_SIGNALLED,            /* agent: number of processes that catch the signal, in reply */
    MSG_IDLE,                 /* agent: whether all workers of this node are idle */
    MSG_HUNG,                 /* daemon: the workers of all nodes are idle */
    MSG_STACKS_WANTED,        /* agent: read the stacks of all workers; one of this node is hung */
    MSG_STACKS_REQUEST,       /* daemon: read the stacks of the workers of this node */
    MSG_STACKS,               /* agent: stacks of its workers, in reply */
    MSG_STACKS_TAKEN,         /* daemon: all nodes have answered STACKS_REQUEST */
    MSG_USAGE_REQUEST,        /* daemon: report what the workers of this node use */
    MSG_USAGE,                /* agent: usage of its workers, in reply */
    MSG_WHOIS, /* daemon: does the user of the job own this connection of the agent's machine? */
    MSG_WHOIS_REPLY, /* agent: whether the user of the job owns the connection */
    MSG_IDENTITY,    /* agent, to ddctl: its node and job */
    MSG_CTL_REQUEST, /* ddctl to its agent, and that agent to the daemon */
    MSG_CTL_REPLY,   /* daemon: a part of the reply */
    MSG_TYPE_MAX,
};

/* Lists and strings may be NULL in a message to encode: they are sent as empty. In a decoded
 * message none is NULL. Times are of the sender's monotonic clock. docs/protocol/control-1.md
 * explains the fields. */
struct msg_join {
    int index; /* position in the host list; -1: the daemon assigns one */
    int nnodes, min_nodes, slots, pid;
    int64_t epoch;
    bool elsewhere, ended_well;
    const char *name, *addr;
    const struct dd_strv *addrs;
    const char *members, *committed, *spent;
    const char *charges; /* rdzv/charges.h */
    int64_t sent_ns;
    const char *unfit, *check, *ports, *text;
};
struct msg_status {
    const char *text;
};
struct msg_refuse {
    int64_t epoch;
    const char *text;
};
struct msg_welcome {
    int64_t epoch;
};
struct msg_plan {
    int round, node_rank, restart_count, max_restarts, master_port;
    const char *addr;
    const struct dd_strv *addrs;
    const char *sizes, *nodes, *members, *spent, *charges, *ports, *token;
};
struct msg_phases {
    int round; /* -1: none yet */
    int64_t sent_ns;
    const struct dd_strv *phases; /* report/phases.h */
};
struct msg_warnings {
    const char *text; /* sentences, one a line */
};
struct msg_node_marks {
    const char *text; /* rdzv/marks.h */
};
struct msg_started {
    int round;
};
struct msg_commit {
    int round;
};
struct msg_round_members {
    const char *addr;
    const struct dd_strv *addrs;
    const char *members;
};
struct msg_probe_request {
    const char *addr; /* the daemon to join; "": unknown */
};
struct msg_probe_result {
    const char *addr; /* the other daemon; "": none */
};
struct msg_exit {
    int round, pid, local_rank, rank, code, signal;
    bool oom;
    int64_t sent_ns, ended_ns;
    const char *error, *trace, *log, *text;
};
struct msg_success_criteria_met {
    int round;
};
struct msg_progress {
    int round;
    int64_t step;
};
struct msg_steps {
    int round;
    const char *text; /* rdzv/stragglers.h */
};
struct msg_load {
    int round;
    const char *text; /* rdzv/rank_load.h */
};
struct msg_left {
    int round;
    const char *ranks; /* ranks as in "0-3,8" */
};
struct msg_done {
    int round;
    int64_t sent_ns;
    int left, stopped, killed; /* numbers of workers */
    int first_rank;            /* rank of the first of the `left` workers */
    int64_t first_ns;          /* time of the exit of first_rank, as ended_ns of EXIT; 0: none */
    const char *unfit, *ports;
};
struct msg_stop_request {
    int code, signal;
    const char *text;
};
struct msg_stop {
    int round, signal;
    bool first_lost;
    const char *text;
};
struct msg_finish {
    int code;
    bool lost, asked, report;
    const char *detail, *text;
};
struct msg_signal_request {
    int signal;
    bool heard, end_near;
};
struct msg_signal {
    int signal;
    bool end_near;
    int64_t id; /* > 0: reply with SIGNALLED */
};
struct msg_signalled {
    int64_t id;
    int reached; /* number of processes that catch the signal */
};
struct msg_idle {
    int round;
    bool idle;    /* no worker has been active for --hang-timeout */
    bool stopped; /* all workers are stopped by a signal */
};
struct msg_hung {
    int round;
};
struct msg_stacks_wanted {
    int round;
};
struct msg_stacks_request {
    int64_t id;
    int round, limit_ms;
    bool all;          /* include workers without Python frames */
    bool keep;         /* write the stacks to the log directory, too */
    bool native;       /* read native frames, too, which stops the workers */
    const char *ranks; /* ranks as in "0-3,8"; "": all */
};
struct msg_stacks {
    int64_t id;
    const char *text; /* report/stacks.h */
};
struct msg_stacks_taken {
    int round;
};
struct msg_usage_request {
    int64_t id;
    int round;
    bool all_lines;    /* send all last lines, of one rank; false: the last line of each rank */
    const char *ranks; /* ranks as in "0-3,8"; "": all */
};
struct msg_usage {
    int64_t id;
    const char *text; /* report/usage.h */
};
struct msg_whois {
    int64_t id;
    const char *local, *remote;
};
struct msg_whois_reply {
    int64_t id;
    bool ok;
};
struct msg_identity {
    const char *name, *text;
};
struct msg_ctl_request {
    int64_t id;
    const char *what, *text;
};
struct msg_ctl_reply {
    int64_t id;
    bool ok, ends;
    const char *detail;
};

struct msg_storage;

struct msg {
    enum msg_type type;
    union { /* the member that `type` names; ROUND_STARTED and RECORD_PHASES have no fields */
        struct msg_join join;
        struct msg_status status;
        struct msg_refuse refuse;
        struct msg_welcome welcome;
        struct msg_plan plan;
        struct msg_phases phases;
        struct msg_warnings warnings;
        struct msg_node_marks node_marks;
        struct msg_started started;
        struct msg_commit commit;
        struct msg_round_members round_members;
        struct msg_probe_request probe_request;
        struct msg_probe_result probe_result;
        struct msg_exit exit;
        struct msg_success_criteria_met success_criteria_met;
        struct msg_progress progress;
        struct msg_steps steps;
        struct msg_load load;
        struct msg_left left;
        struct msg_done done;
        struct msg_stop_request stop_request;
        struct msg_stop stop;
        struct msg_finish finish;
        struct msg_signal_request signal_request;
        struct msg_signal signal;
        struct msg_signalled signalled;
        struct msg_idle idle;
        struct msg_hung hung;
        struct msg_stacks_wanted stacks_wanted;
        struct msg_stacks_request stacks_request;
        struct msg_stacks stacks;
        struct msg_stacks_taken stacks_taken;
        struct msg_usage_request usage_request;
        struct msg_usage usage;
        struct msg_whois whois;
        struct msg_whois_reply whois_reply;
        struct msg_identity identity;
        struct msg_ctl_request ctl_request;
        struct msg_ctl_reply ctl_reply;
    };
    struct msg_storage *storage; /* owns the data of a decoded message; NULL in one to encode */
};

/* A message to encode: MSG(STOP, .round = 3, .signal = SIGTERM). */
#define MSG(TYPE, ...) (&(struct msg){.type = MSG_##TYPE, .MSG_MEMBER_##TYPE = {__VA_ARGS__}})
#define MSG_MEMBER_JOIN join
#define MSG_MEMBER_STATUS status
#define MSG_MEMBER_REFUSE refuse
#define MSG_MEMBER_WELCOME welcome
#define MSG_MEMBER_PLAN plan
#define MSG_MEMBER_PHASES phases
#define MSG_MEMBER_WARNINGS warnings
#define MSG_MEMBER_NODE_MARKS node_marks
#define MSG_MEMBER_STARTED started
#define MSG_MEMBER_COMMIT commit
#define MSG_MEMBER_ROUND_MEMBERS round_members
#define MSG_MEMBER_PROBE_REQUEST probe_request
#define MSG_MEMBER_PROBE_RESULT probe_result
#define MSG_MEMBER_EXIT exit
#define MSG_MEMBER_SUCCESS_CRITERIA_MET success_criteria_met
#define MSG_MEMBER_PROGRESS progress
#define MSG_MEMBER_STEPS steps
#define MSG_MEMBER_LOAD load
#define MSG_MEMBER_LEFT left
#define MSG_MEMBER_DONE done
#define MSG_MEMBER_STOP_REQUEST stop_request
#define MSG_MEMBER_STOP stop
#define MSG_MEMBER_FINISH finish
#define MSG_MEMBER_SIGNAL_REQUEST signal_request
#define MSG_MEMBER_SIGNAL signal
#define MSG_MEMBER_SIGNALLED signalled
#define MSG_MEMBER_IDLE idle
#define MSG_MEMBER_HUNG hung
#define MSG_MEMBER_STACKS_WANTED stacks_wanted
#define MSG_MEMBER_STACKS_REQUEST stacks_request
#define MSG_MEMBER_STACKS stacks
#define MSG_MEMBER_STACKS_TAKEN stacks_taken
#define MSG_MEMBER_USAGE_REQUEST usage_request
#define MSG_MEMBER_USAGE usage
#define MSG_MEMBER_WHOIS whois
#define MSG_MEMBER_WHOIS_REPLY whois_reply
#define MSG_MEMBER_IDENTITY identity
#define MSG_MEMBER_CTL_REQUEST ctl_request
#define MSG_MEMBER_CTL_REPLY ctl_reply

enum msg_kind { MSG_INT, MSG_INT64, MSG_BOOL, MSG_STR, MSG_LIST };

struct msg_field {
    const char *name; /* on the wire */
    enum msg_kind kind;
    size_t offset;    /* offset in struct msg */
    int64_t min, max; /* limits of numbers; max of strings, also in a list: bytes */
};

const char *msg_type_name(enum msg_type type);          /* on the wire */
const struct msg_field *msg_fields(enum msg_type type); /* ends with name NULL */
/* Encode m and this program's version as one JSON object without a newline. The caller frees *ret
 * with free(). 0 or -ENOMEM. */
int msg_encode(char **ret, const struct msg *m);
/* Check type, presence, kind and range of every field; skip unknown fields. -ENOMSG: a message of
 * a later version that may be skipped; -EPROTO: the message is invalid, or must not be skipped, and
 * err names the versions of both sides if they differ; -ENOMEM. */
int msg_decode(struct msg *ret, const void *p, size_t n, struct dd_err *err);
void msg_clear(struct msg *m);

static inline void dd_auto_msg(struct msg *m)
{
    msg_clear(m);
}

#endif
