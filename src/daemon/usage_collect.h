/* Answers the request "workers" of ddctl: asks the agents of a round what their workers use, and
 * replies when all have answered or the time is over. */
#ifndef DD_DAEMON_USAGE_COLLECT_H
#define DD_DAEMON_USAGE_COLLECT_H

#include "daemon/session.h"
#include "rdzv/machine.h"

struct event_base;
struct usage_collect;

struct usage_collect_cfg { /* all pointers are borrowed */
    struct event_base *base;
    const struct session_set *sessions;
    struct rdzv *machine;
    const struct dd_log *log;
};

int usage_collect_new(struct usage_collect **ret, const struct usage_collect_cfg *cfg);
void usage_collect_free(struct usage_collect *c); /* without replies; NULL does nothing */

/* Reply to request `id` of caller later, from the loop or in usage_collect_take(). ranks: "0-3,8",
 * or "" for all; all_lines: reply with all last output lines, of one rank. 0; -ENOENT: no worker
 * fits; -EINVAL: invalid ranks, or several with all_lines; -EBUSY: too many questions; -ENOMEM. */
int usage_collect_ask(struct usage_collect *c, struct session *caller, int64_t id,
                      const char *ranks, bool all_lines);
/* Take USAGE of an agent. */
void usage_collect_take(struct usage_collect *c, const struct session *s,
                        const struct msg_usage *m);
/* The session is about to be freed. */
void usage_collect_forget(struct usage_collect *c, const struct session *s);

#endif
