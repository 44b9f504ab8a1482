/* What a person asks of a running job, with ddctl through the agent of a node. Answers are JSON, or
 * one sentence where it cannot be. Src: docs/protocol/control-1.md. */
#include "base/io.h"
#include "base/sig.h"
#include "base/utf8.h"
#include "daemon/inner.h"
#include "store/server.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 128
            << 10, /* of an answer: twice that, when everything is escaped, fits into a message */
    VALUE_MAX = 4 << 20, /* of a key that is told */
    KEYS_MAX = 20000,
    ANSWER_MAX =
        24 << 20, /* with all that waits for that link: the job's own words have room behind it */
};

int control_answer(struct guest *g, int64_t id, const char *text, size_t n, bool ends)
{
    int rc = n <= ANSWER_MAX && link_queued(g->link) <= ANSWER_MAX - n ? 0 : -ENOBUFS;
    for (size_t at = 0; rc == 0 && (at < n || at == 0); at += PIECE) {
        const size_t len = n - at < PIECE ? n - at : PIECE;
        DD_AUTO(free) char *piece = strndup(n > 0 ? text + at : "", len);
        DD_AUTO(free) char *out = NULL;
        rc = piece == NULL ? -ENOMEM
                           : msg_encode(&out, MSG(CTL_REPLY, .id = id, .ok = true,
                                                  .ends = ends && at + len >= n, .detail = piece));
        if (rc == 0)
            rc = link_send(g->link, FRAME_CONTROL, out, strlen(out));
    }
    return rc;
}

__attribute__((format(printf, 3, 4))) static void refuse(struct guest *g, int64_t id,
                                                         const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    guest_send(g,
               MSG(CTL_REPLY, .id = id, .ok = false, .ends = true, .detail = dd_utf8_clean(text)));
}

/* Takes o. */
static void answer(struct guest *g, int64_t id, json_t *o)
{
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(o);
    if (text == NULL)
        refuse(g, id, "the daemon is out of memory");
    else if (strlen(text) > ANSWER_MAX)
        refuse(g, id, "the answer would be longer than %d MiB", ANSWER_MAX >> 20);
    else if (control_answer(g, id, text, strlen(text), true) < 0)
        refuse(g, id, "the link to this node is too busy for the answer");
}

/* ---- status ---- */

static const char *state_of(const struct daemon *d, const struct rdzv_view *v)
{
    if (!v->part)
        return v->unfit                                   ? "left-out"
               : rdzv_state(d->machine) == RDZV_GATHERING ? "waiting"
                                                          : "spare";
    if (v->done)
        return "ended";
    return rdzv_state(d->machine) == RDZV_STOPPING ? "stopping"
           : v->started                            ? "running"
                                                   : "starting";
}

/* node_rank < 0: it has no part in the round. */
static void put_node(const struct daemon *d, json_t *list, const struct rdzv_view *v, int node_rank,
                     int first_rank)
{
    json_t *o = json_pack("{s:s,s:i,s:i,s:s}", "name", v->name, "index", v->index, "workers",
                          v->slots, "state", state_of(d, v));
    if (node_rank >= 0) {
        (void)json_object_set_new(o, "node_rank", json_integer(node_rank));
        (void)json_object_set_new(o, "first_rank", json_integer(first_rank));
    }
    (void)json_array_append_new(list, o);
}

static json_t *nodes_of(const struct daemon *d)
{
    json_t *list = json_array();
    struct rdzv_view v;
    int rank = 0;
    const int n = rdzv_state(d->machine) == RDZV_GATHERING ? 0 : rdzv_planned(d->machine)->n;
    for (int k = 0; k < n; k++)
        if (rdzv_view(d->machine, rdzv_id_of_rank(d->machine, k), &v) && v.part) {
            put_node(d, list, &v, k, rank);
            rank += v.slots;
        }
    for (int id = 0; id < d->capacity; id++)
        if (rdzv_view(d->machine, id, &v) && !v.part)
            put_node(d, list, &v, -1, 0);
    return list;
}

static json_t *failures_of(const struct daemon *d)
{
    DD_AUTO(buf) struct dd_buf exits = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(1 << 20);
    events_exits(d, rdzv_round(d->machine), &exits);
    const char *text = dd_buf_str(&exits);
    if (text == NULL || dd_buf_printf(&list, "[%s]", text) < 0)
        return json_array();
    return json_loadb((const char *)list.data, list.len, 0, NULL);
}

static void on_status(struct guest *g, const struct msg_ctl_request *m)
{
    const struct daemon *d = g->daemon;
    DD_AUTO(buf) struct dd_buf missing = DD_BUF_INIT(1 << 20);
    const char *names = rdzv_missing(d->machine, &missing) == 0 ? dd_buf_str(&missing) : NULL;
    answer(g, m->id,
           json_pack("{s:i,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:I,s:s,s:o,s:o}", "version", 1,
                     "job", d->cfg.job_id, "state", rdzv_state_name(rdzv_state(d->machine)),
                     "round", rdzv_round(d->machine), "restarts", rdzv_restarts(d->machine),
                     "max_restarts", d->cfg.rdzv.max_restarts, "min_nodes", d->cfg.rdzv.min_nodes,
                     "max_nodes", d->cfg.rdzv.max_nodes, "wanted", rdzv_wanted(d->machine),
                     "seconds", (json_int_t)((dd_now_ns() - d->start_ns) / DD_NS_PER_S),
                     "store_max_bytes", (json_int_t)d->cfg.limits.max_bytes, "missing",
                     names != NULL ? names : "", "nodes", nodes_of(d), "failed", failures_of(d)));
}

/* ---- wishes ---- */

static void on_signal(struct guest *g, const struct msg_ctl_request *m)
{
    struct daemon *d = g->daemon;
    const int sig = dd_signal_parse(m->text);
    char why[300];
    if (sig == SIGUSR1 || sig == SIGUSR2) {
        const bool running = rdzv_state(d->machine) == RDZV_RUNNING;
        if (!running)
            refuse(g, m->id, "no workers run just now (%s)",
                   rdzv_state_name(rdzv_state(d->machine)));
        else
            answer(g, m->id, json_pack("{s:b}", "sent", guests_announce(g, sig, false)));
        return;
    }
    if (sig < 0 || !dd_signal_ends_jobs(sig)) {
        refuse(g, m->id,
               "'%.40s' is no signal for a job; it takes USR1, USR2, TERM, INT, HUP and QUIT",
               m->text);
        return;
    }
    (void)snprintf(why, sizeof(why), "stopped by SIG%s (ddctl on %.200s)", dd_signal_name(sig),
                   g->name);
    d->asked = true;
    events_add(d,
               &(struct happened){.kind = EVENT_STOP, .node = g->name, .signal = sig, .text = why});
    answer(g, m->id, json_pack("{s:b}", "sent", 1));
    daemon_step(d, &(struct rdzv_event){
                       .kind = RDZV_STOP_REQUEST, .id = g->id, .signal = sig, .text = why});
}

static int id_of_name(const struct daemon *d, const char *name)
{
    struct rdzv_view v;
    for (int id = 0; id < d->capacity; id++)
        if (rdzv_view(d->machine, id, &v) && strcmp(v.name, name) == 0)
            return id;
    return -1;
}

static void on_drain(struct guest *g, const struct msg_ctl_request *m)
{
    struct daemon *d = g->daemon;
    const int id = id_of_name(d, m->text);
    struct rdzv_view v;
    char why[300];
    if (!rdzv_view(d->machine, id, &v)) {
        refuse(g, m->id, "unknown node '%.200s' in this job", m->text);
        return;
    }
    if (!v.unfit && !rdzv_can_spare(d->machine, id)) {
        refuse(g, m->id,
               "cannot drain %.200s: it runs the job's daemon, or too few nodes would remain",
               m->text);
        return;
    }
    (void)snprintf(why, sizeof(why), "it was drained with ddctl on %.200s", g->name);
    if (!v.unfit)
        events_add(d, &(struct happened){.kind = EVENT_DRAIN, .node = m->text, .text = why});
    const bool restarts = !v.unfit && v.part && rdzv_state(d->machine) == RDZV_RUNNING;
    answer(g, m->id, json_pack("{s:b,s:b}", "known", v.unfit, "restarts", restarts));
    daemon_step(d, &(struct rdzv_event){.kind = RDZV_DRAIN, .id = id, .text = why});
}

/* ---- keys ---- */

/* Keys are bytes: what is no printable ASCII becomes \xNN. */
static void text_of_key(char *out, size_t size, struct store_bytes key)
{
    (void)dd_log_escape(out, size, key.p, key.n);
}

struct listing {
    const struct daemon *d;
    const char *prefix;
    json_t *keys;
    size_t left_out;
};

static int list_key(void *arg, struct store_bytes key)
{
    struct listing *l = arg;
    struct store_bytes value = {NULL, 0};
    char name[1024];
    text_of_key(name, sizeof(name), key);
    if (strncmp(name, l->prefix, strlen(l->prefix)) != 0)
        return 0;
    if (json_array_size(l->keys) >= KEYS_MAX) {
        l->left_out++;
        return 0;
    }
    (void)store_server_get(l->d->store, key, &value);
    return json_array_append_new(l->keys,
                                 json_pack("{s:s,s:I}", "key", name, "bytes", (json_int_t)value.n));
}

static void on_keys(struct guest *g, const struct msg_ctl_request *m)
{
    struct listing l = {.d = g->daemon, .prefix = m->text, .keys = json_array()};
    (void)store_server_each_key(g->daemon->store, list_key, &l);
    answer(g, m->id,
           json_pack("{s:i,s:o,s:I}", "round", rdzv_round(g->daemon->machine), "keys", l.keys,
                     "left_out", (json_int_t)l.left_out));
}

static char *hex_of(struct store_bytes b)
{
    static const char digits[] = "0123456789abcdef";
    char *hex = malloc(2 * b.n + 1);
    for (size_t i = 0; hex != NULL && i < b.n; i++) {
        hex[2 * i] = digits[b.p[i] >> 4];
        hex[2 * i + 1] = digits[b.p[i] & 15];
    }
    if (hex != NULL)
        hex[2 * b.n] = '\0';
    return hex;
}

static void on_key(struct guest *g, const struct msg_ctl_request *m)
{
    const struct daemon *d = g->daemon;
    struct store_bytes value = {NULL, 0};
    const struct store_bytes key = {(const unsigned char *)m->text, strlen(m->text)};
    if (!store_server_get(d->store, key, &value)) {
        answer(g, m->id, json_pack("{s:i}", "round", rdzv_round(d->machine)));
        return;
    }
    if (value.n > VALUE_MAX) {
        refuse(g, m->id, "the value has %zu bytes; at most %d MiB are told", value.n,
               VALUE_MAX >> 20);
        return;
    }
    DD_AUTO(free) char *hex = hex_of(value);
    answer(g, m->id,
           hex == NULL ? NULL
                       : json_pack("{s:i,s:s}", "round", rdzv_round(d->machine), "hex", hex));
}

/* ---- all ---- */

static void on_events(struct guest *g, const struct msg_ctl_request *m)
{
    events_follow(g, m->id, strcmp(m->text, "follow") == 0);
}

static void on_forget(struct guest *g, const struct msg_ctl_request *m)
{
    events_forget(g->daemon, g, m->id);
}

static const struct {
    const char *what;
    void (*run)(struct guest *g, const struct msg_ctl_request *m);
} questions[] = {
    {"status", on_status}, {"signal", on_signal}, {"drain", on_drain},   {"keys", on_keys},
    {"key", on_key},       {"events", on_events}, {"forget", on_forget},
};

void control_ask(struct guest *g, const struct msg_ctl_request *m)
{
    dd_log(g->daemon->cfg.log, DD_LOG_DEBUG, "event=ask what=%s from=%s", m->what, g->name);
    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
        if (strcmp(questions[i].what, m->what) == 0) {
            questions[i].run(g, m);
            return;
        }
    refuse(g, m->id, "this job's ddrun does not know '%.32s': it is another version than ddctl",
           m->what);
}
