/* Rules of --exit-rules: failures that end the job, and nodes that the next round leaves out. */
#include "rdzv/machine_inner.h"

#include <errno.h>

bool rdzv_rule_ends(const struct rdzv *m, int code)
{
    const enum exit_rule rule = exit_rules_get(&m->cfg.exit_rules, code);
    return rule == EXIT_STOP || rule == EXIT_REQUEUE;
}

/* A rule applies to any failure of the round, since the order in which agents report failures of
 * the same moment is accidental. */
void rdzv_apply_exit_rule(struct rdzv *m, const struct rdzv_event *exit)
{
    const struct member *p = &m->members[exit->id];
    const enum exit_rule rule = exit_rules_get(&m->cfg.exit_rules, exit->code);
    if (rdzv_rule_ends(m, exit->code) && m->ruled_code == 0)
        m->ruled_code = exit->code;
    if (rule == EXIT_MOVE && p->index >= 0) {
        m->rest[p->index] = REST_NOW;
        m->suspects[p->index].blamed = false;
    }
}

int rdzv_end_by_rule(struct rdzv *m, uint64_t now)
{
    const enum exit_rule rule = exit_rules_get(&m->cfg.exit_rules, m->ruled_code);
    const int to = rdzv_reporter(m);
    int rc = 0;
    m->code = m->ruled_code;
    if (to >= 0 && rdzv_budget_left(m, now))
        rc = rdzv_act_text(m, RDZV_SEND_NOTE, to,
                           "exit code %d ends the job without a restart (--exit-rules=%d=%s)",
                           m->code, m->code, exit_rule_name(rule));
    return rc < 0 ? rc : rdzv_finish(m);
}

enum rest rdzv_rest(const struct rdzv *m, int id)
{
    const int index = m->members[id].index;
    if (m->members[id].mark != NULL)
        return REST_MARKED;
    return index >= 0 ? (enum rest)m->rest[index] : REST_NONE;
}

enum charge_rest rdzv_rest_reason(const struct rdzv *m, int index)
{
    return m->rest[index] == REST_NONE ? CHARGE_REST_NONE
           : m->suspects[index].blamed ? CHARGE_REST_BLAME
                                       : CHARGE_REST_RULE;
}

/* A node that takes part again has rested. One that stays outside may take part in a later round.
 */
int rdzv_note_rests(struct rdzv *m)
{
    int rc = 0;
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++) {
        const struct member *p = &m->members[id];
        if (!p->here || p->index < 0 || m->rest[p->index] == REST_NONE)
            continue;
        const char *why = rdzv_rest_text(rdzv_rest_reason(m, p->index));
        if (m->rest[p->index] == REST_NOW)
            rc = rdzv_act_text(m, RDZV_SEND_NOTE, rdzv_reporter(m),
                               p->part
                                   ? "%s stays in the job (%s): no spare node can take its place"
                                   : "left %s out of this round (%s); a spare node takes its place",
                               rdzv_member_name(m, id), why);
        m->rest[p->index] = p->part ? REST_NONE : REST_EARLIER;
        m->suspects[p->index].blamed &= !p->part;
    }
    return rc;
}
