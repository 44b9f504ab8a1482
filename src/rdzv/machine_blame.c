/* Blame: each round's first failure is charged to a node; a node with two charges within
 * --blame-window is left out of the next round if another one can take its place. */
#include "rdzv/machine_inner.h"

#include "base/auto.h"
#include "base/sig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHARGES_TO_REST = 2, NS_PER_MS = 1000000 };

/* True if a failure may be the round's first: one after STOP may be a consequence of STOP. */
static bool is_cause(const struct rdzv *m, uint64_t at)
{
    return (m->state == RDZV_RUNNING || at <= m->stopped_at) &&
           (m->fault_index < 0 || at < m->fault_at);
}

static void replace_text(char **text, const char *by)
{
    char *copy = strdup(by);
    free(*text);
    *text = copy;
}

void rdzv_suspect(struct rdzv *m, int id, uint64_t at, const char *why)
{
    const struct member *p = &m->members[id];
    if (p->index < 0 || !is_cause(m, at))
        return;
    m->fault_index = p->index;
    m->fault_at = at;
    /* a lost node has no member when the round is over */
    replace_text(&m->suspects[p->index].name, rdzv_member_name(m, id));
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

void rdzv_charge(struct rdzv *m, uint64_t now)
{
    if (m->fault_index < 0)
        return;
    struct rdzv_suspect *s = &m->suspects[m->fault_index];
    s->charges++;
    s->fresh++;
    s->before = s->last;
    s->last = now;
    replace_text(&s->why, m->fault_why);
    m->ncharged++;
    m->charged = m->fault_index;
    if (m->cfg.blame_window_ns == 0 || s->fresh < CHARGES_TO_REST ||
        now - s->before > m->cfg.blame_window_ns)
        return;
    s->fresh = 0;
    s->blamed = true;
    m->rest[m->fault_index] = REST_NOW;
}

/* Return the name of a node; NULL: unknown. A lost node has no member, but the host list may name
 * it. */
static const char *known_name(const struct rdzv *m, int index)
{
    const int id = m->by_index[index];
    if (id >= 0)
        return rdzv_member_name(m, id);
    return m->cfg.nodes != NULL ? hostlist_nth(m->cfg.nodes, (size_t)index) : NULL;
}

static const char *suspect_name(const struct rdzv *m, int index)
{
    const char *known = known_name(m, index);
    const char *name = m->suspects[index].name;
    if (m->by_index[index] < 0 && name != NULL)
        return name;
    return known != NULL ? known : "?";
}

/* ---- charges of older daemons ---- */

static bool is_named(const struct rdzv *m, int index, const char *name)
{
    const char *known = index >= 0 && index < m->cfg.capacity ? known_name(m, index) : NULL;
    return known != NULL && strcmp(known, name) == 0;
}

static uint64_t age_of(const struct rdzv_suspect *s, uint64_t now)
{
    return (int64_t)(now - s->last) > 0 ? now - s->last : 0;
}

/* Return the inherited charges of this node, or a place for them; NULL: there are too many. */
static struct rdzv_suspect *place_inherited(struct rdzv *m, const struct charge *c)
{
    for (int i = 0; i < m->ninherited; i++)
        if (m->inherited[i].index == c->index && strcmp(m->inherited[i].name, c->name) == 0)
            return &m->inherited[i];
    return m->ninherited < CHARGES_MAX ? &m->inherited[m->ninherited] : NULL;
}

/* Of several records of a node the one with most charges wins: it is of the latest round. */
int rdzv_inherit_charges(struct rdzv *m, const struct charges *c, uint64_t now)
{
    for (int i = 0; i < c->count; i++) {
        const struct charge *v = &c->v[i];
        struct rdzv_suspect *s = place_inherited(m, v);
        if (s == NULL || s->charges >= v->n)
            continue;
        replace_text(&s->name, v->name);
        replace_text(&s->why, v->why);
        if (s->name == NULL || s->why == NULL)
            return -ENOMEM;
        m->ninherited += s == &m->inherited[m->ninherited];
        s->index = v->index;
        s->charges = v->n;
        s->fresh = v->fresh;
        s->rest = v->rest;
        s->last = now - v->age_ms * NS_PER_MS;
        s->before = now - v->before_ms * NS_PER_MS;
    }
    return 0;
}

/* Return the index of the node with these charges; -1: the node has not joined. */
static int find_charged(const struct rdzv *m, const struct rdzv_suspect *s)
{
    if (is_named(m, s->index, s->name))
        return s->index;
    for (int i = 0; i < m->cfg.capacity; i++)
        if (m->suspects[i].charges == 0 && is_named(m, i, s->name))
            return i;
    return -1;
}

/* Assign inherited charges to a node. If an older daemon left the node out, it stays left out
 * within --blame-window. */
static void settle(struct rdzv *m, int index, struct rdzv_suspect *s, uint64_t now)
{
    const bool in_time = m->cfg.blame_window_ns == 0 || age_of(s, now) <= m->cfg.blame_window_ns;
    free(m->suspects[index].name);
    free(m->suspects[index].why);
    m->suspects[index] = *s;
    if (s->rest == CHARGE_REST_NONE || !in_time || m->rest[index] != REST_NONE)
        return;
    m->suspects[index].blamed = s->rest == CHARGE_REST_BLAME;
    m->rest[index] = REST_EARLIER;
}

void rdzv_settle_charges(struct rdzv *m, uint64_t now)
{
    int left = 0;
    for (int i = 0; i < m->ninherited; i++) {
        struct rdzv_suspect *s = &m->inherited[i];
        const int index = find_charged(m, s);
        if (index >= 0 && m->suspects[index].charges == 0)
            settle(m, index, s, now);
        else
            m->inherited[left++] = *s;
    }
    for (int i = left; i < m->ninherited; i++)
        m->inherited[i] = (struct rdzv_suspect){0};
    m->ninherited = left;
}

static void free_texts(struct rdzv_suspect *s, int n)
{
    for (int i = 0; s != NULL && i < n; i++) {
        free(s[i].name);
        free(s[i].why);
    }
}

void rdzv_free_charges(struct rdzv *m)
{
    free_texts(m->suspects, m->cfg.capacity);
    free(m->suspects);
    free_texts(m->inherited, CHARGES_MAX);
}

/* ---- views ---- */

static const char *text_or_none(const char *s)
{
    return s != NULL ? s : "";
}

const char *rdzv_rest_text(enum charge_rest rest)
{
    return rest == CHARGE_REST_BLAME  ? "2 failures within --blame-window began there"
           : rest == CHARGE_REST_RULE ? "a rule 'move' of --exit-rules"
                                      : NULL;
}

/* Return why rounds leave out the node; NULL: they do not. */
static const char *why_left_out(const struct rdzv *m, int index)
{
    const int id = m->by_index[index];
    const struct member *p = id >= 0 ? &m->members[id] : NULL;
    const bool round = m->state == RDZV_RUNNING || m->state == RDZV_STOPPING;
    if (p == NULL)
        return m->excluded[index] ? "it was lost three times, or excluded earlier" : NULL;
    if (p->part && round)
        return NULL;
    if (p->unfit)
        return text_or_none(p->unfit_why);
    return p->mark != NULL ? p->mark : rdzv_rest_text(rdzv_rest_reason(m, index));
}

bool rdzv_charges(const struct rdzv *m, int index, uint64_t now, struct rdzv_charges *ret)
{
    const char *left_out = index >= 0 && index < m->cfg.capacity ? why_left_out(m, index) : NULL;
    if (index < 0 || index >= m->cfg.capacity ||
        (m->suspects[index].charges == 0 && left_out == NULL))
        return false;
    const struct rdzv_suspect *s = &m->suspects[index];
    *ret = (struct rdzv_charges){.name = suspect_name(m, index),
                                 .why = text_or_none(s->why),
                                 .n = s->charges,
                                 .age_ns = age_of(s, now),
                                 .left_out = left_out};
    return true;
}

int rdzv_last_charge(const struct rdzv *m, uint64_t now, struct rdzv_charges *ret)
{
    if (m->ncharged > 0)
        (void)rdzv_charges(m, m->charged, now, ret);
    return m->ncharged;
}

bool rdzv_charges_of_absent(const struct rdzv *m, int i, uint64_t now, struct rdzv_charges *ret)
{
    if (i >= m->ninherited)
        return false;
    const struct rdzv_suspect *s = &m->inherited[i];
    *ret = (struct rdzv_charges){.name = s->name,
                                 .why = s->why,
                                 .n = s->charges,
                                 .age_ns = age_of(s, now),
                                 .left_out = rdzv_rest_text(s->rest)};
    return true;
}

/* A node with charges, to be sorted by the age of its last charge. */
struct charged {
    const struct rdzv_suspect *s;
    int index; /* -1: inherited */
    uint64_t age_ns;
};

static int by_age(const void *a, const void *b)
{
    const struct charged *x = a;
    const struct charged *y = b;
    if (x->age_ns != y->age_ns)
        return x->age_ns < y->age_ns ? -1 : 1;
    return x->index - y->index;
}

static size_t list_charged(const struct rdzv *m, uint64_t now, struct charged *list)
{
    size_t n = 0;
    for (int i = 0; i < m->cfg.capacity; i++)
        if (m->suspects[i].charges > 0)
            list[n++] = (struct charged){&m->suspects[i], i, age_of(&m->suspects[i], now)};
    for (int i = 0; i < m->ninherited; i++)
        list[n++] = (struct charged){&m->inherited[i], -1, age_of(&m->inherited[i], now)};
    qsort(list, n, sizeof(*list), by_age);
    return n;
}

int rdzv_charges_format(const struct rdzv *m, uint64_t now, struct dd_buf *out)
{
    DD_AUTO(free) struct charged *list = calloc((size_t)m->cfg.capacity + CHARGES_MAX,
                                                sizeof(*list));
    if (list == NULL)
        return -ENOMEM;
    const size_t n = list_charged(m, now, list);
    int rc = 0;
    for (size_t i = 0; i < n && i < CHARGES_MAX && rc == 0; i++) {
        const struct rdzv_suspect *s = list[i].s;
        const bool here = list[i].index >= 0;
        const struct charge c = {
            .index = here ? list[i].index : s->index,
            .n = s->charges,
            .fresh = s->fresh,
            .rest = here ? rdzv_rest_reason(m, list[i].index) : s->rest,
            .age_ms = list[i].age_ns / NS_PER_MS,
            .before_ms = s->charges > 1 ? (now - s->before) / NS_PER_MS : 0,
            .name = here ? suspect_name(m, list[i].index) : s->name,
            .why = text_or_none(s->why),
        };
        rc = charge_format(out, &c);
    }
    return rc;
}
