/* Control messages between agents and the daemon: JSON objects, one per control frame, described by
 * one table (msg.c) from which they are written, read and checked. Pure. Drawn in docs/protocol/.
 */
#ifndef DD_RDZV_MSG_H
#define DD_RDZV_MSG_H

#include "base/auto.h"
#include "base/err.h"
#include "base/strv.h"

#include <stddef.h>
#include <stdint.h>

enum { MSG_VERSION = 1, MSG_MAX_BYTES = 1 << 20, MSG_MAX_LIST = 256 };

enum msg_type {
    MSG_JOIN,    /* agent: I am here, with so many slots */
    MSG_STATUS,  /* daemon: how the gathering stands, for a person */
    MSG_REFUSE,  /* daemon: you cannot take part, and why */
    MSG_WELCOME, /* daemon, to an agent that comes from another one: you take part here */
    MSG_PLAN,    /* daemon: start your workers */
    MSG_BEGUN,   /* daemon, to its own node: a round has begun without you; look for no other daemon
                  */
    MSG_STARTED, /* agent: they run */
    MSG_COMMIT,  /* daemon: so do those of all nodes of this round */
    MSG_ROUND,   /* daemon, to a spare node: which nodes run the round, and where they are */
    MSG_LOOK, /* daemon: another daemon may go on, look for it; with an address: it does, and there
               */
    MSG_LOOKED, /* agent, to its own daemon: there is no other; with an address: there is, and I go
                   there */
    MSG_EXIT,   /* agent: a worker ended with a failure */
    MSG_ENOUGH, /* agent: those of my workers whose success the job waits for have succeeded */
    MSG_DONE,   /* agent: all workers of the round are gone */
    MSG_STOP_REQUEST,   /* agent: somebody wants the job to end */
    MSG_STOP,           /* daemon: stop your workers, then say DONE */
    MSG_FINISH,         /* daemon: it is over, leave with this code */
    MSG_SIGNAL_REQUEST, /* agent: somebody announces something to all workers */
    MSG_SIGNAL,         /* daemon: hand this signal to your workers */
    MSG_WHOIS,          /* daemon: whose is this connection of your machine? */
    MSG_WHOIS_REPLY,    /* agent: mine (ok = 1), or not */
    MSG_HERE,           /* agent, to ddctl: this node of this job */
    MSG_ASK,    /* ddctl, and from its agent to the daemon: a question of a person, or a wish */
    MSG_ANSWER, /* daemon: a piece of the answer */
    MSG_TYPE_MAX,
};

/* Every field of every message; the table says which belong to which. Strings are owned. */
struct msg {
    enum msg_type type;
    int64_t round;
    int64_t index, nnodes, min_nodes, slots, pid, epoch;
    int64_t node_rank, restart_count, max_restarts, master_port;
    int64_t ended_well, elsewhere;
    int64_t local_rank, code, signal, ok, id, ends, report, lost, asked, heard, end_near;
    int64_t sent_ns; /* of the sender's clock, put in as it is sent */
    int64_t ended_ns, rank, oom, left, stopped, killed;
    char *name, *text, *addr, *sizes, *nodes, *members, *committed, *local, *remote, *error, *trace,
        *log, *detail, *unfit, *ports, *token, *what;
    char *spent;
    struct dd_strv addrs;
};

const char *msg_type_name(enum msg_type type);
/* One JSON object without a newline, with this program's version; gives text (free()). -ENOMEM. */
int msg_encode(char **ret, const struct msg *m);
/* Checks type, presence, kind and range of every field; fields that are not known are skipped.
 * -ENOMSG: of a later version, which does not mind that it is skipped; -EPROTO: it cannot be done
 * without, with a sentence that names the versions of both sides. */
int msg_decode(struct msg *ret, const void *p, size_t n, struct dd_err *err);
void msg_clear(struct msg *m);

static inline void dd_auto_msg(struct msg *m)
{
    msg_clear(m);
}

#endif
