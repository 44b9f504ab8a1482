/* Probe many nodes once for a daemon of this job. */
#include "net/link.h"

#include "base/io.h"
#include "net/link_attempt_inner.h"
#include "net/resolve.h"
#include "net/tls_inner.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

enum {
    AT_ONCE = 32,  /* nodes probed concurrently */
    ADDRS_MAX = 4, /* per node */
    PORTS_MAX = 64,
    LOOKUP_LIMIT_MS = 3000,
};

/* One node. Its addresses are probed in turn: first at one port, so that a node that is down costs
 * a single timeout, then at all other ports. */
struct node_probe {
    struct link_probe *probe;
    size_t host;
    bool busy;
    struct net_resolve *resolve;
    struct net_addr addrs[ADDRS_MAX];
    size_t naddrs, addr;
    struct link_attempt *attempts[PORTS_MAX];
    size_t open;
};

struct link_probe {
    struct event_base *base;
    struct link_probe_cfg cfg; /* strings, ports and hosts are copies */
    char *job_id, *node, *bind_addr;
    uint16_t ports[PORTS_MAX];
    char **hosts;
    size_t ncopied, next; /* number of hosts that have been copied; index of the next to probe */
    struct net_tls *tls;
    struct event *step;
    struct node_probe nodes[AT_ONCE];
};

static void node_probe_clear(struct node_probe *p)
{
    net_resolve_free(DD_TAKE(p->resolve));
    for (size_t i = 0; i < PORTS_MAX; i++)
        link_attempt_free(DD_TAKE(p->attempts[i]));
    p->open = 0;
    p->busy = false;
}

void link_probe_free(struct link_probe *k)
{
    if (k == NULL)
        return;
    for (size_t i = 0; i < AT_ONCE; i++)
        node_probe_clear(&k->nodes[i]);
    if (k->step != NULL)
        event_free(k->step);
    net_tls_free(k->tls);
    for (size_t i = 0; k->hosts != NULL && i < k->ncopied; i++)
        free(k->hosts[i]);
    free(k->hosts);
    free(k->job_id);
    free(k->node);
    free(k->bind_addr);
    free(k);
}

/* Continue from the event loop: the caller may be a callback of the node probe itself. */
static void step_soon(struct link_probe *k)
{
    static const struct timeval now = {0, 0};
    (void)evtimer_add(k->step, &now);
}

static void link_probe_on_tried(void *arg, struct link_attempt *t, enum link_verdict v,
                                struct link *l, const char *why);

static void try_port(struct node_probe *p, size_t port)
{
    struct link_probe *k = p->probe;
    struct link_attempt_cfg cfg = {.find = &k->cfg.find,
                                   .tls = &k->tls,
                                   .addr = p->addrs[p->addr],
                                   .limit_ms = k->cfg.find.attempt_ms,
                                   .done = link_probe_on_tried,
                                   .arg = p};
    net_addr_set_port(&cfg.addr, k->ports[port]);
    if (link_attempt_start(&p->attempts[port], k->base, &cfg) == 0)
        p->open++;
}

static void try_address(struct node_probe *p)
{
    while (p->open == 0 && p->addr < p->naddrs) {
        try_port(p, 0);
        p->addr += p->open == 0;
    }
    if (p->open > 0)
        return;
    p->busy = false;
    step_soon(p->probe);
}

static void link_probe_on_tried(void *arg, struct link_attempt *t, enum link_verdict v,
                                struct link *l, const char *why)
{
    struct node_probe *p = arg;
    struct link_probe *k = p->probe;
    size_t port = 0;
    (void)why;
    while (p->attempts[port] != t)
        port++;
    link_attempt_free(DD_TAKE(p->attempts[port]));
    p->open--;
    if (port == 0 && v != ATTEMPT_UNREACHABLE)
        for (size_t i = 1; i < k->cfg.find.nports; i++)
            try_port(p, i);
    if (p->open == 0) {
        p->addr++;
        try_address(p);
    }
    if (v == ATTEMPT_LINK)
        k->cfg.found(k->cfg.arg, l); /* may free k */
}

/* A machine's own name often resolves to a loopback address on every node. A numeric address is
 * used as given. */
static bool link_probe_is_wanted(const struct link_probe *k, const char *host,
                                 const struct net_addr *a)
{
    struct net_addr number;
    return !net_addr_is_loopback(a) || k->cfg.find.host_is_me ||
           net_addr_parse(&number, host, 0) == 0;
}

static void link_probe_on_looked_up(void *arg, const struct net_addr *addrs, size_t n,
                                    const char *why)
{
    struct node_probe *p = arg;
    (void)why;
    for (size_t i = 0; i < n && p->naddrs < ADDRS_MAX; i++)
        if (link_probe_is_wanted(p->probe, p->probe->hosts[p->host], &addrs[i]))
            p->addrs[p->naddrs++] = addrs[i];
    net_resolve_free(DD_TAKE(p->resolve));
    try_address(p);
}

static void node_probe_begin(struct node_probe *p, size_t host)
{
    struct link_probe *k = p->probe;
    const struct net_resolve_cfg cfg = {.name = k->hosts[host],
                                        .slurm = k->cfg.find.try_scontrol ? NET_RESOLVE_SLURM_ELSE
                                                                          : NET_RESOLVE_SLURM_NEVER,
                                        .timeout_ms = LOOKUP_LIMIT_MS,
                                        .done = link_probe_on_looked_up,
                                        .arg = p};
    p->host = host;
    p->naddrs = p->addr = p->open = 0;
    p->busy = net_resolve_start(&p->resolve, k->base, &cfg, NULL) == 0;
}

static void on_step(evutil_socket_t fd, short what, void *arg)
{
    struct link_probe *k = arg;
    size_t busy = 0;
    (void)fd;
    (void)what;
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct node_probe *p = &k->nodes[i];
        while (!p->busy && k->next < k->cfg.nhosts)
            node_probe_begin(p, k->next++);
        busy += p->busy;
    }
    if (busy == 0)
        k->cfg.done(k->cfg.arg); /* may free k */
}

static int link_probe_copy_cfg(struct link_probe *k, const struct link_probe_cfg *cfg)
{
    const struct link_find_cfg *find = &cfg->find;
    k->cfg = *cfg;
    memcpy(k->ports, find->ports, find->nports * sizeof(k->ports[0]));
    k->cfg.find.ports = k->ports;
    k->hosts = calloc(cfg->nhosts + 1, sizeof(*k->hosts));
    k->job_id = strdup(find->job_id);
    k->node = strdup(find->node);
    k->bind_addr = find->bind_addr != NULL ? strdup(find->bind_addr) : NULL;
    k->cfg.hosts = k->hosts;
    k->cfg.find.job_id = k->job_id;
    k->cfg.find.node = k->node;
    k->cfg.find.bind_addr = k->bind_addr;
    k->cfg.find.host = NULL;
    if (k->hosts == NULL || k->job_id == NULL || k->node == NULL ||
        (find->bind_addr != NULL && k->bind_addr == NULL))
        return -ENOMEM;
    for (; k->ncopied < cfg->nhosts; k->ncopied++)
        if ((k->hosts[k->ncopied] = strdup(cfg->hosts[k->ncopied])) == NULL)
            return -ENOMEM;
    return 0;
}

int link_probe_start(struct link_probe **ret, struct event_base *base,
                     const struct link_probe_cfg *cfg, struct dd_err *err)
{
    if (cfg->find.nports == 0 || cfg->find.nports > PORTS_MAX)
        return dd_err_set(err, -EINVAL, "invalid number of ports to try: %zu (expected 1 to %d)",
                          cfg->find.nports, PORTS_MAX);
    struct link_probe *k = calloc(1, sizeof(*k));
    if (k == NULL || link_probe_copy_cfg(k, cfg) < 0 ||
        (k->step = evtimer_new(base, on_step, k)) == NULL) {
        link_probe_free(k);
        return dd_err_set(err, -ENOMEM, "cannot search for the daemon: out of memory");
    }
    k->base = base;
    for (size_t i = 0; i < AT_ONCE; i++)
        k->nodes[i].probe = k;
    step_soon(k);
    *ret = k;
    return 0;
}
