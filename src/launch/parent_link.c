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

struct parent_link {
    struct event_base *base;
    struct link *link; /* NULL: the parent is lost */
    struct parent_link_cb cb;
    size_t under_way[LAUNCH_STREAMS];
    bool ended;
    int nnodes;
};

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct parent_link *u = arg;
    DD_AUTO(launch_msg) struct launch_msg m = {0};
    (void)l;
    if (f->type != FRAME_LAUNCH || launch_msg_decode(&m, f->data, f->len, u->nnodes) < 0)
        return;
    if (m.type != LAUNCH_CREDIT) {
        u->cb.on_message(u->cb.arg, &m);
        return;
    }
    size_t *n = &u->under_way[m.node];
    *n -= m.value < *n ? m.value : *n;
    u->cb.on_room(u->cb.arg);
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct parent_link *u = arg;
    (void)clean;
    link_free(l);
    u->link = NULL;
    u->cb.on_lost(u->cb.arg, why);
}

void parent_link_start(struct parent_link *u, const struct parent_link_cb *cb)
{
    u->cb = *cb;
    link_set_cb(u->link, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = u});
}

struct event_base *parent_link_base(const struct parent_link *u)
{
    return u->base;
}

void parent_link_send(struct parent_link *u, enum launch_msg_type type, int node, uint32_t value)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64);
    const struct launch_msg m = {.type = type, .node = node, .value = value};
    if (u->link != NULL && launch_msg_encode(&out, &m) == 0)
        (void)link_send(u->link, FRAME_LAUNCH, out.data, out.len);
}

size_t parent_link_room(const struct parent_link *u, int which)
{
    const size_t n = u->under_way[which];
    if (u->link == NULL) /* without a parent, drop output, so that no process waits */
        return PIECE;
    return n < LAUNCH_WINDOW ? LAUNCH_WINDOW - n : 0;
}

void parent_link_write(struct parent_link *u, int which, const void *p, size_t n)
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

void parent_link_end(struct parent_link *u)
{
    for (unsigned char k = 0; k < LAUNCH_STREAMS && u->link != NULL && !u->ended; k++)
        (void)link_send(u->link, FRAME_OUTPUT, &k, 1);
    u->ended = true;
}

bool parent_link_empty(const struct parent_link *u)
{
    return u->link == NULL || u->under_way[0] + u->under_way[1] == 0;
}

void parent_link_free(struct parent_link *u)
{
    if (u == NULL)
        return;
    if (u->link != NULL) {
        link_bye(u->link);
        (void)event_base_dispatch(u->base); /* runs until the parent has read BYE */
    }
    if (u->base != NULL)
        event_base_free(u->base);
    free(u);
}

/* ---- payload ---- */

struct fetch {
    struct parent_link *parent;
    struct event *limit, *input; /* input: EOF on stdin; NULL: not watched */
    struct link_find *finds[LAUNCH_HOSTS_MAX];
    size_t nfinds;
    struct bootstrap_payload *payload;
    struct launch_msg task;
    struct dd_err *err;
    int rc; /* result of the fetch; -ETIMEDOUT: none yet */
};

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct fetch *f = arg;
    (void)fd;
    (void)what;
    event_base_loopbreak(f->parent->base);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    struct fetch *f = arg;
    char bytes[256];
    (void)what;
    if (read(fd, bytes, sizeof(bytes)) != 0)
        return;
    f->rc = dd_err_set(f->err, -ECONNRESET,
                       "the starting node has ended the connection: end of file on stdin");
    event_base_loopbreak(f->parent->base);
}

static void end_searches(struct fetch *f)
{
    for (size_t i = 0; i < f->nfinds; i++)
        link_find_free(f->finds[i]);
    f->nfinds = 0;
}

/* The first frame is the task, the second the payload. */
static void on_payload(void *arg, struct link *l, const struct frame *fr)
{
    struct fetch *f = arg;
    DD_AUTO(launch_msg) struct launch_msg m = {0};
    if (f->rc != -ETIMEDOUT)
        return;
    if (fr->type == FRAME_LAUNCH && f->task.type == 0 &&
        launch_msg_decode(&m, fr->data, fr->len, HOSTLIST_MAX) == 0 && m.type == LAUNCH_TASK) {
        f->task = m;
        m = (struct launch_msg){0};
    }
    if (fr->type != FRAME_BOOTSTRAP)
        return;
    f->rc = bootstrap_payload_decode(f->payload, fr->data, fr->len, f->err);
    for (int i = 0; i < f->task.task.n && f->rc == 0; i++)
        if (f->task.task.nodes[i] >= f->payload->alloc->nnodes)
            f->rc = dd_err_set(f->err, -EPROTO,
                               "invalid node index %d in the task from the starting node: "
                               "expected 0 to %d",
                               f->task.task.nodes[i], f->payload->alloc->nnodes - 1);
    const int sent = f->rc == 0 ? link_send(l, FRAME_BOOTSTRAP, "", 0) : 0;
    if (sent < 0)
        f->rc = dd_err_set(f->err, sent, "cannot confirm the payload to the starting node: %s",
                           strerror(-sent));
    event_base_loopbreak(f->parent->base);
}

static void on_lost(void *arg, struct link *l, bool clean, const char *why)
{
    struct fetch *f = arg;
    (void)clean;
    link_free(l);
    f->parent->link = NULL;
    if (f->rc == -ETIMEDOUT)
        f->rc = dd_err_set(f->err, -ECONNRESET, "lost the connection to the starting node: %s",
                           why);
    event_base_loopbreak(f->parent->base);
}

static void on_found(void *arg, struct link *l)
{
    struct fetch *f = arg;
    end_searches(f);
    f->parent->link = l;
    link_set_max(l, BOOTSTRAP_MAX);
    link_set_cb(l, &(struct link_cb){.on_frame = on_payload, .on_close = on_lost, .arg = f});
}

static int search_all(struct fetch *f, const struct bootstrap_fetch_cfg *c)
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
        int rc = link_find_start(&f->finds[f->nfinds], f->parent->base, &cfg, on_found, f, f->err);
        if (rc < 0)
            return rc;
        f->nfinds++;
    }
    return 0;
}

static int fetch_in_time(struct fetch *f, const struct bootstrap_fetch_cfg *cfg)
{
    struct timeval limit = dd_timeval(cfg->limit_ms * DD_NS_PER_MS);
    f->limit = f->parent->base != NULL ? evtimer_new(f->parent->base, on_limit, f) : NULL;
    if (f->limit == NULL || event_add(f->limit, &limit) < 0)
        return dd_err_set(f->err, -ENOMEM, "out of memory");
    if (cfg->stdin_fd >= 0) {
        (void)dd_fd_nonblock(cfg->stdin_fd);
        f->input = event_new(f->parent->base, cfg->stdin_fd, EV_READ | EV_PERSIST, on_input, f);
        if (f->input == NULL || event_add(f->input, NULL) < 0)
            return dd_err_set(f->err, -ENOMEM, "out of memory");
    }
    int rc = search_all(f, cfg);
    if (rc < 0)
        return rc;
    event_base_dispatch(f->parent->base);
    return f->rc;
}

int bootstrap_fetch(struct parent_link **ret, struct bootstrap_payload *ret_payload,
                    struct launch_task *ret_task, const struct bootstrap_fetch_cfg *cfg,
                    struct dd_err *err)
{
    struct fetch f = {.parent = calloc(1, sizeof(*f.parent)),
                      .payload = ret_payload,
                      .err = err,
                      .rc = -ETIMEDOUT};
    if (f.parent == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    f.parent->base = net_loop_new();
    int rc = fetch_in_time(&f, cfg);
    if (rc == -ETIMEDOUT)
        (void)dd_err_set(
            err, rc, "timed out after %u s waiting for the starting node: %s", cfg->limit_ms / 1000,
            f.nfinds > 0 ? link_find_status(f.finds[0]) : "connected, but received no payload");
    end_searches(&f);
    struct event *events[] = {f.limit, f.input};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    if (rc == 0) {
        *ret_task = f.task.task;
        f.task.task = (struct launch_task){0};
        f.parent->nnodes = ret_payload->alloc->nnodes;
        *ret = DD_TAKE(f.parent);
    }
    launch_msg_done(&f.task);
    parent_link_free(f.parent);
    return rc;
}
