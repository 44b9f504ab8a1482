/* Marks: nodes that the scheduler takes out of service while the job runs. The workers get a signal
 * to save their state. The next round excludes these nodes if enough others remain. */
#include "rdzv/machine_inner.h"

#include "base/auto.h"
#include "base/sig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 150, NOTES_MAX = 8 };

/* ---- notes to the user ---- */

/* Nodes as text: a host list, or the number of nodes if the list is long. */
struct names {
    struct hostlist *list;
    char text[NAMES_MAX + 1];
};

static void names_done(struct names *n)
{
    hostlist_free(n->list);
}

static int names_show(struct names *n)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 24);
    const int rc = hostlist_fold(n->list, &b);
    const char *text = rc == 0 ? dd_buf_str(&b) : NULL;
    if (text == NULL)
        return -ENOMEM;
    if (strlen(text) <= NAMES_MAX)
        (void)snprintf(n->text, sizeof(n->text), "%s", text);
    else
        (void)snprintf(n->text, sizeof(n->text), "%zu nodes", hostlist_count(n->list));
    return 0;
}

static bool is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Notify the user of the nodes that have got the mark `why`; NULL: of those that have lost theirs.
 */
static int note_change(struct rdzv *m, const struct rdzv_marks *to, const char *why)
{
    struct names names = {0};
    int rc = hostlist_new(&names.list);
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++) {
        const struct member *p = &m->members[id];
        const char *now = p->here ? rdzv_marks_why(to, p->name) : NULL;
        if (p->here && is_same(now, why) && !is_same(p->mark, why))
            rc = hostlist_push(names.list, p->name);
    }
    const size_t n = rc == 0 ? hostlist_count(names.list) : 0;
    if (n > 0)
        rc = names_show(&names);
    if (n > 0 && rc == 0)
        rc = rdzv_act_text(m, RDZV_SEND_NOTE, rdzv_reporter(m),
                           why != NULL ? "%s %s %s" : "%s %s in service again", names.text,
                           n == 1 ? "is" : "are", why);
    names_done(&names);
    return rc;
}

static bool is_among(const char *const *list, int n, const char *text)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], text) == 0)
            return true;
    return false;
}

/* Notify the user of changed marks, with one note per mark. *ret_any: a mark has changed. */
static int note_changes(struct rdzv *m, const struct rdzv_marks *to, bool *ret_any)
{
    const char *noted[NOTES_MAX];
    int n = 0;
    int rc = 0;
    bool ends = false;
    *ret_any = false;
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++) {
        const struct member *p = &m->members[id];
        const char *why = p->here ? rdzv_marks_why(to, p->name) : NULL;
        if (!p->here || is_same(p->mark, why))
            continue;
        *ret_any = true;
        ends |= why == NULL;
        if (why != NULL && n < NOTES_MAX && !is_among(noted, n, why)) {
            noted[n++] = why;
            rc = note_change(m, to, why);
        }
    }
    return rc == 0 && ends ? note_change(m, to, NULL) : rc;
}

/* ---- leaving ---- */

static bool is_marked_part(const struct rdzv *m, int id)
{
    const struct member *p = &m->members[id];
    return p->here && p->part && p->mark != NULL;
}

static int count_marked_parts(const struct rdzv *m)
{
    int n = 0;
    for (int id = 0; id < m->cfg.capacity; id++)
        n += is_marked_part(m, id);
    return n;
}

/* Return how many marked nodes the next round would have, by the rules of rdzv_choose(). */
static int count_marked_next(const struct rdzv *m)
{
    const int limit = m->cfg.grow == RDZV_GROW_NO && m->norder < m->cfg.max_nodes
                          ? m->norder
                          : m->cfg.max_nodes;
    const int fit = rdzv_fit(m);
    int sound = 0;
    for (int id = 0; id < m->cfg.capacity; id++)
        sound += rdzv_is_fit(m, id) && m->members[id].mark == NULL;
    if (sound >= m->cfg.min_nodes)
        return 0;
    return (fit < limit ? fit : limit) - sound;
}

static int marked_names(const struct rdzv *m, struct names *ret)
{
    int rc = hostlist_new(&ret->list);
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++)
        if (is_marked_part(m, id))
            rc = hostlist_push(ret->list, m->members[id].name);
    return rc < 0 ? rc : names_show(ret);
}

static int send_signals(struct rdzv *m)
{
    for (int k = 0; k < m->norder; k++) {
        const int id = m->order[k];
        struct rdzv_action *a = id < 0 || m->members[id].done ? NULL
                                                              : rdzv_act(m, RDZV_SEND_SIGNAL, id);
        if (a != NULL)
            a->signal = m->cfg.leave_signal;
        else if (id >= 0 && !m->members[id].done)
            return -ENOMEM;
    }
    return 0;
}

/* Report the consequence of the marks, and plan the restart if there is one. */
static int decide(struct rdzv *m, const char *names, uint64_t now)
{
    const int to = rdzv_reporter(m);
    const int next = count_marked_next(m);
    if (next >= count_marked_parts(m) || !rdzv_unmarked_quorum(m))
        return rdzv_act_text(m, RDZV_SEND_NOTE, to,
                             "the job stays on %s: too few other nodes can continue it", names);
    if (m->cfg.leave_signal == 0)
        return rdzv_act_text(m, RDZV_SEND_NOTE, to, "the next restart leaves out %s", names);
    m->leave_at = now + m->cfg.leave_ns;
    int rc = rdzv_act_text(
        m, RDZV_SEND_NOTE, to, "sending SIG%s to all workers; restarting without %s in %.10g s",
        dd_signal_name(m->cfg.leave_signal), names, (double)m->cfg.leave_ns / 1e9);
    return rc < 0 ? rc : send_signals(m);
}

int rdzv_try_leave(struct rdzv *m, uint64_t now)
{
    struct names names = {0};
    if (m->state != RDZV_RUNNING || !m->committed || m->left || m->regroup || m->end ||
        m->leave_at != RDZV_NEVER || count_marked_parts(m) == 0)
        return 0;
    m->left = true;
    int rc = marked_names(m, &names);
    if (rc == 0)
        rc = decide(m, names.text, now);
    names_done(&names);
    return rc;
}

/* Cancel the planned restart if no node of the round is marked any more. */
static int stay(struct rdzv *m)
{
    if (m->leave_at == RDZV_NEVER || m->regroup || count_marked_parts(m) > 0)
        return 0;
    m->leave_at = RDZV_NEVER;
    return rdzv_act_text(m, RDZV_SEND_NOTE, rdzv_reporter(m),
                         "no node of the round is out of service any more; not restarting");
}

int rdzv_on_marks(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    DD_AUTO(marks) struct rdzv_marks to = {0};
    bool any = false;
    int rc = rdzv_marks_parse(&to, e->text);
    if (rc == 0)
        rc = note_changes(m, &to, &any);
    if (rc < 0)
        return rc == -ENOMEM ? rc : -EINVAL;
    const struct rdzv_marks old = m->marks;
    m->marks = to;
    to = old;
    for (int id = 0; id < m->cfg.capacity; id++)
        if (m->members[id].here)
            m->members[id].mark = rdzv_marks_why(&m->marks, m->members[id].name);
    if (!any)
        return 0;
    m->left = false;
    rc = stay(m);
    return rc < 0 ? rc : rdzv_try_leave(m, now);
}

/* The restart without marked nodes is no failure: it does not count for --max-restarts. */
int rdzv_on_running_time(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)e;
    if (now < m->leave_at)
        return 0;
    m->leave_at = RDZV_NEVER;
    m->regroup = m->drained = true;
    m->stopped_at = now;
    return rdzv_send_stop(m, SIGTERM);
}

/* A rule of --exit-rules that ends the job takes precedence. */
bool rdzv_expects_exit(const struct rdzv *m, int code)
{
    return m->state == RDZV_RUNNING && m->leave_at != RDZV_NEVER && !rdzv_rule_ends(m, code);
}

/* A program may save its state and exit. Then the round ends when all workers have exited, since
 * others may still be saving theirs. */
bool rdzv_absorbs_exit(struct rdzv *m, const struct rdzv_event *exit)
{
    if (!rdzv_expects_exit(m, exit->code))
        return false;
    m->regroup = m->drained = true;
    return true;
}
