#include "daemon/step_collect.h"

#include "base/io.h"
#include "rdzv/stragglers.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

enum {
    JUDGE_MS = 500,
    TEXT_MAX = 500,
    SHOWN_MAX = 64,
    LINES_MAX = 32,
    EACH_MAX = 1 << 16, /* ranks whose steps the status has: 3 MiB, of SESSION_ANSWER_MAX */
};

struct step_collect {
    struct step_collect_cfg cfg;
    struct stragglers *found; /* of `round`; NULL: no times and no loads have arrived */
    int round;
    int shown; /* lines on the terminal in this round */
    uint64_t judged_ns;
};

/* ---- ranks and nodes ---- */

/* Return the first rank of the member with this id, and its number of workers in *ret_workers; -1:
 * the member is not in the round. */
static int rank_of_id(const struct step_collect *c, int id, int *ret_workers)
{
    struct rdzv_view v;
    int rank = 0;
    for (int i = 0; i < rdzv_planned(c->cfg.machine)->n; i++) {
        const int k = rdzv_id_of_rank(c->cfg.machine, i);
        if (k < 0 || !rdzv_view(c->cfg.machine, k, &v) || !v.part)
            return -1; /* a lost node ends the round */
        *ret_workers = v.slots;
        if (k == id)
            return rank;
        rank += v.slots;
    }
    return -1;
}

/* Drop the data of the last round, and prepare those of the current one. */
static int begin_round(struct step_collect *c)
{
    struct rdzv_view v;
    const int n = rdzv_planned(c->cfg.machine)->n;
    int ranks = 0;
    stragglers_free(c->found);
    c->found = NULL;
    c->shown = 0;
    c->round = rdzv_round(c->cfg.machine);
    for (int i = 0; i < n; i++)
        ranks += rdzv_view(c->cfg.machine, rdzv_id_of_rank(c->cfg.machine, i), &v) ? v.slots : 0;
    int rc = stragglers_new(&c->found, ranks);
    for (int i = 0, first = 0; i < n && rc == 0; i++)
        if (rdzv_view(c->cfg.machine, rdzv_id_of_rank(c->cfg.machine, i), &v)) {
            stragglers_place(c->found, first, v.slots, i);
            first += v.slots;
        }
    return rc;
}

static const char *name_of_node(const struct step_collect *c, int node)
{
    struct rdzv_view v;
    return rdzv_view(c->cfg.machine, rdzv_id_of_rank(c->cfg.machine, node), &v) ? v.name : "?";
}

/* ---- messages ---- */

/* Print an event on the terminal of the daemon's node, for the first LINES_MAX events of a round.
 */
static void tell(struct step_collect *c, bool slow, const char *text)
{
    char line[TEXT_MAX + 100];
    if (c->cfg.sessions->leader == NULL || c->shown == LINES_MAX)
        return;
    (void)snprintf(
        line, sizeof(line), "%s: %s%s", slow ? "straggler" : "no longer a straggler", text,
        ++c->shown == LINES_MAX ? "\n  tip: 'ddctl status' shows further stragglers" : "");
    session_send(c->cfg.sessions->leader, MSG(STATUS, .text = line));
}

static void publish(struct step_collect *c, const struct straggler *g)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    const char *node = name_of_node(c, g->node);
    if (straggler_text(g, node, &text) < 0 || dd_buf_str(&text) == NULL)
        return;
    journal_publish(
        c->cfg.journal,
        &(struct journal_event){.kind = g->slow ? JOURNAL_STRAGGLER : JOURNAL_STRAGGLER_OVER,
                                .node = node,
                                .round = c->round,
                                .rank = g->rank,
                                .text = dd_buf_str(&text)});
    tell(c, g->slow, dd_buf_str(&text));
}

static void judge(struct step_collect *c)
{
    struct straggler g;
    stragglers_judge(c->found);
    while (stragglers_next(c->found, &g))
        publish(c, &g);
}

/* Return the first rank of the node that sends a message of this round; -1: ignore the message. */
static int begin_message(struct step_collect *c, const struct session *s, int round,
                         int *ret_workers)
{
    if (rdzv_state(c->cfg.machine) != RDZV_RUNNING || round != rdzv_round(c->cfg.machine))
        return -1;
    const int first = rank_of_id(c, s->id, ret_workers);
    if (first < 0 || ((c->found == NULL || c->round != round) && begin_round(c) < 0))
        return -1;
    return first;
}

/* Take the next entry of a message's text. Return 1, 0 at the end, or -EPROTO. */
typedef int take_entry_f(struct step_collect *c, const char **at, int first, int workers);

static int take_steps(struct step_collect *c, const char **at, int first, int workers)
{
    struct step_times t;
    int local;
    const int rc = step_times_take(at, workers, &local, &t);
    if (rc > 0)
        stragglers_take(c->found, first + local, &t);
    return rc;
}

static int take_load(struct step_collect *c, const char **at, int first, int workers)
{
    struct rank_load l;
    int local;
    const int rc = load_take(at, workers, &local, &l);
    if (rc > 0)
        stragglers_take_load(c->found, first + local, &l);
    return rc;
}

/* Take the entries of a message, up to a malformed one. False: the message is ignored. */
static bool take_message(struct step_collect *c, const struct session *s, int round,
                         const char *text, take_entry_f *take)
{
    int workers;
    int rc;
    const int first = begin_message(c, s, round, &workers);
    if (first < 0)
        return false;
    while ((rc = take(c, &text, first, workers)) > 0)
        continue;
    if (rc < 0)
        dd_log(c->cfg.log, DD_LOG_WARN, "ignoring the rest of a malformed %s message from %s",
               take == take_load ? "LOAD" : "STEPS", s->name);
    return true;
}

void step_collect_take(struct step_collect *c, const struct session *s, const struct msg_steps *m,
                       uint64_t now)
{
    if (!take_message(c, s, m->round, m->text, take_steps) ||
        now < c->judged_ns + JUDGE_MS * DD_NS_PER_MS)
        return;
    c->judged_ns = now;
    judge(c);
}

/* Judge at once: messages are rare, and this one may be the last. */
void step_collect_take_load(struct step_collect *c, const struct session *s,
                            const struct msg_load *m)
{
    struct steps_view v;
    if (!take_message(c, s, m->round, m->text, take_load))
        return;
    stragglers_view(c->found, &v);
    if (!v.marked)
        judge(c);
}

/* ---- status ---- */

static bool is_current(const struct step_collect *c)
{
    return c->found != NULL && c->round == rdzv_round(c->cfg.machine);
}

int64_t step_collect_reached(const struct step_collect *c)
{
    struct steps_view v = {.step = -1};
    int stuck;
    const int64_t found = rdzv_step_reached(c->cfg.machine, &stuck);
    if (is_current(c))
        stragglers_view(c->found, &v);
    return v.step > found ? v.step : found;
}

/* Return a list with [rank, step, time of a step in us] of each rank that has sent times. */
static json_t *step_collect_each(const struct step_collect *c)
{
    struct step_times t;
    json_t *list = json_array();
    for (int rank = 0; stragglers_times(c->found, &rank, &t) && json_array_size(list) < EACH_MAX;
         rank++)
        (void)json_array_append_new(
            list, json_pack("[i,I,I]", rank, (json_int_t)t.step, (json_int_t)t.wall_us));
    return list;
}

static json_t *step_collect_straggler(const struct step_collect *c, const struct straggler *g)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(TEXT_MAX);
    (void)straggler_text(g, name_of_node(c, g->node), &text);
    const char *sentence = dd_buf_str(&text);
    json_t *o = json_pack("{s:i,s:o,s:s}", "rank", g->rank, "node",
                          journal_json_text(name_of_node(c, g->node)), "text",
                          sentence != NULL ? sentence : "");
    if (g->by != STRAGGLER_BY_LOAD)
        (void)json_object_set_new(o, "seconds", json_real((double)g->us / 1e6));
    return o;
}

static json_t *step_collect_stragglers(const struct step_collect *c)
{
    struct straggler g;
    json_t *list = json_array();
    for (int rank = 0; stragglers_from(c->found, rank, &g) && json_array_size(list) < SHOWN_MAX;
         rank = g.rank + 1)
        (void)json_array_append_new(list, step_collect_straggler(c, &g));
    return list;
}

void step_collect_put(const struct step_collect *c, json_t *status)
{
    struct steps_view v;
    if (!is_current(c))
        return;
    stragglers_view(c->found, &v);
    if (!v.marked) {
        struct straggler g;
        if (stragglers_from(c->found, 0, &g))
            (void)json_object_set_new(status, "stragglers", step_collect_stragglers(c));
        return;
    }
    (void)json_object_set_new(
        status, "steps",
        json_pack("{s:i,s:f,s:f,s:s,s:o,s:o}", "ranks", v.ranks, "seconds", (double)v.wall_us / 1e6,
                  "median", (double)v.median_us / 1e6, "by", v.by_cpu ? "processor time" : "work",
                  "stragglers", step_collect_stragglers(c), "each", step_collect_each(c)));
}

/* ---- life ---- */

int step_collect_new(struct step_collect **ret, const struct step_collect_cfg *cfg)
{
    struct step_collect *c = *ret = calloc(1, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    c->cfg = *cfg;
    c->round = -1;
    return 0;
}

void step_collect_free(struct step_collect *c)
{
    if (c == NULL)
        return;
    stragglers_free(c->found);
    free(c);
}
