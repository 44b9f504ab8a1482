/* The flow of chunks through one node: from the reader or the parent, to the pool that unpacks
 * them, to the children. A chunk is kept until this node and its whole subtree no longer need it,
 * so at most STAGE_WINDOW exist, and children may connect at any time. */
#include "base/io.h"
#include "base/num.h"
#include "stage/stage_inner.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

static unsigned flow_needed(const struct serve *s)
{
    unsigned bits = 0;
    for (int i = 0; i < s->nchildren; i++)
        bits |= s->children[i].needed ? s->children[i].bit : 0;
    return bits;
}

/* ---- frames of the parent ---- */

static void flow_fail_malformed(const struct serve *s)
{
    char why[400];
    (void)snprintf(why, sizeof(why), "--stage: %s has received malformed data from %s",
                   s->setup.texts.v[STAGE_SETUP_NODE], serve_parent_name(s));
    serve_fail(s, why);
}

static void flow_fail(const struct serve *s, const char *what, int rc)
{
    char why[200];
    (void)snprintf(why, sizeof(why), "--stage: %s: %s", what, strerror(-rc));
    serve_fail(s, why);
}

static void flow_begin_copy(struct serve *s, uint64_t bytes, uint64_t entries)
{
    struct dd_err err = {0};
    s->bytes = bytes;
    if (serve_choose_dir(s, bytes, entries, &err) == 0)
        return;
    if (s->setup.texts.v[STAGE_SETUP_CACHE][0] == '\0')
        serve_fail(s, err.text);
    s->ready = true; /* this node has no copy, but still forwards the chunks */
    serve_send(s, STAGE_MSG_WITHOUT, err.text);
}

/* digest: of the listing; zero without --stage-keep. */
static void flow_begin(struct serve *s, uint64_t bytes, uint64_t entries,
                       const unsigned char digest[STAGE_DIGEST])
{
    static const unsigned char none[STAGE_DIGEST];
    struct dd_err err = {0};
    s->asks = memcmp(digest, none, STAGE_DIGEST) != 0;
    s->needs = !s->asks || !serve_can_keep(s) || !serve_find_kept(s, digest);
    if (s->needs) {
        flow_begin_copy(s, bytes, entries);
        return;
    }
    s->bytes = bytes;
    s->ready = true;
    if (serve_show(s, &err) < 0)
        serve_fail(s, err.text);
}

static void flow_keep(const struct serve *s, struct dd_buf *out, const struct frame *f)
{
    if (dd_buf_append(out, f->data, f->len) < 0)
        serve_fail(s, "--stage: out of memory");
}

static void flow_take_chunk(struct serve *s, const struct stage_frame *sf, const struct frame *f)
{
    const int news = s->head.len > 0 ? stage_ledger_take(&s->ledger, sf->seq) : -EPROTO;
    if (news == STAGE_NEWS_GONE)
        serve_ack(s, sf->seq);
    if (news == STAGE_NEWS_GONE || news == STAGE_NEWS_HELD)
        return;
    if (news == -EPROTO || s->end.len > 0)
        flow_fail_malformed(s);
    struct stage_chunk *c = calloc(1, sizeof(*c));
    if (news < 0 || c == NULL)
        serve_fail(s, "--stage: out of memory");
    *c = (struct stage_chunk){.seq = sf->seq, .phase = sf->phase};
    c->frame = DD_BUF_INIT(f->len);
    flow_keep(s, &c->frame, f);
    TAILQ_INSERT_TAIL(&s->live, c, kept);
    const int rc = stage_pool_add(s->pool, c);
    if (rc < 0)
        flow_fail(s, "cannot create a thread to unpack the copy", rc);
}

/* After a reconnection, the parent repeats HEAD and END; any other repetition is malformed. */
static bool flow_is_repeated(const struct serve *s, const struct dd_buf *known,
                             const struct frame *f)
{
    if (known->len > 0 &&
        (known->len != f->len || memcmp(known->data, f->data, f->len) != 0 || !s->reconnected))
        flow_fail_malformed(s);
    return known->len > 0;
}

static void flow_take_head(struct serve *s, const struct stage_frame *sf, const struct frame *f)
{
    if (flow_is_repeated(s, &s->head, f))
        return;
    flow_keep(s, &s->head, f);
    s->begun_ns = dd_now_ns();
    flow_begin(s, sf->bytes, sf->entries, sf->digest);
}

static void flow_take_end(struct serve *s, const struct stage_frame *sf, const struct frame *f)
{
    if (s->head.len == 0)
        flow_fail_malformed(s);
    if (flow_is_repeated(s, &s->end, f)) {
        serve_ack(s, STAGE_ACK_END);
        return;
    }
    if (!stage_ledger_is_complete(&s->ledger, sf->chunks)) {
        if (!s->reconnected || s->ledger.received >= sf->chunks)
            flow_fail_malformed(s);
        serve_leave_parent(s, "the sender no longer has all the data that is missing here");
        return;
    }
    flow_keep(s, &s->end, f);
    s->total = sf->chunks;
    serve_ack(s, STAGE_ACK_END);
}

void serve_take_frame(struct serve *s, const struct frame *f)
{
    struct stage_frame sf;
    if (stage_frame_decode(&sf, f->data, f->len) < 0)
        flow_fail_malformed(s);
    switch (sf.type) {
    case STAGE_HEAD:
        flow_take_head(s, &sf, f);
        break;
    case STAGE_CHUNK:
        flow_take_chunk(s, &sf, f);
        break;
    case STAGE_END:
        flow_take_end(s, &sf, f);
        break;
    case STAGE_ACK:
    case STAGE_TALLY:
    case STAGE_FRAMES:
    default:
        flow_fail_malformed(s);
    }
    serve_pump(s);
}

void serve_renew_child(struct serve *s, const struct stage_child *child)
{
    struct stage_chunk *c;
    TAILQ_FOREACH (c, &s->live, kept)
        c->sent &= ~child->bit;
}

void serve_take_ack(struct serve *s, struct stage_child *child, uint32_t seq)
{
    struct stage_chunk *c;
    if (seq == STAGE_ACK_END && child->end_sent)
        child->has_end = true;
    if (seq == STAGE_ACK_NEED || seq == STAGE_ACK_HAVE) {
        child->waits = false;
        child->needed = seq == STAGE_ACK_NEED;
        s->needs = s->needs || child->needed;
    }
    TAILQ_FOREACH (c, &s->live, kept)
        if (c->seq == seq && (c->sent & child->bit) != 0)
            c->acked |= child->bit;
    serve_pump(s);
}

/* ---- the reader and the pool ---- */

static void flow_head_of_reader(struct serve *s, const struct stage_reader_view *v)
{
    struct stage_frame f = {.type = STAGE_HEAD, .bytes = v->bytes, .entries = v->entries};
    char text[600];
    if (serve_can_keep(s) && stage_reader_digest(s->reader, f.digest) < 0)
        serve_fail(s, "--stage: cannot compute the SHA-256 digest of the listing");
    if (stage_frame_encode(&s->head, &f) < 0)
        serve_fail(s, "--stage: out of memory");
    if (v->skipped > 0) {
        (void)snprintf(text, sizeof(text),
                       "--stage: skipped %zu socket%s, pipe%s or device%s; the first is '%.300s'",
                       v->skipped, v->skipped == 1 ? "" : "s", v->skipped == 1 ? "" : "s",
                       v->skipped == 1 ? "" : "s", v->first_skipped);
        serve_send(s, STAGE_MSG_WARNING, text);
    }
    if (v->warning[0] != '\0')
        serve_send(s, STAGE_MSG_WARNING, v->warning);
    s->files = v->files;
    flow_begin(s, v->bytes, v->entries, f.digest);
}

static void flow_watch_reader(struct serve *s)
{
    struct stage_reader_view v;
    if (s->reader == NULL)
        return;
    stage_reader_look(s->reader, &v);
    if (v.state == STAGE_READER_FAILED)
        serve_fail(s, v.why);
    if (v.state == STAGE_READER_LISTED && s->head.len == 0)
        flow_head_of_reader(s, &v);
    /* the pool may still work on the last chunks */
    if (v.state != STAGE_READER_FINISHED || s->end.len > 0 || s->worked + s->empty < v.chunks)
        return;
    struct stage_frame f = {.type = STAGE_END, .chunks = s->worked};
    s->total = s->worked;
    if (stage_ledger_total(&s->ledger, s->total, f.digest) < 0)
        serve_fail(s, "--stage: cannot compute the SHA-256 digest of the copy");
    if (stage_frame_encode(&s->end, &f) < 0)
        serve_fail(s, "--stage: out of memory");
}

static void flow_take_worked(struct serve *s, struct stage_chunk *c)
{
    if (c->rc == -EPROTO && !c->read)
        flow_fail_malformed(s);
    if (c->rc < 0)
        serve_fail(s, c->err.text);
    if (c->empty) {
        s->empty++;
        stage_reader_release(s->reader);
        stage_chunk_free(c);
        return;
    }
    if (s->reader != NULL && stage_ledger_take(&s->ledger, c->seq) != STAGE_NEWS_NEW)
        serve_fail(s, "--stage: out of memory");
    stage_ledger_digest(&s->ledger, c->seq, c->digest);
    s->worked++;
    c->worked = true;
    if (s->reader != NULL)
        TAILQ_INSERT_TAIL(&s->live, c, kept);
}

void serve_on_wake(struct serve *s)
{
    struct stage_chunks done = TAILQ_HEAD_INITIALIZER(done);
    struct stage_chunk *c;
    stage_pool_take(s->pool, &done);
    while ((c = TAILQ_FIRST(&done)) != NULL) {
        TAILQ_REMOVE(&done, c, entry);
        flow_take_worked(s, c);
    }
    flow_watch_reader(s);
    serve_pump(s);
}

/* ---- frames to the children ---- */

static void flow_feed(const struct serve *s, struct stage_child *child)
{
    struct stage_chunk *c;
    bool ok = true;
    if (s->head.len == 0 || child->link == NULL)
        return;
    if (!child->head_sent)
        ok = child->head_sent = serve_send_frame(child, &s->head);
    if (s->asks && child->waits)
        return;
    TAILQ_FOREACH (c, &s->live, kept)
        if (ok && ((c->sent | c->acked) & child->bit) == 0 &&
            (ok = serve_send_frame(child, &c->frame)))
            c->sent |= child->bit;
    if (ok && s->end.len > 0 && !child->end_sent)
        child->end_sent = serve_send_frame(child, &s->end);
}

static void flow_release(struct serve *s)
{
    struct stage_chunk *c = TAILQ_FIRST(&s->live);
    const unsigned needed = flow_needed(s);
    while (c != NULL) {
        struct stage_chunk *next = TAILQ_NEXT(c, kept);
        if (c->worked && (needed & ~c->acked) == 0) {
            TAILQ_REMOVE(&s->live, c, kept);
            stage_ledger_release(&s->ledger, c->seq);
            s->spread += c->bytes;
            serve_ack(s, c->seq);
            if (s->reader != NULL)
                stage_reader_release(s->reader);
            stage_chunk_free(c);
        }
        c = next;
    }
}

static void flow_check_digest(const struct serve *s)
{
    unsigned char digest[STAGE_DIGEST];
    struct stage_frame f;
    char why[400];
    (void)snprintf(
        why, sizeof(why),
        "--stage: the copy on %s differs from the data that was sent (the SHA-256 digests "
        "differ)",
        s->setup.texts.v[STAGE_SETUP_NODE]);
    if (stage_ledger_total(&s->ledger, s->total, digest) < 0)
        serve_fail(s, "--stage: cannot compute the SHA-256 digest of the copy");
    if (stage_frame_decode(&f, s->end.data, s->end.len) < 0 ||
        memcmp(f.digest, digest, STAGE_DIGEST) != 0)
        serve_fail(s, why);
}

/* Once it is known whether the subtree needs the chunks, start the reader (on the root) or send the
 * answer to the parent. */
static void flow_answer(struct serve *s)
{
    if (s->head.len == 0 || s->answered)
        return;
    for (int i = 0; i < s->nchildren && !s->needs; i++)
        if (s->children[i].needed)
            return;
    if (s->reader != NULL && s->needs)
        stage_reader_go(s->reader);
    else if (s->reader == NULL && s->parent == NULL)
        return;
    else if (s->reader == NULL && s->asks)
        serve_ack(s, s->needs ? STAGE_ACK_NEED : STAGE_ACK_HAVE);
    s->answered = true;
}

static bool flow_is_over(const struct serve *s)
{
    bool all = TAILQ_EMPTY(&s->live) && (s->end.len > 0 || (!s->needs && s->answered));
    for (int i = 0; i < s->nchildren; i++)
        all = all && (!s->children[i].needed || s->children[i].has_end);
    return all;
}

void serve_pump(struct serve *s)
{
    struct dd_err err = {0};
    for (int i = 0; i < s->nchildren; i++)
        flow_feed(s, &s->children[i]);
    flow_answer(s);
    flow_release(s);
    if (s->end.len > 0 && s->worked == s->total && !s->ready) {
        s->ready = true;
        flow_check_digest(s);
        if (serve_show(s, &err) < 0)
            serve_fail(s, err.text);
    }
    if (s->ready && flow_is_over(s)) {
        const struct timeval last = {.tv_sec = 2}; /* to flush the sockets */
        serve_end_progress(s);
        serve_close_links(s);
        serve_prune_kept(s);
        (void)event_base_loopexit(s->base, &last);
    }
}

int serve_begin(struct serve *s, struct dd_err *err)
{
    char *const *setup = s->setup.texts.v;
    struct compile_dir cache = {.kind = setup[STAGE_SETUP_CACHE],
                                .dir = setup[STAGE_SETUP_SOURCES]};
    s->begun_ns = dd_now_ns();
    if (s->nparents > 0)
        return 0;
    if (cache.kind[0] != '\0' &&
        dd_num_u64(setup[STAGE_SETUP_MOST], 0, UINT64_MAX, &cache.most) < 0)
        return dd_err_set(err, -EPROTO, "--stage: malformed message from the agent");
    return stage_reader_start(&s->reader, s->pool, &s->sources,
                              cache.kind[0] != '\0' ? &cache : NULL, s->wake_fd, err);
}
