/* Answers the request "signal" of ddctl for USR1 and USR2: adds up the processes that catch the
 * signal and have got it, and replies when all agents have answered or the time is over. */
#ifndef DD_DAEMON_SIGNAL_COLLECT_H
#define DD_DAEMON_SIGNAL_COLLECT_H

#include "daemon/session.h"
#include "rdzv/machine.h"

struct event_base;
struct signal_collect;

struct signal_collect_cfg { /* all pointers are borrowed */
    struct event_base *base;
    const struct session_set *sessions;
    struct rdzv *machine;
};

int signal_collect_new(struct signal_collect **ret, const struct signal_collect_cfg *cfg);
void signal_collect_free(struct signal_collect *c); /* without replies; NULL does nothing */

/* Reply to request `id` of caller: from the loop or in signal_collect_take(), or at once if no node
 * can count. Return the id that the agents put into SIGNALLED; 0: none. */
int64_t signal_collect_begin(struct signal_collect *c, struct session *caller, int64_t id);
/* Take SIGNALLED of an agent. */
void signal_collect_take(struct signal_collect *c, const struct session *s,
                         const struct msg_signalled *m);
/* The session is about to be freed. */
void signal_collect_forget(struct signal_collect *c, const struct session *s);

#endif
