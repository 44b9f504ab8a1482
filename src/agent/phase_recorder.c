#include "agent/phase_recorder.h"

#include "agent/agent.h"
#include "base/io.h"
#include "net/link.h"
#include "rdzv/msg.h"
#include "report/phases.h"
#include "worker/output.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEARCH_PHASES = 8,
    LOOK_MS = 100, /* delay of the first check for output, doubled up to LOOK_MAX_MS */
    LOOK_MAX_MS = 5000,
};

struct phase_recorder {
    const struct round *round;
    struct event *look; /* NULL: not asked yet */
    unsigned look_ms;
    bool asked;                         /* the daemon of the link in use wants phases */
    struct phase search[SEARCH_PHASES]; /* phases up to JOIN, kept until the daemon asks */
    struct dd_strv pending;             /* texts to be sent */
    uint64_t searched_ns;               /* start of the first search; 0: no search yet */
    uint64_t joined_ns;                 /* time of JOIN while a plan is pending; 0: none pending */
    uint64_t planned_ns, stopped_ns, ended_ns; /* of the last round; 0: not yet */
    bool *has_output;                          /* [local_size], of this round */
    int nlocal;
};

static struct phase_recorder *recorder_of(const struct round *r)
{
    return features_state(r, &phase_recorder_feature);
}

/* ---- sending ---- */

static void recorder_flush(struct phase_recorder *c)
{
    const struct round *r = c->round;
    const int round = r->plan.nnodes > 0 ? r->plan.round : -1;
    for (size_t i = 0; i < c->pending.n; i += MSG_MAX_LIST) {
        const size_t left = c->pending.n - i;
        const struct dd_strv some = {.v = c->pending.v + i,
                                     .n = left < MSG_MAX_LIST ? left : MSG_MAX_LIST};
        round_send(r,
                   MSG(PHASES, .round = round, .sent_ns = (int64_t)dd_now_ns(), .phases = &some));
    }
    dd_strv_done(&c->pending);
}

/* Without memory, or beyond the daemon's limit, the phase is dropped: the timeline lacks it. */
static void recorder_add(struct phase_recorder *c, const struct phase *p)
{
    char text[PHASE_TEXT_MAX];
    if (!c->asked || p->begin_ns == 0 || p->end_ns < p->begin_ns ||
        c->pending.n >= phases_max(c->round->plan.local_size))
        return;
    phase_format(text, p);
    (void)dd_strv_push(&c->pending, text);
}

static void recorder_add_node(struct phase_recorder *c, enum phase_kind kind, uint64_t begin,
                              uint64_t end)
{
    recorder_add(c,
                 &(struct phase){
                     .kind = kind, .rank = -1, .begin_ns = (int64_t)begin, .end_ns = (int64_t)end});
}

static void recorder_add_rank(struct phase_recorder *c, enum phase_kind kind, int local_rank,
                              uint64_t begin, uint64_t end, int value)
{
    recorder_add(c, &(struct phase){.kind = kind,
                                    .rank = c->round->plan.first_rank + local_rank,
                                    .value = value,
                                    .begin_ns = (int64_t)begin,
                                    .end_ns = (int64_t)end});
}

/* ---- finding and joining a daemon ---- */

void phase_recorder_joined(const struct round *r, const struct link_times *t)
{
    struct phase_recorder *c = recorder_of(r);
    const uint64_t now = dd_now_ns();
    if (c == NULL)
        return;
    if (c->searched_ns == 0)
        c->searched_ns = t->begun != 0 ? t->begun : now;
    const struct {
        enum phase_kind kind;
        uint64_t begin, end;
    } rows[SEARCH_PHASES] = {
        {PHASE_BOOTSTRAP, r->cfg->launched_ns, r->cfg->start_ns},
        {PHASE_START, r->cfg->start_ns, c->searched_ns},
        {PHASE_DAEMON, t->open == 0 ? t->begun : 0, now},
        {PHASE_RESOLVE, t->begun, t->resolved},
        {PHASE_SEARCH, t->resolved, t->attempted},
        {PHASE_CONNECT, t->attempted, t->connected},
        {PHASE_KEY, t->connected, t->keyed},
        {PHASE_TLS, t->keyed, t->open},
    };
    c->asked = false; /* the daemon may be another one */
    c->joined_ns = now;
    for (int i = 0; i < SEARCH_PHASES; i++)
        c->search[i] = (struct phase){.kind = rows[i].kind,
                                      .rank = -1,
                                      .begin_ns = (int64_t)rows[i].begin,
                                      .end_ns = (int64_t)rows[i].end};
}

static void recorder_look(struct phase_recorder *c);

static void recorder_on_look(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    recorder_look(arg);
}

void phase_recorder_ask(const struct round *r)
{
    struct phase_recorder *c = recorder_of(r);
    if (c == NULL || c->asked)
        return;
    if (c->look == NULL)
        c->look = evtimer_new(r->base, recorder_on_look, c);
    c->asked = c->look != NULL;
    for (int i = 0; i < SEARCH_PHASES; i++)
        recorder_add(c, &c->search[i]);
    /* at once: from the arrival, the daemon estimates the offset of this node's clock */
    recorder_flush(c);
}

/* ---- workers ---- */

/* Record the first output of the workers that have it. Return true if others have none yet. */
static bool recorder_see_output(struct phase_recorder *c)
{
    const struct round *r = c->round;
    bool missing = false;
    for (int i = 0; i < c->nlocal && r->output != NULL; i++) {
        const uint64_t at = c->has_output[i] ? 0 : worker_output_first_ns(r->output, i);
        if (at != 0)
            recorder_add_rank(c, PHASE_FIRST_OUTPUT, i, at, at, 0);
        c->has_output[i] |= at != 0;
        missing |= !c->has_output[i];
    }
    return missing;
}

/* The first output is polled for: a callback would slow down the copying of all output. */
static void recorder_look(struct phase_recorder *c)
{
    const struct timeval t = dd_timeval(c->look_ms * DD_NS_PER_MS);
    const bool missing = recorder_see_output(c);
    recorder_flush(c);
    c->look_ms = 2 * c->look_ms < LOOK_MAX_MS ? 2 * c->look_ms : LOOK_MAX_MS;
    if (missing && c->round->group != NULL)
        (void)evtimer_add(c->look, &t);
}

/* ---- hooks ---- */

static int recorder_create(void **state, const struct round *r, struct dd_err *err)
{
    struct phase_recorder *c = *state = calloc(1, sizeof(*c));
    if (c == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    c->round = r;
    return 0;
}

static int recorder_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct phase_recorder *c = *state;
    (void)err;
    c->planned_ns = dd_now_ns();
    if (c->joined_ns != 0)
        recorder_add_node(c, PHASE_JOIN, c->joined_ns, c->planned_ns);
    else
        recorder_add_node(c, PHASE_RESTART, c->ended_ns, c->planned_ns);
    c->joined_ns = c->stopped_ns = 0;
    free(c->has_output);
    c->has_output = c->asked ? calloc((size_t)r->plan.local_size, sizeof(*c->has_output)) : NULL;
    c->nlocal = c->has_output != NULL ? r->plan.local_size : 0;
    return 0;
}

static int recorder_started(void *state, const struct round *r, struct dd_err *err)
{
    struct phase_recorder *c = state;
    (void)err;
    if (!c->asked)
        return 0;
    const uint64_t forked = worker_group_started_ns(r->group, 0);
    recorder_add_node(c, PHASE_PLAN, c->planned_ns, forked);
    recorder_add_node(c, PHASE_SPAWN, forked, dd_now_ns());
    for (int i = 0; i < r->plan.local_size; i++) {
        const uint64_t at = worker_group_started_ns(r->group, i);
        recorder_add_rank(c, PHASE_SPAWNED, i, at, at, 0);
    }
    c->look_ms = LOOK_MS;
    recorder_look(c);
    return 0;
}

static void recorder_stopping(void *state, const struct round *r)
{
    struct phase_recorder *c = state;
    if (c->stopped_ns == 0 && r->group != NULL)
        c->stopped_ns = dd_now_ns();
}

static void recorder_verdict(void *state, const struct round *r, const struct worker_end *end)
{
    struct phase_recorder *c = state;
    const struct worker_exit *e = &end->exit;
    if (!c->asked)
        return;
    (void)recorder_see_output(c);
    recorder_add_rank(c, PHASE_WORKER, e->local_rank,
                      worker_group_started_ns(r->group, e->local_rank), e->at_ns, e->code);
}

static void recorder_end(void *state, const struct round *r)
{
    struct phase_recorder *c = state;
    (void)r;
    c->ended_ns = dd_now_ns();
    if (c->stopped_ns != 0)
        recorder_add_node(c, PHASE_STOP, c->stopped_ns, c->ended_ns);
    if (c->look != NULL)
        evtimer_del(c->look);
    recorder_flush(c);
    free(DD_TAKE(c->has_output));
    c->nlocal = 0;
}

static void recorder_destroy(void *state)
{
    struct phase_recorder *c = state;
    if (c->look != NULL)
        event_free(c->look);
    dd_strv_done(&c->pending);
    free(c->has_output);
    free(c);
}

const struct round_feature phase_recorder_feature = {
    .name = "phase recorder",
    .create = recorder_create,
    .prepare = recorder_prepare,
    .started = recorder_started,
    .stopping = recorder_stopping,
    .verdict = recorder_verdict,
    .end = recorder_end,
    .destroy = recorder_destroy,
};
