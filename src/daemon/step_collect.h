/* Collect the step times and loads of the workers of all nodes, and find the nodes that hold up the
 * others. */
#ifndef DD_DAEMON_STEP_COLLECT_H
#define DD_DAEMON_STEP_COLLECT_H

#include "daemon/journal.h"
#include "daemon/session.h"
#include "rdzv/machine.h"

struct step_collect;

struct step_collect_cfg { /* all pointers are borrowed */
    const struct session_set *sessions;
    struct rdzv *machine; /* for queries only */
    struct journal *journal;
    const struct dd_log *log;
};

int step_collect_new(struct step_collect **ret, const struct step_collect_cfg *cfg); /* -ENOMEM */
void step_collect_free(struct step_collect *c); /* NULL does nothing */

/* Take STEPS of an agent; may publish JOURNAL_STRAGGLER and JOURNAL_STRAGGLER_OVER. */
void step_collect_take(struct step_collect *c, const struct session *s, const struct msg_steps *m,
                       uint64_t now);
/* Take LOAD of an agent; may publish the same events. */
void step_collect_take_load(struct step_collect *c, const struct session *s,
                            const struct msg_load *m);
/* Return the highest step that a worker of this round has marked, or that the round machine has
 * found (rdzv_step_reached()); -1: none. */
int64_t step_collect_reached(const struct step_collect *c);
/* Add `steps` to the answer of `ddctl status` if workers mark steps, else `stragglers` if there are
 * any. */
void step_collect_put(const struct step_collect *c, struct json_t *status);

#endif
