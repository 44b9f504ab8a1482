/* Actions of the round machine, and the end of the job. */
#include "rdzv/machine_inner.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rdzv_action *rdzv_act(struct rdzv *m, enum rdzv_action_kind kind, int id)
{
    if (m->next == m->nactions)
        m->next = m->nactions = 0;
    if (m->nactions == m->cap) {
        size_t cap = m->cap == 0 ? 16 : m->cap * 2;
        struct rdzv_action *a = realloc(m->actions, cap * sizeof(*a));
        if (a == NULL)
            return NULL;
        m->actions = a;
        m->cap = cap;
    }
    struct rdzv_action *a = &m->actions[m->nactions++];
    *a = (struct rdzv_action){.kind = kind, .id = id};
    return a;
}

bool rdzv_next_action(struct rdzv *m, struct rdzv_action *ret)
{
    if (m->next == m->nactions)
        return false;
    *ret = m->actions[m->next++];
    return true;
}

int rdzv_act_text(struct rdzv *m, enum rdzv_action_kind kind, int id, const char *fmt, ...)
{
    struct rdzv_action *a = rdzv_act(m, kind, id);
    if (a == NULL)
        return -ENOMEM;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(a->text, sizeof(a->text), fmt, ap);
    va_end(ap);
    return 0;
}

/* Choose the member that reports to the user: the lowest node rank of the round, else any. */
int rdzv_reporter(const struct rdzv *m)
{
    for (int k = 0; k < m->norder; k++)
        if (m->order[k] >= 0)
            return m->order[k];
    for (int index = 0; index < m->cfg.capacity; index++)
        if (m->by_index[index] >= 0)
            return m->by_index[index];
    for (int id = 0; id < m->cfg.capacity; id++)
        if (m->members[id].here)
            return id;
    return -1;
}

/* Record exit code and reason of a failure, unless one is recorded: the first cause counts. */
void rdzv_fail(struct rdzv *m, int code, const char *fmt, ...)
{
    if (m->failed || m->criteria_met)
        return;
    m->failed = true;
    m->code = code;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(m->text, sizeof(m->text), fmt, ap);
    va_end(ap);
}

/* Record a failure, or append it to the first cause. */
void rdzv_fail_also(struct rdzv *m, const char *fmt, ...)
{
    size_t n = m->failed ? strnlen(m->text, sizeof(m->text) / 2) : 0;
    va_list ap;
    if (!m->failed)
        m->code = 1;
    m->failed = true;
    if (n > 0)
        n += (size_t)snprintf(m->text + n, sizeof(m->text) - n, "; ");
    va_start(ap, fmt);
    (void)vsnprintf(m->text + n, sizeof(m->text) - n, fmt, ap);
    va_end(ap);
}

const char *rdzv_member_name(const struct rdzv *m, int id)
{
    const struct member *p = &m->members[id];
    return p->name != NULL && p->name[0] != '\0' ? p->name : "?";
}

int rdzv_send_finish(struct rdzv *m, int id, bool report)
{
    struct rdzv_action *a = rdzv_act(m, RDZV_SEND_FINISH, id);
    if (a == NULL)
        return -ENOMEM;
    a->report = report;
    m->finish_sent++;
    return 0;
}

int rdzv_finish(struct rdzv *m)
{
    int first = rdzv_reporter(m);
    int rc = first < 0 ? 0 : rdzv_send_finish(m, first, true);
    m->state = RDZV_FINISHED;
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++)
        if (m->members[id].here && id != first)
            rc = rdzv_send_finish(m, id, false);
    return rc;
}

int rdzv_send_stop(struct rdzv *m, int sig)
{
    m->state = RDZV_STOPPING;
    for (int id = 0; id < m->cfg.capacity; id++) {
        if (!m->members[id].here || m->members[id].done)
            continue;
        struct rdzv_action *a = rdzv_act(m, RDZV_SEND_STOP, id);
        if (a == NULL)
            return -ENOMEM;
        a->signal = sig;
    }
    return 0;
}

int rdzv_code_of_stop(const struct rdzv_event *e)
{
    return e->code > 0 ? e->code : e->signal > 0 ? 128 + e->signal : BAD_INPUT;
}
