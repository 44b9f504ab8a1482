#include "net/link_attempt_inner.h"

#include "base/io.h"
#include "config.h"
#include "net/credential.h"
#include "net/hello.h"
#include "net/link_inner.h"
#include "net/tls_inner.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct link_attempt {
    struct event_base *base;
    struct link_attempt_cfg cfg;
    int fd; /* -1 once bev owns it */
    struct event *io, *timer;
    struct bufferevent *bev;
    struct dd_buf in;
    struct credential_reader *reader; /* of the leader's MUNGE credential */
    struct net_tls_psk psk;
    char source[300]; /* of this node's key */
    struct link_times times;
    bool is_late; /* limit_ms has passed; silent_ms or busy_ms runs */
    enum link_verdict doomed;
    char why[400]; /* reason for `doomed` */
};

static void drop_io(struct link_attempt *t)
{
    if (t->io != NULL)
        event_free(DD_TAKE(t->io));
}

void link_attempt_free(struct link_attempt *t)
{
    if (t == NULL)
        return;
    drop_io(t);
    if (t->timer != NULL)
        event_free(t->timer);
    if (t->bev != NULL) {
        bufferevent_setcb(t->bev, NULL, NULL, NULL, NULL);
        net_tls_forget(t->bev);
        bufferevent_free(t->bev);
    }
    credential_reader_free(t->reader);
    if (t->fd >= 0)
        (void)close(t->fd);
    dd_buf_done(&t->in);
    explicit_bzero(&t->psk, sizeof(t->psk));
    free(t);
}

static void link_attempt_finish(struct link_attempt *t, enum link_verdict v, struct link *l,
                                const char *why)
{
    drop_io(t);
    (void)event_del(t->timer);
    t->cfg.done(t->cfg.arg, t, v, l, why); /* may free t */
}

static void set_limit(struct link_attempt *t, unsigned ms)
{
    const struct timeval limit = dd_timeval(ms * DD_NS_PER_MS);
    (void)evtimer_add(t->timer, &limit);
}

static enum link_verdict verdict_of_errno(int rc)
{
    return rc == -ECONNREFUSED ? ATTEMPT_NO_LISTENER
           : rc == -ENOMEM     ? ATTEMPT_LOCAL
                               : ATTEMPT_UNREACHABLE;
}

static void link_attempt_open_link(struct link_attempt *t)
{
    struct dd_err err = {0};
    struct link *l = NULL;
    if (link_of_bev(&l, t->bev, "", &err) < 0) {
        link_attempt_finish(t, ATTEMPT_LOCAL, NULL, err.text);
        return;
    }
    t->bev = NULL;
    t->times.open = dd_now_ns();
    *link_times(l) = t->times;
    link_attempt_finish(t, ATTEMPT_LINK, l, "");
}

static void link_attempt_on_handshake(struct bufferevent *bev, short what, void *arg)
{
    struct link_attempt *t = arg;
    char why[700] = "the connection was lost";
    if ((what & BEV_EVENT_CONNECTED) != 0) {
        net_tls_forget(bev);
        if (net_tls_check(bev) < 0)
            link_attempt_finish(t, ATTEMPT_BAD_KEY, NULL,
                                "claims to be of this job, but did not prove the key");
        else
            link_attempt_open_link(t);
        return;
    }
    enum net_tls_fault fault = NET_TLS_LOST;
    if ((what & BEV_EVENT_ERROR) != 0)
        fault = net_tls_fault(bev, why, sizeof(why));
    if (fault == NET_TLS_KEY || fault == NET_TLS_IDENTITY) {
        (void)snprintf(why, sizeof(why),
                       "is of this job, but the keys differ (key source here: %s)", t->source);
        link_attempt_finish(t, ATTEMPT_BAD_KEY, NULL, why);
        return;
    }
    char text[sizeof(why) + 32];
    (void)snprintf(text, sizeof(text), "failed the TLS handshake: %s", why);
    link_attempt_finish(t, fault == NET_TLS_MEMORY ? ATTEMPT_LOCAL : ATTEMPT_BROKEN, NULL, text);
}

static void link_attempt_start_tls(struct link_attempt *t)
{
    struct dd_err err = {0};
    int rc = *t->cfg.tls != NULL ? 0 : net_tls_new(t->cfg.tls, &err);
    const bool local = rc < 0;
    if (rc == 0)
        rc = net_tls_open(&t->bev, *t->cfg.tls, t->base, t->fd,
                          &(struct net_tls_open){.is_server = false, .psk = &t->psk}, &err);
    if (rc < 0) {
        char why[sizeof(err.text) + 64];
        (void)snprintf(why, sizeof(why), "is of this job, but TLS cannot start here: %s", err.text);
        if (local || rc == -ENOMEM)
            link_attempt_finish(t, ATTEMPT_LOCAL, NULL, err.text);
        else
            link_attempt_finish(t, ATTEMPT_BROKEN, NULL, why);
        return;
    }
    t->fd = -1;
    if (t->cfg.busy_ms > 0) {
        t->is_late = false;
        set_limit(t, t->cfg.limit_ms);
    }
    bufferevent_setcb(t->bev, NULL, NULL, link_attempt_on_handshake, t);
}

static void link_attempt_start_plain(struct link_attempt *t)
{
    t->bev = bufferevent_socket_new(t->base, t->fd,
                                    BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (t->bev == NULL) {
        link_attempt_finish(t, ATTEMPT_LOCAL, NULL, "out of memory");
        return;
    }
    t->fd = -1;
    link_attempt_open_link(t);
}

static void link_attempt_without_key(struct link_attempt *t, const struct dd_err *err)
{
    char why[sizeof(err->text) + 64];
    (void)snprintf(why, sizeof(why),
                   "is of this job, but this node has no key in common with it: %.*s",
                   (int)strcspn(err->text, "\n"), err->text);
    if (err->rc == -ENOMEM)
        link_attempt_finish(t, ATTEMPT_LOCAL, NULL, err->text);
    else
        link_attempt_finish(t, ATTEMPT_NO_KEY, NULL, why);
}

static void use_key(struct link_attempt *t, const struct net_key *key)
{
    t->psk.identity = t->cfg.find->job_id;
    const int rc = net_key_psk(t->psk.key, key, t->cfg.find->key_in);
    memcpy(t->source, key->source, sizeof(t->source));
    t->times.keyed = dd_now_ns();
    if (rc < 0) {
        char why[160];
        (void)snprintf(why, sizeof(why),
                       "is of this job, but the session key cannot be derived here: %s",
                       strerror(-rc));
        link_attempt_finish(t, ATTEMPT_BROKEN, NULL, why);
    } else if (key->method == NET_KEY_NONE)
        link_attempt_start_plain(t);
    else
        link_attempt_start_tls(t);
}

static void link_attempt_on_read(void *arg, const struct net_key *key, const struct dd_err *err)
{
    struct link_attempt *t = arg;
    credential_reader_free(DD_TAKE(t->reader));
    if (key != NULL)
        use_key(t, key);
    else
        link_attempt_without_key(t, err);
}

/* The other attempts, and the rest of the event loop, go on while munged is silent. */
static void read_credential(struct link_attempt *t, const struct hello_reply *r)
{
    const struct net_key_input *in = t->cfg.find->key_in;
    const struct credential_reader_cb cb = {.done = link_attempt_on_read, .arg = t};
    struct dd_err err = {0};
    int rc = net_key_may_accept(in, r->method, &err);
    if (rc == 0)
        rc = credential_reader_new(&t->reader, t->base, in, r->cred, &cb, &err);
    if (rc < 0)
        link_attempt_without_key(t, &err);
}

static void take_key(struct link_attempt *t, const struct hello_reply *r)
{
    struct dd_err err = {0};
    struct net_key key = {0};
    drop_io(t);
    if (net_key_waits(r->method))
        read_credential(t, r);
    else if (net_key_accept(&key, t->cfg.find->key_in, r->method, r->cred, &err) < 0)
        link_attempt_without_key(t, &err);
    else
        use_key(t, &key);
    explicit_bzero(&key, sizeof(key));
}

static const struct {
    enum link_verdict verdict;
    const char *why;
} of_status[] = {
    [HELLO_OTHER_JOB] = {ATTEMPT_OTHER, "is the daemon of another job"},
    [HELLO_BAD_VERSION] = {ATTEMPT_VERSION, "uses protocol version"},
    [HELLO_FULL] = {ATTEMPT_FULL, "accepts no more nodes"},
};

static void other_version(struct link_attempt *t)
{
    char why[200];
    (void)snprintf(why, sizeof(why),
                   "%s %u, but ddrun %s here uses %d; all nodes need the same version",
                   of_status[HELLO_BAD_VERSION].why, t->in.data[HELLO_VERSION_AT], PACKAGE_VERSION,
                   HELLO_VERSION);
    link_attempt_finish(t, ATTEMPT_VERSION, NULL, why);
}

static void no_answer(struct link_attempt *t, int rc)
{
    char why[160];
    (void)snprintf(why, sizeof(why), "sent no answer: %s", strerror(-rc));
    link_attempt_finish(t, ATTEMPT_FOREIGN, NULL, why);
}

static void on_reply(evutil_socket_t fd, short what, void *arg)
{
    struct link_attempt *t = arg;
    struct hello_reply r;
    (void)what;
    int rc = link_hello_read(fd, &t->in);
    if (rc == 0)
        return;
    if (rc > 0)
        rc = hello_reply_decode(&r, t->in.data, t->in.len);
    if (rc == 0)
        return;
    if (rc == -EPROTONOSUPPORT)
        other_version(t);
    else if (rc == -EPROTO)
        link_attempt_finish(t, ATTEMPT_FOREIGN, NULL, "is another program");
    else if (rc == -ECONNRESET)
        link_attempt_finish(t, ATTEMPT_FOREIGN, NULL, "closed the connection without an answer");
    else if (rc < 0)
        no_answer(t, rc);
    else if (r.status != HELLO_OK)
        link_attempt_finish(t, of_status[r.status].verdict, NULL, of_status[r.status].why);
    else
        take_key(t, &r);
}

static int send_call(struct link_attempt *t)
{
    struct hello_call c = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HELLO_MAX);
    (void)snprintf(c.job_id, sizeof(c.job_id), "%s", t->cfg.find->job_id);
    (void)snprintf(c.node, sizeof(c.node), "%s", t->cfg.find->node);
    int rc = hello_call_encode(&out, &c);
    return rc < 0 ? rc : link_hello_send(t->fd, &out);
}

static void link_attempt_on_connected(evutil_socket_t fd, short what, void *arg)
{
    struct link_attempt *t = arg;
    int e = 0;
    socklen_t len = sizeof(e);
    (void)what;
    drop_io(t);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
        e = errno;
    t->times.connected = dd_now_ns();
    int rc = e != 0 ? -e : send_call(t);
    if (rc < 0) {
        link_attempt_finish(t, verdict_of_errno(rc), NULL, strerror(-rc));
        return;
    }
    t->io = event_new(t->base, fd, EV_READ | EV_PERSIST, on_reply, t);
    if (t->io == NULL || event_add(t->io, NULL) < 0)
        link_attempt_finish(t, ATTEMPT_LOCAL, NULL, "out of memory");
}

/* The peer may only be slow: give it more time, once. */
static void link_attempt_on_late(struct link_attempt *t, unsigned more_ms,
                                 enum link_verdict meanwhile, enum link_verdict v, const char *why)
{
    if (t->is_late || more_ms == 0) {
        link_attempt_finish(t, v, NULL, why);
        return;
    }
    t->is_late = true;
    set_limit(t, more_ms);
    if (t->cfg.slow != NULL)
        t->cfg.slow(t->cfg.arg, meanwhile, why);
}

/* Keep waiting for munged: libmunge has its own time limits, a new attempt would send munged the
 * same request again, and a probe that gave up now would miss the job's daemon. */
static void link_attempt_on_late_key(struct link_attempt *t)
{
    if (t->cfg.slow != NULL)
        t->cfg.slow(t->cfg.arg, ATTEMPT_BUSY,
                    "is of this job, but munged on this node has not decoded its credential yet");
}

static void link_attempt_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct link_attempt *t = arg;
    (void)fd;
    (void)what;
    if (t->doomed != ATTEMPT_NONE)
        link_attempt_finish(t, t->doomed, NULL, t->why);
    else if (t->bev != NULL)
        link_attempt_on_late(t, t->cfg.busy_ms, ATTEMPT_BUSY, ATTEMPT_BROKEN,
                             "did not finish the TLS handshake in time");
    else if (t->reader != NULL)
        link_attempt_on_late_key(t);
    else if (event_pending(t->io, EV_WRITE, NULL))
        link_attempt_finish(t, ATTEMPT_UNREACHABLE, NULL, "no answer");
    else
        link_attempt_on_late(t, t->cfg.silent_ms, ATTEMPT_SILENT, ATTEMPT_SILENT,
                             "accepted the connection but did not answer");
}

static int bind_source(int fd, const struct link_find_cfg *cfg, const struct net_addr *to)
{
    static const int on = 1;
    struct net_addr from;
    if (cfg->bind_addr != NULL && net_addr_parse(&from, cfg->bind_addr, 0) == 0) {
        if (from.sa.sa_family != to->sa.sa_family)
            return -EAFNOSUPPORT;
        /* the port is chosen at connect, so that many connections do not use up the ports */
        (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
        if (bind(fd, &from.sa, from.len) < 0)
            return -errno;
    }
    return 0;
}

static int start_connect(struct link_attempt *t)
{
    const struct net_addr *to = &t->cfg.addr;
    t->fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->fd < 0)
        return -errno;
    int rc = bind_source(t->fd, t->cfg.find, to);
    if (rc < 0)
        return rc;
    link_tune_socket(t->fd);
    if (connect(t->fd, &to->sa, to->len) < 0 && errno != EINPROGRESS)
        return -errno;
    t->io = event_new(t->base, t->fd, EV_WRITE, link_attempt_on_connected, t);
    return t->io == NULL || event_add(t->io, NULL) < 0 ? -ENOMEM : 0;
}

int link_attempt_start(struct link_attempt **ret, struct event_base *base,
                       const struct link_attempt_cfg *cfg)
{
    struct timeval limit = dd_timeval(cfg->limit_ms * DD_NS_PER_MS);
    struct link_attempt *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return -ENOMEM;
    *t = (struct link_attempt){.base = base,
                               .cfg = *cfg,
                               .fd = -1,
                               .in = DD_BUF_INIT(HELLO_MAX),
                               .times = {.attempted = dd_now_ns()}};
    t->timer = evtimer_new(base, link_attempt_on_timer, t);
    if (t->timer == NULL) {
        link_attempt_free(t);
        return -ENOMEM;
    }
    int rc = start_connect(t);
    if (rc < 0) { /* reported from the event loop, like all other results */
        drop_io(t);
        t->doomed = verdict_of_errno(rc);
        (void)snprintf(t->why, sizeof(t->why), "%s", strerror(-rc));
        limit = (struct timeval){0, 0};
    }
    if (evtimer_add(t->timer, &limit) < 0) {
        link_attempt_free(t);
        return -ENOMEM;
    }
    *ret = t;
    return 0;
}
