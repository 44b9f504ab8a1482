#include "daemon/event_log.h"

#include "base/auto.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

enum { EXITS_MAX = 64 };

struct event_line {
    enum journal_kind kind;
    int round;
    char *text; /* without a final newline */
};

struct follower {
    struct session *session; /* NULL: unused slot */
    int64_t id;
};

struct event_log {
    struct journal_subscriber subscriber;
    event_log_send_f *send;
    uint64_t n; /* number of events; the last EVENT_LOG_KEPT are kept at index n % EVENT_LOG_KEPT */
    struct event_line kept[EVENT_LOG_KEPT];
    struct follower followers[EVENT_LOG_FOLLOWERS];
};

static void event_log_forward(struct event_log *l, struct follower *f, const char *line, bool ends)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 14);
    if (dd_buf_printf(&text, "%s\n", line) < 0 ||
        l->send(f->session, f->id, (char *)text.data, text.len, ends) < 0 || ends)
        f->session = NULL;
}

static void event_log_on_event(void *arg, const struct journal_event *e)
{
    struct event_log *l = arg;
    json_t *o = journal_json(e);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(o);
    if (text == NULL)
        return; /* not shown to users, or out of memory, which must not disturb the job */
    struct event_line *at = &l->kept[l->n++ % EVENT_LOG_KEPT];
    free(at->text);
    *at = (struct event_line){.kind = e->kind, .round = e->round, .text = text};
    for (size_t i = 0; i < EVENT_LOG_FOLLOWERS; i++)
        if (l->followers[i].session != NULL)
            event_log_forward(l, &l->followers[i], text, e->kind == JOURNAL_FINISH);
}

int event_log_new(struct event_log **ret, struct journal *j, event_log_send_f *send)
{
    struct event_log *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return -ENOMEM;
    l->send = send;
    l->subscriber = (struct journal_subscriber){.on_event = event_log_on_event, .arg = l};
    journal_subscribe(j, &l->subscriber);
    *ret = l;
    return 0;
}

void event_log_free(struct event_log *l)
{
    if (l == NULL)
        return;
    for (size_t i = 0; i < EVENT_LOG_KEPT; i++)
        free(l->kept[i].text);
    free(l);
}

static uint64_t event_log_first(const struct event_log *l)
{
    return l->n > EVENT_LOG_KEPT ? l->n - EVENT_LOG_KEPT : 0;
}

void event_log_exits(const struct event_log *l, int round, struct dd_buf *out)
{
    int left = EXITS_MAX;
    for (uint64_t i = event_log_first(l); i < l->n && left > 0; i++) {
        const struct event_line *e = &l->kept[i % EVENT_LOG_KEPT];
        if (e->kind != JOURNAL_EXIT || e->round != round)
            continue;
        (void)dd_buf_printf(out, "%s%s", out->len > 0 ? "," : "", e->text);
        left--;
    }
}

void event_log_follow(struct event_log *l, struct session *s, int64_t id, bool follow)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4 << 20);
    size_t i = 0;
    for (uint64_t k = event_log_first(l); k < l->n; k++)
        (void)dd_buf_printf(&out, "%s\n", l->kept[k % EVENT_LOG_KEPT].text);
    while (i < EVENT_LOG_FOLLOWERS && l->followers[i].session != NULL)
        i++;
    const bool stays = follow && i < EVENT_LOG_FOLLOWERS;
    if (l->send(s, id, (char *)out.data, out.len, !stays) == 0 && stays)
        l->followers[i] = (struct follower){.session = s, .id = id};
}

void event_log_forget(struct event_log *l, const struct session *s, int64_t id)
{
    for (size_t i = 0; i < EVENT_LOG_FOLLOWERS; i++) {
        struct follower *f = &l->followers[i];
        if (f->session == s && (id < 0 || f->id == id))
            f->session = NULL;
    }
}
