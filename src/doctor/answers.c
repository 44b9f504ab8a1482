#include "doctor/answers.h"

#include "base/io.h"
#include "base/num.h"
#include "net/handshake_pool.h"
#include "net/listen.h"
#include "net/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

enum { HELLO_MS = 5000, GOODBYE_MS = 2000, CALLERS_EXTRA = 256, HOSTS_MAX = 16 };

struct caller {
    LIST_ENTRY(caller) entry;
    struct answers *answers;
    struct link *link;
};

struct answers {
    struct answers_cfg cfg;
    struct handshake_pool *handshakes;
    struct net_key key;
    char id[96];
    LIST_HEAD(, caller) callers; /* connections that have proved the key */
    int fd;
    uint16_t port;
    bool *came;            /* [nnodes] the result of the node has arrived */
    int left;              /* number of nodes whose result is missing */
    struct event *goodbye; /* calls on_done: once all links are closed, or GOODBYE_MS after the last
                              result */
};

static void answers_id_of(char out[96], const char *id)
{
    (void)snprintf(out, 96, "doctor.%.64s.answers", id);
}

/* ---- the requesting node ---- */

static void answers_on_goodbye(evutil_socket_t fd, short what, void *arg)
{
    struct answers *a = arg;
    (void)fd;
    (void)what;
    a->cfg.on_done(a->cfg.arg);
}

/* End when all links are closed: a node closes its link when it has read the acknowledgement. */
static void answers_end_when_all_know(struct answers *a)
{
    if (a->left == 0 && LIST_EMPTY(&a->callers))
        event_active(a->goodbye, EV_TIMEOUT, 1);
}

static void answers_caller_free(struct caller *c)
{
    LIST_REMOVE(c, entry);
    link_free(c->link);
    free(c);
}

static void answers_on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct caller *c = arg;
    struct answers *a = c->answers;
    int index;
    if (f->type != FRAME_CONTROL || dd_num_int(link_node(l), 0, a->cfg.nnodes - 1, &index) < 0)
        return;
    (void)link_send(l, FRAME_CONTROL, "", 0); /* acknowledge the result: the node can exit */
    if (a->came[index])
        return;
    a->came[index] = true;
    if (--a->left == 0) {
        const struct timeval limit = dd_timeval(GOODBYE_MS * DD_NS_PER_MS);
        (void)event_add(a->goodbye, &limit);
    }
    a->cfg.on_answer(a->cfg.arg, index, f->data, f->len);
}

static void answers_on_close(void *arg, struct link *l, bool clean, const char *why)
{
    (void)l;
    (void)clean;
    (void)why;
    struct answers *a = ((struct caller *)arg)->answers;
    answers_caller_free(arg);
    answers_end_when_all_know(a);
}

static void answers_on_caller(void *arg, struct link *l)
{
    struct answers *a = arg;
    struct caller *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        link_free(l);
        return;
    }
    *c = (struct caller){.answers = a, .link = l};
    LIST_INSERT_HEAD(&a->callers, c, entry);
    link_set_cb(
        l, &(struct link_cb){.on_frame = answers_on_frame, .on_close = answers_on_close, .arg = c});
}

static int answers_let_in(struct answers *a, struct event_base *base, struct dd_err *err)
{
    const struct handshake_pool_cfg cfg = {.base = base,
                                           .accept = {.job_id = a->id,
                                                      .key = &a->key,
                                                      .key_in = &a->cfg.key_in,
                                                      .timeout_ms = HELLO_MS},
                                           .fd = a->fd,
                                           .most = (size_t)a->cfg.nnodes * 4 + CALLERS_EXTRA,
                                           .on_link = answers_on_caller,
                                           .arg = a};
    return handshake_pool_new(&a->handshakes, &cfg, err);
}

int answers_new(struct answers **ret, struct event_base *base, const struct answers_cfg *cfg,
                struct dd_err *err)
{
    const uint16_t any = 0;
    struct answers *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *a = (struct answers){.cfg = *cfg, .fd = -1, .left = cfg->nnodes};
    answers_id_of(a->id, cfg->id);
    a->cfg.key_in.job_id = a->id;
    a->came = calloc((size_t)cfg->nnodes, sizeof(*a->came));
    a->goodbye = evtimer_new(base, answers_on_goodbye, a);
    int rc = a->came == NULL || a->goodbye == NULL
                 ? dd_err_set(err, -ENOMEM, "out of memory")
                 : net_key_for_leader(&a->key, &a->cfg.key_in, err);
    if (rc == 0)
        rc = a->fd = net_listen(NULL, &any, 1, &a->port, err);
    if (rc >= 0)
        rc = answers_let_in(a, base, err);
    if (rc < 0)
        answers_free(a);
    else
        *ret = a;
    return rc;
}

uint16_t answers_port(const struct answers *a)
{
    return a->port;
}

int answers_place(const struct answers *a, const struct dd_strv *hosts, char *out, size_t size,
                  struct dd_err *err)
{
    int n = snprintf(out, size, "%u/", answers_port(a));
    for (size_t i = 0; i < hosts->n && n < (int)size; i++)
        n += snprintf(out + n, size - (size_t)n, "%s%s", i > 0 ? "," : "", hosts->v[i]);
    return n < (int)size
               ? 0
               : dd_err_set(err, -E2BIG, "the names and addresses of this node exceed %zu bytes",
                            size - 1);
}

void answers_free(struct answers *a)
{
    if (a == NULL)
        return;
    while (!LIST_EMPTY(&a->callers))
        answers_caller_free(LIST_FIRST(&a->callers));
    handshake_pool_free(a->handshakes);
    if (a->goodbye != NULL)
        event_free(a->goodbye);
    if (a->fd >= 0)
        close(a->fd);
    net_key_cleanup(&a->key, &a->cfg.key_in);
    explicit_bzero(&a->key, sizeof(a->key));
    free(a->came);
    free(a);
}

/* ---- the other nodes ---- */

int answer_parse_place(const char *text, uint16_t *port, struct dd_strv *hosts, struct dd_err *err)
{
    char number[8];
    const size_t n = strcspn(text, "/");
    int p = 0;
    (void)snprintf(number, sizeof(number), "%.*s", n < sizeof(number) ? (int)n : 0, text);
    if (text[n] != '/' || dd_num_int(number, 1, UINT16_MAX, &p) < 0)
        return dd_err_set(err, -EINVAL,
                          "invalid value '%.80s' for --answer-to: expected PORT/HOST,HOST", text);
    *port = (uint16_t)p;
    if (dd_strv_split(hosts, text + n + 1, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return hosts->n > 0 && hosts->n <= HOSTS_MAX
               ? 0
               : dd_err_set(
                     err, -EINVAL,
                     "invalid value '%.80s' for --answer-to: expected 1 to %d hosts, got %zu", text,
                     HOSTS_MAX, hosts->n);
}

struct giving {
    const void *data;
    size_t n;
    struct event_base *base;
    struct event *limit;
    struct link_find *finds[HOSTS_MAX];
    size_t nfinds;
    struct link *link;
    int rc; /* -ETIMEDOUT until the result is acknowledged */
};

static void answers_on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct giving *g = arg;
    (void)fd;
    (void)what;
    event_base_loopbreak(g->base);
}

static void answers_end_searches(struct giving *g)
{
    for (size_t i = 0; i < g->nfinds; i++)
        link_find_free(g->finds[i]);
    g->nfinds = 0;
}

static void answers_on_taken(void *arg, struct link *l, const struct frame *f)
{
    struct giving *g = arg;
    if (f->type != FRAME_CONTROL)
        return;
    g->rc = 0;
    link_bye(l);
    g->link = NULL;
    event_del(g->limit); /* the loop ends when BYE has been read */
}

static void answers_on_lost(void *arg, struct link *l, bool clean, const char *why)
{
    struct giving *g = arg;
    (void)l;
    (void)clean;
    (void)why;
    link_free(g->link);
    g->link = NULL;
    event_base_loopbreak(g->base);
}

static void answers_on_found(void *arg, struct link *l)
{
    struct giving *g = arg;
    answers_end_searches(g);
    g->link = l;
    link_set_cb(
        l, &(struct link_cb){.on_frame = answers_on_taken, .on_close = answers_on_lost, .arg = g});
    (void)link_send(l, FRAME_CONTROL, g->data, g->n);
}

static int answers_search_all(struct giving *g, const struct answer *a, const char *id,
                              const struct net_key_input *key_in, struct dd_err *err)
{
    char me[16];
    (void)snprintf(me, sizeof(me), "%d", a->index);
    for (size_t i = 0; a->hosts[i] != NULL && i < HOSTS_MAX; i++) {
        const struct link_find_cfg cfg = {.job_id = id,
                                          .node = me,
                                          .host = a->hosts[i],
                                          .host_is_me = true,
                                          .ports = &a->port,
                                          .nports = 1,
                                          .key_in = key_in};
        int rc = link_find_start(&g->finds[g->nfinds], g->base, &cfg, answers_on_found, g, err);
        if (rc < 0)
            return rc;
        g->nfinds++;
    }
    return 0;
}

int answer_give(const struct answer *a, const void *data, size_t n, struct dd_err *err)
{
    struct giving g = {.data = data, .n = n, .rc = -ETIMEDOUT, .base = net_loop_new()};
    struct net_key_input key_in = a->key_in;
    const struct timeval limit = dd_timeval(a->limit_ms * DD_NS_PER_MS);
    char id[96];
    answers_id_of(id, a->id);
    key_in.job_id = id;
    g.limit = g.base != NULL ? evtimer_new(g.base, answers_on_limit, &g) : NULL;
    int rc = g.limit == NULL || event_add(g.limit, &limit) < 0
                 ? dd_err_set(err, -ENOMEM, "out of memory")
                 : answers_search_all(&g, a, id, &key_in, err);
    if (rc == 0) {
        event_base_dispatch(g.base);
        rc = g.rc;
        if (rc < 0)
            (void)dd_err_set(err, rc, "cannot deliver the result to the requesting node: %s",
                             g.nfinds > 0     ? link_find_status(g.finds[0])
                             : g.link != NULL ? "that node did not acknowledge the result in time"
                                              : "the connection was lost");
    }
    answers_end_searches(&g);
    link_free(g.link);
    if (g.limit != NULL)
        event_free(g.limit);
    if (g.base != NULL)
        event_base_free(g.base);
    return rc;
}
