#include "agent/horovod_server.h"

#include "agent/agent.h"
#include "agent/node_exchange.h"
#include "agent/spec.h"
#include "http/http_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct horovod {
    const struct round *round;
    struct http_server *server;
    char port[8];
};

static void on_parts(void *arg, const struct exchange_part *parts, int n)
{
    struct horovod *h = arg;
    struct dd_err err = {0};
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        if (i != h->round->plan.node_rank)
            rc = http_server_take(h->server, parts[i].data, parts[i].len, &err);
    if (rc < 0)
        dd_log(h->round->cfg->log, DD_LOG_ERR, "%s", err.text);
}

static void horovod_server_on_news(void *arg, const struct exchange_part *parts, int n)
{
    struct horovod *h = arg;
    on_parts(h, parts, n);
    http_server_news_over(h->server);
}

static int horovod_server_exchange(void *arg, const char *name, const void *part, size_t len,
                                   struct dd_err *err)
{
    struct horovod *h = arg;
    return node_exchange_begin(h->round, name, &(struct exchange_part){part, len},
                               name[0] == '?' ? horovod_server_on_news : on_parts, h, err);
}

/* ---- hooks ---- */

/* A failure is only logged: the round runs without the server. */
static int horovod_prepare(void **state, const struct round *r, struct dd_err *err)
{
    const struct plan *p = &r->plan;
    struct horovod *h = calloc(1, sizeof(*h));
    const struct http_server_cfg cfg = {
        .rendezvous = {.nnodes = p->nnodes,
                       .node_rank = p->node_rank,
                       .first_rank = p->first_rank,
                       .world_size = p->world_size,
                       .sizes = p->sizes},
        .log = r->cfg->log,
        .peer = r->peer,
        .exchange = horovod_server_exchange,
        .arg = h,
    };
    struct dd_err why = {0};
    (void)err;
    int rc = h == NULL ? dd_err_set(&why, -ENOMEM, "out of memory")
                       : http_server_new(&h->server, r->base, &cfg, &why);
    if (rc < 0) {
        dd_log(r->cfg->log, DD_LOG_INFO, "cannot start the rendezvous server for Horovod: %s",
               why.text);
        free(h);
        return 0;
    }
    h->round = r;
    (void)snprintf(h->port, sizeof(h->port), "%u", http_server_port(h->server));
    *state = h;
    return 0;
}

static void horovod_input(void *state, const struct round *r, struct spec_input *in)
{
    const struct horovod *h = state;
    (void)r;
    in->horovod_port = h->port;
}

/* Another node has begun an exchange of keys: contribute the keys of this node. */
static void horovod_message(void *state, const struct round *r, const struct round_message *m)
{
    struct horovod *h = state;
    (void)r;
    if (m->type == ROUND_PIECE && m->piece->node_rank == EXCHANGE_ASK)
        http_server_asked(h->server, m->piece->name);
}

static void horovod_end(void *state, const struct round *r)
{
    struct horovod *h = state;
    node_exchange_drop(r, h);
    http_server_free(h->server);
    free(h);
}

const struct round_feature horovod_feature = {
    .name = "horovod",
    .prepare = horovod_prepare,
    .spec_input = horovod_input,
    .message = horovod_message,
    .end = horovod_end,
};
