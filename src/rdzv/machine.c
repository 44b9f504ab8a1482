#include "rdzv/machine.h"

#include "base/auto.h"
#include "base/sig.h"
#include "rdzv/machine_inner.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAD_INPUT = 2 }; /* exit code when a node cannot start what the user asked for */

bool rdzv_is_elastic(const struct rdzv_cfg *cfg)
{
    return cfg->min_nodes < cfg->max_nodes || cfg->expected > cfg->max_nodes;
}

int rdzv_new(struct rdzv **ret, const struct rdzv_cfg *cfg, uint64_t now)
{
    struct rdzv *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return -ENOMEM;
    m->cfg = *cfg;
    if (m->cfg.expected <= 0)
        m->cfg.expected = cfg->max_nodes;
    if (m->cfg.capacity < m->cfg.expected || m->cfg.capacity < cfg->max_nodes)
        m->cfg.capacity = m->cfg.expected > cfg->max_nodes ? m->cfg.expected : cfg->max_nodes;
    size_t n = (size_t)m->cfg.capacity;
    if (m->cfg.capacity < 1 || m->cfg.capacity > PLAN_MAX_NODES) {
        free(m);
        return -EINVAL;
    }
    m->planned = m->base = RDZV_MEMBERS_NONE;
    m->members = calloc(n, sizeof(*m->members));
    m->by_index = calloc(n, sizeof(*m->by_index));
    m->losses = calloc(n, sizeof(*m->losses));
    m->excluded = calloc(n, sizeof(*m->excluded));
    m->order = calloc(n, sizeof(*m->order));
    if (cfg->restart_window_ns > 0)
        m->spent = calloc((size_t)cfg->max_restarts + 1, sizeof(*m->spent));
    if (m->members == NULL || m->by_index == NULL || m->losses == NULL || m->excluded == NULL ||
        m->order == NULL || (cfg->restart_window_ns > 0 && m->spent == NULL)) {
        rdzv_free(m);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        m->by_index[i] = -1;
    m->deadline = now + (cfg->epoch > 0 ? cfg->rejoin_ns : cfg->join_ns);
    m->last_call = RDZV_NEVER;
    *ret = m;
    return 0;
}

void rdzv_free(struct rdzv *m)
{
    if (m == NULL)
        return;
    for (int i = 0; m->members != NULL && i < m->cfg.capacity; i++) {
        free(m->members[i].name);
        free(m->members[i].addr);
    }
    for (int i = 0; i < m->nknown; i++)
        rdzv_members_clear(&m->known[i]);
    rdzv_members_clear(&m->planned);
    rdzv_members_clear(&m->base);
    free(m->members);
    free(m->by_index);
    free(m->losses);
    free(m->excluded);
    free(m->order);
    free(m->spent);
    free(m->names);
    free(m->actions);
    free(m);
}

/* ---- actions --------------------------------------------------------------------------------- */

static struct rdzv_action *act(struct rdzv *m, enum rdzv_action_kind kind, int id)
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

__attribute__((format(printf, 4, 5))) static int say(struct rdzv *m, enum rdzv_action_kind kind, int id,
                                                     const char *fmt, ...)
{
    struct rdzv_action *a = act(m, kind, id);
    if (a == NULL)
        return -ENOMEM;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(a->text, sizeof(a->text), fmt, ap);
    va_end(ap);
    return 0;
}

#define refuse(m, id, ...) say(m, RDZV_SEND_REFUSE, id, __VA_ARGS__)

/* Who tells the user: the living member with the lowest rank, else any. */
static int speaker(const struct rdzv *m)
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

/* ---- how it ends ----------------------------------------------------------------------------- */

/* Keeps the first cause: exit code and sentence. */
__attribute__((format(printf, 3, 4))) static void fail(struct rdzv *m, int code, const char *fmt, ...)
{
    if (m->failed || m->enough)
        return;
    m->failed = true;
    m->code = code;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(m->text, sizeof(m->text), fmt, ap);
    va_end(ap);
}

/* What follows from the first cause, or is one. */
__attribute__((format(printf, 2, 3))) static void fail_also(struct rdzv *m, const char *fmt, ...)
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

static int send_finish(struct rdzv *m, int id, bool report)
{
    struct rdzv_action *a = act(m, RDZV_SEND_FINISH, id);
    if (a == NULL)
        return -ENOMEM;
    a->report = report;
    m->told++;
    return 0;
}

static int finish(struct rdzv *m)
{
    int first = speaker(m);
    int rc = first < 0 ? 0 : send_finish(m, first, true);
    m->state = RDZV_FINISHED;
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++)
        if (m->members[id].here && id != first)
            rc = send_finish(m, id, false);
    return rc;
}

static int send_stop(struct rdzv *m, int sig)
{
    m->state = RDZV_STOPPING;
    for (int id = 0; id < m->cfg.capacity; id++) {
        if (!m->members[id].here || m->members[id].done)
            continue;
        struct rdzv_action *a = act(m, RDZV_SEND_STOP, id);
        if (a == NULL)
            return -ENOMEM;
        a->signal = sig;
    }
    return 0;
}

/* ---- a round begins -------------------------------------------------------------------------- */

static int fold_names(struct rdzv *m)
{
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 24);
    int rc = hostlist_new(&h);
    for (int k = 0; k < m->norder && rc == 0; k++)
        rc = hostlist_push(h, rdzv_member_name(m, m->order[k]));
    if (rc == 0)
        rc = hostlist_fold(h, &out);
    if (rc < 0)
        return rc;
    free(m->names);
    m->names = dd_buf_steal(&out);
    return m->names == NULL ? -ENOMEM : 0;
}

/* Without a plan it would go on looking for another daemon, and leave this one under a round. */
static int tell_own_node(struct rdzv *m)
{
    const int own = m->by_index[m->cfg.tie];
    return own >= 0 && !m->members[own].part && act(m, RDZV_SEND_BEGUN, own) == NULL ? -ENOMEM : 0;
}

static int start_round(struct rdzv *m)
{
    int rc = rdzv_choose(m);
    if (rc < 0 || !rdzv_part_quorum(m)) /* not these: more must come */
        return rc;
    rc = fold_names(m);
    if (rc < 0)
        return rc;
    if (m->base.epoch < 0 && m->nknown == 0) /* the first of all: nobody goes on without its majority */
        rc = rdzv_members_copy(&m->base, &m->planned);
    if (rc < 0)
        return rc;
    m->begun = true;
    m->state = RDZV_RUNNING;
    m->failed = m->lost_part = m->regroup = m->drained = m->committed = m->enough = false;
    m->running = 0;
    for (int k = 0; k < m->norder; k++) {
        struct member *p = &m->members[m->order[k]];
        p->done = p->started = p->enough = false;
        p->votes = true;
        m->running++;
        if (act(m, RDZV_SEND_PLAN, m->order[k]) == NULL)
            return -ENOMEM;
    }
    return tell_own_node(m);
}

static int left_out(const struct rdzv *m)
{
    int n = 0;
    for (int id = 0; id < m->cfg.capacity; id++)
        n += m->members[id].here && m->members[id].unfit;
    return n;
}

int rdzv_wanted(const struct rdzv *m)
{
    int most = m->cfg.expected - left_out(m);
    most = most < m->cfg.max_nodes ? most : m->cfg.max_nodes;
    if (m->begun)
        return m->cfg.min_nodes; /* a round ended: whoever is left goes on at once */
    const struct rdzv_members *last = rdzv_last_known(m);
    if (last == NULL)
        return most;
    most = last->tie == m->cfg.tie ? last->n : last->n - 1; /* a daemon was lost, with its node if that is not ours */
    return most > m->cfg.min_nodes ? most : m->cfg.min_nodes;
}

static int give_up_gathering(struct rdzv *m)
{
    DD_AUTO(buf) struct dd_buf missing = DD_BUF_INIT(1 << 20);
    int fit = rdzv_fit(m);
    if (m->begun || m->nknown > 0) {
        if (!rdzv_quorum(m))
            fail_also(m, "only %d of the %d nodes of the last round can be reached, too few to go on; the others may go on "
                      "without these", fit, rdzv_last_size(m));
        else
            fail_also(m, "%d of at least %d nodes are left", fit, m->cfg.min_nodes);
        return finish(m);
    }
    int rc = rdzv_missing(m, &missing);
    const char *names = dd_buf_str(&missing);
    fail_also(m, "only %d of %d nodes came in time; missing: %.250s", m->here, rdzv_wanted(m),
              rc < 0 || names == NULL ? "?" : names);
    return rc < 0 ? rc : finish(m);
}

/* ---- a round ends ---------------------------------------------------------------------------- */

static bool budget_left(const struct rdzv *m, uint64_t now)
{
    if (m->spent == NULL || m->restarts < m->cfg.max_restarts)
        return m->restarts < m->cfg.max_restarts;
    if (m->cfg.max_restarts == 0)
        return false;
    uint64_t oldest = m->spent[m->restarts % m->cfg.max_restarts];
    return now - oldest >= m->cfg.restart_window_ns;
}

static void spend(struct rdzv *m, uint64_t now)
{
    if (m->spent != NULL)
        m->spent[m->restarts % m->cfg.max_restarts] = now;
    m->restarts++;
}

/* Only the daemon was lost, and at the very end: there is nothing left to run. */
static bool ended_before(const struct rdzv *m)
{
    const struct rdzv_members *last = m->begun ? NULL : rdzv_last_known(m);
    for (int k = 0; last != NULL && k < last->n; k++) {
        int id = last->index[k] < m->cfg.capacity ? m->by_index[last->index[k]] : -1;
        if (id < 0 || !m->members[id].ended_well)
            return false;
    }
    return last != NULL;
}

/* The round of a lost daemon costs what a failure does, unless nodes may be lost. */
static int go(struct rdzv *m, uint64_t now)
{
    if (ended_before(m))
        return finish(m);
    if (m->cfg.epoch > 0 && !m->begun && !rdzv_is_elastic(&m->cfg)) {
        if (!budget_left(m, now)) {
            fail_also(m, "the daemon was lost, and no restart is left");
            return finish(m);
        }
        spend(m, now);
    }
    return start_round(m);
}

/* Whoever is missing may be under another daemon that this one cannot know of, or just now have none. Where
 * members of older daemons have come, these say what is needed. */
static bool may_be_elsewhere(const struct rdzv *m)
{
    return m->cfg.looks_first != 0 && !m->begun && m->nknown == 0 && m->here < m->cfg.expected;
}

/* The answer is RDZV_LOOKED, or the end of this daemon. */
static int look_first(struct rdzv *m)
{
    int id = m->by_index[m->cfg.tie];
    if (m->looking || id < 0)
        return 0;
    m->looking = true;
    return act(m, RDZV_SEND_LOOK, id) == NULL ? -ENOMEM : 0;
}

/* While gathering: are these enough? */
static int consider(struct rdzv *m, uint64_t now)
{
    int fit = rdzv_fit(m);
    bool enough = fit >= m->cfg.min_nodes && rdzv_quorum(m);
    bool due = enough && ((fit >= rdzv_wanted(m) && !may_be_elsewhere(m)) || now >= m->deadline ||
                   (m->last_call != RDZV_NEVER && now >= m->last_call));
    if (due && may_be_elsewhere(m) && !m->looked)
        return look_first(m);
    m->looking = m->looked = false; /* for the next time */
    if (due) {
        int rc = go(m, now);
        if (rc < 0 || m->state != RDZV_GATHERING)
            return rc;
        enough = false; /* of those that can be chosen */
    }
    if (!enough)
        m->last_call = RDZV_NEVER;
    else if (m->last_call == RDZV_NEVER)
        m->last_call = now + m->cfg.last_call_ns;
    return now >= m->deadline ? give_up_gathering(m) : 0;
}

uint64_t rdzv_timer(const struct rdzv *m)
{
    if (m->state != RDZV_GATHERING || m->looking)
        return RDZV_NEVER;
    return m->last_call < m->deadline ? m->last_call : m->deadline;
}

static int tell_restart(struct rdzv *m)
{
    int id = speaker(m);
    int left = rdzv_fit(m);
    if (id < 0)
        return 0;
    if (!m->failed)
        return say(m, RDZV_SEND_NOTE, id, "starting all workers again with %s", m->drained ? "other nodes" : "more nodes");
    if (left < m->cfg.min_nodes || !rdzv_quorum(m))
        return say(m, RDZV_SEND_NOTE, id, "%.300s; waiting up to %.0f s for it to come back", m->text,
                   (double)m->cfg.rejoin_ns / 1e9);
    if (m->lost_part && rdzv_is_elastic(&m->cfg))
        return say(m, RDZV_SEND_NOTE, id, "%.300s; starting all workers again on %d nodes", m->text,
                   left < m->cfg.max_nodes ? left : m->cfg.max_nodes);
    return say(m, RDZV_SEND_NOTE, id, "%.300s; starting all workers again (%d of %d)", m->text,
               m->restarts, m->cfg.max_restarts);
}

/* Too few are here to go on: the others may have. */
static int look_around(struct rdzv *m)
{
    int id = m->by_index[m->cfg.tie];
    if (id < 0 || rdzv_quorum(m))
        return 0;
    return act(m, RDZV_SEND_LOOK, id) == NULL ? -ENOMEM : 0;
}

/* The loss of a node costs an elastic job nothing, a failure one of its restarts. */
static int round_over(struct rdzv *m, uint64_t now)
{
    if (m->end || !(m->failed || m->regroup))
        return finish(m);
    if (m->failed && !(m->lost_part && rdzv_is_elastic(&m->cfg))) {
        if (!budget_left(m, now))
            return finish(m);
        spend(m, now);
    }
    int rc = tell_restart(m);
    if (rc < 0 || act(m, RDZV_DROP_STORE, -1) == NULL)
        return -ENOMEM;
    m->round = (m->round > m->beyond ? m->round : m->beyond) + 1;
    m->state = RDZV_GATHERING;
    m->deadline = now + m->cfg.rejoin_ns;
    m->last_call = RDZV_NEVER;
    rc = look_around(m);
    return rc < 0 ? rc : consider(m, now);
}

static int member_done(struct rdzv *m, int id, uint64_t now)
{
    struct member *p = &m->members[id];
    if (!p->part || p->done)
        return 0;
    p->done = true;
    return --m->running > 0 ? 0 : round_over(m, now);
}

/* ---- event handlers, one per cell of the table below ------------------------------------------- */

static int on_stop_early(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    m->failed = false; /* what the last round ended with matters no more */
    fail(m, e->signal > 0 ? 128 + e->signal : BAD_INPUT, "%s", e->text);
    return finish(m);
}

/* *ret_ok: it may come. */
static int check_join(struct rdzv *m, const struct rdzv_event *e, bool *ret_ok)
{
    *ret_ok = false;
    if (e->nnodes != m->cfg.max_nodes || (e->min_nodes > 0 && e->min_nodes != m->cfg.min_nodes))
        return refuse(m, e->id, "%s expects %d nodes, but the first node of this job expects %d; give all the same --nnodes",
                      e->name, e->nnodes != m->cfg.max_nodes ? e->nnodes : e->min_nodes,
                      e->nnodes != m->cfg.max_nodes ? m->cfg.max_nodes : m->cfg.min_nodes);
    if (e->index >= m->cfg.capacity)
        return refuse(m, e->id, "%s says it is node %d, but there are only nodes 0 to %d", e->name,
                      e->index, m->cfg.capacity - 1);
    if (e->index >= 0 && m->by_index[e->index] >= 0)
        return refuse(m, e->id, "node %d is already here (%s), so %s cannot be it too; give each node its own --node-rank",
                      e->index, rdzv_member_name(m, m->by_index[e->index]), e->name);
    if ((e->epoch > m->cfg.epoch && m->state == RDZV_GATHERING && !rdzv_quorum(m)) ||
        (e->planned != NULL && e->planned->epoch > m->cfg.epoch) ||
        (e->committed != NULL && e->committed->epoch > m->cfg.epoch))
        return refuse(m, e->id, "another daemon of this job may go on");
    *ret_ok = true;
    return 0;
}

static int add_member(struct rdzv *m, const struct rdzv_event *e)
{
    struct member *p = &m->members[e->id];
    char *name = strdup(e->name);
    char *addr = strdup(e->addr);
    if (name == NULL || addr == NULL) {
        free(name);
        free(addr);
        return -ENOMEM;
    }
    free(p->name);
    free(p->addr);
    *p = (struct member){.here = true, .done = true, .index = e->index, .slots = e->slots,
                         .name = name, .addr = addr};
    if (e->index >= 0)
        m->by_index[e->index] = e->id;
    m->here++;
    return 0;
}

/* It stays, but no round takes it any more. */
static int leave_out(struct rdzv *m, int id, const char *why)
{
    struct member *p = &m->members[id];
    if (p->unfit)
        return 0;
    p->unfit = true;
    if (p->index >= 0)
        m->excluded[p->index] = true;
    if (!m->begun && m->cfg.expected - left_out(m) < m->cfg.min_nodes) /* that ends the job, and is told so */
        return 0;
    int to = speaker(m);
    return say(m, RDZV_SEND_NOTE, to, "%s is left out: %.300s", rdzv_member_name(m, id), why);
}

static bool said(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* With a node too few for good there is nothing to wait for. */
static int check_left_out(struct rdzv *m, const char *name, const char *why)
{
    if (m->cfg.expected - left_out(m) >= m->cfg.min_nodes)
        return 0;
    fail(m, 1, "%s cannot take part: %.300s", name, why);
    return finish(m);
}

static int join(struct rdzv *m, const struct rdzv_event *e, bool *ret_in)
{
    *ret_in = false;
    if (m->members[e->id].here)
        return -EINVAL;
    int rc = check_join(m, e, ret_in);
    if (rc < 0 || !*ret_in)
        return rc;
    rc = add_member(m, e);
    if (rc == 0 && e->planned != NULL && e->planned->epoch == m->cfg.epoch && e->planned->round > m->beyond)
        m->beyond = e->planned->round; /* of a daemon before this one that the first node had */
    bool remembers = e->planned != NULL && e->planned->epoch >= 0;
    if (rc == 0 && remembers) {
        m->members[e->id].ended_well = e->ended_well;
        m->members[e->id].votes = true;
    }
    if (rc == 0 && (remembers || e->elsewhere))
        rc = act(m, RDZV_SEND_WELCOME, e->id) == NULL ? -ENOMEM : 0;
    if (rc == 0 && e->index >= 0 && m->excluded[e->index])
        rc = leave_out(m, e->id, "it was left out before");
    if (rc == 0 && said(e->unfit))
        rc = leave_out(m, e->id, e->unfit);
    return rc;
}

static int on_join(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    bool in;
    int rc = join(m, e, &in);
    if (rc < 0 || !in)
        return rc;
    if (said(e->text) && !m->begun)
        return on_stop_early(m, e, now); /* it cannot run workers: nobody shall start any */
    if (said(e->text))
        rc = leave_out(m, e->id, e->text);
    if (rc == 0)
        rc = rdzv_learn(m, e);
    if (rc == 0 && !m->begun)
        rdzv_learn_ages(m, e, now);
    if (rc == 0 && said(e->unfit) && !m->begun)
        rc = check_left_out(m, e->name, e->unfit);
    return rc < 0 || m->state != RDZV_GATHERING ? rc : consider(m, now);
}

/* Whoever comes after an early end is told how it ended. */
static int on_join_after(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    return send_finish(m, e->id, false);
}

/* It waits for the next round, which may begin because of it. */
static int on_late_join(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    bool in;
    (void)now;
    if (!rdzv_is_elastic(&m->cfg) && m->here >= m->cfg.max_nodes)
        return refuse(m, e->id, "this job has already started with all its %d nodes", m->cfg.max_nodes);
    int rc = join(m, e, &in);
    if (rc < 0 || !in)
        return rc;
    if (said(e->text))
        rc = leave_out(m, e->id, e->text);
    if (rc == 0 && e->index == m->cfg.tie)
        rc = tell_own_node(m);
    if (rc < 0 || m->state != RDZV_RUNNING || m->cfg.grow != RDZV_GROW_NOW || m->norder >= m->cfg.max_nodes ||
        !rdzv_is_fit(m, e->id))
        return rc;
    m->regroup = true;
    return send_stop(m, SIGTERM);
}

static void remove_member(struct rdzv *m, int id)
{
    struct member *p = &m->members[id];
    p->here = false;
    m->here--;
    if (p->index >= 0)
        m->by_index[p->index] = -1;
    for (int k = 0; k < m->norder; k++)
        if (m->order[k] == id)
            m->order[k] = -1;
}

static int on_lost_early(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    if (e->clean && m->members[e->id].index >= 0)
        rdzv_forget(&m->base, m->members[e->id].index);
    bool before = rdzv_quorum(m);
    remove_member(m, e->id); /* it may come back until the time is over */
    int rc = before && m->begun ? look_around(m) : 0;
    return rc < 0 ? rc : consider(m, now);
}

static int on_time(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)e;
    return consider(m, now);
}

static int on_looked(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)e;
    m->looked = m->looking;
    return consider(m, now);
}

static bool all_started(const struct rdzv *m)
{
    for (int k = 0; k < m->norder; k++)
        if (m->order[k] < 0 || !m->members[m->order[k]].started)
            return false;
    return true;
}

static int on_started(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    if (e->round != m->round || !m->members[e->id].part)
        return 0;
    m->members[e->id].started = true;
    if (m->committed || !all_started(m))
        return 0;
    m->committed = true;
    int rc = rdzv_members_copy(&m->base, &m->planned);
    for (int k = 0; k < m->norder && rc == 0; k++)
        if (act(m, RDZV_SEND_COMMIT, m->order[k]) == NULL)
            rc = -ENOMEM;
    return rc;
}

/* Parameter servers and their like never end: the job is over with those that matter. */
static int on_enough(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    if (e->round != m->round || !m->members[e->id].part)
        return 0;
    m->members[e->id].enough = true;
    for (int k = 0; k < m->norder; k++)
        if (m->order[k] < 0 || !m->members[m->order[k]].enough)
            return 0;
    m->enough = m->end = true;
    return send_stop(m, SIGTERM);
}

static int on_done(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    if (e->round != m->round)
        return 0;
    int rc = said(e->unfit) && m->state == RDZV_STOPPING ? leave_out(m, e->id, e->unfit) : 0;
    return rc < 0 ? rc : member_done(m, e->id, now);
}

static int rank_of(const struct rdzv *m, int id)
{
    int rank = 0;
    for (int k = 0; m->order[k] != id; k++)
        if (m->order[k] >= 0)
            rank += m->members[m->order[k]].slots;
    return rank;
}

static int on_exit_(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    const struct member *p = &m->members[e->id];
    (void)now;
    if (e->round != m->round || !p->part || e->local_rank >= p->slots || m->failed)
        return 0;
    const char *why = e->text != NULL ? e->text : "";
    char how[80];
    if (e->signal > 0)
        (void)snprintf(how, sizeof(how), "was killed by signal %d (SIG%s)", e->signal,
                       dd_signal_name(e->signal));
    else
        (void)snprintf(how, sizeof(how), "exited with code %d", e->code);
    if (m->regroup) /* because of our own stop */
        return 0;
    fail(m, e->code, "rank %d (%s, local rank %d) %s%s%.200s", rank_of(m, e->id) + e->local_rank,
         rdzv_member_name(m, e->id), e->local_rank, how,
         why[0] != '\0' ? ": " : "", why);
    return m->state == RDZV_RUNNING ? send_stop(m, SIGTERM) : 0;
}

static int on_lost(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    struct member *p = &m->members[e->id];
    if (!p->part) { /* it was waiting for a round */
        remove_member(m, e->id);
        return 0;
    }
    fail(m, 1, "%s was lost: %s", rdzv_member_name(m, e->id), e->text);
    m->lost_part = true;
    if (p->index >= 0 && ++m->losses[p->index] >= LOSSES_MAX)
        m->excluded[p->index] = true;
    if (e->clean && p->index >= 0)
        rdzv_forget(&m->base, p->index);
    remove_member(m, e->id);
    int rc = m->state == RDZV_RUNNING ? send_stop(m, SIGTERM) : 0;
    return rc < 0 ? rc : member_done(m, e->id, now);
}

static int on_lost_late(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    if (m->members[e->id].here) /* else it came after the end */
        remove_member(m, e->id);
    return 0;
}

static int on_stop_request(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    if (e->id < 0 && m->end) /* the daemon was sent the same signal: workers got that of the agent */
        return 0;
    fail(m, e->signal > 0 ? 128 + e->signal : BAD_INPUT, "%s", e->text);
    m->end = true;
    return send_stop(m, e->signal > 0 ? e->signal : SIGTERM);
}

bool rdzv_can_spare(struct rdzv *m, int id)
{
    struct member *p = &m->members[id];
    const bool unfit = p->unfit;
    if (p->index == m->cfg.tie) /* without a plan it would look for another daemon, and end this one under a round */
        return false;
    p->unfit = true;
    const bool can = m->begun ? rdzv_fit(m) >= m->cfg.min_nodes && rdzv_quorum(m)
                              : m->cfg.expected - left_out(m) >= m->cfg.min_nodes;
    p->unfit = unfit;
    return can;
}

/* Nobody's failure: it costs no restart. */
static int on_drain(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    const bool known = m->members[e->id].unfit;
    int rc = rdzv_can_spare(m, e->id) ? leave_out(m, e->id, e->text) : -EINVAL;
    if (rc < 0 || known || m->state != RDZV_RUNNING || !m->members[e->id].part)
        return rc;
    m->regroup = m->drained = true;
    return send_stop(m, SIGTERM);
}

static int on_drain_early(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    int rc = rdzv_can_spare(m, e->id) ? leave_out(m, e->id, e->text) : -EINVAL;
    return rc < 0 ? rc : consider(m, now);
}

static int ignore(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)m;
    (void)e;
    (void)now;
    return 0;
}

/* An empty cell is an event that cannot be in that state: refused. */
static int (*const edge[RDZV_STATE_MAX][RDZV_EVENT_MAX])(struct rdzv *, const struct rdzv_event *,
                                                         uint64_t now) = {
    [RDZV_GATHERING] =
        {
            [RDZV_JOIN] = on_join,
            [RDZV_STARTED] = ignore,
            [RDZV_ENOUGH] = ignore,
            [RDZV_EXIT] = ignore,
            [RDZV_DONE] = ignore,
            [RDZV_LOST] = on_lost_early,
            [RDZV_STOP_REQUEST] = on_stop_early,
            [RDZV_TIME] = on_time,
            [RDZV_DRAIN] = on_drain_early,
            [RDZV_LOOKED] = on_looked,
        },
    [RDZV_RUNNING] =
        {
            [RDZV_JOIN] = on_late_join,
            [RDZV_STARTED] = on_started,
            [RDZV_ENOUGH] = on_enough,
            [RDZV_EXIT] = on_exit_,
            [RDZV_DONE] = on_done,
            [RDZV_LOST] = on_lost,
            [RDZV_STOP_REQUEST] = on_stop_request,
            [RDZV_TIME] = ignore,
            [RDZV_DRAIN] = on_drain,
            [RDZV_LOOKED] = ignore,
        },
    [RDZV_STOPPING] =
        {
            [RDZV_JOIN] = on_late_join,
            [RDZV_STARTED] = on_started,
            [RDZV_ENOUGH] = ignore,
            [RDZV_EXIT] = on_exit_,
            [RDZV_DONE] = on_done,
            [RDZV_LOST] = on_lost,
            [RDZV_STOP_REQUEST] = on_stop_request,
            [RDZV_TIME] = ignore,
            [RDZV_DRAIN] = on_drain,
            [RDZV_LOOKED] = ignore,
        },
    [RDZV_FINISHED] =
        {
            [RDZV_JOIN] = on_join_after,
            [RDZV_STARTED] = ignore,
            [RDZV_ENOUGH] = ignore,
            [RDZV_EXIT] = ignore,
            [RDZV_DONE] = ignore,
            [RDZV_LOST] = on_lost_late,
            [RDZV_STOP_REQUEST] = ignore,
            [RDZV_TIME] = ignore,
            [RDZV_DRAIN] = ignore,
            [RDZV_LOOKED] = ignore,
        },
};

static bool event_ok(const struct rdzv *m, const struct rdzv_event *e)
{
    if ((unsigned)e->kind >= RDZV_EVENT_MAX || edge[m->state][e->kind] == NULL)
        return false;
    if (e->kind == RDZV_TIME || (e->kind == RDZV_STOP_REQUEST && e->id < 0))
        return true;
    if (e->id < 0 || e->id >= m->cfg.capacity)
        return false;
    return e->kind == RDZV_JOIN || m->state == RDZV_FINISHED || m->members[e->id].here;
}

int rdzv_step(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    return event_ok(m, e) ? edge[m->state][e->kind](m, e, now) : -EINVAL;
}

/* ---- questions ------------------------------------------------------------------------------- */

enum rdzv_state rdzv_state(const struct rdzv *m)
{
    return m->state;
}

const char *rdzv_state_name(enum rdzv_state s)
{
    static const char *const names[RDZV_STATE_MAX] = {
        [RDZV_GATHERING] = "gathering",
        [RDZV_RUNNING] = "running",
        [RDZV_STOPPING] = "stopping",
        [RDZV_FINISHED] = "finished",
    };
    return s < RDZV_STATE_MAX ? names[s] : "?";
}

int rdzv_round(const struct rdzv *m)
{
    return m->round;
}

int rdzv_code(const struct rdzv *m)
{
    return m->failed ? m->code : 0;
}

const char *rdzv_text(const struct rdzv *m)
{
    return m->failed ? m->text : "";
}

bool rdzv_may_go_on(const struct rdzv *m, uint64_t now)
{
    return m->state != RDZV_FINISHED && m->begun && !m->end && (rdzv_is_elastic(&m->cfg) || budget_left(m, now));
}

bool rdzv_has_begun(const struct rdzv *m)
{
    return m->begun;
}

bool rdzv_all_told(const struct rdzv *m)
{
    return m->told >= m->cfg.expected;
}

int rdzv_members(const struct rdzv *m)
{
    return m->here;
}

int rdzv_id_of_rank(const struct rdzv *m, int node_rank)
{
    return node_rank >= 0 && node_rank < m->norder ? m->order[node_rank] : -1;
}
