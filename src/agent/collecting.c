#include "agent/collecting.h"

#include "agent/agent.h"
#include "agent/node_exchange.h"
#include "base/auto.h"
#include "base/io.h"
#include "net/addr.h"
#include "rdzv/msg.h"
#include "stage/compile_send.h"
#include "stage/stage_client.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    PART_MAX = 1024,
    NAMED_MAX = 10,   /* files that are named in the log and the report */
    LINES_MAX = 3500, /* bytes of the lines about missing files in the report; below the limit of
                         WARNINGS */
    NAME_SHOWN = 300,
    SILENT_MS = 180000, /* time without a message until the sending process is given up */
    UNKNOWN_MS = 10000, /* wait for nodes that have not started when the workers have exited */
    CONNECT_S = 60,     /* time to connect to the first node */
    CONNECT_LOST_S = 5, /* the same after the loss of the daemon: the first node is probably lost,
                           too, and the next daemon has to wait for this node */
};

struct collecting {
    const struct round *round;
    struct stage_client receiver, sender;
    struct event *receiver_event, *sender_event, *silent_event;
    char key[STAGE_KEY_TEXT]; /* key that this node offers for the round; all nodes use that of the
                                 first node */
    struct {
        bool known;
        char port[8], addr[NET_ADDR_TEXT], key[STAGE_KEY_TEXT], name[256];
    } first;                /* the receiving node */
    char folder[300];       /* directory of this node, below the destination */
    struct dd_strv folders; /* on the first node: those of all nodes; "": files received */
    int first_rounds;       /* number of rounds in which this node was the first one */
    uint64_t unmatched; /* on the first node: set of the patterns that match nothing on the nodes
                           whose files have been received */
    bool due;           /* a collection follows when `first` is known and the sender has ended */
    bool leaving;       /* no worker is left: the round waits for the collection */
    bool lost;          /* the daemon was lost in the round */
    bool first_lost;    /* the first node was lost in the round */
    uint64_t failed_ns; /* time of the first failure of a worker in the round; 0: none */
    size_t missing;
    struct dd_buf lines;
};

static void collecting_begin(struct collecting *co);

static bool collecting_has_cache(const struct collecting_cfg *c)
{
    return c->cache != NULL && c->cache->paths != NULL && c->cache->paths->n > 0;
}

/* The option to name in messages. */
static const char *collecting_option(const struct collecting *co)
{
    return co->round->cfg->collecting.patterns->n > 0 ? "--collect" : "--compile-cache";
}

static void collecting_end_client(struct stage_client *c, struct event **event)
{
    if (*event != NULL)
        event_free(*event);
    *event = NULL;
    stage_client_close(c);
}

/* ---- missing files ---- */

static void collecting_note(struct collecting *co, const char *what)
{
    const struct round *r = co->round;
    const enum dd_log_level level = co->leaving ? DD_LOG_WARN
                                                : DD_LOG_DEBUG; /* the collection is repeated */
    if (++co->missing > NAMED_MAX)
        return;
    dd_log(r->cfg->log, level, "%s: not collected from %s: %s", collecting_option(co),
           r->cfg->node_name, what);
    if (co->lines.len < LINES_MAX - NAME_SHOWN - 50)
        (void)dd_buf_printf(&co->lines, "%s%s: not collected: %.*s", co->lines.len > 0 ? "\n" : "",
                            collecting_option(co), NAME_SHOWN, what);
}

static void collecting_note_rest(struct collecting *co)
{
    const struct round *r = co->round;
    if (!co->leaving || co->missing <= NAMED_MAX)
        return;
    const size_t n = co->missing - NAMED_MAX;
    const char *s = n == 1 ? "" : "s";
    dd_log(r->cfg->log, DD_LOG_WARN, "%s: not collected from %s: %zu more file%s",
           collecting_option(co), r->cfg->node_name, n, s);
    (void)dd_buf_printf(&co->lines, "\n%s: not collected: %zu more file%s", collecting_option(co),
                        n, s);
}

const char *collecting_missing(const struct round *r)
{
    struct collecting *co = features_state(r, &collecting_feature);
    const char *text = co != NULL && co->lines.len > 0 ? dd_buf_str(&co->lines) : "";
    return text != NULL ? text : "";
}

/* ---- the end of a collection ---- */

static void collecting_done(struct collecting *co, const char *why)
{
    collecting_end_client(&co->sender, &co->sender_event);
    (void)evtimer_del(co->silent_event);
    if (why != NULL)
        collecting_note(co, why);
    co->due = false;
    collecting_note_rest(co);
    if (co->leaving)
        round_leave(co->round);
    co->leaving = false;
}

/* The sender has ended or failed. If it ran before the workers ended, it may have read incomplete
 * files: collect again. */
static void collecting_over(struct collecting *co, const char *why)
{
    if (!co->first.known || !co->due || !co->leaving) {
        collecting_done(co, why);
        return;
    }
    collecting_end_client(&co->sender, &co->sender_event);
    collecting_begin(co);
}

static void collecting_on_silent(evutil_socket_t fd, short what, void *arg)
{
    struct collecting *co = arg;
    (void)fd;
    (void)what;
    collecting_over(
        co, co->first.known
                ? "no progress for 3 minutes: a file system or the first node does not respond"
                : "not all nodes had answered 10 s after the workers ended");
}

static void collecting_wait_ms(struct collecting *co, uint64_t ms)
{
    const struct timeval t = dd_timeval(ms * DD_NS_PER_MS);
    (void)evtimer_add(co->silent_event, &t);
}

static void collecting_sent(struct collecting *co, const char *summary)
{
    const struct round *r = co->round;
    dd_log(r->cfg->log, DD_LOG_INFO, "collected from %s: %s", r->cfg->node_name, summary);
    collecting_over(co, NULL);
}

static void collecting_on_sender(evutil_socket_t fd, short what, void *arg)
{
    struct collecting *co = arg;
    int fds[STAGE_CLIENT_FDS];
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    (void)what;
    const int n = stage_client_receive(fd, &m, fds);
    if (n == -EAGAIN)
        return;
    collecting_wait_ms(co, SILENT_MS);
    if (n < 0)
        collecting_over(co, "ddrun-stage exited unexpectedly");
    else if (m.type == STAGE_MSG_MISSING)
        collecting_note(co, m.texts.v[0]);
    else if (m.type == STAGE_MSG_COLLECTED)
        collecting_sent(co, m.texts.v[0]);
    else if (m.type == STAGE_MSG_FAILED)
        collecting_over(co, m.texts.v[0]);
}

/* ---- start of the processes ---- */

/* Return the bits of COMPILE_SEND_* for the present collection. Unless it follows a success, a file
 * that a worker was writing when it was killed may be incomplete. */
static int collecting_how(const struct collecting *co)
{
    const struct round *r = co->round;
    const int first = r->plan.node_rank == 0 && co->leaving ? COMPILE_SEND_FIRST : 0;
    if (co->leaving && r->ended_well)
        return first;
    return first | COMPILE_SEND_LATE | (co->leaving ? COMPILE_SEND_REMOVE : 0);
}

/* Return the time of the first failure in seconds of the wall clock, which file systems record: a
 * file that was written at that time may be incomplete, however much later it is sent. 0: no
 * failure. */
static uint64_t collecting_failed_at(const struct collecting *co)
{
    return co->failed_ns == 0 ? 0
                              : (dd_now_real_ns() - (dd_now_ns() - co->failed_ns)) / DD_NS_PER_S;
}

/* Append the texts of the message that concern the cache. */
static int collecting_put_cache(const struct collecting *co, bool sends, struct dd_strv *texts)
{
    const struct staging_cfg *c = co->round->cfg->collecting.cache;
    const bool has = collecting_has_cache(&co->round->cfg->collecting);
    const char *dir = !has ? NULL : sends ? c->dir->path : c->paths->v[0];
    int rc = dd_strv_push(texts, dir != NULL ? dir : "");
    rc = rc == 0 ? dd_strv_push(texts, has ? c->kind : "") : rc;
    rc = rc == 0 ? dd_strv_pushf(texts, "%llu", has ? (unsigned long long)c->most : 0) : rc;
    rc = rc == 0 ? dd_strv_pushf(texts, "%d", collecting_how(co)) : rc;
    return rc == 0 ? dd_strv_pushf(texts, "%" PRIu64, collecting_failed_at(co)) : rc;
}

static int collecting_setup(const struct collecting *co, const struct stage_client *client,
                            struct dd_err *err)
{
    const struct agent_cfg *cfg = co->round->cfg;
    const bool sends = client == &co->sender;
    DD_AUTO(strv) struct dd_strv texts = {0};
    char limit[16];
    (void)snprintf(limit, sizeof(limit), "%d", co->lost ? CONNECT_LOST_S : CONNECT_S);
    const char *const setup[STAGE_COLLECT_CACHE] = {
        [STAGE_COLLECT_JOB] = cfg->alloc->job_id,
        [STAGE_COLLECT_NODE] = cfg->node_name,
        [STAGE_COLLECT_LISTEN] = cfg->listen_addr,
        [STAGE_COLLECT_BIND] = cfg->source_addr,
        [STAGE_COLLECT_INSECURE] = cfg->key_in.insecure ? "1" : "0",
        [STAGE_COLLECT_KEY] = sends ? co->first.key : co->key,
        [STAGE_COLLECT_ADDR] = sends ? co->first.addr : NULL,
        [STAGE_COLLECT_PORT] = sends ? co->first.port : NULL,
        [STAGE_COLLECT_PEER] = sends ? co->first.name : NULL,
        [STAGE_COLLECT_LIMIT] = limit,
        [STAGE_COLLECT_FOLDER] = co->folder,
        [STAGE_COLLECT_DIRECTORY] = cfg->collecting.directory,
    };
    int rc = 0;
    for (int i = 0; i < STAGE_COLLECT_CACHE && rc == 0; i++)
        rc = dd_strv_push(&texts, setup[i] != NULL ? setup[i] : "");
    rc = rc == 0 ? collecting_put_cache(co, sends, &texts) : rc;
    rc = rc == 0
             ? dd_strv_copy(&texts, sends ? cfg->collecting.patterns->v : cfg->collecting.dirs->v)
             : rc;
    rc = rc == 0 ? stage_client_send(client->fd, STAGE_MSG_COLLECT, texts.v, NULL, 0) : rc;
    return rc == 0 ? 0
                   : dd_err_set(err, rc, "cannot communicate with '%s': %s", cfg->collecting.helper,
                                strerror(-rc));
}

static int collecting_start(struct collecting *co, struct stage_client *client,
                            struct event **event, event_callback_fn take, struct dd_err *err)
{
    const struct round *r = co->round;
    int rc = stage_client_start(client, r->cfg->collecting.helper, "collect", r->cfg->env, err);
    if (rc < 0)
        return rc;
    round_protect(r, client->pid);
    (void)dd_fd_nonblock(client->fd);
    *event = event_new(r->base, client->fd, EV_READ | EV_PERSIST, take, co);
    if (*event == NULL || event_add(*event, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return collecting_setup(co, client, err);
}

static void collecting_begin(struct collecting *co)
{
    struct dd_err err = {0};
    if ((!co->first.known && !co->first_lost) || co->sender.pid > 0) {
        co->due = true;
        return;
    }
    co->due = false;
    co->missing = 0;
    dd_buf_clear(&co->lines);
    collecting_wait_ms(co, SILENT_MS);
    if (co->first_lost)
        collecting_done(co, "the first node was lost");
    else if (co->first.addr[0] == '\0')
        collecting_done(co, "the first node cannot receive files");
    else if (collecting_start(co, &co->sender, &co->sender_event, collecting_on_sender, &err) < 0)
        collecting_done(co, err.text);
}

/* ---- the nodes of the round ---- */

/* What a node contributes to the exchange: "PORT ADDRESS KEY NAME"; "-": unknown. */
struct contribution {
    char port[8], addr[NET_ADDR_TEXT], key[STAGE_KEY_TEXT], name[256];
    bool shared; /* another agent has the same name */
};

static int contribution_compare(const void *a, const void *b)
{
    return strcmp((*(struct contribution *const *)a)->name,
                  (*(struct contribution *const *)b)->name);
}

static int contributions_mark_shared(struct contribution *all, int n)
{
    DD_AUTO(free) struct contribution **v = calloc((size_t)n, sizeof(struct contribution *));
    if (v == NULL)
        return -ENOMEM;
    for (int i = 0; i < n; i++)
        v[i] = &all[i];
    qsort(v, (size_t)n, sizeof(struct contribution *), contribution_compare);
    for (int i = 1; i < n; i++)
        if (strcmp(v[i - 1]->name, v[i]->name) == 0)
            v[i - 1]->shared = v[i]->shared = true;
    return 0;
}

static int contribution_parse(struct contribution *ret, const struct exchange_part *part)
{
    char text[PART_MAX];
    const int n = part->len < sizeof(text) ? (int)part->len : 0;
    (void)snprintf(text, sizeof(text), "%.*s", n, n > 0 ? (const char *)part->data : "");
    return sscanf(text, "%7s %63s %64s %255s", ret->port, ret->addr, ret->key, ret->name) == 4
               ? 0
               : -EPROTO;
}

/* Several agents may have the same name; their node ranks then distinguish their directories. */
static void collecting_folder(char *out, size_t size, const struct contribution *all, int i)
{
    if (!all[i].shared)
        (void)snprintf(out, size, "%s", all[i].name);
    else
        (void)snprintf(out, size, "%s.%d", all[i].name, i);
}

static void collecting_take_first(struct collecting *co, const struct contribution *all, int n)
{
    const struct round *r = co->round;
    const struct contribution *first = &all[0];
    const char *here = r->cfg->listen_addr != NULL ? r->cfg->listen_addr : "127.0.0.1";
    const char *addr = r->plan.node_rank == 0          ? here
                       : strcmp(first->addr, "-") == 0 ? r->plan.master_addr
                                                       : first->addr;
    co->first.known = true;
    (void)snprintf(co->first.port, sizeof(co->first.port), "%s", first->port);
    (void)snprintf(co->first.key, sizeof(co->first.key), "%s", first->key);
    (void)snprintf(co->first.name, sizeof(co->first.name), "%s", first->name);
    (void)snprintf(co->first.addr, sizeof(co->first.addr), "%s",
                   strcmp(first->port, "-") == 0 ? "" : addr);
    collecting_folder(co->folder, sizeof(co->folder), all, r->plan.node_rank);
    dd_log(r->cfg->log, DD_LOG_DEBUG, "event=collect-known first=%s folder=%s", first->name,
           co->folder);
    dd_strv_done(&co->folders);
    co->folders = (struct dd_strv){0};
    for (int i = 0; i < n && r->plan.node_rank == 0; i++) {
        char folder[sizeof(co->folder)];
        collecting_folder(folder, sizeof(folder), all, i);
        (void)dd_strv_push(&co->folders, folder);
    }
}

static void collecting_on_parts(void *arg, const struct exchange_part *parts, int n)
{
    struct collecting *co = arg;
    struct contribution *all = calloc((size_t)n, sizeof(*all));
    char why[100] = "out of memory";
    int rc = all == NULL ? -ENOMEM : 0;
    for (int i = 0; i < n && rc == 0; i++)
        if ((rc = contribution_parse(&all[i], &parts[i])) < 0)
            (void)snprintf(why, sizeof(why),
                           "malformed data from node rank %d, perhaps another version of ddrun", i);
    if (rc == 0)
        rc = contributions_mark_shared(all, n);
    if (rc == 0)
        collecting_take_first(co, all, n);
    else
        dd_log(co->round->cfg->log, DD_LOG_WARN, "%s: %s; nothing will be collected",
               collecting_option(co), why);
    free(all);
    if (rc == 0 && co->due)
        collecting_begin(co);
    else if (rc < 0 && co->leaving)
        collecting_done(co, NULL);
}

static int collecting_contribute(struct collecting *co, const char *port, struct dd_err *err)
{
    const struct round *r = co->round;
    char text[PART_MAX];
    const int n = snprintf(text, sizeof(text), "%s %s %s %.255s", port,
                           r->addr[0] != '\0' ? r->addr : "-", co->key, r->cfg->node_name);
    const struct exchange_part part = {(const unsigned char *)text, (size_t)n};
    if (r->plan.nnodes > 1)
        return node_exchange_begin(r, "collect", &part, collecting_on_parts, co, err);
    collecting_on_parts(co, &part, 1);
    return 0;
}

/* Handle STAGE_MSG_CAME: a node has sent its files. text: "RULES DIRECTORY", where RULES is the set
 * of patterns that match nothing on that node. */
static void collecting_came(struct collecting *co, const char *text)
{
    uint64_t unmatched;
    int n = 0;
    if (sscanf(text, "%16" SCNx64 " %n", &unmatched, &n) != 1)
        return;
    const char *folder = text + n;
    co->unmatched &= unmatched;
    for (size_t i = 0; i < co->folders.n; i++)
        if (strcmp(co->folders.v[i], folder) == 0)
            co->folders.v[i][0] = '\0';
}

static void collecting_on_receiver(evutil_socket_t fd, short what, void *arg)
{
    struct collecting *co = arg;
    struct dd_err err = {0};
    int fds[STAGE_CLIENT_FDS];
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    (void)what;
    const int n = stage_client_receive(fd, &m, fds);
    if (n == -EAGAIN)
        return;
    int rc = 0;
    if (n >= 0 && m.type == STAGE_MSG_CAME)
        collecting_came(co, m.texts.v[0]);
    else if (n >= 0 && m.type == STAGE_MSG_WARNING)
        dd_log(co->round->cfg->log, DD_LOG_WARN, "--compile-cache: %s", m.texts.v[0]);
    else if (n >= 0 && m.type == STAGE_MSG_PORT)
        rc = collecting_contribute(co, m.texts.v[0], &err);
    else if (n < 0 || m.type == STAGE_MSG_FAILED)
        rc = dd_err_set(&err, -EIO, "%s", n < 0 ? "ddrun-stage exited unexpectedly" : m.texts.v[0]);
    if (rc == 0)
        return;
    dd_log(co->round->cfg->log, DD_LOG_WARN, "%s: no more files will be collected: %s",
           collecting_option(co), err.text);
    collecting_end_client(&co->receiver, &co->receiver_event);
    if (!co->first.known && collecting_contribute(co, "-", &err) < 0 && co->leaving)
        collecting_done(co, err.text);
}

/* ---- hooks ---- */

static int collecting_create(void **state, const struct round *r, struct dd_err *err)
{
    const struct collecting_cfg *c = &r->cfg->collecting;
    if (c->patterns == NULL || (c->patterns->n == 0 && !collecting_has_cache(c)))
        return 0;
    struct collecting *co = *state = calloc(1, sizeof(*co));
    if (co == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *co = (struct collecting){
        .round = r, .receiver = {.fd = -1}, .sender = {.fd = -1}, .unmatched = UINT64_MAX};
    co->lines = DD_BUF_INIT(LINES_MAX + PART_MAX);
    co->silent_event = evtimer_new(r->base, collecting_on_silent, co);
    return co->silent_event != NULL ? 0 : dd_err_set(err, -ENOMEM, "out of memory");
}

static int collecting_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct collecting *co = *state;
    if (co == NULL)
        return 0;
    co->first.known = co->due = co->leaving = co->lost = co->first_lost = false;
    co->failed_ns = 0;
    co->first_rounds += r->plan.node_rank == 0;
    collecting_end_client(&co->receiver, &co->receiver_event); /* of the previous round */
    int rc = stage_client_make_key(co->key, err);
    if (rc < 0)
        return rc;
    if (r->plan.node_rank > 0)
        return collecting_contribute(co, "-", err);
    return collecting_start(co, &co->receiver, &co->receiver_event, collecting_on_receiver, err);
}

/* Replace the sender, which waits up to CONNECT_S for the first node: the next daemon may not wait
 * that long for this node. */
static void collecting_lose_daemon(struct collecting *co)
{
    const bool sends = co->sender.pid > 0;
    co->lost = true;
    collecting_end_client(&co->sender, &co->sender_event);
    if (sends && co->leaving)
        collecting_begin(co);
}

/* Do not wait until the sender gives up: the next round waits for this node. */
static void collecting_lose_first(struct collecting *co)
{
    const bool waits = co->due || co->sender.pid > 0;
    co->first_lost = true;
    collecting_end_client(&co->sender, &co->sender_event);
    if (waits && co->leaving)
        collecting_begin(co);
}

static void collecting_message(void *state, const struct round *r, const struct round_message *m)
{
    (void)r;
    if (m->type == ROUND_PRESIGNAL)
        collecting_begin(state);
    else if (m->type == ROUND_LINK_LOST)
        collecting_lose_daemon(state);
    else if (m->type == ROUND_FIRST_LOST)
        collecting_lose_first(state);
}

static void collecting_worker_exit(void *state, const struct round *r, struct worker_end *end)
{
    struct collecting *co = state;
    (void)r;
    if (co->failed_ns == 0 && end->exit.code != 0)
        co->failed_ns = end->exit.at_ns;
}

static bool collecting_leave(void *state, const struct round *r)
{
    struct collecting *co = state;
    (void)r;
    co->leaving = true;
    if (!co->first.known)
        collecting_wait_ms(co, UNKNOWN_MS);
    collecting_begin(co);
    return true;
}

/* A second signal ends everything at once. */
static void collecting_stopping(void *state, const struct round *r)
{
    struct collecting *co = state;
    if (co->leaving && r->stop_sig == SIGKILL)
        collecting_done(co, "the job was ended before all files had been sent");
}

static void collecting_end(void *state, const struct round *r)
{
    struct collecting *co = state;
    node_exchange_drop(r, co);
    collecting_end_client(&co->sender, &co->sender_event);
    (void)evtimer_del(co->silent_event);
    co->leaving = false;
}

/* Report the nodes that were lost before they had sent all of their files. Return their number. */
static size_t collecting_name_lost(const struct collecting *co)
{
    size_t lost = 0;
    for (size_t i = 0; i < co->folders.n; i++) {
        if (co->folders.v[i][0] == '\0')
            continue;
        dd_log(co->round->cfg->log, DD_LOG_WARN, "--collect: %s did not send all of its files",
               co->folders.v[i]);
        lost++;
    }
    return lost;
}

/* Name the patterns that match nothing: one that is misspelt would lose the files silently. */
static void collecting_name_unmatched(const struct collecting *co)
{
    const struct dd_strv *patterns = co->round->cfg->collecting.patterns;
    for (size_t i = 0; i < patterns->n; i++)
        if ((co->unmatched & UINT64_C(1) << i) != 0)
            dd_log(co->round->cfg->log, DD_LOG_WARN,
                   "--collect: no node has a file that matches '%s'", patterns->v[i]);
}

static void collecting_destroy(void *state)
{
    struct collecting *co = state;
    const bool receives = co->receiver.pid > 0 && co->round->cfg->collecting.patterns->n > 0;
    /* the matches of rounds in which another node was the first one are not known here */
    const bool knows = co->first_rounds > co->round->plan.round;
    if (receives && collecting_name_lost(co) == 0 && co->folders.n > 0 && knows)
        collecting_name_unmatched(co);
    collecting_end_client(&co->sender, &co->sender_event);
    collecting_end_client(&co->receiver, &co->receiver_event);
    event_free(co->silent_event);
    dd_strv_done(&co->folders);
    dd_buf_done(&co->lines);
    free(co);
}

const struct round_feature collecting_feature = {
    .name = "collect",
    .create = collecting_create,
    .prepare = collecting_prepare,
    .message = collecting_message,
    .stopping = collecting_stopping,
    .worker_exit = collecting_worker_exit,
    .leave = collecting_leave,
    .end = collecting_end,
    .destroy = collecting_destroy,
};
