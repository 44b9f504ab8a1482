#include "daemon/notify.h"

#include "base/io.h"
#include "base/strv.h"
#include "web/client.h"

#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAITING_MAX = 64, /* events; beyond these the oldest is dropped and counted */
    POST_MS = 5000,
    RETRY_MS = 1000, /* doubled up to RETRY_MAX_MS */
    RETRY_MAX_MS = 60000,
    LAST_RETRY_MS = 200,
    LAST_MS = 10000,        /* time limit for the last events at the end of the job */
    LAST_FAILING_MS = 2000, /* instead of LAST_MS if the server does not accept events */
};

struct notify {
    struct journal_subscriber subscriber;
    struct notify_cfg cfg;
    struct web *web;
    struct event *retry;
    json_t *waiting[WAITING_MAX]; /* oldest first */
    int n;
    uint64_t dropped_all; /* number of events dropped */
    int dropped;          /* number of events dropped since the last accepted POST */
    int dropped_sent;     /* the part of `dropped` that the current POST reports */
    bool sent;            /* the oldest event was sent and has no answer yet */
    bool reported;        /* the user was warned that the server does not accept events */
    bool finished;        /* FINISH was published */
    uint64_t end_ns;      /* 0: the daemon is not ending */
    unsigned wait_ms;
    char host[128]; /* host part of the URL; its path may be a secret */
};

static void notify_put_host(char *out, size_t size, const char *url)
{
    const char *from = strstr(url, "://");
    from = from != NULL ? from + 3 : url;
    size_t n = strcspn(from, "/?#");
    const char *at = memrchr(from, '@', n);
    if (at != NULL) {
        n -= (size_t)(at + 1 - from);
        from = at + 1;
    }
    (void)snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), from);
}

static void notify_drop(struct notify *n, int at)
{
    json_decref(n->waiting[at]);
    n->n--;
    memmove(&n->waiting[at], &n->waiting[at + 1], (size_t)(n->n - at) * sizeof(n->waiting[0]));
}

static void notify_send_next(struct notify *n);

static void notify_on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    notify_send_next(arg);
}

static void notify_retry(struct notify *n)
{
    const struct timeval last = dd_timeval(LAST_RETRY_MS * DD_NS_PER_MS);
    n->wait_ms = n->wait_ms == 0                 ? RETRY_MS
                 : 2 * n->wait_ms < RETRY_MAX_MS ? 2 * n->wait_ms
                                                 : RETRY_MAX_MS;
    const struct timeval t = dd_timeval(n->wait_ms * DD_NS_PER_MS);
    if (n->retry == NULL)
        n->retry = evtimer_new(n->cfg.base, notify_on_retry, n);
    if (n->retry != NULL)
        evtimer_add(n->retry, n->end_ns != 0 ? &last : &t);
}

static void notify_warn_once(struct notify *n, const char *what, const char *why)
{
    if (!n->reported)
        dd_log(n->cfg.log, DD_LOG_WARN, "--notify: %s %s: %s", n->host, what, why);
    n->reported = true;
}

/* True if the server rejects the event for good. 408 and 429 permit a retry. Src: RFC 9110. */
static bool notify_is_refusal(int status)
{
    return status >= 300 && status < 500 && status != 408 && status != 429;
}

static void notify_on_answer(void *arg, const struct web_answer *a)
{
    struct notify *n = arg;
    char status[16];
    const bool taken = a->status >= 200 && a->status < 300;
    n->sent = false;
    (void)snprintf(status, sizeof(status), "HTTP %d", a->status);
    if (!taken && !notify_is_refusal(a->status)) {
        notify_warn_once(n, "did not accept an event; retrying",
                         a->status == 0 ? a->error : status);
        notify_retry(n);
        return;
    }
    if (taken) {
        n->dropped -= n->dropped_sent;
        n->reported = false;
    } else {
        notify_warn_once(n, "refused an event", status);
    }
    n->wait_ms = 0;
    notify_drop(n, 0);
    if (n->n > 0)
        notify_send_next(n);
    else if (n->end_ns != 0)
        n->cfg.on_drained(n->cfg.arg);
}

static void notify_send_next(struct notify *n)
{
    const char *token = dd_env_get_nonempty(n->cfg.env, "DDRUN_NOTIFY_TOKEN");
    DD_AUTO(free) char *bearer = NULL;
    if (n->sent || n->n == 0)
        return;
    n->dropped_sent = n->dropped;
    if (n->dropped_sent > 0)
        (void)json_object_set_new(n->waiting[0], "dropped", json_integer(n->dropped));
    DD_AUTO(free) char *body = json_dumps(n->waiting[0], JSON_COMPACT | JSON_ENSURE_ASCII);
    const bool ready = body != NULL &&
                       (token == NULL || asprintf(&bearer, "Authorization: Bearer %s", token) > 0);
    const struct web_request r = {
        .urls = {n->cfg.url}, .headers = {bearer}, .body = body, .limit_ms = POST_MS};
    n->sent = ready && web_post(n->web, &r, notify_on_answer, n) == 0;
    if (!n->sent)
        notify_retry(n);
}

/* ---- events ---- */

static void notify_put_sentence(struct dd_buf *out, const struct journal_event *e)
{
    const char *node = e->node != NULL ? e->node : "?";
    const char *text = e->text != NULL ? e->text : "";
    switch (e->kind) {
    case JOURNAL_ROUND:
        (void)dd_buf_printf(out, "round %d: starting %d worker%s on %d node%s", e->round,
                            e->workers, e->workers == 1 ? "" : "s", e->nodes,
                            e->nodes == 1 ? "" : "s");
        break;
    case JOURNAL_STARTED:
        (void)dd_buf_printf(out, "round %d: all workers started", e->round);
        break;
    case JOURNAL_EXIT:
        (void)dd_buf_printf(out, "rank %d on %s %s %d%s%s", e->rank, node,
                            e->signal > 0 ? "was killed by signal" : "failed with exit code",
                            e->signal > 0 ? e->signal : e->code, *text != '\0' ? ": " : "", text);
        break;
    case JOURNAL_LEAVE:
        (void)dd_buf_printf(out, "lost %s: %s", node, text);
        break;
    case JOURNAL_STRAGGLER:
        (void)dd_buf_printf(out, "straggler: %s", text);
        break;
    case JOURNAL_STRAGGLER_OVER:
        (void)dd_buf_printf(out, "no longer a straggler: %s", text);
        break;
    case JOURNAL_STOP:
        (void)dd_buf_printf(out, "%s", text);
        break;
    case JOURNAL_EXCLUDE:
        (void)dd_buf_printf(out, "excluded %s: %s", node, text);
        break;
    case JOURNAL_FINISH:
        (void)dd_buf_printf(out, e->code == 0 ? "finished" : "finished with exit code %d%s%s",
                            e->code, *text != '\0' ? ": " : "", text);
        break;
    case JOURNAL_JOIN:
    case JOURNAL_SIGNAL:
    case JOURNAL_WARNING:
    case JOURNAL_MARK:
    case JOURNAL_MARK_END:
    case JOURNAL_CHARGE:
    case JOURNAL_REFUSED:
    case JOURNAL_STACKS:
    case JOURNAL_NODE_DONE:
    case JOURNAL_STOPPING:
    case JOURNAL_KIND_MAX:
    default:
        break;
    }
}

/* Skip events whose number grows with the number of nodes: joins, warnings, and leaves at the end.
 * A charge repeats what the event of the failure states. */
static bool notify_is_wanted(const struct notify *n, const struct journal_event *e)
{
    static const bool skipped[JOURNAL_KIND_MAX] = {
        [JOURNAL_JOIN] = true,    [JOURNAL_WARNING] = true,   [JOURNAL_SIGNAL] = true,
        [JOURNAL_REFUSED] = true, [JOURNAL_NODE_DONE] = true, [JOURNAL_STOPPING] = true,
        [JOURNAL_MARK] = true,    [JOURNAL_MARK_END] = true,  [JOURNAL_CHARGE] = true};
    return !skipped[e->kind] && !(n->finished && e->kind == JOURNAL_LEAVE);
}

/* Make the body of the POST: the event, with a sentence as its text. */
static json_t *notify_body(const struct notify *n, const struct journal_event *e)
{
    json_t *o = journal_json(e);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 14);
    (void)dd_buf_printf(&text, "ddrun job %s: ", n->cfg.job_id);
    notify_put_sentence(&text, e);
    const char *sentence = dd_buf_str(&text);
    json_t *why = json_object_get(o, "text");
    if (why != NULL)
        (void)json_object_set(o, "why", why);
    (void)json_object_set_new(o, "job", json_string(n->cfg.job_id));
    if (o != NULL && sentence != NULL &&
        json_object_set_new(o, "text", journal_json_text(sentence)) == 0)
        return o;
    json_decref(o);
    return NULL;
}

static void notify_on_event(void *arg, const struct journal_event *e)
{
    struct notify *n = arg;
    n->finished |= e->kind == JOURNAL_FINISH;
    json_t *o = notify_is_wanted(n, e) ? notify_body(n, e) : NULL;
    if (o == NULL)
        return;
    if (n->n == WAITING_MAX) {
        notify_drop(n, n->sent ? 1 : 0);
        n->dropped++;
        n->dropped_all++;
    }
    n->waiting[n->n++] = o;
    if (n->retry == NULL || !evtimer_pending(n->retry, NULL) || e->kind == JOURNAL_FINISH)
        notify_send_next(n);
}

/* ---- life ---- */

int notify_new(struct notify **ret, struct journal *j, const struct notify_cfg *cfg,
               struct dd_err *err)
{
    const struct web_cfg web = {.base = cfg->base, .helper = cfg->web_helper, .env = cfg->env};
    struct notify *n = calloc(1, sizeof(*n));
    int rc = n != NULL ? web_new(&n->web, &web, err)
                       : dd_err_set(err, -ENOMEM, "out of memory for --notify");
    if (rc < 0) {
        free(n);
        return rc;
    }
    n->cfg = *cfg;
    notify_put_host(n->host, sizeof(n->host), cfg->url);
    n->subscriber = (struct journal_subscriber){.on_event = notify_on_event, .arg = n};
    journal_subscribe(j, &n->subscriber);
    *ret = n;
    return 0;
}

bool notify_waits(struct notify *n, uint64_t *wait_ns)
{
    const uint64_t now = dd_now_ns();
    if (n->n == 0)
        return false;
    if (n->end_ns == 0) {
        n->end_ns = now + (n->reported ? LAST_FAILING_MS : LAST_MS) * DD_NS_PER_MS;
        if (!n->sent)
            notify_send_next(n);
    }
    if (now >= n->end_ns) {
        dd_log(n->cfg.log, DD_LOG_WARN,
               n->n == 1 ? "--notify: %s did not accept the last event"
                         : "--notify: %s did not accept the last %d events",
               n->host, n->n);
        return false;
    }
    *wait_ns = n->end_ns - now;
    return true;
}

uint64_t notify_queued(const struct notify *n)
{
    return (uint64_t)n->n;
}

uint64_t notify_dropped(const struct notify *n)
{
    return n->dropped_all;
}

void notify_free(struct notify *n)
{
    if (n == NULL)
        return;
    web_free(n->web);
    if (n->retry != NULL)
        event_free(n->retry);
    while (n->n > 0)
        notify_drop(n, n->n - 1);
    free(n);
}
