/* Progress of a copy for the terminal: nodes send tallies up the tree, and the root reports to the
 * agent. */
#include "base/io.h"
#include "stage/stage_client.h"
#include "stage/stage_inner.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>

void serve_take_tally(struct serve *s, struct stage_child *child, const struct stage_tally *t)
{
    if (t->done <= s->below) /* a higher number is malformed */
        child->tally = *t;
}

/* Return how many of the finished chunks the subtree of this child still lacks. */
static uint32_t progress_lacks(const struct serve *s, const struct stage_child *child)
{
    const struct stage_chunk *c;
    uint32_t n = 0;
    TAILQ_FOREACH (c, &s->live, kept)
        n += c->worked && (c->acked & child->bit) == 0;
    return n;
}

static struct stage_tally progress_below(const struct serve *s)
{
    struct stage_tally t = STAGE_TALLY_NONE;
    for (int i = 0; i < s->nchildren; i++) {
        const struct stage_child *c = &s->children[i];
        const bool lacks = c->rank >= 0 && c->link != NULL && c->needed;
        stage_tally_add(&t, &c->tally, (uint32_t)c->rank, lacks ? progress_lacks(s, c) : 0,
                        s->below);
    }
    return t;
}

static struct stage_tally progress_of_subtree(const struct serve *s)
{
    struct stage_tally t = progress_below(s);
    const bool reads_own = s->setup.texts.v[STAGE_SETUP_DIR][0] == '\0';
    t.done += s->ready || reads_own;
    return t;
}

static void progress_tell_parent(struct serve *s)
{
    const struct stage_frame f = {.type = STAGE_TALLY, .tally = progress_of_subtree(s)};
    if (s->parent == NULL || (f.tally.done == s->told.done && f.tally.lag == s->told.lag &&
                              f.tally.slowest == s->told.slowest))
        return;
    s->told = f.tally;
    serve_send_up(s, &f);
}

static void progress_tell_agent(const struct serve *s)
{
    const struct stage_tally t = progress_of_subtree(s);
    char text[STAGE_PROGRESS_MAX];
    if (s->head.len == 0 || t.done > s->below)
        return;
    (void)snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 " %" PRIu32 " %d",
                   s->spread < s->bytes ? s->spread : s->bytes, s->bytes, t.done,
                   t.lag > 0 ? (int)t.slowest : -1);
    stage_client_progress(s->control, text);
}

void serve_tell_progress(struct serve *s)
{
    if (s->reader != NULL)
        progress_tell_agent(s);
    else
        progress_tell_parent(s);
}

/* The links are closed next, before the last tallies of the children may have arrived. */
void serve_end_progress(struct serve *s)
{
    struct stage_frame f = {.type = STAGE_TALLY, .tally = STAGE_TALLY_NONE};
    (void)event_del(s->progress_event);
    f.tally.done = s->below + 1;
    if (s->reader != NULL)
        serve_send(s, STAGE_MSG_PROGRESS, "");
    else
        serve_send_up(s, &f);
}
