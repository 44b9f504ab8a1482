#include "launch/parent_link.h"

#include "base/io.h"
#include "net/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 65536 };

/* ---- the link ---- */

struct launch_up {
    struct event_base *base;
    struct link *link; /* NULL: there is nobody */
    struct launch_up_cb cb;
    size_t under_way[LAUNCH_STREAMS];
    bool ended;
    int nnodes;
};

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct launch_up *u = arg;
    DD_AUTO(launch_word) struct launch_word w = {0};
    (void)l;
    if (f->type != FRAME_LAUNCH || launch_word_decode(&w, f->data, f->len, u->nnodes) < 0)
        return;
    if (w.type != WORD_ROOM) {
        u->cb.on_word(u->cb.arg, &w);
        return;
    }
    size_t *n = &u->under_way[w.node];
    *n -= w.value < *n ? w.value : *n;
    u->cb.on_room(u->cb.arg);
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct launch_up *u = arg;
    (void)clean;
    link_free(l);
    u->link = NULL;
    u->cb.on_lost(u->cb.arg, why);
}

void launch_up_begin(struct launch_up *u, const struct launch_up_cb *cb)
{
    u->cb = *cb;
    link_set_cb(u->link, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = u});
}

struct event_base *launch_up_base(const struct launch_up *u)
{
    return u->base;
}

void launch_up_say(struct launch_up *u, enum launch_word_type type, int node, uint32_t value)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64);
    const struct launch_word w = {.type = type, .node = node, .value = value};
    if (u->link != NULL && launch_word_encode(&out, &w) == 0)
        (void)link_send(u->link, FRAME_LAUNCH, out.data, out.len);
}

size_t launch_up_room(const struct launch_up *u, int which)
{
    const size_t n = u->under_way[which];
    if (u->link == NULL) /* it goes nowhere, and nobody is to wait for that */
        return PIECE;
    return n < LAUNCH_WINDOW ? LAUNCH_WINDOW - n : 0;
}

void launch_up_put(struct launch_up *u, int which, const void *p, size_t n)
{
    const unsigned char *from = p;
    unsigned char bytes[1 + PIECE];
    bytes[0] = (unsigned char)which;
    while (n > 0 && u->link != NULL) {
        const size_t k = n < PIECE ? n : PIECE;
        memcpy(bytes + 1, from, k);
        if (link_send(u->link, FRAME_OUTPUT, bytes, 1 + k) < 0)
            return;
        u->under_way[which] += k;
        from += k;
        n -= k;
    }
}

void launch_up_end(struct launch_up *u)
{
    for (unsigned char k = 0; k < LAUNCH_STREAMS && u->link != NULL && !u->ended; k++)
        (void)link_send(u->link, FRAME_OUTPUT, &k, 1);
    u->ended = true;
}

bool launch_up_empty(const struct launch_up *u)
{
    return u->link == NULL || u->under_way[0] + u->under_way[1] == 0;
}

void launch_up_free(struct launch_up *u)
{
    if (u == NULL)
        return;
    if (u->link != NULL) {
        link_bye(u->link);
        (void)event_base_dispatch(u->base); /* until the goodbye has been read */
    }
    if (u->base != NULL)
        event_base_free(u->base);
    free(u);
}

/* ---- the package ---- */

struct fetch {
    struct launch_up *up;
    struct event *limit, *input; /* input: NULL, or stdin */
    struct link_find *finds[LAUNCH_HOSTS_MAX];
    size_t nfinds;
    struct package *package;
    struct launch_word task;
    struct dd_err *err;
    int rc; /* -ETIMEDOUT until there is something to say */
};

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct fetch *f = arg;
    (void)fd;
    (void)what;
    event_base_loopbreak(f->up->base);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    struct fetch *f = arg;
    char bytes[256];
    (void)what;
    if (read(fd, bytes, sizeof(bytes)) != 0)
        return;
    f->rc = dd_err_set(f->err, -ECONNRESET, "the starting node is gone");
    event_base_loopbreak(f->up->base);
}

static void end_searches(struct fetch *f)
{
    for (size_t i = 0; i < f->nfinds; i++)
        link_find_free(f->finds[i]);
    f->nfinds = 0;
}

/* First the task, then the package. */
static void on_package(void *arg, struct link *l, const struct frame *fr)
{
    struct fetch *f = arg;
    DD_AUTO(launch_word) struct launch_word w = {0};
    if (f->rc != -ETIMEDOUT)
        return;
    if (fr->type == FRAME_LAUNCH && f->task.type == 0 &&
        launch_word_decode(&w, fr->data, fr->len, HOSTLIST_MAX) == 0 && w.type == WORD_TASK) {
        f->task = w;
        w = (struct launch_word){0};
    }
    if (fr->type != FRAME_PACKAGE)
        return;
    f->rc = package_decode(f->package, fr->data, fr->len, f->err);
    for (int i = 0; i < f->task.task.n && f->rc == 0; i++)
        if (f->task.task.nodes[i] >= f->package->alloc->nnodes)
            f->rc = dd_err_set(f->err, -EPROTO,
                               "the starting node knows more nodes than there are");
    if (f->rc == 0)
        f->rc = link_send(l, FRAME_PACKAGE, "", 0);
    event_base_loopbreak(f->up->base);
}

static void on_lost(void *arg, struct link *l, bool clean, const char *why)
{
    struct fetch *f = arg;
    (void)clean;
    link_free(l);
    f->up->link = NULL;
    if (f->rc == -ETIMEDOUT)
        f->rc = dd_err_set(f->err, -ECONNRESET, "the starting node is gone: %s", why);
    event_base_loopbreak(f->up->base);
}

static void on_found(void *arg, struct link *l)
{
    struct fetch *f = arg;
    end_searches(f);
    f->up->link = l;
    link_set_max(l, PACKAGE_MAX);
    link_set_cb(l, &(struct link_cb){.on_frame = on_package, .on_close = on_lost, .arg = f});
}

static int search_all(struct fetch *f, const struct launch_fetch_cfg *c)
{
    const struct launch_ticket *t = c->ticket;
    char me[16];
    (void)snprintf(me, sizeof(me), "%d", t->index);
    for (size_t i = 0; i < t->hosts.n; i++) {
        const struct link_find_cfg cfg = {.job_id = t->id,
                                          .node = me,
                                          .host = t->hosts.v[i],
                                          .host_is_me = true,
                                          .ports = &t->port,
                                          .nports = 1,
                                          .key_in = c->key_in,
                                          .log = c->log};
        int rc = link_find_start(&f->finds[f->nfinds], f->up->base, &cfg, on_found, f, f->err);
        if (rc < 0)
            return rc;
        f->nfinds++;
    }
    return 0;
}

static int fetch_in_time(struct fetch *f, const struct launch_fetch_cfg *cfg)
{
    struct timeval limit = dd_timeval(cfg->limit_ms * DD_NS_PER_MS);
    f->limit = f->up->base != NULL ? evtimer_new(f->up->base, on_limit, f) : NULL;
    if (f->limit == NULL || event_add(f->limit, &limit) < 0)
        return dd_err_set(f->err, -ENOMEM, "out of memory");
    if (cfg->stdin_fd >= 0) {
        (void)dd_fd_nonblock(cfg->stdin_fd);
        f->input = event_new(f->up->base, cfg->stdin_fd, EV_READ | EV_PERSIST, on_input, f);
        if (f->input == NULL || event_add(f->input, NULL) < 0)
            return dd_err_set(f->err, -ENOMEM, "out of memory");
    }
    int rc = search_all(f, cfg);
    if (rc < 0)
        return rc;
    event_base_dispatch(f->up->base);
    return f->rc;
}

int launch_fetch(struct launch_up **ret, struct package *ret_package, struct launch_task *ret_task,
                 const struct launch_fetch_cfg *cfg, struct dd_err *err)
{
    struct fetch f = {
        .up = calloc(1, sizeof(*f.up)), .package = ret_package, .err = err, .rc = -ETIMEDOUT};
    if (f.up == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    f.up->base = net_loop_new();
    int rc = fetch_in_time(&f, cfg);
    if (rc == -ETIMEDOUT)
        (void)dd_err_set(err, rc, "cannot reach the starting node: %s",
                         f.nfinds > 0 ? link_find_status(f.finds[0]) : "it has said nothing");
    end_searches(&f);
    struct event *events[] = {f.limit, f.input};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    if (rc == 0) {
        *ret_task = f.task.task;
        f.task.task = (struct launch_task){0};
        f.up->nnodes = ret_package->alloc->nnodes;
        *ret = DD_TAKE(f.up);
    }
    launch_word_done(&f.task);
    launch_up_free(f.up);
    return rc;
}
