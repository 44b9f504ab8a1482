/* Blame: each round's first failure is charged to a node; a node with two charges within
 * --blame-window is left out of the next round if another one can take its place. */
#include "rdzv/machine_inner.h"

#include "base/sig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHARGES_TO_REST = 2 };

/* A failure after the STOP of its round may be a consequence of it. */
static bool is_cause(const struct rdzv *m, uint64_t at)
{
    return (m->state == RDZV_RUNNING || at <= m->stopped_at) &&
           (m->fault_index < 0 || at < m->fault_at);
}

void rdzv_suspect(struct rdzv *m, int id, uint64_t at, const char *why)
{
    const struct member *p = &m->members[id];
    if (p->index < 0 || !is_cause(m, at))
        return;
    m->fault_index = p->index;
    m->fault_at = at;
    (void)snprintf(m->fault_why, sizeof(m->fault_why), "%s", why);
}

void rdzv_suspect_exit(struct rdzv *m, const struct rdzv_event *exit, uint64_t now)
{
    char why[sizeof(m->fault_why)] = "";
    if (exit->remote)
        return;
    if (has_text(exit->text))
        (void)snprintf(why, sizeof(why), "%s", exit->text);
    else if (exit->signal > 0)
        (void)snprintf(why, sizeof(why), "killed by SIG%s", dd_signal_name(exit->signal));
    else
        (void)snprintf(why, sizeof(why), "exit code %d", exit->code);
    rdzv_suspect(m, exit->id, exit->at > 0 ? exit->at : now, why);
}

static void replace_text(char **text, const char *by)
{
    char *copy = strdup(by);
    free(*text);
    *text = copy;
}

void rdzv_charge(struct rdzv *m, uint64_t now)
{
    if (m->fault_index < 0)
        return;
    struct rdzv_suspect *s = &m->suspects[m->fault_index];
    const int id = m->by_index[m->fault_index];
    s->charges++;
    s->fresh++;
    s->before = s->last;
    s->last = now;
    replace_text(&s->why, m->fault_why);
    if (id >= 0)
        replace_text(&s->name, rdzv_member_name(m, id));
    if (m->cfg.blame_window_ns == 0 || s->fresh < CHARGES_TO_REST ||
        now - s->before > m->cfg.blame_window_ns)
        return;
    s->fresh = 0;
    s->blamed = true;
    m->rest[m->fault_index] = REST_NOW;
}

/* A node that was lost has no member; the host list may name it. */
static const char *suspect_name(const struct rdzv *m, int index)
{
    const int id = m->by_index[index];
    const char *listed = m->cfg.nodes != NULL ? hostlist_nth(m->cfg.nodes, (size_t)index) : NULL;
    const char *name = m->suspects[index].name;
    return id >= 0 ? rdzv_member_name(m, id) : name != NULL ? name : listed != NULL ? listed : "?";
}

bool rdzv_charges(const struct rdzv *m, int index, uint64_t now, struct rdzv_charges *ret)
{
    if (index < 0 || index >= m->cfg.capacity || m->suspects[index].charges == 0)
        return false;
    const struct rdzv_suspect *s = &m->suspects[index];
    *ret = (struct rdzv_charges){.name = suspect_name(m, index),
                                 .why = s->why != NULL ? s->why : "",
                                 .n = s->charges,
                                 .age_ns = now > s->last ? now - s->last : 0,
                                 .rested = m->rest[index] != REST_NONE};
    return true;
}
