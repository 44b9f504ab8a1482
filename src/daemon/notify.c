/* A web hook is told what happens in the job: one POST of JSON per event, by the helper ddrun-web,
 * again and again until it is taken. Nothing waits for it, but at the very end the daemon, for a
 * moment. Src: docs/notify.md. */
#include "base/io.h"
#include "daemon/inner.h"
#include "web/client.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAITING_MAX = 64, /* events; then the oldest is dropped, and counted */
    POST_MS = 5000,
    AGAIN_MS = 1000, /* doubled up to AGAIN_MAX_MS */
    AGAIN_MAX_MS = 60000,
    LAST_AGAIN_MS = 200,
    LAST_MS = 2000, /* the end of the job waits so long for the last words */
};

struct notify {
    struct daemon *daemon;
    struct web *web;
    struct event *again;
    json_t *waiting[WAITING_MAX]; /* the oldest first */
    int n;
    int dropped, said; /* since the last that was taken; as many as the one that is sent says */
    bool sent;         /* the oldest, without an answer yet */
    bool told;         /* the user, that it is not taken */
    uint64_t end_ns;   /* 0: the job is not over */
    unsigned wait_ms;
    char host[128]; /* of the URL, whose path may be a secret */
};

static void put_host(char *out, size_t size, const char *url)
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

static struct notify *notify_of(struct daemon *d)
{
    const struct web_cfg cfg = {
        .base = d->base, .helper = d->cfg.web_helper, .env = d->cfg.key_in.env};
    struct notify *n = d->notify;
    if (n != NULL || d->cfg.notify == NULL)
        return n;
    n = calloc(1, sizeof(*n));
    if (n == NULL || web_new(&n->web, &cfg, NULL) < 0) {
        free(n);
        return NULL;
    }
    n->daemon = d;
    put_host(n->host, sizeof(n->host), d->cfg.notify);
    d->notify = n;
    return n;
}

static void drop(struct notify *n, int at)
{
    json_decref(n->waiting[at]);
    n->n--;
    memmove(&n->waiting[at], &n->waiting[at + 1], (size_t)(n->n - at) * sizeof(n->waiting[0]));
}

static void send_next(struct notify *n);

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    send_next(arg);
}

static void later(struct notify *n)
{
    const struct timeval last = dd_timeval(LAST_AGAIN_MS * DD_NS_PER_MS);
    n->wait_ms = n->wait_ms == 0                 ? AGAIN_MS
                 : 2 * n->wait_ms < AGAIN_MAX_MS ? 2 * n->wait_ms
                                                 : AGAIN_MAX_MS;
    const struct timeval t = dd_timeval(n->wait_ms * DD_NS_PER_MS);
    if (n->again == NULL)
        n->again = evtimer_new(n->daemon->base, on_again, n);
    if (n->again != NULL)
        evtimer_add(n->again, n->end_ns != 0 ? &last : &t);
}

static void say_once(struct notify *n, const char *what, const char *why)
{
    if (!n->told)
        dd_log(n->daemon->cfg.log, DD_LOG_WARN, "--notify: %s %s: %s", n->host, what, why);
    n->told = true;
}

/* Src: RFC 9110; 408 and 429 ask for another try. */
static bool is_refusal(int status)
{
    return status >= 300 && status < 500 && status != 408 && status != 429;
}

static void on_answer(void *arg, const struct web_answer *a)
{
    const struct timeval now = {0};
    struct notify *n = arg;
    char status[16];
    const bool taken = a->status >= 200 && a->status < 300;
    n->sent = false;
    (void)snprintf(status, sizeof(status), "HTTP %d", a->status);
    if (!taken && !is_refusal(a->status)) {
        say_once(n, "does not take events, which are kept and told again",
                 a->status == 0 ? a->error : status);
        later(n);
        return;
    }
    if (taken) {
        n->dropped -= n->said;
        n->told = false;
    } else {
        say_once(n, "refuses events", status);
    }
    n->wait_ms = 0;
    drop(n, 0);
    if (n->n > 0)
        send_next(n);
    else if (n->end_ns != 0)
        evtimer_add(n->daemon->end, &now);
}

static void send_next(struct notify *n)
{
    const char *token = dd_env_get_nonempty(n->daemon->cfg.key_in.env, "DDRUN_NOTIFY_TOKEN");
    DD_AUTO(free) char *bearer = NULL;
    if (n->sent || n->n == 0)
        return;
    n->said = n->dropped;
    if (n->said > 0)
        (void)json_object_set_new(n->waiting[0], "dropped", json_integer(n->dropped));
    DD_AUTO(free) char *body = json_dumps(n->waiting[0], JSON_COMPACT | JSON_ENSURE_ASCII);
    const bool ready = body != NULL &&
                       (token == NULL || asprintf(&bearer, "Authorization: Bearer %s", token) > 0);
    const struct web_request r = {
        .urls = {n->daemon->cfg.notify}, .headers = {bearer}, .body = body, .limit_ms = POST_MS};
    n->sent = ready && web_post(n->web, &r, on_answer, n) == 0;
    if (!n->sent)
        later(n);
}

/* ---- what is told ---- */

static void put_sentence(struct dd_buf *out, const struct happened *h)
{
    const char *node = h->node != NULL ? h->node : "?";
    const char *text = h->text != NULL ? h->text : "";
    switch (h->kind) {
    case EVENT_ROUND:
        (void)dd_buf_printf(out, "round %d begins with %d workers on %d node%s", h->round,
                            h->workers, h->nodes, h->nodes == 1 ? "" : "s");
        break;
    case EVENT_STARTED:
        (void)dd_buf_printf(out, "the workers of round %d run", h->round);
        break;
    case EVENT_EXIT:
        (void)dd_buf_printf(out, "rank %d on %s %s %d%s%s", h->rank, node,
                            h->signal > 0 ? "was ended by signal" : "failed with exit code",
                            h->signal > 0 ? h->signal : h->code, *text != '\0' ? ": " : "", text);
        break;
    case EVENT_LEAVE:
        (void)dd_buf_printf(out, "%s is lost: %s", node, text);
        break;
    case EVENT_STOP:
        (void)dd_buf_printf(out, "%s", text);
        break;
    case EVENT_DRAIN:
        (void)dd_buf_printf(out, "%s takes no part any more: %s", node, text);
        break;
    case EVENT_FINISH:
        (void)dd_buf_printf(out, h->code == 0 ? "finished" : "ended with %d%s%s", h->code,
                            *text != '\0' ? ": " : "", text);
        break;
    case EVENT_JOIN:
    case EVENT_SIGNAL:
    case EVENT_REFUSED:
    default:
        break;
    }
}

void notify_add(struct daemon *d, const struct happened *h, json_t *event)
{
    const bool over = d->machine != NULL && rdzv_state(d->machine) == RDZV_FINISHED;
    /* thousands come, and in the end all go */
    if (d->cfg.notify == NULL || h->kind == EVENT_JOIN || h->kind == EVENT_SIGNAL ||
        h->kind == EVENT_REFUSED || (over && h->kind == EVENT_LEAVE))
        return;
    struct notify *n = notify_of(d);
    json_t *o = json_copy(event);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 14);
    (void)dd_buf_printf(&text, "ddrun job %s: ", d->cfg.job_id);
    put_sentence(&text, h);
    const char *sentence = dd_buf_str(&text);
    json_t *why = json_object_get(o, "text");
    if (why != NULL)
        (void)json_object_set(o, "why", why);
    (void)json_object_set_new(o, "job", json_string(d->cfg.job_id));
    if (n == NULL || o == NULL || sentence == NULL ||
        json_object_set_new(o, "text", events_text(sentence)) < 0) {
        json_decref(o);
        return;
    }
    if (n->n == WAITING_MAX) {
        drop(n, n->sent ? 1 : 0);
        n->dropped++;
    }
    n->waiting[n->n++] = o;
    if (n->again == NULL || !evtimer_pending(n->again, NULL) || h->kind == EVENT_FINISH)
        send_next(n);
}

/* ---- the end ---- */

bool notify_waits(struct daemon *d)
{
    struct notify *n = d->notify;
    const uint64_t now = dd_now_ns();
    if (n == NULL || n->n == 0)
        return false;
    if (n->end_ns == 0) {
        n->end_ns = now + LAST_MS * DD_NS_PER_MS;
        if (!n->sent)
            send_next(n);
    }
    if (now >= n->end_ns) {
        dd_log(d->cfg.log, DD_LOG_WARN,
               "--notify: %s has not taken the last %d event%s of this job", n->host, n->n,
               n->n == 1 ? "" : "s");
        return false;
    }
    const struct timeval t = dd_timeval(n->end_ns - now);
    evtimer_add(d->end, &t);
    return true;
}

void notify_free(struct daemon *d)
{
    struct notify *n = d->notify;
    if (n == NULL)
        return;
    d->notify = NULL;
    web_free(n->web);
    if (n->again != NULL)
        event_free(n->again);
    while (n->n > 0)
        drop(n, n->n - 1);
    free(n);
}
