/* Probe the other nodes of the host list for a daemon of this job: a restarted node does not know
 * the daemons that came after the first one. The agent's machine decides when to probe. The leader
 * probes while its daemon has too few nodes, and again before that daemon starts a round with fewer
 * than all (PROBE_REQUEST), so that two daemons never run rounds side by side. A daemon that it
 * finds is a later one, because only the first node starts a daemon without a loss. Other nodes
 * probe while the first node has no daemon. */
#include "agent/inner.h"

#include "base/io.h"

#include <string.h>

enum {
    ATTEMPT_MS = 1000,
    FOLLOWER_NODES = 16, /* nodes per pass on other nodes than the leader: there may be thousands */
};

static bool locate_peers_leads(const struct agent *a)
{
    return a->loop.cfg->alloc->index == 0;
}

bool locate_peers_possible(const struct agent_cfg *cfg)
{
    const struct alloc *al = cfg->alloc;
    return al->nnodes > 1 && hostlist_count(al->nodes) > 1 && cfg->source_addr == NULL &&
           (rdzv_is_elastic(&cfg->rdzv) || cfg->rdzv.max_restarts > 0);
}

void locate_peers_stop(struct agent *a)
{
    a->locate_peers.asking = false;
    link_probe_free(DD_TAKE(a->locate_peers.probe));
}

void locate_peers_check(struct agent *a)
{
    if (!a->locate_peers.asking || a->locate_peers.probe != NULL)
        return;
    a->locate_peers.asking = uplink_asks(a->uplink);
    agent_step(&a->loop,
               (struct am_event){.kind = AM_PEERS_PROBED, .open = a->locate_peers.asking});
}

static void locate_peers_on_found(void *arg, struct link *l)
{
    const struct agent *a = arg;
    uplink_found(a->uplink, l);
}

static void locate_peers_on_done(void *arg)
{
    struct agent *a = arg;
    link_probe_free(DD_TAKE(a->locate_peers.probe));
    locate_peers_check(a);
}

/* List the nodes to probe. A name repeated in sequence stands for several agents of one machine. */
static int locate_peers_list_nodes(struct agent *a, struct dd_strv *out)
{
    const struct alloc *al = a->loop.cfg->alloc;
    size_t n = hostlist_count(al->nodes);
    size_t most = locate_peers_leads(a) ? n : FOLLOWER_NODES;
    int rc = 0;
    for (size_t i = 0; i < n && out->n < most && rc == 0; i++) {
        size_t k = locate_peers_leads(a) ? i : 1 + (a->locate_peers.next + i) % (n - 1);
        const char *name = hostlist_nth(al->nodes, k);
        bool again = out->n > 0 && strcmp(out->v[out->n - 1], name) == 0;
        if ((int)k != al->index && !again)
            rc = dd_strv_push(out, name);
    }
    a->locate_peers.next += most;
    return rc;
}

void locate_peers_start(struct agent *a)
{
    struct link_find_cfg cfg;
    uint16_t ports[LOCATE_PORTS];
    DD_AUTO(strv) struct dd_strv names = {0};
    struct dd_err err = {0};
    const struct link_probe_cb cb = {
        .found = locate_peers_on_found, .done = locate_peers_on_done, .arg = a};
    locate_peers_stop(a);
    uplink_drop_others(a->uplink);
    locate_find_cfg(a, &cfg, ports);
    cfg.host_is_me = false;
    cfg.attempt_ms = ATTEMPT_MS;
    a->locate_peers.asking = true;
    int rc = locate_peers_list_nodes(a, &names);
    if (rc == 0)
        rc = link_probe_start(&a->locate_peers.probe, a->loop.base, &cfg, names.v, names.n, &cb,
                              &err);
    if (rc == 0)
        return;
    dd_log(a->loop.cfg->log, DD_LOG_WARN, "cannot look for another daemon of this job: %s",
           err.text);
    locate_peers_check(a);
}
