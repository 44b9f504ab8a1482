/* The daemon's side of a link: read the hello, reply, do the handshake. */
#include "net/link.h"

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
#include <sys/ioctl.h>
#include <sys/queue.h>

enum {
    LOG_WINDOW_S = 10,
    LOG_PER_WINDOW = 10,
    CRED_S = 20,
    CRED_AGAIN_S = 1,
    RECORD_HEADER = 5, /* type, version, length. Src: RFC 8446, 5.1 */
    RECORD_HANDSHAKE = 22,
    MESSAGE_HEADER = 4, /* type, length. Src: RFC 8446, 4 */
    MESSAGE_CLIENT_HELLO = 1,
    CLIENT_HELLO_MAX =
        4096, /* OpenSSL sends about 300 bytes, 1.5 KiB with a post-quantum key share */
    HANDSHAKES_MOST = 2048, /* concurrent, about 50 KiB each; the peers have proved the key, or
                             * replay an overheard ClientHello. Further handshakes wait. */
    HANDSHAKES_AT_ONCE = 16,
    LATE_MS = 1000,
};

struct link_accept {
    struct event_base *base;
    struct link_accept_cfg cfg;
    int fd; /* -1 once bev owns it */
    struct event *readable, *timer;
    int awaited; /* bytes of the ClientHello to collect in the kernel before the socket becomes
                    readable */
    bool in_handshake; /* included in shared->handshakes */
    bool waits;        /* in shared->waiting */
    bool uncredited;   /* in shared->uncredited */
    uint64_t since_ns; /* time at which the timer was set */
    TAILQ_ENTRY(link_accept) entry;
    struct bufferevent *bev;
    struct dd_buf in;
    struct hello_call call;
    struct net_tls_psk psk;
    bool other_job, suspect;
    struct link_accept_cb cb;
};

void link_shared_done(struct link_shared *s)
{
    net_tls_free(s->tls);
    credential_maker_free(s->maker);
    if (s->turn != NULL)
        event_free(s->turn);
    free(s->cred);
    *s = (struct link_shared){0};
}

/* Restart the peer's timeout, or suspend it while the peer waits for this process. */
static void note_progress(struct link_accept *a, bool waits)
{
    const struct timeval limit = dd_timeval(a->cfg.timeout_ms * DD_NS_PER_MS);
    (void)(waits ? evtimer_del(a->timer) : evtimer_add(a->timer, &limit));
    a->since_ns = dd_now_ns();
    if (a->cb.on_progress != NULL)
        a->cb.on_progress(a->cb.arg, waits);
}

/* ---- the queue of handshakes ---- */

static void handshake(struct link_accept *a);

/* Begin the handshakes whose turn it is. They take 0.3 ms each: other events, such as heartbeats,
 * get a turn after a few of them. */
static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval now = {0, 0};
    struct link_shared *s = arg;
    struct link_accept *a;
    (void)fd;
    (void)what;
    for (int i = 0; i < HANDSHAKES_AT_ONCE && s->handshakes < HANDSHAKES_MOST &&
                    (a = TAILQ_FIRST(&s->waiting)) != NULL;
         i++) {
        TAILQ_REMOVE(&s->waiting, a, entry);
        a->waits = false;
        a->in_handshake = true;
        s->handshakes++;
        note_progress(a, false);
        handshake(a);
    }
    if (!TAILQ_EMPTY(&s->waiting) && s->handshakes < HANDSHAKES_MOST)
        (void)evtimer_add(s->turn, &now);
}

/* Wait for a handshake in the order of arrival. */
static int await_turn(struct link_accept *a)
{
    static const struct timeval now = {0, 0};
    struct link_shared *s = a->cfg.shared;
    if (s->turn == NULL) {
        TAILQ_INIT(&s->waiting);
        s->turn = evtimer_new(a->base, on_turn, s);
    }
    if (s->turn == NULL || evtimer_add(s->turn, &now) < 0)
        return -ENOMEM;
    TAILQ_INSERT_TAIL(&s->waiting, a, entry);
    a->waits = true;
    note_progress(a, true);
    return 0;
}

static void leave_queue(struct link_accept *a)
{
    static const struct timeval now = {0, 0};
    struct link_shared *s = a->cfg.shared;
    if (a->waits)
        TAILQ_REMOVE(&s->waiting, a, entry);
    if (a->uncredited)
        TAILQ_REMOVE(&s->uncredited, a, entry);
    s->handshakes -= a->in_handshake;
    if (a->in_handshake && !TAILQ_EMPTY(&s->waiting))
        (void)evtimer_add(s->turn, &now);
    a->waits = a->uncredited = a->in_handshake = false;
}

/* ---- one connection ---- */

static void drop_hello_events(struct link_accept *a)
{
    if (a->readable != NULL)
        event_free(DD_TAKE(a->readable));
}

void link_accept_free(struct link_accept *a)
{
    if (a == NULL)
        return;
    drop_hello_events(a);
    if (a->timer != NULL)
        event_free(a->timer);
    if (a->bev != NULL) {
        bufferevent_setcb(a->bev, NULL, NULL, NULL, NULL);
        net_tls_forget(a->bev);
        bufferevent_free(a->bev);
    }
    if (a->fd >= 0)
        (void)close(a->fd);
    leave_queue(a);
    dd_buf_done(&a->in);
    explicit_bzero(&a->psk, sizeof(a->psk));
    free(a);
}

/* Rate limit: at most LOG_PER_WINDOW lines in LOG_WINDOW_S. */
static bool may_log(struct link_shared *s, const struct dd_log *log)
{
    uint64_t now = dd_now_ns();
    if (s->log_since_ns == 0 || now - s->log_since_ns > LOG_WINDOW_S * DD_NS_PER_S) {
        if (s->unlogged > 0)
            dd_log(log, DD_LOG_WARN, "%u more refused connection%s not shown", s->unlogged,
                   s->unlogged == 1 ? "" : "s");
        s->log_since_ns = now;
        s->logged = s->unlogged = 0;
    }
    if (s->logged >= LOG_PER_WINDOW) {
        s->unlogged++;
        return false;
    }
    s->logged++;
    return true;
}

static void log_refusal(struct link_accept *a, enum dd_log_level level, const char *why)
{
    char node[4 * sizeof(a->call.node)];
    char host[NET_ADDR_TEXT] = "unknown address";
    struct sockaddr_storage ss;
    struct net_addr peer;
    socklen_t len = sizeof(ss);
    int fd = a->bev != NULL ? (int)bufferevent_getfd(a->bev) : a->fd;
    if (a->cfg.log == NULL || level > a->cfg.log->level || !may_log(a->cfg.shared, a->cfg.log))
        return;
    if (getpeername(fd, (struct sockaddr *)&ss, &len) == 0 &&
        net_addr_from_sockaddr(&peer, (struct sockaddr *)&ss, len) == 0)
        (void)net_addr_host(&peer, host);
    (void)dd_log_escape(node, sizeof(node), a->call.node, strlen(a->call.node));
    if (node[0] != '\0')
        dd_log(a->cfg.log, level, "refused node '%.300s' (%s): %s", node, host, why);
    else
        dd_log(a->cfg.log, level, "refused a connection from %s: %s", host, why);
}

static void link_accept_finish(struct link_accept *a, struct link *l, const char *why)
{
    drop_hello_events(a);
    (void)event_del(a->timer);
    a->cb.done(a->cb.arg, a, l, why); /* may free a */
}

bool link_accept_is_suspect(const struct link_accept *a)
{
    return a->suspect;
}

static void link_accept_refuse(struct link_accept *a, enum dd_log_level level, const char *why)
{
    a->suspect = level != DD_LOG_DEBUG && !a->other_job;
    log_refusal(a, level, why);
    link_accept_finish(a, NULL, why);
}

/* Refuse a peer that has disconnected (-ECONNRESET), or from which reading has failed with rc. */
static void link_accept_lost(struct link_accept *a, int rc)
{
    char why[160] = "the connection was lost";
    if (rc != -ECONNRESET)
        (void)snprintf(why, sizeof(why), "the connection was lost: %s", strerror(-rc));
    link_accept_refuse(a, DD_LOG_DEBUG, why);
}

static void link_accept_open_link(struct link_accept *a)
{
    struct dd_err err = {0};
    struct link *l = NULL;
    if (link_of_bev(&l, a->bev, a->call.node, &err) < 0) {
        link_accept_refuse(a, DD_LOG_ERR, err.text);
        return;
    }
    a->bev = NULL;
    link_accept_finish(a, l, NULL);
}

static void link_accept_on_handshake(struct bufferevent *bev, short what, void *arg)
{
    struct link_accept *a = arg;
    char why[256] = "the connection was lost";
    if ((what & BEV_EVENT_CONNECTED) != 0) {
        net_tls_forget(bev);
        if (net_tls_check(bev) < 0)
            link_accept_refuse(a, DD_LOG_WARN, "it did not prove knowledge of the job's key");
        else
            link_accept_open_link(a);
        return;
    }
    enum net_tls_fault fault = NET_TLS_LOST;
    if ((what & BEV_EVENT_ERROR) != 0)
        fault = net_tls_fault(bev, why, sizeof(why));
    /* an agent closes its other links once one is open */
    link_accept_refuse(a, fault == NET_TLS_LOST ? DD_LOG_DEBUG : DD_LOG_WARN, why);
}

static int link_accept_start_tls(struct link_accept *a, struct dd_err *err)
{
    struct link_shared *s = a->cfg.shared;
    int rc = s->tls != NULL ? 0 : net_tls_new(&s->tls, err);
    if (rc < 0)
        return rc;
    a->psk.identity = a->cfg.job_id;
    rc = net_key_psk(a->psk.key, a->cfg.key, a->cfg.key_in);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot derive the session key: %s", strerror(-rc));
    rc = net_tls_open(&a->bev, s->tls, a->base, a->fd,
                      &(struct net_tls_open){.is_server = true, .psk = &a->psk}, err);
    if (rc < 0)
        return rc;
    a->fd = -1;
    bufferevent_setcb(a->bev, NULL, NULL, link_accept_on_handshake, a);
    return 0;
}

/* Return the number of bytes to collect before OpenSSL reads them. OpenSSL would wait for the rest
 * of a message that continues in another record, so the first record must be one whole ClientHello.
 */
static int client_hello_need(int fd)
{
    unsigned char head[RECORD_HEADER + MESSAGE_HEADER];
    ssize_t n = recv(fd, head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
    if (n == 0)
        return -ECONNRESET;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? (int)sizeof(head) : -errno;
    if (head[0] != RECORD_HANDSHAKE)
        return -EPROTO;
    if (n < (ssize_t)sizeof(head))
        return (int)sizeof(head);
    const int record = head[3] << 8 | head[4];
    const int message = head[6] << 16 | head[7] << 8 | head[8];
    if (head[5] != MESSAGE_CLIENT_HELLO || MESSAGE_HEADER + message != record ||
        record > CLIENT_HELLO_MAX)
        return -EPROTO;
    return RECORD_HEADER + record;
}

static void handshake(struct link_accept *a)
{
    static const int any = 1;
    struct dd_err err = {0};
    (void)setsockopt(a->fd, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof(any));
    if (link_accept_start_tls(a, &err) < 0)
        link_accept_refuse(a, DD_LOG_ERR, err.text);
}

/* Pass the whole ClientHello to OpenSSL at once. Its binder proves the key, so OpenSSL refuses a
 * peer without the key within the same call and keeps no memory for it. A peer that sends a partial
 * ClientHello costs only this object. */
static void on_client_hello(evutil_socket_t fd, short what, void *arg)
{
    struct link_accept *a = arg;
    int there = 0;
    (void)what;
    int need = client_hello_need((int)fd);
    if (need == -EPROTO) {
        link_accept_refuse(a, DD_LOG_INFO, "its data is not a TLS ClientHello");
    } else if (need < 0) {
        link_accept_lost(a, need);
    } else if (ioctl((int)fd, FIONREAD, &there) == 0 && there >= need) {
        drop_hello_events(a);
        if (await_turn(a) < 0)
            link_accept_refuse(a, DD_LOG_ERR, "out of memory for the TLS handshake");
    } else if (need == a->awaited) { /* the peer has closed or sent an urgent byte, or the kernel
                                        has no memory for more */
        link_accept_refuse(a, DD_LOG_DEBUG, "its ClientHello is incomplete");
    } else {
        a->awaited = need;
        (void)setsockopt((int)fd, SOL_SOCKET, SO_RCVLOWAT, &need, sizeof(need));
    }
}

static int await_client_hello(struct link_accept *a, struct dd_err *err)
{
    a->readable = event_new(a->base, a->fd, EV_READ | EV_PERSIST, on_client_hello, a);
    return a->readable != NULL && event_add(a->readable, NULL) == 0
               ? 0
               : dd_err_set(err, -ENOMEM, "out of memory for the TLS handshake");
}

static void link_accept_start_plain(struct link_accept *a)
{
    a->bev = bufferevent_socket_new(a->base, a->fd,
                                    BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (a->bev == NULL) {
        link_accept_refuse(a, DD_LOG_ERR, "out of memory for the link");
        return;
    }
    a->fd = -1;
    link_accept_open_link(a);
}

/* ---- credentials ---- */

/* Unauthenticated peers may ask for a credential, so a recent one is used again. It reveals the key
 * to this user alone, so sending it more than once is safe. */
static bool is_credential_recent(const struct link_shared *s)
{
    const uint64_t valid = (s->cred != NULL ? CRED_S : CRED_AGAIN_S) * DD_NS_PER_S;
    return s->cred_ns != 0 && dd_now_ns() - s->cred_ns < valid;
}

/* text: the new credential; NULL: making it failed, err has the reason. */
static void keep_credential(struct link_shared *s, const char *text, const struct dd_err *err)
{
    free(s->cred);
    s->cred = text != NULL ? strdup(text) : NULL;
    s->cred_err = *err;
    if (text != NULL && s->cred == NULL)
        (void)dd_err_set(&s->cred_err, -ENOMEM, "out of memory for the credential");
    s->cred_ns = dd_now_ns();
}

/* Return the shared credential, lent until it is renewed. Renew an outdated one, except for MUNGE.
 */
static int link_accept_credential(struct link_accept *a, const char **ret, struct dd_err *err)
{
    struct link_shared *s = a->cfg.shared;
    /* not MUNGE's, which the maker's thread makes: libmunge may wait for a minute */
    if (!net_key_waits(a->cfg.key->method) && !is_credential_recent(s)) {
        struct dd_err why = {0};
        char *cred = NULL;
        (void)net_key_credential(&cred, a->cfg.key, a->cfg.key_in, &why);
        keep_credential(s, cred, &why);
        free(cred);
    }
    *ret = s->cred;
    return s->cred != NULL ? 0 : dd_err_set(err, s->cred_err.rc, "%s", s->cred_err.text);
}

static int send_reply(struct link_accept *a, enum hello_status status, struct dd_err *err)
{
    struct hello_reply r = {.status = status, .method = NET_KEY_NONE};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HELLO_MAX);
    const char *cred = NULL;
    int rc = 0;
    if (status == HELLO_OK) {
        r.method = a->cfg.key->method;
        if (r.method == NET_KEY_MUNGE || r.method == NET_KEY_HOME)
            rc = link_accept_credential(a, &cred, err);
        if (rc == 0 && cred != NULL &&
            (size_t)snprintf(r.cred, sizeof(r.cred), "%s", cred) >= sizeof(r.cred))
            rc = dd_err_set(
                err, -EMSGSIZE,
                "cannot reply: this node's credential (%zu bytes) exceeds the limit of %zu bytes",
                strlen(cred), sizeof(r.cred) - 1);
        if (rc < 0)
            return rc;
    }
    rc = hello_reply_encode(&out, &r);
    if (rc == 0)
        rc = link_hello_send(a->fd, &out);
    if (rc < 0) {
        errno = -rc;
        return dd_err_set(err, rc, "cannot send the hello reply: %m");
    }
    return 0;
}

static void link_accept_answer(struct link_accept *a)
{
    struct dd_err err = {0};
    const bool ours = !a->other_job;
    note_progress(a, false);
    if (send_reply(a, ours ? HELLO_OK : HELLO_OTHER_JOB, &err) < 0)
        link_accept_refuse(a, DD_LOG_ERR, err.text);
    else if (!ours)
        link_accept_refuse(a, DD_LOG_INFO, "it belongs to another job");
    else if (a->cfg.key->method == NET_KEY_NONE)
        link_accept_start_plain(a);
    else if (await_client_hello(a, &err) < 0)
        link_accept_refuse(a, DD_LOG_ERR, err.text);
}

static void on_credential(void *arg, const char *text, const struct dd_err *err)
{
    struct link_shared *s = arg;
    struct link_accept *a;
    keep_credential(s, text, err);
    while ((a = TAILQ_FIRST(&s->uncredited)) != NULL) {
        TAILQ_REMOVE(&s->uncredited, a, entry);
        a->uncredited = false;
        link_accept_answer(a);
    }
}

static int link_shared_make_maker(struct link_shared *s, struct event_base *base,
                                  const struct net_key *key, const struct net_key_input *in,
                                  struct dd_err *err)
{
    const struct credential_maker_cb cb = {.done = on_credential, .arg = s};
    if (s->maker != NULL || !net_key_waits(key->method))
        return 0;
    TAILQ_INIT(&s->uncredited);
    return credential_maker_new(&s->maker, base, key, in, &cb, err);
}

int link_shared_prepare(struct link_shared *s, struct event_base *base, const struct net_key *key,
                        const struct net_key_input *in, struct dd_err *err)
{
    int rc = s->tls != NULL ? 0 : net_tls_new(&s->tls, err);
    return rc == 0 ? link_shared_make_maker(s, base, key, in, err) : rc;
}

/* Request a credential. A process without a system call filter starts the thread only now. < 0: the
 * request failed, and keep_credential() has stored the reason. */
static int link_accept_ask(struct link_accept *a)
{
    struct link_shared *s = a->cfg.shared;
    struct dd_err err = {0};
    int rc = link_shared_make_maker(s, a->base, a->cfg.key, a->cfg.key_in, &err);
    if (rc == 0 && (rc = credential_maker_ask(s->maker)) < 0)
        (void)dd_err_set(&err, rc, "cannot request a MUNGE credential: %s", strerror(-rc));
    if (rc < 0)
        keep_credential(s, NULL, &err);
    return rc;
}

/* Answer the hello now, or once the credential is ready. */
static void link_accept_on_call(struct link_accept *a)
{
    struct link_shared *s = a->cfg.shared;
    drop_hello_events(a);
    a->other_job = strcmp(a->call.job_id, a->cfg.job_id) != 0;
    if (a->other_job || !net_key_waits(a->cfg.key->method) || is_credential_recent(s) ||
        link_accept_ask(a) < 0) {
        link_accept_answer(a);
        return;
    }
    TAILQ_INSERT_TAIL(&s->uncredited, a, entry);
    a->uncredited = true;
    note_progress(a, true);
}

static void link_accept_on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct link_accept *a = arg;
    (void)what;
    int rc = link_hello_read(fd, &a->in);
    if (rc == 0)
        return;
    if (rc > 0)
        rc = hello_call_decode(&a->call, a->in.data, a->in.len);
    if (rc > 0) {
        link_accept_on_call(a);
    } else if (rc == -EPROTONOSUPPORT) {
        char why[200];
        (void)snprintf(why, sizeof(why), "it uses protocol version %u, but ddrun %s here uses %d",
                       a->in.data[HELLO_VERSION_AT], PACKAGE_VERSION, HELLO_VERSION);
        (void)send_reply(a, HELLO_BAD_VERSION, NULL);
        link_accept_refuse(a, DD_LOG_WARN, why);
    } else if (rc == -EPROTO) {
        link_accept_refuse(a, DD_LOG_INFO, "its data is not a hello message");
    } else if (rc < 0) {
        link_accept_lost(a, rc);
    }
}

/* A late timeout means that this process was suspended or busy: what the peer has sent meanwhile
 * may still be unread. */
static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct link_accept *a = arg;
    (void)fd;
    (void)what;
    if (dd_now_ns() - a->since_ns > (a->cfg.timeout_ms + (uint64_t)LATE_MS) * DD_NS_PER_MS)
        note_progress(a, false);
    else
        link_accept_refuse(a, DD_LOG_INFO, "its handshake timed out");
}

int link_accept_start(struct link_accept **ret, struct event_base *base, int fd,
                      const struct link_accept_cfg *cfg, const struct link_accept_cb *cb,
                      struct dd_err *err)
{
    const struct timeval limit = dd_timeval(cfg->timeout_ms * DD_NS_PER_MS);
    struct link_accept *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        (void)close(fd);
        return dd_err_set(err, -ENOMEM, "out of memory for a connection");
    }
    *a = (struct link_accept){
        .base = base, .cfg = *cfg, .fd = fd, .in = DD_BUF_INIT(HELLO_CALL_MAX), .cb = *cb};
    a->readable = event_new(base, fd, EV_READ | EV_PERSIST, link_accept_on_readable, a);
    a->timer = evtimer_new(base, on_timeout, a);
    a->since_ns = dd_now_ns();
    if (a->readable == NULL || a->timer == NULL || event_add(a->readable, NULL) < 0 ||
        evtimer_add(a->timer, &limit) < 0) {
        link_accept_free(a);
        return dd_err_set(err, -ENOMEM, "out of memory for a connection");
    }
    (void)evutil_make_socket_nonblocking(fd);
    link_tune_socket(fd);
    *ret = a;
    return 0;
}
