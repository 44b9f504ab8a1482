#include "launch/bootstrap_server.h"

#include "base/num.h"
#include "base/sig.h"
#include "net/handshake_pool.h"
#include "net/listen.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

enum { HELLO_MS = 10000, CALLERS_EXTRA = 256, RECEIVE = 3 * LAUNCH_WINDOW };

struct caller {
    LIST_ENTRY(caller) entry;
    struct launch_door *door;
    struct link *link;
    int index; /* of the node that it is; -1: it has not fetched anything, or: */
    bool away; /* it is to leave */
};

struct launch_door {
    struct launch_door_cfg cfg;
    struct callers *silent;
    LIST_HEAD(, caller) callers; /* who have proved the key */
    int fd;
    uint16_t port;
    bool *fetched;              /* [nnodes] */
    struct caller **callers_of; /* [nnodes]; NULL: not yet, or gone */
};

static void caller_free(struct caller *c)
{
    LIST_REMOVE(c, entry);
    if (c->index >= 0)
        c->door->callers_of[c->index] = NULL;
    link_free(c->link);
    free(c);
}

static int say(struct link *l, enum launch_word_type type, int node, uint32_t value)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64);
    const struct launch_word w = {.type = type, .node = node, .value = value};
    int rc = launch_word_encode(&out, &w);
    return rc < 0 ? rc : link_send(l, FRAME_LAUNCH, out.data, out.len);
}

/* The first of its ways that has brought the package is the one that stays. It may have been given
 * to somebody else between its task and this. */
static void take_fetched(struct caller *c)
{
    struct launch_door *d = c->door;
    int index;
    if (c->away || dd_num_int(link_node(c->link), 0, d->cfg.nnodes - 1, &index) < 0 ||
        d->fetched[index])
        return;
    d->callers_of[index] = c;
    c->index = index;
    d->fetched[index] = d->cfg.on_fetched(d->cfg.arg, index);
    if (d->fetched[index])
        return;
    d->callers_of[index] = NULL;
    c->index = -1;
    c->away = true;
    (void)say(c->link, WORD_SIGNAL, index, SIGTERM | DD_SIGNAL_AT_ONCE);
}

static void lose(struct caller *c)
{
    struct launch_door *d = c->door;
    const int index = c->index;
    caller_free(c);
    if (index >= 0)
        d->cfg.on_gone(d->cfg.arg, index);
}

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct caller *c = arg;
    const struct launch_door_cfg *cfg = &c->door->cfg;
    DD_AUTO(launch_word) struct launch_word w = {0};
    if (c->index < 0 && f->type == FRAME_PACKAGE)
        take_fetched(c);
    else if (c->index >= 0 && f->type == FRAME_LAUNCH &&
             launch_word_decode(&w, f->data, f->len, cfg->nnodes) == 0)
        cfg->on_word(cfg->arg, c->index, &w);
    else if (c->index >= 0 && f->type == FRAME_OUTPUT && f->len > 0 &&
             f->data[0] < LAUNCH_STREAMS &&
             cfg->on_output(cfg->arg, c->index, f->data[0], f->data + 1, f->len - 1) < 0)
        lose(c);
    else if (c->away && f->type == FRAME_OUTPUT && f->len > 1 &&
             f->data[0] < LAUNCH_STREAMS) /* it waits for that */
        (void)say(l, WORD_ROOM, f->data[0], (uint32_t)f->len - 1);
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    (void)l;
    (void)clean;
    (void)why;
    lose(arg);
}

static int send_task(struct caller *c)
{
    const struct launch_door_cfg *cfg = &c->door->cfg;
    struct launch_word w = {.type = WORD_TASK};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(LINK_FRAME_MAX);
    if (dd_num_int(link_node(c->link), 0, cfg->nnodes - 1, &w.node) < 0 ||
        !cfg->task(cfg->arg, w.node, &w.task))
        return -ENOENT;
    int rc = launch_word_encode(&out, &w);
    return rc < 0 ? rc : link_send(c->link, FRAME_LAUNCH, out.data, out.len);
}

static void on_caller(void *arg, struct link *l)
{
    struct launch_door *d = arg;
    const struct dd_buf *p = d->cfg.package;
    struct caller *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        link_free(l);
        return;
    }
    *c = (struct caller){.door = d, .link = l, .index = -1};
    LIST_INSERT_HEAD(&d->callers, c, entry);
    link_set_max(l, PACKAGE_MAX);
    if (send_task(c) < 0 || link_send(l, FRAME_PACKAGE, p->data, p->len) < 0)
        caller_free(c);
    else
        link_set_cb(l, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = c});
}

void launch_door_say(const struct launch_door *d, int index, enum launch_word_type type, int node,
                     uint32_t value)
{
    if (d != NULL && launch_door_is_open(d, index))
        (void)say(d->callers_of[index]->link, type, node, value);
}

bool launch_door_is_open(const struct launch_door *d, int index)
{
    return d != NULL && d->callers_of[index] != NULL;
}

static int let_in(struct launch_door *d, struct event_base *base, struct dd_err *err)
{
    const struct callers_cfg cfg = {
        .base = base,
        .accept = {.job_id = d->cfg.id,
                   .key = d->cfg.key,
                   .key_in = d->cfg.key_in,
                   /* a node drops all ways but the first: nothing to be logged */
                   .timeout_ms = HELLO_MS},
        .fd = d->fd,
        .receive = RECEIVE,
        .most = (size_t)d->cfg.nnodes * 4 + CALLERS_EXTRA,
        .on_link = on_caller,
        .arg = d};
    return callers_new(&d->silent, &cfg) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

int launch_door_new(struct launch_door **ret, struct event_base *base,
                    const struct launch_door_cfg *cfg, struct dd_err *err)
{
    const uint16_t any = 0;
    struct launch_door *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *d = (struct launch_door){.cfg = *cfg, .fd = -1};
    d->fetched = calloc((size_t)cfg->nnodes, sizeof(*d->fetched));
    d->callers_of = calloc((size_t)cfg->nnodes, sizeof(struct caller *));
    int rc = d->fetched == NULL || d->callers_of == NULL ? dd_err_set(err, -ENOMEM, "out of memory")
                                                         : 0;
    if (rc == 0)
        rc = d->fd = net_listen(NULL, &any, 1, &d->port, err);
    if (rc >= 0)
        rc = let_in(d, base, err);
    if (rc < 0)
        launch_door_free(d);
    else
        *ret = d;
    return rc;
}

char *launch_door_argument(const struct launch_door *d, int index,
                           const struct launch_ticket *start)
{
    struct launch_ticket t = *start;
    t.index = index;
    t.port = d->port;
    (void)snprintf(t.id, sizeof(t.id), "%s", d->cfg.id);
    return launch_ticket_argument(&t);
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
    callers_free(d->silent);
    if (d->fd >= 0)
        close(d->fd);
    free(d->fetched);
    free(d->callers_of);
    free(d);
}
