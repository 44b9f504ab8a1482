/* Failing over: look for another daemon on the nodes of the last round, in their order. The agent's
 * machine decides when a node searches and when it starts a daemon itself. Each daemon decides
 * whether a majority is present (rdzv/machine.h), so two daemons at once do no harm. */
#include "agent/inner.h"

#include "base/io.h"

void locate_members_stop(struct agent *a)
{
    for (int i = 0; i < a->locate_members.n; i++)
        link_find_free(a->locate_members.finds[i]);
    a->locate_members.n = 0;
}

static void locate_members_on_found(void *arg, struct link *l)
{
    struct agent *a = arg;
    locate_members_stop(a);
    uplink_found(a->uplink, l);
}

static void locate_members_find_at(struct agent *a, const char *addr)
{
    struct link_find_cfg cfg;
    uint16_t ports[LOCATE_PORTS];
    struct dd_err err = {0};
    locate_find_cfg(a, &cfg, ports);
    cfg.host = addr;
    cfg.host_is_me = true; /* a numeric address that the last round used */
    cfg.try_scontrol = false;
    if (link_find_start(&a->locate_members.finds[a->locate_members.n], a->loop.base, &cfg,
                        locate_members_on_found, a, &err) == 0)
        a->locate_members.n++;
    else
        dd_log(a->loop.cfg->log, DD_LOG_WARN, "cannot look for a daemon on %s: %s", addr, err.text);
}

void locate_members_start(struct agent *a)
{
    const struct rdzv_members *last = &a->history.last;
    const struct dd_strv *addrs = &a->history.addrs;
    locate_members_stop(a);
    for (size_t k = 0; k < addrs->n && (int)k < last->n && a->locate_members.n < RDZV_SUCCESSORS;
         k++)
        if (last->index[k] != a->loop.machine.index)
            locate_members_find_at(a, addrs->v[k]);
}
