#include "web/claim.h"

#include <stddef.h>

enum { FAIL_MS = 250, BEATEN_MS = 100, BEATEN_MAX = 4 };

void claim_set(struct claim *c, bool hosting, int64_t epoch, bool started)
{
    c->hosting = hosting;
    c->epoch = epoch;
    c->started = started;
    if (hosting)
        c->followed = 0;
}

static struct claim_out claim_request(struct claim *c, enum claim_ask what, int64_t revision)
{
    c->asked = true;
    return (struct claim_out){.ask = what, .revision = revision};
}

static struct claim_out pause(struct claim *c, enum claim_do act, unsigned ms)
{
    if (act == CLAIM_DO_STAY)
        c->check = false;
    if (c->again) {
        c->again = false;
        struct claim_out out = claim_request(c, CLAIM_ASK_READ, 0);
        out.act = act;
        return out;
    }
    return (struct claim_out){.act = act, .wait_ms = ms};
}

/* Write this node's entry, attached to a lease. */
static struct claim_out claim_put(struct claim *c, int64_t over)
{
    c->put_over = over;
    return claim_request(c, c->lease ? CLAIM_ASK_PUT : CLAIM_ASK_GRANT, over);
}

static struct claim_out won(struct claim *c)
{
    c->beaten = 0;
    return pause(c, c->hosting ? CLAIM_DO_STAY : CLAIM_DO_HOST, CLAIM_KEEP_MS);
}

/* Compare this job with the one in the entry; true if this one has priority. If neither has, the
 * entry stays. */
static bool goes_before(const struct claim *c, const struct claim_seen *s)
{
    return c->started != s->started ? c->started : c->started && c->epoch > s->epoch;
}

static struct claim_out follow(struct claim *c, const struct claim_seen *s)
{
    const bool known = c->followed == s->revision;
    c->followed = s->revision;
    return pause(c, known ? CLAIM_DO_NOTHING : CLAIM_DO_FOLLOW, CLAIM_LOOK_MS);
}

static struct claim_out claim_on_read(struct claim *c, const struct claim_seen *s)
{
    if (!s->there)
        return claim_put(c, 0);
    if (s->mine)
        return s->same || !c->hosting ? won(c) : claim_put(c, s->revision);
    if (!c->hosting)
        return follow(c, s);
    if (goes_before(c, s))
        return claim_put(c, s->revision);
    if (c->started) /* once rounds have started, the daemons decide between themselves */
        return pause(c, CLAIM_DO_STAY, CLAIM_KEEP_MS);
    c->hosting = false;
    c->check = false;
    c->followed = s->revision;
    return pause(c, CLAIM_DO_YIELD, CLAIM_LOOK_MS);
}

/* Retry after a delay that grows. The job does not wait for etcd. */
static struct claim_out on_failed(struct claim *c)
{
    const unsigned longest = c->hosting ? CLAIM_KEEP_MS : CLAIM_LOOK_MS;
    unsigned ms = FAIL_MS << (c->fails < 4 ? c->fails : 4);
    c->fails++;
    c->again = false;
    return pause(c, c->check ? CLAIM_DO_STAY : CLAIM_DO_NOTHING, ms < longest ? ms : longest);
}

/* Retry at once; after several failures in a row, with a delay. */
static struct claim_out on_beaten(struct claim *c)
{
    if (++c->beaten % BEATEN_MAX == 0)
        return pause(c, CLAIM_DO_NOTHING, BEATEN_MS);
    return claim_request(c, CLAIM_ASK_READ, 0);
}

/* Handle an event from the caller. While a reply is pending, only note it. */
static struct claim_out on_wish(struct claim *c, enum claim_event e)
{
    c->check |= e == CLAIM_CHECK;
    if (!c->asked)
        return claim_request(
            c, e == CLAIM_TIME && c->hosting && c->lease ? CLAIM_ASK_KEEP : CLAIM_ASK_READ, 0);
    c->again |= e != CLAIM_TIME;
    return (struct claim_out){0};
}

struct claim_out claim_step(struct claim *c, enum claim_event e, const struct claim_seen *seen)
{
    if (e == CLAIM_BEGIN || e == CLAIM_TIME || e == CLAIM_CHANGED || e == CLAIM_CHECK)
        return on_wish(c, e);
    c->asked = false;
    struct claim_out out = {0};
    if (e == CLAIM_WON)
        c->fails = 0;
    switch (e) {
    case CLAIM_READ:
        out = claim_on_read(c, seen);
        if (out.ask != CLAIM_ASK_GRANT &&
            out.ask != CLAIM_ASK_PUT) /* these can fail even if reading succeeds */
            c->fails = 0;
        return out;
    case CLAIM_GRANTED:
        c->lease = true;
        return claim_put(c, c->put_over);
    case CLAIM_KEPT:
        return claim_request(c, CLAIM_ASK_READ, 0);
    case CLAIM_LEASE_GONE:
        c->lease = false;
        return on_beaten(c);
    case CLAIM_WON:
        return won(c);
    case CLAIM_BEATEN:
        return on_beaten(c);
    case CLAIM_FAILED:
        return on_failed(c);
    case CLAIM_BEGIN:
    case CLAIM_TIME:
    case CLAIM_CHANGED:
    case CLAIM_CHECK:
    case CLAIM_EVENTS:
    default:
        return (struct claim_out){0};
    }
}
