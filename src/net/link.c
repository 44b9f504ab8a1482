#include "net/link.h"

#include "base/io.h"
#include "net/hello.h"
#include "net/link_inner.h"
#include "net/tls_inner.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINK_BYE_MS = 1000,
    LINK_HIGH_WATER = FRAME_MAX * 2,
    LINK_BULK_MAX = LINK_HIGH_WATER - (2 << 20), /* the rest is reserved for other frames, such
                                                    as a STOP to the peer that reads slowly */
};

struct link {
    struct bufferevent *bev;
    struct link_cb cb;
    struct event *bye_timer; /* NULL until link_bye() is called */
    struct event *beat;      /* NULL: no heartbeat */
    unsigned beat_ms, patience_ms;
    uint64_t heard_ns, beaten_ns; /* times of the last data from the peer, of the last tick */
    uint64_t excused_ns;          /* the peer may be silent until then */
    unsigned depth;               /* callbacks in progress */
    bool closed;                  /* on_close was called */
    bool freed;                   /* freed once depth is 0 */
    bool lacks_memory;
    char failed[128]; /* reason from link_fail(), for the pending on_close; "": none */
    uint32_t max;
    struct net_addr local, peer;
    struct link_times times;
    char node[256];
};

void link_tune_socket(int fd)
{
    static const struct {
        int level, name, value;
    } rows[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
        {SOL_SOCKET, SO_REUSEADDR, 1}, /* connections in TIME_WAIT do not block the leader's port */
        {IPPROTO_TCP, TCP_KEEPIDLE, 10}, {IPPROTO_TCP, TCP_KEEPINTVL, 5},
        {IPPROTO_TCP, TCP_KEEPCNT, 3},   {IPPROTO_TCP, TCP_USER_TIMEOUT, 30000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        (void)setsockopt(fd, rows[i].level, rows[i].name, &rows[i].value, sizeof(rows[i].value));
}

int link_hello_read(int fd, struct dd_buf *in)
{
    unsigned char chunk[HELLO_MAX];
    size_t want = hello_need(in->data, in->len) - in->len;
    if (want == 0 || want > sizeof(chunk))
        return -EPROTO;
    ssize_t n = recv(fd, chunk, want, MSG_DONTWAIT);
    if (n == 0)
        return -ECONNRESET;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    int rc = dd_buf_append(in, chunk, (size_t)n);
    return rc < 0 ? rc : 1;
}

int link_hello_send(int fd, const struct dd_buf *out)
{
    ssize_t n = send(fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return -errno;
    return (size_t)n == out->len ? 0 : -ENOBUFS;
}

static void destroy(struct link *l)
{
    if (l->bye_timer != NULL)
        event_free(l->bye_timer);
    if (l->beat != NULL)
        event_free(l->beat);
    bufferevent_free(l->bev);
    free(l);
}

void link_free(struct link *l)
{
    if (l == NULL)
        return;
    l->freed = true;
    if (l->beat != NULL)
        (void)event_del(l->beat);
    (void)bufferevent_disable(l->bev, EV_READ | EV_WRITE);
    bufferevent_setcb(l->bev, NULL, NULL, NULL, NULL);
    if (l->depth == 0)
        destroy(l);
}

static void enter(struct link *l)
{
    l->depth++;
}

static void link_leave(struct link *l)
{
    l->depth--;
    if (l->depth == 0 && l->freed)
        destroy(l);
}

static bool is_live(const struct link *l)
{
    return !l->freed && !l->closed && l->bye_timer == NULL;
}

static bool is_open(const struct link *l)
{
    return is_live(l) && l->failed[0] == '\0';
}

static void close_link(struct link *l, bool clean, const char *why)
{
    if (!is_live(l))
        return;
    l->closed = true;
    if (l->beat != NULL)
        (void)event_del(l->beat);
    (void)bufferevent_disable(l->bev, EV_READ | EV_WRITE);
    bufferevent_setcb(l->bev, NULL, NULL, NULL, NULL);
    if (l->cb.on_close != NULL)
        l->cb.on_close(l->cb.arg, l, clean, why);
}

/* A BYE carries a reason if the sender had to give up. */
static void take_bye(struct link *l, const struct frame *f)
{
    char why[4 * LINK_WHY_MAX + 1];
    const size_t n = f->len < LINK_WHY_MAX ? f->len : LINK_WHY_MAX;
    close_link(l, true, n > 0 ? dd_log_escape(why, sizeof(why), f->data, n) : LINK_GOODBYE);
}

/* Handle one frame. False: none is complete, or the link was closed because of an invalid one. */
static bool take_frame(struct link *l)
{
    struct evbuffer *in = bufferevent_get_input(l->bev);
    unsigned char head[FRAME_HEADER];
    struct frame f;
    size_t need = 0;
    char why[64];
    ev_ssize_t got = evbuffer_copyout(in, head, sizeof(head));
    long rc = frame_decode(&f, head, got > 0 ? (size_t)got : 0, l->max, &need);
    if (rc < 0) {
        (void)snprintf(why, sizeof(why), "it sent a frame of more than %" PRIu32 " bytes", l->max);
        close_link(l, false, why);
        return false;
    }
    if (evbuffer_get_length(in) < need)
        return false;
    const unsigned char *all = evbuffer_pullup(in, (ev_ssize_t)need);
    if (all == NULL || frame_decode(&f, all, need, l->max, NULL) <= 0) {
        l->lacks_memory = true;
        close_link(l, false, "out of memory for a frame");
        return false;
    }
    if (f.version > FRAME_VERSION && f.type <= FRAME_LAUNCH)
        close_link(l, false,
                   "it sent a frame of a later version; all nodes need the same version of ddrun");
    else if (f.type == FRAME_BYE)
        take_bye(l, &f);
    else if (l->cb.on_frame != NULL)
        l->cb.on_frame(l->cb.arg, l, &f);
    (void)evbuffer_drain(in, need);
    return true;
}

static void link_on_readable(struct bufferevent *bev, void *arg)
{
    struct link *l = arg;
    (void)bev;
    l->heard_ns = dd_now_ns();
    enter(l);
    while (is_open(l) && take_frame(l))
        ;
    link_leave(l);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct link *l = arg;
    char why[256] = "it closed the connection without BYE";
    if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) == 0)
        return;
    if (l->failed[0] != '\0')
        (void)snprintf(why, sizeof(why), "%s", l->failed);
    else if ((what & BEV_EVENT_ERROR) != 0)
        l->lacks_memory = net_tls_fault(bev, why, sizeof(why)) == NET_TLS_MEMORY;
    enter(l);
    close_link(l, false, why);
    link_leave(l);
}

/* A late tick means that this process was suspended: the peer may have sent something meanwhile, or
 * may have been suspended too. */
static void on_beat(evutil_socket_t fd, short what, void *arg)
{
    struct link *l = arg;
    uint64_t now = dd_now_ns();
    const uint64_t silence = l->beat_ms * DD_NS_PER_MS;
    char why[96];
    (void)fd;
    (void)what;
    if (now - l->beaten_ns > silence * 2 / 3 || now < l->excused_ns)
        l->heard_ns = now;
    l->beaten_ns = now;
    if (now - l->heard_ns <= silence + l->patience_ms * DD_NS_PER_MS) {
        (void)link_send(l, FRAME_PING, "", 0);
        return;
    }
    (void)snprintf(why, sizeof(why), "no heartbeat for %.1f s", (double)(now - l->heard_ns) / 1e9);
    enter(l);
    close_link(l, false, why);
    link_leave(l);
}

int link_set_heartbeat(struct link *l, unsigned ms)
{
    const unsigned third = ms / 3;
    struct timeval t = dd_timeval(third * DD_NS_PER_MS);
    if (l->beat == NULL)
        l->beat = event_new(bufferevent_get_base(l->bev), -1, EV_PERSIST, on_beat, l);
    l->beat_ms = ms;
    l->heard_ns = l->beaten_ns = dd_now_ns();
    return l->beat == NULL || event_add(l->beat, &t) < 0 ? -ENOMEM : 0;
}

void link_set_patience(struct link *l, unsigned ms)
{
    l->patience_ms = ms;
}

void link_excuse(struct link *l, unsigned ms)
{
    l->excused_ns = ms > 0 ? dd_now_ns() + ms * DD_NS_PER_MS : 0;
}

static void learn_addresses(struct link *l)
{
    struct sockaddr_storage ss;
    evutil_socket_t fd = bufferevent_getfd(l->bev);
    socklen_t len = sizeof(ss);
    if (getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
        (void)net_addr_from_sockaddr(&l->local, (struct sockaddr *)&ss, len);
    len = sizeof(ss);
    if (getpeername(fd, (struct sockaddr *)&ss, &len) == 0)
        (void)net_addr_from_sockaddr(&l->peer, (struct sockaddr *)&ss, len);
}

int link_of_bev(struct link **ret, struct bufferevent *bev, const char *node, struct dd_err *err)
{
    struct link *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for a link");
    l->bev = bev;
    (void)snprintf(l->node, sizeof(l->node), "%s", node);
    learn_addresses(l);
    link_set_max(l, LINK_FRAME_MAX);
    bufferevent_setcb(bev, link_on_readable, NULL, on_event, l);
    *ret = l;
    return 0;
}

int link_new_trusted(struct link **ret, struct event_base *base, int fd, const struct link_cb *cb,
                     struct dd_err *err)
{
    (void)evutil_make_socket_nonblocking(fd);
    struct bufferevent *bev = bufferevent_socket_new(
        base, fd, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (bev == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for a link");
    int rc = link_of_bev(ret, bev, "", err);
    if (rc < 0) {
        (void)bufferevent_setfd(bev, -1); /* fd remains owned by the caller */
        bufferevent_free(bev);
        return rc;
    }
    (*ret)->local = (*ret)->peer = (struct net_addr){.len = 0};
    link_set_cb(*ret, cb);
    return 0;
}

void link_set_cb(struct link *l, const struct link_cb *cb)
{
    l->cb = *cb;
    if (is_live(l))
        (void)bufferevent_enable(l->bev, EV_READ | EV_WRITE);
}

/* Frame sizes are checked one by one; a longer frame ends the link. A read watermark is not used:
 * bufferevent_setwatermark() of libevent 2.1.12 crashes if its allocation fails. */
void link_set_max(struct link *l, uint32_t max)
{
    l->max = max < FRAME_MAX ? max : FRAME_MAX;
}

struct link_times *link_times(struct link *l)
{
    return &l->times;
}

size_t link_queued(const struct link *l)
{
    return evbuffer_get_length(bufferevent_get_output(l->bev));
}

/* longest: maximum data size of a frame; all: total size with headers. */
static int check_room(const struct link *l, uint16_t type, size_t longest, size_t all)
{
    const bool bulk = type == FRAME_EXCHANGE || type == FRAME_OUTPUT;
    if (!is_open(l))
        return -EPIPE;
    if (longest > l->max)
        return -EMSGSIZE;
    return link_queued(l) + all > (bulk ? LINK_BULK_MAX : LINK_HIGH_WATER) ? -ENOBUFS : 0;
}

int link_send(struct link *l, uint16_t type, const void *data, size_t n)
{
    int rc = check_room(l, type, n, FRAME_HEADER + n);
    if (rc < 0)
        return rc;
    struct evbuffer *out = bufferevent_get_output(l->bev);
    /* reserve contiguous space: one write, one TLS record */
    if (evbuffer_expand(out, FRAME_HEADER + n) < 0)
        return -ENOMEM;
    unsigned char head[FRAME_HEADER];
    frame_header(head, type, (uint32_t)n);
    (void)evbuffer_add(out, head, sizeof(head));
    (void)evbuffer_add(out, data, n);
    return 0;
}

struct link_frames {
    unsigned refs;
    uint16_t type;       /* of the last frame */
    size_t longest;      /* maximum data size of a frame */
    struct dd_buf bytes; /* headers and data */
};

struct link_frames *link_frames_new(void)
{
    struct link_frames *f = calloc(1, sizeof(*f));
    if (f != NULL)
        *f = (struct link_frames){.refs = 1, .bytes = DD_BUF_INIT(LINK_HIGH_WATER)};
    return f;
}

int link_frames_add(struct link_frames *f, uint16_t type, const void *data, size_t n)
{
    f->type = type;
    f->longest = n > f->longest ? n : f->longest;
    return frame_encode(&f->bytes, type, data, n);
}

size_t link_frames_size(const struct link_frames *f)
{
    return f->bytes.len;
}

void link_frames_free(struct link_frames *f)
{
    if (f == NULL || --f->refs > 0)
        return;
    dd_buf_done(&f->bytes);
    free(f);
}

static void on_written(const void *data, size_t n, void *arg)
{
    (void)data;
    (void)n;
    link_frames_free(arg);
}

int link_send_frames(struct link *l, struct link_frames *f)
{
    int rc = check_room(l, f->type, f->longest, f->bytes.len);
    if (rc < 0 || f->bytes.len == 0)
        return rc;
    if (evbuffer_add_reference(bufferevent_get_output(l->bev), f->bytes.data, f->bytes.len,
                               on_written, f) < 0)
        return -ENOMEM;
    f->refs++;
    return 0;
}

void link_fail(struct link *l, const char *what, int rc)
{
    if (!is_open(l))
        return;
    if (rc == -ENOBUFS)
        (void)snprintf(l->failed, sizeof(l->failed),
                       "it does not read: '%.32s' does not fit into the queue of %d MiB", what,
                       LINK_HIGH_WATER >> 20);
    else if (rc == -EPROTO)
        (void)snprintf(l->failed, sizeof(l->failed), "it has sent %.64s", what);
    else
        (void)snprintf(l->failed, sizeof(l->failed), "cannot send '%.32s' to it: %s", what,
                       rc == -EMSGSIZE ? "the message is too long" : strerror(-rc));
    l->lacks_memory = rc == -ENOMEM;
    bufferevent_trigger_event(l->bev, BEV_EVENT_ERROR, BEV_TRIG_DEFER_CALLBACKS);
}

static void on_bye_readable(struct bufferevent *bev, void *arg)
{
    struct evbuffer *in = bufferevent_get_input(bev);
    (void)arg;
    (void)evbuffer_drain(in, evbuffer_get_length(in));
}

/* All data is written; the peer closes after it has read the BYE. Closing now, with data from the
 * peer still unread, would reset the connection and could discard our data. */
static void on_bye_written(struct bufferevent *bev, void *arg)
{
    (void)arg;
    if (evbuffer_get_length(bufferevent_get_output(bev)) == 0)
        (void)shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void on_bye_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) != 0)
        link_free(arg);
}

static void on_bye_timeout(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    link_free(arg);
}

void link_bye(struct link *l)
{
    static const struct timeval limit = {LINK_BYE_MS / 1000, LINK_BYE_MS % 1000 * 1000};
    if (l == NULL || l->bye_timer != NULL || l->freed)
        return;
    if (l->closed || link_send(l, FRAME_BYE, NULL, 0) < 0) {
        link_free(l);
        return;
    }
    l->bye_timer = evtimer_new(bufferevent_get_base(l->bev), on_bye_timeout, l);
    if (l->bye_timer == NULL || evtimer_add(l->bye_timer, &limit) < 0) {
        link_free(l);
        return;
    }
    bufferevent_setcb(l->bev, on_bye_readable, on_bye_written, on_bye_event, l);
    (void)bufferevent_enable(l->bev, EV_READ | EV_WRITE);
}

const struct net_addr *link_local(const struct link *l)
{
    return &l->local;
}

const struct net_addr *link_peer(const struct link *l)
{
    return &l->peer;
}

bool link_lacks_memory(const struct link *l)
{
    return l->lacks_memory;
}

const char *link_node(const struct link *l)
{
    return l->node;
}
