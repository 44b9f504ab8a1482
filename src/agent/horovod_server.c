/* Horovod's rendezvous server of this node, one for each round; what it has to tell the other nodes
 * goes over the links. */
#include "agent/node_exchange.h"
#include "agent/inner.h"

#include "http/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct horovod {
    struct agent *agent;
    struct http_server *server;
    char port[8];
};

void horovod_end(struct agent *a)
{
    if (a->horovod == NULL)
        return;
    node_exchange_drop(a->round, a->horovod);
    http_server_free(a->horovod->server);
    free(a->horovod);
    a->horovod = NULL;
}

static void on_parts(void *arg, const struct exchange_part *parts, int n)
{
    struct horovod *h = arg;
    struct dd_err err = {0};
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        if (i != h->agent->round->plan.node_rank)
            rc = http_server_take(h->server, parts[i].data, parts[i].len, &err);
    if (rc < 0)
        dd_log(h->agent->cfg->log, DD_LOG_ERR, "%s", err.text);
}

static void on_news(void *arg, const struct exchange_part *parts, int n)
{
    struct horovod *h = arg;
    on_parts(h, parts, n);
    http_server_news_over(h->server);
}

static int exchange(void *arg, const char *name, const void *part, size_t len, struct dd_err *err)
{
    struct horovod *h = arg;
    return node_exchange_begin(h->agent->round, name, part, len,
                               name[0] == '?' ? on_news : on_parts, h, err);
}

void horovod_asked(struct agent *a, const char *name)
{
    if (a->horovod != NULL)
        http_server_asked(a->horovod->server, name);
}

void horovod_begin(struct agent *a)
{
    const struct plan *p = &a->round->plan;
    struct horovod *h = calloc(1, sizeof(*h));
    const struct http_server_cfg cfg = {
        .rendezvous = {.nnodes = p->nnodes,
                       .node_rank = p->node_rank,
                       .first_rank = p->first_rank,
                       .world_size = p->world_size,
                       .sizes = p->sizes},
        .log = a->cfg->log,
        .peer = a->peer,
        .exchange = exchange,
        .arg = h,
    };
    struct dd_err err = {0};
    horovod_end(a);
    int rc = h == NULL ? dd_err_set(&err, -ENOMEM, "out of memory")
                       : http_server_new(&h->server, a->base, &cfg, &err);
    if (rc < 0) {
        dd_log(a->cfg->log, DD_LOG_INFO, "no rendezvous server for Horovod: %s", err.text);
        free(h);
        return;
    }
    h->agent = a;
    (void)snprintf(h->port, sizeof(h->port), "%u", http_server_port(h->server));
    a->horovod = h;
}

const char *horovod_port(const struct agent *a)
{
    return a->horovod != NULL ? a->horovod->port : NULL;
}
