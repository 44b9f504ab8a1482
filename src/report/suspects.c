#include "report/suspects.h"

#include "base/auto.h"
#include "report/causes.h"
#include "report/report_inner.h"
#include "report/report_lines_inner.h"
#include "report/stack_doing.h"
#include "report/stack_frames.h"
#include "report/traceback.h"

#include <errno.h>
#include <string.h>

enum { SUSPECTS_TEXT = 1000, SUSPECTS_HEADLINE_SHOWN = 120 };

const char *report_node_of(const struct report *r, int rank)
{
    const struct stacks_node *n = stacks_node_of(&r->stacks, rank);
    if (n != NULL)
        return n->name;
    for (int i = 0; i < r->nkept; i++)
        if (r->exits[i].rank == rank)
            return r->exits[i].node;
    return r->first_node != NULL && r->ends.first_rank == rank ? r->first_node : "";
}

/* True if e shows only that another rank did not do its part. A lost peer alone does not show that,
 * since the peer may have exited; but a rank that timed out closes its connections, and so other
 * ranks lose a peer. */
static bool suspects_are_wanted(const struct report *r, const struct report_exit *e)
{
    if (!failure_is_cascade(e))
        return failure_is_hang(e);
    for (int i = 0; i < r->nkept; i++) {
        const struct failure_cause *k = failure_cause_find(&r->exits[i]);
        if (k != NULL && (k->flags & CAUSE_CASCADE) != 0 && strstr(k->id, "timeout") != NULL)
            return true;
    }
    return false;
}

/* True if the rank has noticed by itself that another one was lost or late. */
static bool suspects_has_noticed(const struct report *r, int rank)
{
    for (int i = 0; i < r->nkept; i++)
        if (r->exits[i].rank == rank && failure_is_cascade(&r->exits[i]))
            return true;
    return false;
}

/* ---- stacks ---- */

/* With native frames, omit the states R and S from the headline: a rank that busy-waits is in state
 * R, and its functions in the kernel change. */
static const char *suspects_headline(const struct stack *s, struct dd_buf *out)
{
    struct stack bare = *s;
    if (s->kind == STACK_KERNEL && s->frames[0] != '\0' &&
        (strncmp(s->state, "state R", 7) == 0 || strncmp(s->state, "state S", 7) == 0))
        bare.state = "";
    const char *text = stack_headline(&bare, out) == 0 ? dd_buf_str(out) : NULL;
    return text != NULL ? text : "";
}

static int suspects_copy(struct rank_set *to, const struct rank_set *from)
{
    int rc = 0;
    for (size_t i = 0; i < from->n && rc == 0; i++)
        rc = rank_set_add(to, from->v[i].first, from->v[i].last);
    return rc;
}

static bool suspects_have_one_headline(const struct stack *a, const struct stack *b)
{
    DD_AUTO(buf) struct dd_buf of_a = DD_BUF_INIT(STACKS_TEXT);
    DD_AUTO(buf) struct dd_buf of_b = DD_BUF_INIT(STACKS_TEXT);
    return strcmp(suspects_headline(a, &of_a), suspects_headline(b, &of_b)) == 0;
}

/* The groups of stacks from which the suspects follow. */
struct suspects_found {
    const struct stack_group *most;  /* group with the highest activity in enum stack_doing */
    struct rank_set ranks;           /* ranks of all groups with the headline of `most` */
    const struct stack_group *waits; /* largest group that waits */
    struct rank_set waiting;         /* ranks of all groups with the headline of `waits` */
    enum stack_doing doing;          /* activity of `most` */
    bool several;                    /* groups with other headlines have the same activity */
};

static void dd_auto_suspects_found(struct suspects_found *f)
{
    rank_set_done(&f->ranks);
    rank_set_done(&f->waiting);
}

static bool suspects_all_noticed(const struct report *r, const struct rank_set *ranks)
{
    const size_t n = rank_set_count(ranks);
    if (n > REPORT_EXITS)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!suspects_has_noticed(r, rank_set_nth(ranks, i)))
            return false;
    return true;
}

/* Add a group that is in no collective. */
static int suspects_note(struct suspects_found *f, const struct stack_group *g,
                         enum stack_doing doing)
{
    if (doing < f->doing)
        return 0;
    if (doing == f->doing && !suspects_have_one_headline(&f->most->stack, &g->stack)) {
        f->several = true;
        return 0;
    }
    if (doing > f->doing) {
        rank_set_done(&f->ranks);
        f->several = false;
        f->most = g;
        f->doing = doing;
    }
    return suspects_copy(&f->ranks, &g->ranks);
}

static int suspects_look(const struct report *r, struct suspects_found *f)
{
    int rc = 0;
    for (size_t i = 0; i < r->stacks.n && rc == 0; i++) {
        const struct stack_group *g = &r->stacks.v[i];
        DD_AUTO(buf) struct dd_buf headline = DD_BUF_INIT(STACKS_TEXT);
        const enum stack_doing d = stack_doing_of(&g->stack,
                                                  suspects_headline(&g->stack, &headline));
        if (d == STACK_DOING_WAITS &&
            (f->waits == NULL || rank_set_count(&g->ranks) > rank_set_count(&f->waits->ranks)))
            f->waits = g;
        if (d > STACK_DOING_WAITS && !suspects_all_noticed(r, &g->ranks))
            rc = suspects_note(f, g, d);
    }
    for (size_t i = 0; f->waits != NULL && i < r->stacks.n && rc == 0; i++)
        if (suspects_have_one_headline(&f->waits->stack, &r->stacks.v[i].stack))
            rc = suspects_copy(&f->waiting, &r->stacks.v[i].ranks);
    return rc;
}

/* ---- text ---- */

/* Append "rank 5 on node1, which ". */
static int suspects_put_ranks(const struct report *r, const struct rank_set *ranks,
                              struct dd_buf *out)
{
    const char *node = report_node_of(r, ranks->v[0].first);
    const bool same = strcmp(node, report_node_of(r, ranks->v[ranks->n - 1].last)) == 0 &&
                      node[0] != '\0';
    int rc = rank_set_name(ranks, out);
    if (rc == 0 && same)
        rc = dd_buf_printf(out, " on %s", node);
    return rc < 0 ? rc : dd_buf_puts(out, ", which ");
}

/* Append "while ranks 0-4,6-7 waited in all_reduce, train.py:81"; with `now`, "wait in". */
static int suspects_put_waits(const struct rank_set *waits, const struct stack *s, bool now,
                              struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf headline = DD_BUF_INIT(STACKS_TEXT);
    const char *verb = !now ? "waited" : rank_set_count(waits) == 1 ? "waits" : "wait";
    int rc = dd_buf_puts(out, "while ");
    if (rc == 0)
        rc = rank_set_name(waits, out);
    if (rc < 0)
        return rc;
    return dd_buf_printf(out, " %s in %.*s", verb, SUSPECTS_HEADLINE_SHOWN,
                         suspects_headline(s, &headline));
}

static int suspects_put_loader(const struct stack_frame *user, struct dd_buf *out)
{
    int rc = dd_buf_puts(out, "for a DataLoader process, ");
    if (rc == 0)
        rc = stack_frame_put_place(user, out);
    return rc < 0 ? rc : dd_buf_puts(out, ", ");
}

static int suspects_put_doing(const struct suspects_found *f, struct dd_buf *out)
{
    DD_AUTO(buf) struct dd_buf headline = DD_BUF_INIT(STACKS_TEXT);
    const bool one = rank_set_count(&f->ranks) == 1;
    struct stack_frame user;
    const bool loads = f->doing == STACK_DOING_WORKS && stack_loads(&f->most->stack, &user);
    int rc = dd_buf_puts(out, loads ? one ? "waits " : "wait " : one ? "was " : "were ");
    if (rc == 0 && loads)
        rc = suspects_put_loader(&user, out);
    else if (rc == 0 && f->doing == STACK_DOING_STOPPED)
        rc = dd_buf_puts(out, "stopped by a signal or a debugger ");
    else if (rc == 0)
        rc = dd_buf_printf(out, "in %.*s, ", SUSPECTS_HEADLINE_SHOWN,
                           suspects_headline(&f->most->stack, &headline));
    if (rc < 0 || f->waits == NULL)
        return rc < 0 ? rc : dd_buf_puts(out, "while others waited");
    return suspects_put_waits(&f->waiting, &f->waits->stack, loads, out);
}

/* ---- ranks that are in no collective ---- */

/* Name the ranks in f->ranks, unless these are more than half of the job. In a hang, ranks that
 * work are suspects only if the stack of another rank shows that it waits. */
static int suspects_by_stacks(const struct report *r, const struct suspects_found *f, bool hangs,
                              struct rank_set *ret, struct dd_buf *why)
{
    const size_t n = rank_set_count(&f->ranks);
    if (n == 0 || f->several || 2 * n > (size_t)r->world_size ||
        (f->doing == STACK_DOING_WORKS && hangs && f->waits == NULL))
        return 0;
    int rc = suspects_copy(ret, &f->ranks);
    if (rc == 0)
        rc = suspects_put_ranks(r, ret, why);
    if (rc == 0)
        rc = suspects_put_doing(f, why);
    return rc < 0 ? rc : 1;
}

/* Find suspects in the flight records. Replace the ranks at the start of the sentence "rank 2 has
 * not entered …" by those with their node. */
static int suspects_by_records(const struct report *r, struct rank_set *ret, struct dd_buf *why)
{
    DD_AUTO(buf) struct dd_buf sentence = DD_BUF_INIT(SUSPECTS_TEXT);
    int rc = flight_groups_missing(&r->stacks.collectives, ret, &sentence);
    if (rc <= 0 || ret->n == 0 || 2 * rank_set_count(ret) > (size_t)r->world_size)
        return rc == -EMSGSIZE ? 0 : rc < 0 ? rc : 0;
    const char *text = dd_buf_str(&sentence);
    for (int words = 0; text != NULL && words < 2; words++)
        text = (text = strchr(text, ' ')) != NULL ? text + 1 : NULL;
    if (text == NULL)
        return 0;
    rc = suspects_put_ranks(r, ret, why);
    if (rc == 0)
        rc = dd_buf_puts(why, text);
    return rc < 0 ? rc : 1;
}

/* Add the ranks that cannot answer NCCL because they had ended, or that failed because of a peer.
 */
static int suspects_add_ended(const struct report *r, struct rank_set *to)
{
    int rc = 0;
    for (size_t i = 0; i < r->stacks.n && rc == 0; i++)
        if (r->stacks.v[i].stack.kind == STACK_ENDED)
            rc = suspects_copy(to, &r->stacks.v[i].ranks);
    for (int i = 0; i < r->nkept && rc == 0; i++)
        if (failure_is_cascade(&r->exits[i]))
            rc = rank_set_add(to, r->exits[i].rank, r->exits[i].rank);
    return rc;
}

/* Find suspects in the reports of NCCL. Append the ranks, and the sentence "has launched …". */
static int suspects_by_ras(const struct report *r, struct rank_set *ret, struct dd_buf *why)
{
    DD_AUTO(buf) struct dd_buf sentence = DD_BUF_INIT(SUSPECTS_TEXT);
    DD_AUTO(rank_set) struct rank_set ended = {0};
    int rc = suspects_add_ended(r, &ended);
    if (rc == 0)
        rc = nccl_ras_missing(&r->stacks.ras, r->world_size, &ended, ret, &sentence);
    if (rc <= 0 || dd_buf_str(&sentence) == NULL)
        return rc == -EMSGSIZE ? 0 : rc < 0 ? rc : 0;
    rc = suspects_put_ranks(r, ret, why);
    if (rc == 0)
        rc = dd_buf_puts(why, dd_buf_str(&sentence));
    return rc < 0 ? rc : 1;
}

/* ---- ranks that wait in different collectives ---- */

/* Ranks that are in one collective at one line. */
struct suspects_side {
    struct stack stack;    /* stack of one of these ranks */
    struct dd_buf text;    /* owner of stack.frames */
    struct rank_set ranks; /* empty: the side is unused */
};
struct suspects_sides {
    struct suspects_side v[2];
    struct rank_set known; /* ranks of both sides */
};

static void dd_auto_suspects_sides(struct suspects_sides *s)
{
    for (int i = 0; i < 2; i++) {
        dd_buf_done(&s->v[i].text);
        rank_set_done(&s->v[i].ranks);
    }
    rank_set_done(&s->known);
}

/* Add ranks with these Python or native frames. Return 1; 0: the ranks are in no collective, or in
 * a third one; -ENOMEM. */
static int suspects_add_to_side(struct suspects_sides *s, const struct stack *what,
                                const struct rank_set *ranks)
{
    struct stack_frame f;
    int k = 0;
    if (!stack_in_collective(what, &f))
        return 0;
    while (k < 2 && s->v[k].ranks.n > 0 && !suspects_have_one_headline(&s->v[k].stack, what))
        k++;
    if (k == 2)
        return 0;
    struct suspects_side *side = &s->v[k];
    if (side->ranks.n == 0) {
        side->text = DD_BUF_INIT(STACKS_TEXT);
        if (dd_buf_puts(&side->text, what->frames) < 0 || dd_buf_str(&side->text) == NULL)
            return -ENOMEM;
        side->stack = *what;
        side->stack.frames = dd_buf_str(&side->text);
    }
    return suspects_copy(&side->ranks, ranks) < 0 || suspects_copy(&s->known, ranks) < 0 ? -ENOMEM
                                                                                         : 1;
}

/* Add the ranks of a group. An ended rank was in the collective whose failure it has reported. */
static int suspects_add_group(struct suspects_sides *s, const struct stack_group *g)
{
    struct stack what = g->stack;
    const bool ended = what.kind >= STACK_ENDED;
    if (ended ? what.frames[0] == '\0' : stack_doing_of(&what, "") == STACK_DOING_UNKNOWN)
        return 1; /* a failure of the rank may show more */
    what.note = "";
    if (ended)
        what.kind = STACK_PYTHON;
    return suspects_add_to_side(s, &what, &g->ranks);
}

/* Add a rank whose stack was not read, with the frames of the traceback of its failure. */
static int suspects_add_failure(struct suspects_sides *s, const struct report_exit *e)
{
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(STACKS_TEXT);
    DD_AUTO(rank_set) struct rank_set rank = {0};
    if (rank_set_has(&s->known, e->rank) || !failure_is_cascade(e))
        return 1;
    int rc = traceback_frames(e->trace[0] != '\0' ? e->trace : e->tail, &frames);
    if (rc == 0)
        rc = rank_set_add(&rank, e->rank, e->rank);
    if (rc < 0)
        return rc == -ENOMEM ? rc : 1;
    const struct stack what = {
        .kind = STACK_PYTHON, .frames = dd_buf_str(&frames), .state = "", .note = ""};
    return what.frames != NULL ? suspects_add_to_side(s, &what, &rank) : -ENOMEM;
}

/* Sort all ranks into two sides. Return 1; 0: there are not exactly two sides, or a rank is not
 * known to wait in a collective; -ENOMEM. */
static int suspects_take_sides(const struct report *r, struct suspects_sides *ret)
{
    int rc = 1;
    for (size_t i = 0; i < r->stacks.n && rc > 0; i++)
        rc = suspects_add_group(ret, &r->stacks.v[i]);
    for (int i = 0; i < r->nkept && rc > 0; i++)
        rc = suspects_add_failure(ret, &r->exits[i]);
    return rc > 0 ? ret->v[1].ranks.n > 0 && rank_set_count(&ret->known) == (size_t)r->world_size
                  : rc;
}

/* True if a few ranks wait in another collective than all others. Different lines that call the
 * same collective show nothing: the calls may belong together. */
static bool suspects_differ(const struct suspects_side *few, const struct suspects_side *most)
{
    const size_t n = rank_set_count(&few->ranks);
    const size_t others = rank_set_count(&most->ranks);
    struct stack_frame a;
    struct stack_frame b;
    return n < others && (n == 1 || 4 * n <= n + others) && stack_in_collective(&few->stack, &a) &&
           stack_in_collective(&most->stack, &b) &&
           (a.nfunction != b.nfunction ||
            strncmp(a.function, b.function, (size_t)a.nfunction) != 0);
}

static int suspects_by_collectives(const struct report *r, bool hangs, struct rank_set *ret,
                                   struct dd_buf *why)
{
    DD_AUTO(buf) struct dd_buf headline = DD_BUF_INIT(STACKS_TEXT);
    DD_AUTO(suspects_sides) struct suspects_sides sides = {0};
    int rc = suspects_take_sides(r, &sides);
    if (rc <= 0)
        return rc;
    const bool first = rank_set_count(&sides.v[0].ranks) < rank_set_count(&sides.v[1].ranks);
    const struct suspects_side *few = &sides.v[first ? 0 : 1];
    const struct suspects_side *most = &sides.v[first ? 1 : 0];
    if (!suspects_differ(few, most))
        return 0;
    rc = suspects_copy(ret, &few->ranks);
    if (rc == 0)
        rc = suspects_put_ranks(r, ret, why);
    if (rc == 0)
        rc = dd_buf_printf(why, "%s in %.*s, ",
                           !hangs                     ? "waited"
                           : rank_set_count(ret) == 1 ? "waits"
                                                      : "wait",
                           SUSPECTS_HEADLINE_SHOWN, suspects_headline(&few->stack, &headline));
    if (rc == 0)
        rc = suspects_put_waits(&most->ranks, &most->stack, hangs, why);
    return rc < 0 ? rc : 1;
}

/* ---- the verdict ---- */

int report_suspects(const struct report *r, const struct report_exit *e, struct rank_set *ret,
                    struct dd_buf *why)
{
    const size_t before = why->len;
    if (r->world_size <= 1 || !suspects_are_wanted(r, e))
        return 0;
    DD_AUTO(suspects_found) struct suspects_found f = {.doing = STACK_DOING_UNKNOWN};
    const bool hangs = !failure_is_cascade(e);
    int rc = suspects_look(r, &f);
    if (rc == 0 && f.doing == STACK_DOING_STOPPED)
        rc = suspects_by_stacks(r, &f, hangs, ret, why);
    if (rc == 0) {
        rank_set_done(ret);
        rc = suspects_by_records(r, ret, why);
    }
    if (rc == 0) {
        rank_set_done(ret);
        rc = suspects_by_ras(r, ret, why);
    }
    if (rc == 0 && f.doing != STACK_DOING_STOPPED) {
        rank_set_done(ret);
        rc = suspects_by_stacks(r, &f, hangs, ret, why);
    }
    if (rc == 0) {
        rank_set_done(ret);
        rc = suspects_by_collectives(r, hangs, ret, why);
    }
    const int clean = rc > 0 ? report_clean(why, before) : 0;
    if (clean == 0 && why->len > before && why->data[why->len - 1] == '\n')
        why->len--; /* remove the newline that report_clean() has added */
    return clean < 0 ? clean : rc;
}

static bool suspects_share(const struct rank_set *a, const struct rank_set *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (rank_set_has_any(b, a->v[i].first, a->v[i].last - a->v[i].first + 1))
            return true;
    return false;
}

bool report_suspects_load(const struct report *r, const struct report_exit *e)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(REPORT_TEXT_MAX);
    struct stack_frame user;
    int loading = 0;
    if (!suspects_are_wanted(r, e) || report_suspects(r, e, &ranks, &why) < 0)
        return false;
    for (size_t i = 0; i < r->stacks.n; i++) {
        const struct stack_group *g = &r->stacks.v[i];
        if (ranks.n > 0 ? !suspects_share(&ranks, &g->ranks) : g->stack.kind == STACK_ENDED)
            continue;
        if (g->stack.state[0] != '\0' || !stack_loads(&g->stack, &user))
            return false;
        loading++;
    }
    return loading > 0;
}
