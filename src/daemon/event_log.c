/* What has happened in this job, for ddctl: one line of JSON each. The last ones are kept, and
 * whoever follows gets the others as they come. Src: docs/protocol/control-1.md. */
#include "base/io.h"
#include "base/utf8.h"
#include "daemon/inner.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEPT = 1000, FOLLOWERS = 32, EXITS_TOLD = 64, TEXT_MAX = 500 };

struct kept {
    enum event_kind kind;
    int round;
    char *line; /* without its newline */
};

struct follower {
    struct guest *guest; /* NULL: free */
    int64_t id;
};

struct events {
    uint64_t n; /* in all; the last KEPT of them are at n % KEPT */
    struct kept kept[KEPT];
    struct follower followers[FOLLOWERS];
};

enum {
    NODE = 1,
    TEXT = 2,
    ROUND = 4,
    RANK = 8,
    CODE = 16,
    SIGNAL = 32,
    NODES = 64,
    WORKERS = 128,
    ADDRESS = 256,
    UID = 512,
    COUNT = 1024
};

static const struct {
    const char *name;
    unsigned has;
} kinds[] = {
    [EVENT_JOIN] = {"join", NODE | WORKERS | ADDRESS},
    [EVENT_LEAVE] = {"leave", NODE | TEXT},
    [EVENT_ROUND] = {"round", ROUND | NODES | WORKERS},
    [EVENT_STARTED] = {"started", ROUND},
    [EVENT_EXIT] = {"exit", ROUND | RANK | NODE | CODE | SIGNAL | TEXT},
    [EVENT_STOP] = {"stop", NODE | SIGNAL | TEXT},
    [EVENT_SIGNAL] = {"signal", NODE | SIGNAL},
    [EVENT_DRAIN] = {"drain", NODE | TEXT},
    [EVENT_REFUSED] = {"refused", ADDRESS | UID | TEXT | COUNT},
    [EVENT_FINISH] = {"finish", CODE | TEXT},
};

static void put_int(json_t *o, const char *name, int value)
{
    (void)json_object_set_new(o, name, json_integer(value));
}

/* What peers wrote may be cut within a character. */
json_t *events_text(const char *text)
{
    char clean[TEXT_MAX];
    (void)snprintf(clean, sizeof(clean), "%s", text != NULL ? text : "");
    return json_string(dd_utf8_clean(clean));
}

static void put_text(json_t *o, const char *name, const char *text)
{
    (void)json_object_set_new(o, name, events_text(text));
}

static void put_time(json_t *o)
{
    const uint64_t ns = dd_now_real_ns();
    const time_t s = (time_t)(ns / DD_NS_PER_S);
    struct tm tm;
    char text[40] = "";
    if (gmtime_r(&s, &tm) == NULL)
        return;
    const size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + n, sizeof(text) - n, ".%03uZ",
                   (unsigned)(ns % DD_NS_PER_S / DD_NS_PER_MS));
    put_text(o, "time", text);
}

static json_t *object_of(const struct happened *h)
{
    const unsigned has = kinds[h->kind].has;
    const struct {
        unsigned bit;
        const char *name;
        int value;
    } numbers[] = {
        {ROUND, "round", h->round},       {RANK, "rank", h->rank}, {NODES, "nodes", h->nodes},
        {WORKERS, "workers", h->workers}, {CODE, "code", h->code}, {SIGNAL, "signal", h->signal},
        {COUNT, "count", h->count},
    };
    char address[NET_ADDR_TEXT + 8];
    json_t *o = json_object();
    put_time(o);
    put_text(o, "event", kinds[h->kind].name);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if ((has & numbers[i].bit) != 0)
            put_int(o, numbers[i].name, numbers[i].value);
    if ((has & NODE) != 0)
        put_text(o, "node", h->node);
    if ((has & ADDRESS) != 0 && h->address != NULL && h->address->len > 0)
        put_text(o, "address", net_addr_text(h->address, address));
    if ((has & UID) != 0 && h->uid != NULL)
        (void)json_object_set_new(o, "uid", json_integer((json_int_t)*h->uid));
    if ((has & TEXT) != 0)
        put_text(o, "text", h->text);
    return o;
}

static void tell(struct follower *f, const char *line, bool ends)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 14);
    if (dd_buf_printf(&text, "%s\n", line) < 0 ||
        control_answer(f->guest, f->id, (char *)text.data, text.len, ends) < 0 || ends)
        f->guest = NULL;
}

void events_add(struct daemon *d, const struct happened *h)
{
    json_t *o = object_of(h);
    char *line = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    notify_add(d, h, o);
    json_decref(o);
    if (d->events == NULL)
        d->events = calloc(1, sizeof(*d->events));
    struct events *e = d->events;
    if (e == NULL || line == NULL) {
        free(line);
        return; /* out of memory: the job is more important */
    }
    struct kept *at = &e->kept[e->n++ % KEPT];
    free(at->line);
    *at = (struct kept){.kind = h->kind, .round = h->round, .line = line};
    for (size_t i = 0; i < FOLLOWERS; i++)
        if (e->followers[i].guest != NULL)
            tell(&e->followers[i], line, h->kind == EVENT_FINISH);
}

void events_refused(struct daemon *d, uint64_t count, const struct net_addr *from, const uid_t *uid,
                    const char *why)
{
    const int n = count < INT_MAX ? (int)count : INT_MAX;
    if (d->machine != NULL && (count & (count - 1)) == 0)
        events_add(
            d, &(struct happened){
                   .kind = EVENT_REFUSED, .address = from, .uid = uid, .text = why, .count = n});
}

/* Those that are kept, from the oldest; all of them where kind is < 0. */
static void collect(const struct events *e, int kind, int round, int most, const char *behind,
                    struct dd_buf *out)
{
    for (uint64_t i = e->n > KEPT ? e->n - KEPT : 0; i < e->n && most > 0; i++) {
        const struct kept *k = &e->kept[i % KEPT];
        if (kind >= 0 && ((int)k->kind != kind || k->round != round))
            continue;
        (void)dd_buf_printf(out, "%s%s%s", kind >= 0 && out->len > 0 ? behind : "", k->line,
                            kind < 0 ? behind : "");
        most--;
    }
}

void events_exits(const struct daemon *d, int round, struct dd_buf *out)
{
    if (d->events != NULL)
        collect(d->events, EVENT_EXIT, round, EXITS_TOLD, ",", out);
}

void events_follow(struct guest *g, int64_t id, bool follow)
{
    struct events *e = g->daemon->events; /* there is one: somebody has joined */
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4 << 20);
    size_t i = 0;
    if (e == NULL)
        return;
    collect(e, -1, 0, KEPT, "\n", &out);
    while (i < FOLLOWERS && e->followers[i].guest != NULL)
        i++;
    const bool stays = follow && i < FOLLOWERS && rdzv_state(g->daemon->machine) != RDZV_FINISHED;
    if (control_answer(g, id, (char *)out.data, out.len, !stays) == 0 && stays)
        e->followers[i] = (struct follower){.guest = g, .id = id};
}

void events_forget(struct daemon *d, const struct guest *g, int64_t id)
{
    for (size_t i = 0; d->events != NULL && i < FOLLOWERS; i++) {
        struct follower *f = &d->events->followers[i];
        if (f->guest == g && (id < 0 || f->id == id))
            f->guest = NULL;
    }
}

void events_free(struct daemon *d)
{
    for (size_t i = 0; d->events != NULL && i < KEPT; i++)
        free(d->events->kept[i].line);
    free(d->events);
    d->events = NULL;
}
