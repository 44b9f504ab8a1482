#include "rdzv/machine.h"

#include "base/auto.h"
#include "base/sig.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAD_INPUT = 2 }; /* exit code when a node cannot start what the user asked for */

struct member {
    bool here;  /* joined and not lost */
    bool done;  /* its workers of the current round are gone, or were never started */
    int index;  /* -1 until assigned */
    int slots;
    char *name;
    char *addr;
};

struct rdzv {
    struct rdzv_cfg cfg;
    enum rdzv_state state;
    int round;
    int restarts; /* used up */
    int here;     /* members with .here */
    int running;  /* members of the round with workers left */
    bool failed;  /* this round has seen a failure */
    bool end;     /* no further round, whatever the budget says */
    int told;     /* agents that have been sent FINISH */
    int code;
    char text[400];
    struct member *members; /* [nnodes] by id */
    int *order;             /* [nnodes] id by node rank, once a round is made */
    char *names;            /* of the round's nodes, folded */
    struct rdzv_action *actions;
    size_t nactions, next, cap;
};

int rdzv_new(struct rdzv **ret, const struct rdzv_cfg *cfg)
{
    struct rdzv *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return -ENOMEM;
    m->cfg = *cfg;
    m->members = calloc((size_t)cfg->nnodes, sizeof(*m->members));
    m->order = calloc((size_t)cfg->nnodes, sizeof(*m->order));
    if (m->members == NULL || m->order == NULL) {
        rdzv_free(m);
        return -ENOMEM;
    }
    *ret = m;
    return 0;
}

void rdzv_free(struct rdzv *m)
{
    if (m == NULL)
        return;
    for (int i = 0; m->members != NULL && i < m->cfg.nnodes; i++) {
        free(m->members[i].name);
        free(m->members[i].addr);
    }
    free(m->members);
    free(m->order);
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

__attribute__((format(printf, 3, 4))) static int refuse(struct rdzv *m, int id, const char *fmt, ...)
{
    struct rdzv_action *a = act(m, RDZV_SEND_REFUSE, id);
    if (a == NULL)
        return -ENOMEM;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(a->text, sizeof(a->text), fmt, ap);
    va_end(ap);
    return 0;
}

/* ---- how it ends ----------------------------------------------------------------------------- */

/* Keeps the first cause: exit code and sentence. */
__attribute__((format(printf, 3, 4))) static void fail(struct rdzv *m, int code, const char *fmt, ...)
{
    if (m->failed)
        return;
    m->failed = true;
    m->code = code;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(m->text, sizeof(m->text), fmt, ap);
    va_end(ap);
}

static const char *member_name(const struct rdzv *m, int id)
{
    const struct member *p = &m->members[id];
    return p->name != NULL && p->name[0] != '\0' ? p->name : "?";
}

static int finish(struct rdzv *m)
{
    m->state = RDZV_FINISHED;
    bool told = false; /* the living member with the lowest rank tells the user */
    for (int k = 0; k < m->cfg.nnodes; k++) {
        int id = m->order[k];
        if (!m->members[id].here)
            continue;
        struct rdzv_action *a = act(m, RDZV_SEND_FINISH, id);
        if (a == NULL)
            return -ENOMEM;
        a->report = !told;
        told = true;
        m->told++;
    }
    return 0;
}

static int send_stop(struct rdzv *m, int sig)
{
    m->state = RDZV_STOPPING;
    for (int id = 0; id < m->cfg.nnodes; id++) {
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
    for (int k = 0; k < m->cfg.nnodes && rc == 0; k++)
        rc = hostlist_push(h, member_name(m, m->order[k]));
    if (rc == 0)
        rc = hostlist_fold(h, &out);
    if (rc < 0)
        return rc;
    free(m->names);
    m->names = dd_buf_steal(&out);
    return m->names == NULL ? -ENOMEM : 0;
}

static int start_round(struct rdzv *m)
{
    int rc = fold_names(m);
    if (rc < 0)
        return rc;
    m->state = RDZV_RUNNING;
    m->failed = false;
    m->running = 0;
    for (int k = 0; k < m->cfg.nnodes; k++) {
        struct member *p = &m->members[m->order[k]];
        p->done = false;
        m->running++;
        if (act(m, RDZV_SEND_PLAN, m->order[k]) == NULL)
            return -ENOMEM;
    }
    return 0;
}

struct unplaced {
    const char *name;
    int id;
};

/* By name, numbers in it as numbers: node2 before node10. */
static int by_name(const void *a, const void *b)
{
    const struct unplaced *x = a;
    const struct unplaced *y = b;
    int c = strverscmp(x->name, y->name);
    return c != 0 ? c : x->id - y->id;
}

/* Gives the members that came without an index the free places, in the order of their names. */
static int place_members(struct rdzv *m)
{
    size_t total = (size_t)m->cfg.nnodes;
    DD_AUTO(free) struct unplaced *todo = calloc(total, sizeof(*todo));
    if (todo == NULL)
        return -ENOMEM;
    size_t n = 0;
    for (int k = 0; k < m->cfg.nnodes; k++)
        m->order[k] = -1;
    for (int id = 0; id < m->cfg.nnodes; id++)
        if (m->members[id].index >= 0)
            m->order[m->members[id].index] = id;
        else
            todo[n++] = (struct unplaced){member_name(m, id), id};
    qsort(todo, n, sizeof(*todo), by_name);
    for (int k = 0, next = 0; k < m->cfg.nnodes; k++)
        if (m->order[k] < 0) {
            m->order[k] = todo[next++].id;
            m->members[m->order[k]].index = k;
        }
    return 0;
}

/* ---- event handlers, one per cell of the table below ------------------------------------------- */

static int on_stop_early(struct rdzv *m, const struct rdzv_event *e)
{
    fail(m, e->signal > 0 ? 128 + e->signal : BAD_INPUT, "%s", e->text);
    for (int id = 0, k = 0; id < m->cfg.nnodes; id++)
        m->order[k++] = id;
    return finish(m);
}

static int on_join(struct rdzv *m, const struct rdzv_event *e)
{
    struct member *p = &m->members[e->id];
    if (p->here)
        return -EINVAL;
    if (e->nnodes != m->cfg.nnodes)
        return refuse(m, e->id, "%s expects %d nodes, but the first node of this job expects %d; give all the same --nnodes",
                      e->name, e->nnodes, m->cfg.nnodes);
    if (e->index >= m->cfg.nnodes)
        return refuse(m, e->id, "%s says it is node %d, but there are only nodes 0 to %d", e->name,
                      e->index, m->cfg.nnodes - 1);
    for (int i = 0; e->index >= 0 && i < m->cfg.nnodes; i++)
        if (m->members[i].here && m->members[i].index == e->index)
            return refuse(m, e->id, "node %d is already here (%s), so %s cannot be it too; give each node its own --node-rank",
                          e->index, member_name(m, i), e->name);
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
    m->here++;
    if (e->text != NULL && e->text[0] != '\0')
        return on_stop_early(m, e); /* it cannot run workers: nobody shall start any */
    if (m->here < m->cfg.nnodes)
        return 0;
    int rc = place_members(m);
    return rc < 0 ? rc : start_round(m);
}

/* Whoever comes after an early end is told how it ended. */
static int on_join_after(struct rdzv *m, const struct rdzv_event *e)
{
    m->told++;
    return act(m, RDZV_SEND_FINISH, e->id) == NULL ? -ENOMEM : 0;
}

static int on_late_join(struct rdzv *m, const struct rdzv_event *e)
{
    return refuse(m, e->id, "this job has already started with all its %d nodes", m->cfg.nnodes);
}

static int on_lost_early(struct rdzv *m, const struct rdzv_event *e)
{
    m->members[e->id].here = false; /* it may come back until the time is over */
    m->here--;
    return 0;
}

static int on_deadline(struct rdzv *m, const struct rdzv_event *e)
{
    (void)e;
    DD_AUTO(buf) struct dd_buf missing = DD_BUF_INIT(1 << 20);
    int rc = rdzv_missing(m, &missing);
    if (rc < 0)
        return rc;
    const char *names = dd_buf_str(&missing);
    fail(m, 1, "only %d of %d nodes came in time; missing: %.250s%s", m->here, m->cfg.nnodes,
         names == NULL ? "?" : names, e->text);
    for (int id = 0, k = 0; id < m->cfg.nnodes; id++)
        m->order[k++] = id;
    return finish(m);
}

static int round_over(struct rdzv *m)
{
    if (!m->failed)
        return finish(m);
    if (m->end || m->restarts >= m->cfg.max_restarts)
        return finish(m);
    m->restarts++;
    m->round++;
    struct rdzv_action *note = act(m, RDZV_SEND_NOTE, m->order[0]);
    if (note == NULL)
        return -ENOMEM;
    (void)snprintf(note->text, sizeof(note->text), "%.300s; starting all workers again (%d of %d)",
                   m->text, m->restarts, m->cfg.max_restarts);
    if (act(m, RDZV_DROP_STORE, -1) == NULL)
        return -ENOMEM;
    return start_round(m);
}

static int member_done(struct rdzv *m, int id)
{
    struct member *p = &m->members[id];
    if (p->done)
        return 0;
    p->done = true;
    return --m->running > 0 ? 0 : round_over(m);
}

static int on_done(struct rdzv *m, const struct rdzv_event *e)
{
    return e->round == m->round ? member_done(m, e->id) : 0;
}

static int on_exit_(struct rdzv *m, const struct rdzv_event *e)
{
    const struct member *p = &m->members[e->id];
    if (e->round != m->round || e->local_rank >= p->slots)
        return 0;
    int rank = e->local_rank;
    for (int k = 0; m->order[k] != e->id; k++)
        rank += m->members[m->order[k]].slots;
    char how[80];
    if (e->signal > 0)
        (void)snprintf(how, sizeof(how), "was killed by signal %d (SIG%s)", e->signal,
                       dd_signal_name(e->signal));
    else
        (void)snprintf(how, sizeof(how), "exited with code %d", e->code);
    fail(m, e->code, "rank %d (%s, local rank %d) %s", rank, member_name(m, e->id), e->local_rank,
         how);
    return m->state == RDZV_RUNNING ? send_stop(m, SIGTERM) : 0;
}

static int on_lost(struct rdzv *m, const struct rdzv_event *e)
{
    struct member *p = &m->members[e->id];
    fail(m, 1, "%s was lost: %s", member_name(m, e->id), e->text);
    p->here = false;
    m->here--;
    m->end = true; /* the nodes of a round are fixed: without one of them there is no next */
    int rc = m->state == RDZV_RUNNING ? send_stop(m, SIGTERM) : 0;
    return rc < 0 ? rc : member_done(m, e->id);
}

static int on_lost_late(struct rdzv *m, const struct rdzv_event *e)
{
    if (!m->members[e->id].here)
        return 0; /* came after the end */
    m->members[e->id].here = false;
    m->here--;
    return 0;
}

static int on_stop_request(struct rdzv *m, const struct rdzv_event *e)
{
    if (e->id < 0 && m->end) /* the daemon was sent the same signal: workers got that of the agent */
        return 0;
    fail(m, e->signal > 0 ? 128 + e->signal : BAD_INPUT, "%s", e->text);
    m->end = true;
    return send_stop(m, e->signal > 0 ? e->signal : SIGTERM);
}

static int ignore(struct rdzv *m, const struct rdzv_event *e)
{
    (void)m;
    (void)e;
    return 0;
}

/* An empty cell is an event that cannot be in that state: refused. */
static int (*const edge[RDZV_STATE_MAX][RDZV_EVENT_MAX])(struct rdzv *, const struct rdzv_event *) = {
    [RDZV_GATHERING] =
        {
            [RDZV_JOIN] = on_join,
            [RDZV_LOST] = on_lost_early,
            [RDZV_STOP_REQUEST] = on_stop_early,
            [RDZV_DEADLINE] = on_deadline,
        },
    [RDZV_RUNNING] =
        {
            [RDZV_JOIN] = on_late_join,
            [RDZV_EXIT] = on_exit_,
            [RDZV_DONE] = on_done,
            [RDZV_LOST] = on_lost,
            [RDZV_STOP_REQUEST] = on_stop_request,
            [RDZV_DEADLINE] = ignore,
        },
    [RDZV_STOPPING] =
        {
            [RDZV_JOIN] = on_late_join,
            [RDZV_EXIT] = on_exit_,
            [RDZV_DONE] = on_done,
            [RDZV_LOST] = on_lost,
            [RDZV_STOP_REQUEST] = on_stop_request,
            [RDZV_DEADLINE] = ignore,
        },
    [RDZV_FINISHED] =
        {
            [RDZV_JOIN] = on_join_after,
            [RDZV_EXIT] = ignore,
            [RDZV_DONE] = ignore,
            [RDZV_LOST] = on_lost_late,
            [RDZV_STOP_REQUEST] = ignore,
            [RDZV_DEADLINE] = ignore,
        },
};

static bool event_ok(const struct rdzv *m, const struct rdzv_event *e)
{
    if ((unsigned)e->kind >= RDZV_EVENT_MAX || edge[m->state][e->kind] == NULL)
        return false;
    if (e->kind == RDZV_DEADLINE || (e->kind == RDZV_STOP_REQUEST && e->id < 0))
        return true;
    if (e->kind == RDZV_JOIN && m->state != RDZV_GATHERING)
        return true; /* will be refused, whatever its id */
    if (e->id < 0 || e->id >= m->cfg.nnodes)
        return false;
    return e->kind == RDZV_JOIN || m->state == RDZV_FINISHED || m->members[e->id].here;
}

int rdzv_step(struct rdzv *m, const struct rdzv_event *e)
{
    return event_ok(m, e) ? edge[m->state][e->kind](m, e) : -EINVAL;
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

bool rdzv_all_told(const struct rdzv *m)
{
    return m->told >= m->cfg.nnodes;
}

int rdzv_members(const struct rdzv *m)
{
    return m->here;
}

int rdzv_index(const struct rdzv *m, int id)
{
    return id >= 0 && id < m->cfg.nnodes && m->members[id].here ? m->members[id].index : -1;
}

static bool is_loopback(const char *addr)
{
    return strncmp(addr, "127.", 4) == 0 || strcmp(addr, "::1") == 0;
}

/* The address of the daemon for this member: the one that it has itself reached. The host, which
 * did not have to, takes one that another node reached, if possible not a loopback one. */
static const char *master_addr(const struct rdzv *m, const struct member *p)
{
    if (p->addr[0] != '\0')
        return p->addr;
    const char *best = NULL;
    for (int k = 0; k < m->cfg.nnodes; k++) {
        const char *a = m->members[m->order[k]].addr;
        if (a[0] != '\0' && (best == NULL || (is_loopback(best) && !is_loopback(a))))
            best = a;
    }
    return best != NULL ? best : "127.0.0.1";
}

int rdzv_plan(const struct rdzv *m, int id, struct plan *ret)
{
    if (m->state == RDZV_GATHERING || id < 0 || id >= m->cfg.nnodes)
        return -EINVAL;
    const struct member *p = &m->members[id];
    DD_AUTO(plan) struct plan pl = {
        .round = m->round,
        .nnodes = m->cfg.nnodes,
        .node_rank = p->index,
        .local_size = p->slots,
        .restart_count = m->restarts,
        .max_restarts = m->cfg.max_restarts,
        .master_port = m->cfg.master_port,
        .master_addr = strdup(master_addr(m, p)),
        .sizes = calloc((size_t)m->cfg.nnodes, sizeof(int)),
        .nodes = strdup(m->names),
    };
    if (pl.master_addr == NULL || pl.sizes == NULL || pl.nodes == NULL)
        return -ENOMEM;
    for (int k = 0; k < m->cfg.nnodes; k++) {
        pl.sizes[k] = m->members[m->order[k]].slots;
        pl.world_size += pl.sizes[k];
    }
    pl.first_rank = plan_first_rank(pl.sizes, pl.node_rank);
    *ret = pl;
    pl = (struct plan){0};
    return 0;
}

int rdzv_missing(const struct rdzv *m, struct dd_buf *out)
{
    DD_AUTO(hostlist) struct hostlist *gone = NULL;
    DD_AUTO(free) bool *here = calloc((size_t)m->cfg.nnodes, sizeof(*here));
    int unnamed = 0;
    int rc = here == NULL ? -ENOMEM : hostlist_new(&gone);
    for (int id = 0; id < m->cfg.nnodes && rc == 0; id++)
        if (m->members[id].here && m->members[id].index >= 0)
            here[m->members[id].index] = true;
    for (int i = 0; i < m->cfg.nnodes && rc == 0; i++) {
        const char *name = m->cfg.nodes != NULL ? hostlist_nth(m->cfg.nodes, (size_t)i) : NULL;
        if (here[i])
            continue;
        if (name == NULL)
            unnamed++;
        else
            rc = hostlist_push(gone, name);
    }
    if (rc == 0 && unnamed > 0) /* only a count is known: those without an index fill the gaps */
        rc = dd_buf_printf(out, "%d node%s", m->cfg.nnodes - m->here,
                           m->cfg.nnodes - m->here == 1 ? "" : "s");
    else if (rc == 0)
        rc = hostlist_fold(gone, out);
    return rc;
}
