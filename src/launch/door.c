#include "launch/door.h"

#include "base/io.h"
#include "base/num.h"
#include "net/listen.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_MS = 10000, CALLERS_EXTRA = 256, HOSTS_MAX = 16, MS = 1000000 };

struct caller {
    LIST_ENTRY(caller) entry;
    struct launch_door *door;
    struct link_accept *accept; /* until it is known who it is */
    struct link *link;
};

struct launch_door {
    struct launch_door_cfg cfg;
    struct event_base *base;
    struct event *listener;
    struct link_shared shared;
    LIST_HEAD(, caller) callers;
    int ncallers, fd;
    uint16_t port;
    bool *fetched; /* [nnodes] */
};

static void caller_free(struct caller *c)
{
    LIST_REMOVE(c, entry);
    c->door->ncallers--;
    link_accept_free(c->accept);
    link_free(c->link);
    free(c);
}

/* Each frame that comes is a node's word that it has got what it needs. */
static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct caller *c = arg;
    struct launch_door *d = c->door;
    int index;
    if (f->type != FRAME_PACKAGE || dd_num_int(link_node(l), 0, d->cfg.nnodes - 1, &index) < 0 || d->fetched[index])
        return;
    d->fetched[index] = true;
    d->cfg.on_fetched(d->cfg.arg, index);
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    (void)l;
    (void)clean;
    (void)why;
    caller_free(arg);
}

static void on_accepted(void *arg, struct link_accept *a, struct link *l, const char *why)
{
    struct caller *c = arg;
    const struct dd_buf *p = c->door->cfg.package;
    (void)a;
    (void)why; /* has been logged */
    link_accept_free(c->accept);
    c->accept = NULL;
    c->link = l;
    if (l != NULL)
        link_set_max(l, PACKAGE_MAX);
    if (l == NULL || link_send(l, FRAME_PACKAGE, p->data, p->len) < 0)
        caller_free(c);
    else
        link_set_cb(l, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = c});
}

/* Anybody may call and say nothing: who has done so longest makes room. */
static bool drop_oldest(struct launch_door *d)
{
    struct caller *c;
    struct caller *oldest = NULL;
    LIST_FOREACH(c, &d->callers, entry)
        if (c->link == NULL)
            oldest = c;
    if (oldest != NULL)
        caller_free(oldest);
    return oldest != NULL;
}

static void on_connection(evutil_socket_t fd, short what, void *arg)
{
    struct launch_door *d = arg;
    const int most = 4 * d->cfg.nnodes + CALLERS_EXTRA;
    const struct link_accept_cfg cfg = {.job_id = d->cfg.id,
                                        .key = d->cfg.key,
                                        .key_in = d->cfg.key_in,
                                        /* a node drops all ways but the first: nothing to be logged */
                                        .timeout_ms = HELLO_MS,
                                        .shared = &d->shared};
    (void)what;
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0) {
        if (errno == EMFILE || errno == ENFILE) /* it would be told of the same connection for ever */
            (void)drop_oldest(d);
        return;
    }
    struct caller *c = d->ncallers < most || drop_oldest(d) ? calloc(1, sizeof(*c)) : NULL;
    if (c == NULL) {
        close(peer);
        return;
    }
    c->door = d;
    LIST_INSERT_HEAD(&d->callers, c, entry);
    d->ncallers++;
    if (link_accept_start(&c->accept, d->base, peer, &cfg, on_accepted, c, NULL) < 0)
        caller_free(c);
}

int launch_door_new(struct launch_door **ret, struct event_base *base, const struct launch_door_cfg *cfg,
                    struct dd_err *err)
{
    const uint16_t any = 0;
    struct launch_door *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *d = (struct launch_door){.cfg = *cfg, .base = base, .fd = -1};
    d->fetched = calloc((size_t)cfg->nnodes, sizeof(*d->fetched));
    int rc = d->fetched == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    if (rc == 0)
        rc = d->fd = net_listen(NULL, &any, 1, &d->port, err);
    if (rc >= 0) {
        d->listener = event_new(base, d->fd, EV_READ | EV_PERSIST, on_connection, d);
        rc = d->listener == NULL || event_add(d->listener, NULL) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    }
    if (rc < 0)
        launch_door_free(d);
    else
        *ret = d;
    return rc;
}

char *launch_door_argument(const struct launch_door *d, int index, bool key_on_stdin, char *const *addresses)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
    int rc = dd_buf_printf(&out, "--launched=%d/%u/%s%s/", index, d->port, d->cfg.id, key_on_stdin ? "/key" : "");
    for (size_t i = 0; addresses[i] != NULL && i < HOSTS_MAX && rc == 0; i++)
        rc = dd_buf_printf(&out, "%s%s", i > 0 ? "," : "", addresses[i]);
    return rc == 0 ? dd_buf_steal(&out) : NULL;
}

void launch_door_leave(const struct launch_door *d)
{
    close(d->fd);
}

void launch_door_free(struct launch_door *d)
{
    if (d == NULL)
        return;
    while (!LIST_EMPTY(&d->callers))
        caller_free(LIST_FIRST(&d->callers));
    if (d->listener != NULL)
        event_free(d->listener);
    if (d->fd >= 0)
        close(d->fd);
    link_shared_done(&d->shared);
    free(d->fetched);
    free(d);
}

/* ---- started side ---------------------------------------------------------------------------- */

static int ticket_words(struct launch_ticket *t, const struct dd_strv *w)
{
    int port;
    if (w->n < 4 || w->n > 5 || (w->n == 5 && strcmp(w->v[3], "key") != 0) || strlen(w->v[2]) >= sizeof(t->id) ||
        dd_num_int(w->v[0], 0, HOSTLIST_MAX - 1, &t->index) < 0 || dd_num_int(w->v[1], 1, UINT16_MAX, &port) < 0)
        return -EINVAL;
    t->port = (uint16_t)port;
    t->key_on_stdin = w->n == 5;
    memcpy(t->id, w->v[2], strlen(w->v[2]) + 1);
    int rc = dd_strv_split(&t->hosts, w->v[w->n - 1], ",");
    return rc == 0 && (t->hosts.n == 0 || t->hosts.n > HOSTS_MAX) ? -EINVAL : rc;
}

int launch_ticket_parse(struct launch_ticket *ret, const char *text, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv words = {0};
    struct launch_ticket t = {0};
    int rc = dd_strv_split(&words, text, "/");
    if (rc == 0)
        rc = ticket_words(&t, &words);
    if (rc < 0) {
        launch_ticket_done(&t);
        return dd_err_set(err, rc, "--launched=%.200s is not what ddrun tells the nodes that it starts; "
                                   "it is not for people", text);
    }
    *ret = t;
    return 0;
}

void launch_ticket_done(struct launch_ticket *t)
{
    dd_strv_done(&t->hosts);
}

struct fetch {
    struct event_base *base;
    struct event *limit;
    struct link_find *finds[HOSTS_MAX];
    size_t nfinds;
    struct link *link;
    struct package *to;
    struct dd_err *err;
    int rc; /* -ETIMEDOUT until there is something to say */
};

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct fetch *f = arg;
    (void)fd;
    (void)what;
    event_base_loopbreak(f->base);
}

static void end_searches(struct fetch *f)
{
    for (size_t i = 0; i < f->nfinds; i++)
        link_find_free(f->finds[i]);
    f->nfinds = 0;
}

static void on_package(void *arg, struct link *l, const struct frame *fr)
{
    struct fetch *f = arg;
    if (fr->type != FRAME_PACKAGE)
        return;
    f->rc = package_decode(f->to, fr->data, fr->len, f->err);
    if (f->rc == 0)
        (void)link_send(l, FRAME_PACKAGE, "", 0);
    link_bye(l);
    f->link = NULL;
    event_del(f->limit); /* the loop ends once the goodbye has been read */
}

static void on_lost(void *arg, struct link *l, bool clean, const char *why)
{
    struct fetch *f = arg;
    (void)l;
    (void)clean;
    link_free(f->link);
    f->link = NULL;
    f->rc = dd_err_set(f->err, -ECONNRESET, "the starting node is gone: %s", why);
    event_base_loopbreak(f->base);
}

static void on_found(void *arg, struct link *l)
{
    struct fetch *f = arg;
    end_searches(f);
    f->link = l;
    link_set_max(l, PACKAGE_MAX);
    link_set_cb(l, &(struct link_cb){.on_frame = on_package, .on_close = on_lost, .arg = f});
}

static int search_all(struct fetch *f, const struct launch_ticket *t, const struct net_key_input *key_in,
                      const struct dd_log *log)
{
    char me[16];
    (void)snprintf(me, sizeof(me), "%d", t->index);
    for (size_t i = 0; i < t->hosts.n; i++) {
        const struct link_find_cfg cfg = {.job_id = t->id,
                                          .node = me,
                                          .host = t->hosts.v[i],
                                          .host_is_me = true,
                                          .ports = &t->port,
                                          .nports = 1,
                                          .key_in = key_in,
                                          .log = log};
        int rc = link_find_start(&f->finds[f->nfinds], f->base, &cfg, on_found, f, f->err);
        if (rc < 0)
            return rc;
        f->nfinds++;
    }
    return 0;
}

int launch_fetch(struct package *ret, const struct launch_ticket *t, const struct net_key_input *key_in,
                 const struct dd_log *log, unsigned limit_ms, struct dd_err *err)
{
    struct fetch f = {.to = ret, .err = err, .rc = -ETIMEDOUT, .base = event_base_new()};
    struct timeval limit = dd_timeval((uint64_t)limit_ms * MS);
    f.limit = f.base != NULL ? evtimer_new(f.base, on_limit, &f) : NULL;
    int rc = f.limit == NULL || event_add(f.limit, &limit) < 0 ? dd_err_set(err, -ENOMEM, "out of memory")
                                                               : search_all(&f, t, key_in, log);
    if (rc == 0) {
        event_base_dispatch(f.base);
        rc = f.rc;
    }
    if (rc == -ETIMEDOUT)
        (void)dd_err_set(err, rc, "cannot reach the starting node: %s",
                         f.nfinds > 0 ? link_find_status(f.finds[0]) : "it has said nothing");
    end_searches(&f);
    link_free(f.link);
    if (f.limit != NULL)
        event_free(f.limit);
    if (f.base != NULL)
        event_base_free(f.base);
    return rc;
}
