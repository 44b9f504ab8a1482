#include "agent/locate_peers.h"

#include "agent/agent.h"
#include "base/io.h"

#include <stdlib.h>
#include <string.h>

enum {
    ATTEMPT_MS = 1000,
    FOLLOWER_NODES = 16, /* nodes per pass on other nodes than the leader: there may be thousands */
};

struct locate_peers {
    const struct locate *where;
    struct link_probe *probe; /* NULL: no search, or the peers of the pass have been probed */
    bool asking;
    size_t next; /* on other nodes than the leader: the first peer of the next pass */
};

bool locate_peers_possible(const struct agent_cfg *cfg)
{
    const struct alloc *al = cfg->alloc;
    return al->nnodes > 1 && hostlist_count(al->nodes) > 1 && cfg->source_addr == NULL &&
           (rdzv_is_elastic(&cfg->rdzv) || cfg->rdzv.max_restarts > 0);
}

int locate_peers_new(struct locate_peers **ret, const struct locate *where)
{
    struct locate_peers *p = *ret = calloc(1, sizeof(*p));
    if (p == NULL)
        return -1;
    p->where = where;
    return 0;
}

void locate_peers_stop(struct locate_peers *p)
{
    p->asking = false;
    link_probe_free(DD_TAKE(p->probe));
}

void locate_peers_check(struct locate_peers *p)
{
    if (!p->asking || p->probe != NULL)
        return;
    p->asking = uplink_asks(p->where->uplink);
    agent_step(p->where->loop, (struct am_event){.kind = AM_PEERS_PROBED, .open = p->asking});
}

static void locate_peers_on_found(void *arg, struct link *l)
{
    const struct locate_peers *p = arg;
    uplink_found(p->where->uplink, l);
}

static void locate_peers_on_done(void *arg)
{
    struct locate_peers *p = arg;
    link_probe_free(DD_TAKE(p->probe));
    locate_peers_check(p);
}

/* List the nodes to probe. A name repeated in sequence stands for several agents of one machine. */
static int locate_peers_list_nodes(struct locate_peers *p, struct dd_strv *out)
{
    const struct alloc *al = p->where->alloc;
    size_t n = hostlist_count(al->nodes);
    size_t most = locate_is_first_node(p->where) ? n : FOLLOWER_NODES;
    int rc = 0;
    for (size_t i = 0; i < n && out->n < most && rc == 0; i++) {
        size_t k = locate_is_first_node(p->where) ? i : 1 + (p->next + i) % (n - 1);
        const char *name = hostlist_nth(al->nodes, k);
        bool again = out->n > 0 && strcmp(out->v[out->n - 1], name) == 0;
        if ((int)k != al->index && !again)
            rc = dd_strv_push(out, name);
    }
    p->next += most;
    return rc;
}

void locate_peers_start(struct locate_peers *p)
{
    struct link_probe_cfg cfg = {
        .found = locate_peers_on_found, .done = locate_peers_on_done, .arg = p};
    uint16_t ports[LOCATE_PORTS];
    DD_AUTO(strv) struct dd_strv names = {0};
    struct dd_err err = {0};
    locate_peers_stop(p);
    uplink_drop_others(p->where->uplink);
    locate_find_cfg(p->where, &cfg.find, ports);
    cfg.find.host_is_me = false;
    cfg.find.attempt_ms = ATTEMPT_MS;
    p->asking = true;
    int rc = locate_peers_list_nodes(p, &names);
    cfg.hosts = names.v;
    cfg.nhosts = names.n;
    if (rc == 0)
        rc = link_probe_start(&p->probe, p->where->loop->base, &cfg, &err);
    if (rc == 0)
        return;
    dd_log(p->where->loop->cfg->log, DD_LOG_WARN, "cannot look for another daemon of this job: %s",
           err.text[0] != '\0' ? err.text : strerror(-rc));
    locate_peers_check(p);
}

void locate_peers_free(struct locate_peers *p)
{
    if (p != NULL)
        link_probe_free(p->probe);
    free(p);
}
