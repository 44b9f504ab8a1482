#include "daemon/journal.h"

#include "base/io.h"
#include "base/utf8.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>

enum { TEXT_MAX = 500 };

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

/* Kinds without a name are not shown. */
static const struct {
    const char *name;
    unsigned has;
} kinds[JOURNAL_KIND_MAX] = {
    [JOURNAL_JOIN] = {"join", NODE | WORKERS | ADDRESS},
    [JOURNAL_LEAVE] = {"leave", NODE | TEXT},
    [JOURNAL_ROUND] = {"round", ROUND | NODES | WORKERS},
    [JOURNAL_STARTED] = {"started", ROUND},
    [JOURNAL_EXIT] = {"exit", ROUND | RANK | NODE | CODE | SIGNAL | TEXT},
    [JOURNAL_STOP] = {"stop", NODE | SIGNAL | TEXT},
    [JOURNAL_SIGNAL] = {"signal", NODE | SIGNAL},
    [JOURNAL_EXCLUDE] = {"drain", NODE | TEXT},
    [JOURNAL_REFUSED] = {"refused", ADDRESS | UID | TEXT | COUNT},
    [JOURNAL_WARNING] = {"warning", NODE | TEXT},
    [JOURNAL_STRAGGLER] = {"straggler", ROUND | RANK | NODE | TEXT},
    [JOURNAL_STRAGGLER_OVER] = {"straggler-over", ROUND | RANK | NODE | TEXT},
    [JOURNAL_MARK] = {"mark", NODE | TEXT},
    [JOURNAL_MARK_END] = {"mark-end", NODE},
    [JOURNAL_CHARGE] = {"charge", ROUND | NODE | COUNT | TEXT},
    [JOURNAL_FINISH] = {"finish", CODE | TEXT},
};

void journal_init(struct journal *j)
{
    STAILQ_INIT(&j->subscribers);
}

void journal_subscribe(struct journal *j, struct journal_subscriber *s)
{
    STAILQ_INSERT_TAIL(&j->subscribers, s, entry);
}

void journal_publish(struct journal *j, const struct journal_event *e)
{
    struct journal_event stamped = *e;
    const struct journal_subscriber *s;
    stamped.now_ns = dd_now_ns();
    stamped.real_ns = dd_now_real_ns();
    STAILQ_FOREACH(s, &j->subscribers, entry)
    s->on_event(s->arg, &stamped);
}

void journal_refused(struct journal *j, uint64_t count, const struct net_addr *from,
                     const uid_t *uid, const char *why)
{
    if ((count & (count - 1)) != 0)
        return;
    journal_publish(j, &(struct journal_event){.kind = JOURNAL_REFUSED,
                                               .address = from,
                                               .uid = uid,
                                               .text = why,
                                               .count = count < INT_MAX ? (int)count : INT_MAX});
}

/* ---- JSON ---- */

/* The text may have been cut within a UTF-8 sequence. */
json_t *journal_json_text(const char *text)
{
    char clean[TEXT_MAX];
    (void)snprintf(clean, sizeof(clean), "%s", text != NULL ? text : "");
    return json_string(dd_utf8_clean(clean));
}

static void journal_put_text(json_t *o, const char *name, const char *text)
{
    (void)json_object_set_new(o, name, journal_json_text(text));
}

static void journal_put_time(json_t *o, uint64_t real_ns)
{
    const time_t s = (time_t)(real_ns / DD_NS_PER_S);
    struct tm tm;
    char text[40] = "";
    if (gmtime_r(&s, &tm) == NULL)
        return;
    const size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + n, sizeof(text) - n, ".%03uZ",
                   (unsigned)(real_ns % DD_NS_PER_S / DD_NS_PER_MS));
    journal_put_text(o, "time", text);
}

static void journal_put_numbers(json_t *o, unsigned has, const struct journal_event *e)
{
    const struct {
        unsigned bit;
        const char *name;
        int value;
    } numbers[] = {
        {ROUND, "round", e->round},       {RANK, "rank", e->rank}, {NODES, "nodes", e->nodes},
        {WORKERS, "workers", e->workers}, {CODE, "code", e->code}, {SIGNAL, "signal", e->signal},
        {COUNT, "count", e->count},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if ((has & numbers[i].bit) != 0)
            (void)json_object_set_new(o, numbers[i].name, json_integer(numbers[i].value));
}

json_t *journal_json(const struct journal_event *e)
{
    const unsigned has = kinds[e->kind].has;
    char address[NET_ADDR_TEXT + 8];
    json_t *o = kinds[e->kind].name != NULL ? json_object() : NULL;
    if (o == NULL)
        return NULL;
    journal_put_time(o, e->real_ns);
    journal_put_text(o, "event", kinds[e->kind].name);
    journal_put_numbers(o, has, e);
    if ((has & NODE) != 0)
        journal_put_text(o, "node", e->node);
    if ((has & ADDRESS) != 0 && e->address != NULL && e->address->len > 0)
        journal_put_text(o, "address", net_addr_text(e->address, address));
    if ((has & UID) != 0 && e->uid != NULL)
        (void)json_object_set_new(o, "uid", json_integer((json_int_t)*e->uid));
    if ((has & TEXT) != 0)
        journal_put_text(o, "text", e->text);
    return o;
}
