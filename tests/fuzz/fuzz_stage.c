/* stage: the first byte chooses the parser; the rest is a frame, the entries of a chunk, a message
 * between agent and ddrun-stage, or chunks that come and go. What is accepted encodes to the same
 * bytes. */
#include "stage/stage_codec.h"
#include "stage/stage_ledger.h"
#include "stage/stage_msg.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* What a node would report further, of a subtree of a few nodes. */
static void add_tally(const struct stage_tally *child)
{
    enum { BELOW = 5 };
    struct stage_tally t = STAGE_TALLY_NONE;
    must(child->lag <= STAGE_WINDOW && (child->lag > 0) == (child->slowest <= INT32_MAX));
    for (uint32_t lacks = 0; lacks <= STAGE_WINDOW; lacks += STAGE_WINDOW / 2) {
        stage_tally_add(&t, child, 1, lacks, BELOW);
        must(t.done <= BELOW && t.lag <= STAGE_WINDOW);
        must((t.lag > 0) == (t.slowest <= INT32_MAX));
    }
}

static void read_frame(const uint8_t *p, size_t n)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(n + 100);
    struct stage_frame f;
    if (stage_frame_decode(&f, p, n) < 0)
        return;
    must(stage_frame_encode(&out, &f) == 0);
    must(out.len == n && memcmp(out.data, p, n) == 0);
    must(f.type != STAGE_CHUNK || (f.raw > 0 && f.raw <= STAGE_RAW_MAX));
    if (f.type == STAGE_TALLY)
        add_tally(&f.tally);
}

static void read_entries(const uint8_t *p, size_t n)
{
    static struct stage_entry e;
    size_t at = 0;
    for (size_t before = 0; stage_entry_decode(&e, p, n, &at) > 0; before = at) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(n + 100);
        must(at > before && at <= n && e.mode <= 0777);
        must(e.path[0] != '/' && strstr(e.path, "/../") == NULL);
        must(stage_phase_of(e.kind) < STAGE_PHASES);
        must(stage_entry_encode(&out, &e) == 0);
        must(out.len == at - before && memcmp(out.data, p + before, out.len) == 0);
    }
}

static void read_message(const uint8_t *p, size_t n)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(n + 100);
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    if (stage_msg_decode(&m, p, n) < 0)
        return;
    must(stage_msg_encode(&out, m.type, m.texts.v) == 0);
    must(out.len == n && memcmp(out.data, p, n) == 0);
}

/* Each two bytes: a chunk that comes (even) or that is released, as a node would. */
static void play_chunks(const uint8_t *p, size_t n)
{
    static const unsigned char digest[STAGE_DIGEST];
    unsigned char total[STAGE_DIGEST];
    struct stage_ledger l = {0};
    for (size_t i = 0; i + 1 < n; i += 2) {
        const uint32_t seq = (uint32_t)(p[i] >> 1) << 8 | p[i + 1];
        const struct stage_ledger before = l;
        const int news = (p[i] & 1) == 0 || seq >= l.cap ? stage_ledger_take(&l, seq) : 0;
        must(news != STAGE_NEWS_NEW || before.received + 1 == l.received);
        must(news == STAGE_NEWS_NEW || before.received == l.received);
        if (news == STAGE_NEWS_NEW)
            stage_ledger_digest(&l, seq, digest);
        else if (news == STAGE_NEWS_HELD)
            stage_ledger_release(&l, seq);
        must(l.released <= l.received && l.received - l.released <= STAGE_WINDOW);
        must(stage_ledger_is_complete(&l, l.received) ==
             (stage_ledger_total(&l, l.received, total) == 0));
        must(!stage_ledger_is_complete(&l, l.received + 1));
    }
    stage_ledger_done(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'f')
        read_frame(data + 1, size - 1);
    else if (data[0] == 'm')
        read_message(data + 1, size - 1);
    else if (data[0] == 'l')
        play_chunks(data + 1, size - 1);
    else
        read_entries(data + 1, size - 1);
    return 0;
}
