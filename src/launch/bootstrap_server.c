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
    struct bootstrap_server *server;
    struct link *link;
    int index; /* node of this connection; -1: no payload fetched yet, or a node that must exit */
    bool away; /* the node has been ordered to exit */
};

struct bootstrap_server {
    struct bootstrap_server_cfg cfg;
    struct handshake_pool *handshakes;
    LIST_HEAD(, caller) callers; /* connections that have proved the key */
    int fd;
    uint16_t port;
    bool *fetched;              /* [nnodes] the node has fetched its payload */
    struct caller **callers_of; /* [nnodes]; NULL: not connected */
};

static void caller_free(struct caller *c)
{
    LIST_REMOVE(c, entry);
    if (c->index >= 0)
        c->server->callers_of[c->index] = NULL;
    link_free(c->link);
    free(c);
}

static int send_msg(struct link *l, enum launch_msg_type type, int node, uint32_t value)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64);
    const struct launch_msg m = {.type = type, .node = node, .value = value};
    int rc = launch_msg_encode(&out, &m);
    return rc < 0 ? rc : link_send(l, FRAME_LAUNCH, out.data, out.len);
}

/* A node connects over several addresses at once; the first connection over which the node has
 * received the payload remains. By then, another node may have been assigned to start this one,
 * which is then ordered to exit. */
static void take_fetched(struct caller *c)
{
    struct bootstrap_server *d = c->server;
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
    (void)send_msg(c->link, LAUNCH_SIGNAL, index, SIGTERM | DD_SIGNAL_AT_ONCE);
}

static void lose(struct caller *c)
{
    struct bootstrap_server *d = c->server;
    const int index = c->index;
    caller_free(c);
    if (index >= 0)
        d->cfg.on_gone(d->cfg.arg, index);
}

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct caller *c = arg;
    const struct bootstrap_server_cfg *cfg = &c->server->cfg;
    DD_AUTO(launch_msg) struct launch_msg m = {0};
    if (c->index < 0 && f->type == FRAME_BOOTSTRAP)
        take_fetched(c);
    else if (c->index >= 0 && f->type == FRAME_LAUNCH &&
             launch_msg_decode(&m, f->data, f->len, cfg->nnodes) == 0)
        cfg->on_message(cfg->arg, c->index, &m);
    else if (c->index >= 0 && f->type == FRAME_OUTPUT && f->len > 0 &&
             f->data[0] < LAUNCH_STREAMS &&
             cfg->on_output(cfg->arg, c->index, f->data[0], f->data + 1, f->len - 1) < 0)
        lose(c);
    else if (c->away && f->type == FRAME_OUTPUT && f->len > 1 &&
             f->data[0] < LAUNCH_STREAMS) /* drop the output, but grant credit: the node must not
                                             wait for it before it exits */
        (void)send_msg(l, LAUNCH_CREDIT, f->data[0], (uint32_t)f->len - 1);
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
    const struct bootstrap_server_cfg *cfg = &c->server->cfg;
    struct launch_msg m = {.type = LAUNCH_TASK};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(LINK_FRAME_MAX);
    if (dd_num_int(link_node(c->link), 0, cfg->nnodes - 1, &m.node) < 0 ||
        !cfg->task(cfg->arg, m.node, &m.task))
        return -ENOENT;
    int rc = launch_msg_encode(&out, &m);
    return rc < 0 ? rc : link_send(c->link, FRAME_LAUNCH, out.data, out.len);
}

static void on_caller(void *arg, struct link *l)
{
    struct bootstrap_server *d = arg;
    const struct dd_buf *p = d->cfg.payload;
    struct caller *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        link_free(l);
        return;
    }
    *c = (struct caller){.server = d, .link = l, .index = -1};
    LIST_INSERT_HEAD(&d->callers, c, entry);
    link_set_max(l, BOOTSTRAP_MAX);
    if (send_task(c) < 0 || link_send(l, FRAME_BOOTSTRAP, p->data, p->len) < 0)
        caller_free(c);
    else
        link_set_cb(l, &(struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = c});
}

void bootstrap_server_send(const struct bootstrap_server *d, int index, enum launch_msg_type type,
                           int node, uint32_t value)
{
    if (d != NULL && bootstrap_server_is_connected(d, index))
        (void)send_msg(d->callers_of[index]->link, type, node, value);
}

bool bootstrap_server_is_connected(const struct bootstrap_server *d, int index)
{
    return d != NULL && d->callers_of[index] != NULL;
}

static int let_in(struct bootstrap_server *d, struct event_base *base, struct dd_err *err)
{
    const struct handshake_pool_cfg cfg = {
        .base = base,
        .accept = {.job_id = d->cfg.id,
                   .key = d->cfg.key,
                   .key_in = d->cfg.key_in,
                   /* without .log: a node closes all its connections but the first */
                   .timeout_ms = HELLO_MS},
        .fd = d->fd,
        .receive = RECEIVE,
        .most = (size_t)d->cfg.nnodes * 4 + CALLERS_EXTRA,
        .on_link = on_caller,
        .arg = d};
    return handshake_pool_new(&d->handshakes, &cfg, err);
}

int bootstrap_server_new(struct bootstrap_server **ret, struct event_base *base,
                         const struct bootstrap_server_cfg *cfg, struct dd_err *err)
{
    const uint16_t any = 0;
    struct bootstrap_server *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *d = (struct bootstrap_server){.cfg = *cfg, .fd = -1};
    d->fetched = calloc((size_t)cfg->nnodes, sizeof(*d->fetched));
    d->callers_of = calloc((size_t)cfg->nnodes, sizeof(struct caller *));
    int rc = d->fetched == NULL || d->callers_of == NULL ? dd_err_set(err, -ENOMEM, "out of memory")
                                                         : 0;
    if (rc == 0)
        rc = d->fd = net_listen(NULL, &any, 1, &d->port, err);
    if (rc >= 0)
        rc = let_in(d, base, err);
    if (rc < 0)
        bootstrap_server_free(d);
    else
        *ret = d;
    return rc;
}

char *bootstrap_server_argument(const struct bootstrap_server *d, int index,
                                const struct launch_ticket *start)
{
    struct launch_ticket t = *start;
    t.index = index;
    t.port = d->port;
    (void)snprintf(t.id, sizeof(t.id), "%s", d->cfg.id);
    return launch_ticket_argument(&t);
}

void bootstrap_server_free(struct bootstrap_server *d)
{
    if (d == NULL)
        return;
    while (!LIST_EMPTY(&d->callers))
        caller_free(LIST_FIRST(&d->callers));
    handshake_pool_free(d->handshakes);
    if (d->fd >= 0)
        close(d->fd);
    free(d->fetched);
    free(d->callers_of);
    free(d);
}
