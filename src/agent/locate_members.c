#include "agent/locate_members.h"

#include "agent/agent.h"
#include "base/io.h"

#include <stdlib.h>

struct locate_members {
    const struct locate *where;
    const struct round_history *history;
    struct link_find *finds[RDZV_SUCCESSORS];
    int n;
};

int locate_members_new(struct locate_members **ret, const struct locate *where,
                       const struct round_history *history)
{
    struct locate_members *m = *ret = calloc(1, sizeof(*m));
    if (m == NULL)
        return -1;
    m->where = where;
    m->history = history;
    return 0;
}

void locate_members_stop(struct locate_members *m)
{
    for (int i = 0; i < m->n; i++)
        link_find_free(m->finds[i]);
    m->n = 0;
}

static void locate_members_on_found(void *arg, struct link *l)
{
    struct locate_members *m = arg;
    locate_members_stop(m);
    uplink_found(m->where->uplink, l);
}

static void locate_members_find_at(struct locate_members *m, const char *addr)
{
    struct link_find_cfg cfg;
    uint16_t ports[LOCATE_PORTS];
    struct dd_err err = {0};
    locate_find_cfg(m->where, &cfg, ports);
    cfg.host = addr;
    cfg.host_is_me = true; /* a numeric address that the last round used */
    cfg.try_scontrol = false;
    if (link_find_start(&m->finds[m->n], m->where->loop->base, &cfg, locate_members_on_found, m,
                        &err) == 0)
        m->n++;
    else
        dd_log(m->where->loop->cfg->log, DD_LOG_WARN, "cannot look for a daemon on %s: %s", addr,
               err.text);
}

void locate_members_start(struct locate_members *m)
{
    const struct rdzv_members *last = &m->history->last;
    const struct dd_strv *addrs = &m->history->addrs;
    locate_members_stop(m);
    for (size_t k = 0; k < addrs->n && (int)k < last->n && m->n < RDZV_SUCCESSORS; k++)
        if (last->index[k] != m->where->loop->machine.index)
            locate_members_find_at(m, addrs->v[k]);
}

void locate_members_free(struct locate_members *m)
{
    if (m != NULL)
        locate_members_stop(m);
    free(m);
}
