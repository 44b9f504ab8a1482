#include "daemon/ctl_requests.h"

#include "base/io.h"
#include "base/sig.h"
#include "base/utf8.h"
#include "daemon/node_state.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_MAX = 4 << 20 /* bytes of a value that is sent */, KEYS_MAX = 20000 };
enum { STACKS_ANSWER = 8 << 20, STACKS_LIMIT_MS = 60000 };
enum { SEVERAL = -2 /* in place of the id of a node */ };

__attribute__((format(printf, 3, 4))) static void ctl_refuse(struct session *s, int64_t id,
                                                             const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    session_send(
        s, MSG(CTL_REPLY, .id = id, .ok = false, .ends = true, .detail = dd_utf8_clean(text)));
}

/* Refuse a request whose answer session_answer() could not send. */
static void ctl_refuse_unsent(struct session *s, int64_t id, int rc)
{
    ctl_refuse(s, id, "%s",
               rc == -ENOMEM ? "the daemon is out of memory"
                             : "the answer does not fit into the queue to this node");
}

/* Send o as the answer; takes o. */
static void ctl_answer(struct session *s, int64_t id, json_t *o)
{
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    int rc;
    json_decref(o);
    if (text == NULL)
        ctl_refuse(s, id, "the daemon is out of memory");
    else if (strlen(text) > SESSION_ANSWER_MAX)
        ctl_refuse(s, id, "the answer exceeds %d MiB", SESSION_ANSWER_MAX >> 20);
    else if ((rc = session_answer(s, id, text, strlen(text), true)) < 0)
        ctl_refuse_unsent(s, id, rc);
}

/* ---- status ---- */

/* Add the last warnings that the node has sent, if there were any. */
static void ctl_put_warnings(json_t *node, const struct session *s)
{
    DD_AUTO(strv) struct dd_strv lines = {0};
    if (s == NULL || s->warnings == NULL || dd_strv_split(&lines, s->warnings, "\n") < 0)
        return;
    json_t *list = json_array();
    for (size_t i = 0; i < lines.n && i < SESSION_WARNINGS_MAX; i++)
        (void)json_array_append_new(list, journal_json_text(lines.v[i]));
    (void)json_object_set_new(node, "warnings", list);
}

/* node_rank < 0: the node does not take part in the round. s: the node's session; NULL: none. */
static void ctl_put_node(const struct ctl_requests *c, json_t *list, const struct rdzv_view *v,
                         const struct session *s, int node_rank, int first_rank)
{
    struct rdzv_charges x;
    json_t *o = json_pack("{s:s,s:i,s:i,s:s}", "name", v->name, "index", v->index, "workers",
                          v->slots, "state", node_state_name(node_state(c->machine, v)));
    if (node_rank >= 0) {
        (void)json_object_set_new(o, "node_rank", json_integer(node_rank));
        (void)json_object_set_new(o, "first_rank", json_integer(first_rank));
    }
    if (rdzv_charges(c->machine, v->index, dd_now_ns(), &x) && x.n > 0)
        (void)json_object_set_new(o, "charges", json_integer(x.n));
    if (v->mark != NULL)
        (void)json_object_set_new(o, "mark", journal_json_text(v->mark));
    ctl_put_warnings(o, s);
    (void)json_array_append_new(list, o);
}

static json_t *ctl_nodes(const struct ctl_requests *c, const struct session_set *set)
{
    json_t *list = json_array();
    struct rdzv_view v;
    int rank = 0;
    const int n = rdzv_state(c->machine) == RDZV_GATHERING ? 0 : rdzv_planned(c->machine)->n;
    for (int k = 0; k < n; k++) {
        const int id = rdzv_id_of_rank(c->machine, k);
        if (rdzv_view(c->machine, id, &v) && v.part) {
            ctl_put_node(c, list, &v, session_of_id(set, id), k, rank);
            rank += v.slots;
        }
    }
    for (int id = 0; id < c->cfg->capacity; id++)
        if (rdzv_view(c->machine, id, &v) && !v.part)
            ctl_put_node(c, list, &v, session_of_id(set, id), -1, 0);
    return list;
}

static json_t *ctl_failures(const struct ctl_requests *c)
{
    DD_AUTO(buf) struct dd_buf exits = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf list = DD_BUF_INIT(1 << 20);
    event_log_exits(c->events, rdzv_round(c->machine), &exits);
    const char *text = dd_buf_str(&exits);
    if (text == NULL || dd_buf_printf(&list, "[%s]", text) < 0)
        return json_array();
    return json_loadb((const char *)list.data, list.len, 0, NULL);
}

/* Add the step that the program has reached, if it is known. */
static void ctl_put_step(const struct ctl_requests *c, json_t *o)
{
    int stuck;
    const int64_t step = step_collect_reached(c->steps);
    (void)rdzv_step_reached(c->machine, &stuck);
    if (step >= 0)
        (void)json_object_set_new(o, "step", json_integer((json_int_t)step));
    if (c->cfg->progress_restarts > 0)
        (void)json_object_set_new(o, "restarts_without_step", json_integer(stuck));
}

static void ctl_on_status(const struct ctl_requests *c, struct session *s,
                          const struct msg_ctl_request *m)
{
    DD_AUTO(buf) struct dd_buf missing = DD_BUF_INIT(1 << 20);
    struct store_stats store;
    const char *names = rdzv_missing(c->machine, &missing) == 0 ? dd_buf_str(&missing) : NULL;
    store_server_stats(c->store, &store);
    json_t *o = json_pack(
        "{s:i,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:I,s:s,s:o,s:o}", "version", 1, "job", c->job_id,
        "state", rdzv_state_name(rdzv_state(c->machine)), "round", rdzv_round(c->machine),
        "restarts", rdzv_restarts(c->machine), "max_restarts", c->cfg->max_restarts, "min_nodes",
        c->cfg->min_nodes, "max_nodes", c->cfg->max_nodes, "wanted", rdzv_wanted(c->machine),
        "seconds", (json_int_t)((dd_now_ns() - c->start_ns) / DD_NS_PER_S), "store_max_bytes",
        (json_int_t)store.max_bytes, "missing", names != NULL ? names : "", "nodes",
        ctl_nodes(c, s->set), "failed", ctl_failures(c));
    ctl_put_step(c, o);
    step_collect_put(c->steps, o);
    ctl_answer(s, m->id, o);
}

static void ctl_put_charges(json_t *nodes, const struct rdzv_charges *x)
{
    json_t *o = json_pack("{s:o,s:i,s:o}", "name", journal_json_text(x->name), "charges", x->n,
                          "text", journal_json_text(x->why));
    (void)json_object_set_new(
        o, "age_s", x->n > 0 ? json_integer((json_int_t)(x->age_ns / DD_NS_PER_S)) : json_null());
    (void)json_object_set_new(o, "left_out",
                              x->left_out != NULL ? journal_json_text(x->left_out) : json_null());
    (void)json_array_append_new(nodes, o);
}

/* "follow" is for the agent of the daemon's node, which keeps the charges for the next run. */
static void ctl_on_blame(const struct ctl_requests *c, struct session *s,
                         const struct msg_ctl_request *m)
{
    if (s->is_leader && strcmp(m->text, "follow") == 0) {
        charges_follow_start(c->charges, s, m->id);
        return;
    }
    json_t *nodes = json_array();
    const uint64_t now = dd_now_ns();
    struct rdzv_charges x;
    for (int index = 0; index < c->cfg->capacity; index++)
        if (rdzv_charges(c->machine, index, now, &x))
            ctl_put_charges(nodes, &x);
    for (int i = 0; rdzv_charges_of_absent(c->machine, i, now, &x); i++)
        ctl_put_charges(nodes, &x);
    ctl_answer(s, m->id,
               json_pack("{s:i,s:i,s:I,s:o}", "version", 1, "round", rdzv_round(c->machine),
                         "window_s", (json_int_t)(c->cfg->blame_window_ns / DD_NS_PER_S), "nodes",
                         nodes));
}

/* Answer an agent with a terminal, which sends this request once a second. */
static void ctl_on_waiting(const struct ctl_requests *c, struct session *s,
                           const struct msg_ctl_request *m)
{
    struct rdzv_wait w;
    s->shows_wait = true;
    if (!rdzv_waiting(c->machine, dd_now_ns(), &w)) {
        ctl_answer(s, m->id, json_object());
        return;
    }
    ctl_answer(s, m->id,
               json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:s,s:i,s:i,s:i}", "what",
                         waiting_kind_name(w.what), "ready", w.ready, "wanted", w.wanted, "workers",
                         w.workers, "attempt", w.attempt, "attempts", w.attempts, "names", w.names,
                         "waited_s", w.waited_s, "limit_s", w.limit_s, "starts_s", w.starts_s));
}

/* ---- changes ---- */

static void ctl_on_user_signal(const struct ctl_requests *c, struct session *s, int64_t id, int sig)
{
    if (rdzv_state(c->machine) != RDZV_RUNNING)
        ctl_refuse(s, id, "no workers are running (job is %s)",
                   rdzv_state_name(rdzv_state(c->machine)));
    else
        c->ops->broadcast(c->arg, s, id, sig);
}

static void ctl_on_signal(const struct ctl_requests *c, struct session *s,
                          const struct msg_ctl_request *m)
{
    const int sig = dd_signal_parse(m->text);
    char why[300];
    if (sig == SIGUSR1 || sig == SIGUSR2) {
        ctl_on_user_signal(c, s, m->id, sig);
        return;
    }
    if (sig < 0 || !dd_signal_ends_jobs(sig)) {
        ctl_refuse(s, m->id,
                   "unsupported signal '%.40s' (supported: USR1, USR2, TERM, INT, HUP, QUIT)",
                   m->text);
        return;
    }
    (void)snprintf(why, sizeof(why), "stopped by SIG%s (ddctl on %.200s)", dd_signal_name(sig),
                   s->name);
    ctl_answer(s, m->id, json_pack("{s:b}", "sent", 1));
    c->ops->stop(c->arg, s, sig, why);
}

/* Return the member with this name, else the only one that has the name before its domain; -1:
 * none, SEVERAL: several have it. */
static int ctl_id_of_name(const struct ctl_requests *c, const char *name)
{
    const size_t n = strlen(name);
    int ret = -1, found = 0;
    struct rdzv_view v;
    for (int id = 0; id < c->cfg->capacity; id++) {
        if (!rdzv_view(c->machine, id, &v) || strncmp(v.name, name, n) != 0)
            continue;
        if (v.name[n] == '\0')
            return id;
        if (n > 0 && v.name[n] == '.') {
            ret = id;
            found++;
        }
    }
    return found > 1 ? SEVERAL : ret;
}

/* Return the name of the node with its domain; return an unknown or ambiguous name unchanged. */
static const char *ctl_full_name(const struct ctl_requests *c, const char *name)
{
    struct rdzv_view v;
    return name != NULL && rdzv_view(c->machine, ctl_id_of_name(c, name), &v) ? v.name : name;
}

static void ctl_on_drain(const struct ctl_requests *c, struct session *s,
                         const struct msg_ctl_request *m)
{
    const int id = ctl_id_of_name(c, m->text);
    struct rdzv_view v;
    char why[300];
    if (!rdzv_view(c->machine, id, &v)) {
        ctl_refuse(s, m->id,
                   id == SEVERAL
                       ? "several nodes of this job have the name '%.200s' before their domain"
                         "\n  tip: give the full name, as 'ddctl status' prints it"
                       : "unknown node '%.200s' in this job\n  tip: 'ddctl status' lists the nodes",
                   m->text);
        return;
    }
    if (!v.unfit && !rdzv_can_drain(c->machine, id)) {
        ctl_refuse(s, m->id, "cannot drain %.200s: %s", m->text,
                   rdzv_is_leader(c->machine, id) ? "it runs the job's daemon"
                                                  : "too few nodes would remain");
        return;
    }
    (void)snprintf(why, sizeof(why), "drained by ddctl on %.200s", s->name);
    const bool restarts = !v.unfit && v.part && rdzv_state(c->machine) == RDZV_RUNNING;
    ctl_answer(s, m->id, json_pack("{s:b,s:b}", "known", v.unfit, "restarts", restarts));
    c->ops->drain(c->arg, id, why);
}

/* ---- keys ---- */

/* Keys are bytes: print all but printable ASCII as \xNN. */
static void ctl_key_text(char *out, size_t size, struct store_bytes key)
{
    (void)dd_log_escape(out, size, key.p, key.n);
}

struct ctl_listing {
    const struct ctl_requests *requests;
    const char *prefix;
    json_t *keys;
    size_t left_out;
};

static int ctl_list_key(void *arg, struct store_bytes key)
{
    struct ctl_listing *l = arg;
    struct store_bytes value = {NULL, 0};
    char name[1024];
    ctl_key_text(name, sizeof(name), key);
    if (strncmp(name, l->prefix, strlen(l->prefix)) != 0)
        return 0;
    if (json_array_size(l->keys) >= KEYS_MAX) {
        l->left_out++;
        return 0;
    }
    (void)store_server_get(l->requests->store, key, &value);
    return json_array_append_new(l->keys,
                                 json_pack("{s:s,s:I}", "key", name, "bytes", (json_int_t)value.n));
}

static void ctl_on_keys(const struct ctl_requests *c, struct session *s,
                        const struct msg_ctl_request *m)
{
    struct ctl_listing l = {.requests = c, .prefix = m->text, .keys = json_array()};
    (void)store_server_each_key(c->store, ctl_list_key, &l);
    ctl_answer(s, m->id,
               json_pack("{s:i,s:o,s:I}", "round", rdzv_round(c->machine), "keys", l.keys,
                         "left_out", (json_int_t)l.left_out));
}

static char *ctl_hex(struct store_bytes b)
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

static void ctl_on_key(const struct ctl_requests *c, struct session *s,
                       const struct msg_ctl_request *m)
{
    struct store_bytes value = {NULL, 0};
    const struct store_bytes key = {(const unsigned char *)m->text, strlen(m->text)};
    if (!store_server_get(c->store, key, &value)) {
        ctl_answer(s, m->id, json_pack("{s:i}", "round", rdzv_round(c->machine)));
        return;
    }
    if (value.n > VALUE_MAX) {
        ctl_refuse(s, m->id, "the value has %zu bytes; the limit is %d MiB", value.n,
                   VALUE_MAX >> 20);
        return;
    }
    DD_AUTO(free) char *hex = ctl_hex(value);
    ctl_answer(s, m->id,
               hex == NULL ? NULL
                           : json_pack("{s:i,s:s}", "round", rdzv_round(c->machine), "hex", hex));
}

/* ---- events ---- */

static void ctl_on_events(const struct ctl_requests *c, struct session *s,
                          const struct msg_ctl_request *m)
{
    const bool follow = strcmp(m->text, "follow") == 0 && rdzv_state(c->machine) != RDZV_FINISHED;
    event_log_follow(c->events, s, m->id, follow);
}

static void ctl_on_forget(const struct ctl_requests *c, struct session *s,
                          const struct msg_ctl_request *m)
{
    event_log_forget(c->events, s, m->id);
}

/* ---- metrics ---- */

/* "follow" is for the agent of the daemon's node, which writes the file of --metrics. */
static void ctl_on_metrics(const struct ctl_requests *c, struct session *s,
                           const struct msg_ctl_request *m)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(SESSION_ANSWER_MAX);
    int rc;
    if (s->is_leader && strcmp(m->text, "follow") == 0)
        job_metrics_follow(c->metrics, s, m->id);
    else if (job_metrics_text(c->metrics, &text) < 0)
        ctl_refuse(s, m->id, "the daemon is out of memory");
    else if ((rc = session_answer(s, m->id, (char *)text.data, text.len, true)) < 0)
        ctl_refuse_unsent(s, m->id, rc);
}

/* "follow" is for the agent of the daemon's node, which prints the profile at the end. */
static void ctl_on_profile(const struct ctl_requests *c, struct session *s,
                           const struct msg_ctl_request *m)
{
    if (s->is_leader && strcmp(m->text, "follow") == 0)
        job_metrics_follow_profile(c->metrics, s, m->id);
    else
        ctl_answer(s, m->id, job_metrics_profile(c->metrics));
}

/* ---- stacks ---- */

/* A request of ddctl for stacks. It ends before its session does: stacks_collect_forget(). */
struct ctl_stacks {
    struct session *session;
    int64_t id;
};

static void ctl_on_stacks_done(void *arg, int64_t id, struct stacks *found)
{
    DD_AUTO(free) struct ctl_stacks *k = arg;
    (void)id;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(SESSION_ANSWER_MAX);
    int rc = stacks_write(found, STACKS_ANSWER, &text);
    if (rc >= 0 && dd_buf_str(&text) == NULL)
        rc = -ENOMEM;
    if (rc < 0)
        ctl_refuse(k->session, k->id,
                   rc == -ENOMEM ? "the daemon is out of memory" : "the stacks exceed %d MiB",
                   STACKS_ANSWER >> 20);
    else if ((rc = session_answer(k->session, k->id, (char *)text.data, text.len, true)) < 0)
        ctl_refuse_unsent(k->session, k->id, rc);
}

/* The ranks and nodes that a question concerns. */
struct ctl_asked {
    struct rank_set ranks;  /* empty: all */
    struct rank_set there;  /* ranks of the round, or of the node */
    struct hostlist *nodes; /* of the round */
    bool known;             /* the requested node is in `nodes` */
};

static void ctl_asked_done(struct ctl_asked *a)
{
    rank_set_done(&a->ranks);
    rank_set_done(&a->there);
    hostlist_free(a->nodes);
}

static int ctl_asked_find(struct ctl_asked *a, const struct ctl_requests *c, const char *node)
{
    struct rdzv_view v;
    int rank = 0;
    int rc = hostlist_new(&a->nodes);
    for (int k = 0; rc == 0 && k < rdzv_planned(c->machine)->n; k++) {
        if (!rdzv_view(c->machine, rdzv_id_of_rank(c->machine, k), &v) || !v.part)
            continue;
        const bool same = node == NULL || node[0] == '\0' || strcmp(node, v.name) == 0;
        a->known |= same;
        rc = hostlist_push(a->nodes, v.name);
        if (rc == 0 && same && v.slots > 0)
            rc = rank_set_add(&a->there, rank, rank + v.slots - 1);
        rank += v.slots;
    }
    return rc;
}

static bool ctl_asked_has_rank(const struct ctl_asked *a)
{
    for (size_t i = 0; i < a->ranks.n; i++) {
        const int first = a->ranks.v[i].first;
        if (rank_set_has_any(&a->there, first, a->ranks.v[i].last - first + 1))
            return true;
    }
    return a->ranks.n == 0;
}

/* Refuse a request that selects no running worker. ranks, node: NULL or "": all. */
static void ctl_refuse_workers(const struct ctl_requests *c, struct session *s, int64_t id,
                               const char *ranks, const char *node)
{
    struct ctl_asked a = {0};
    DD_AUTO(buf) struct dd_buf what = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf there = DD_BUF_INIT(1 << 20);
    const bool of_node = node != NULL && node[0] != '\0';
    int rc = ctl_asked_find(&a, c, node);
    if (rc == 0 && ranks != NULL && ranks[0] != '\0')
        rc = rank_set_parse(&a.ranks, ranks);
    if (rc == 0)
        rc = rank_set_text_short(&a.ranks, &what);
    if (rc == 0)
        rc = a.known ? rank_set_name(&a.there, &there) : hostlist_fold(a.nodes, &there);
    const char *asked = dd_buf_str(&what), *has = dd_buf_str(&there);
    if (rc < 0 || asked == NULL || has == NULL)
        ctl_refuse(s, id, "the daemon is out of memory");
    else if (of_node && !a.known)
        ctl_refuse(s, id, "unknown node '%.100s' (nodes: %.200s%s)", node, has,
                   strlen(has) > 200 ? "..." : "");
    else if (!ctl_asked_has_rank(&a))
        ctl_refuse(s, id, "no rank %s %s%.100s (%s)", asked, of_node ? "on node " : "in this job",
                   of_node ? node : "", has);
    else
        ctl_refuse(s, id, "the requested workers have ended");
    ctl_asked_done(&a);
}

static int64_t ctl_ask_stacks(const struct ctl_requests *c, struct session *s, int64_t id,
                              const json_t *o)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    const char *list = json_string_value(json_object_get(o, "ranks"));
    const json_int_t ms = json_integer_value(json_object_get(o, "limit_ms"));
    struct ctl_stacks *k = malloc(sizeof(*k));
    if (k == NULL)
        return -ENOMEM;
    if (ms < 1 || ms > STACKS_LIMIT_MS ||
        (list != NULL && list[0] != '\0' && rank_set_parse(&ranks, list) < 0)) {
        free(k);
        return -EINVAL;
    }
    *k = (struct ctl_stacks){.session = s, .id = id};
    const struct stacks_question q = {
        .limit_ns = (uint64_t)ms * DD_NS_PER_MS,
        .all = true,
        .native = json_is_true(json_object_get(o, "native")),
        .node = ctl_full_name(c, json_string_value(json_object_get(o, "node"))),
        .ranks = &ranks,
        .caller = s,
        .done = ctl_on_stacks_done,
        .arg = k,
        .free_arg = free};
    return c->ops->stacks(c->arg, &q);
}

static void ctl_on_stacks(const struct ctl_requests *c, struct session *s,
                          const struct msg_ctl_request *m)
{
    if (rdzv_state(c->machine) != RDZV_RUNNING) {
        ctl_refuse(s, m->id, "no workers are running (job is %s)",
                   rdzv_state_name(rdzv_state(c->machine)));
        return;
    }
    json_t *o = json_loads(m->text, JSON_REJECT_DUPLICATES, NULL);
    const int64_t rc = ctl_ask_stacks(c, s, m->id, o);
    if (rc == -ENOENT)
        ctl_refuse_workers(c, s, m->id, json_string_value(json_object_get(o, "ranks")),
                           ctl_full_name(c, json_string_value(json_object_get(o, "node"))));
    else if (rc == -EINVAL)
        ctl_refuse(s, m->id, "invalid request for stacks");
    else if (rc < 0)
        ctl_refuse(s, m->id, "%s",
                   rc == -EBUSY ? "too many other requests for stacks are in progress"
                                : "the daemon is out of memory");
    json_decref(o);
}

/* ---- workers ---- */

static void ctl_on_workers(const struct ctl_requests *c, struct session *s,
                           const struct msg_ctl_request *m)
{
    json_t *o = json_loads(m->text, JSON_REJECT_DUPLICATES, NULL);
    const char *ranks = json_string_value(json_object_get(o, "ranks"));
    const bool all_lines = json_is_true(json_object_get(o, "all_lines"));
    const bool runs = rdzv_state(c->machine) == RDZV_RUNNING;
    const int rc = !runs           ? -ENOENT
                   : ranks == NULL ? -EINVAL
                                   : c->ops->usage(c->arg, s, m->id, ranks, all_lines);
    if (!runs)
        ctl_refuse(s, m->id, "no workers are running (job is %s)",
                   rdzv_state_name(rdzv_state(c->machine)));
    else if (rc == -ENOENT)
        ctl_refuse_workers(c, s, m->id, ranks, "");
    else if (rc < 0)
        ctl_refuse(s, m->id, "%s",
                   rc == -EINVAL  ? "invalid request for workers"
                   : rc == -EBUSY ? "too many other requests for workers are in progress"
                                  : "the daemon is out of memory");
    json_decref(o);
}

static const struct {
    const char *what;
    void (*run)(const struct ctl_requests *c, struct session *s, const struct msg_ctl_request *m);
} ctl_handlers[] = {
    {"status", ctl_on_status},   {"signal", ctl_on_signal},   {"drain", ctl_on_drain},
    {"keys", ctl_on_keys},       {"key", ctl_on_key},         {"events", ctl_on_events},
    {"forget", ctl_on_forget},   {"waiting", ctl_on_waiting}, {"metrics", ctl_on_metrics},
    {"profile", ctl_on_profile}, {"blame", ctl_on_blame},     {"stacks", ctl_on_stacks},
    {"workers", ctl_on_workers},
};

void ctl_request(const struct ctl_requests *c, struct session *s, const struct msg_ctl_request *m)
{
    dd_log(s->set->cfg.log, DD_LOG_DEBUG, "event=ctl-request what=%s from=%s", m->what, s->name);
    for (size_t i = 0; i < sizeof(ctl_handlers) / sizeof(ctl_handlers[0]); i++)
        if (strcmp(ctl_handlers[i].what, m->what) == 0) {
            ctl_handlers[i].run(c, s, m);
            return;
        }
    ctl_refuse(s, m->id,
               "unsupported request '%.32s': ddctl and this job's ddrun have different versions",
               m->what);
}
