/* Shared by all locators: candidate ports and parameters of a search. */
#include "agent/inner.h"

#include "net/listen.h"
#include "rdzv/elect.h"

#include <string.h>

enum { ATTEMPT_MS = 3000 };

size_t locate_ports(const struct agent *a, uint16_t out[LOCATE_PORTS], size_t *ret_near)
{
    const struct alloc *al = a->loop.cfg->alloc;
    const size_t given = (size_t)al->nports;
    memcpy(out, al->ports, given * sizeof(out[0]));
    *ret_near = given > 0 ? given : ELECT_PORTS;
    if (al->port_is_fixed)
        return given;
    elect_ports(al->job_id, net_key_seed(&a->key_in), out + given, ELECT_WALK);
    return given + ELECT_WALK;
}

/* The first daemon may use all candidate ports, since other nodes search them all, and any daemon
 * whose port is in etcd. Other daemons use the near ports only, which are probed on many nodes. */
int locate_bind(struct agent *a, uint16_t *port, struct dd_err *err)
{
    const struct alloc *al = a->loop.cfg->alloc;
    uint16_t ports[LOCATE_PORTS];
    const char *addr = a->loop.cfg->listen_addr;
    size_t near;
    const size_t all = locate_ports(a, ports, &near);
    if (addr == NULL && al->nnodes == 1)
        addr = "127.0.0.1"; /* no other node connects */
    return net_listen(addr, ports,
                      a->loop.machine.epoch == 0 || a->locate_etcd != NULL ? all : near, port, err);
}

void locate_find_cfg(struct agent *a, struct link_find_cfg *ret, uint16_t ports[LOCATE_PORTS])
{
    size_t near;
    const size_t all = locate_ports(a, ports, &near);
    const struct alloc *al = a->loop.cfg->alloc;
    const char *first = hostlist_nth(al->nodes, 0);
    const char *mine = al->index >= 0 ? hostlist_nth(al->nodes, (size_t)al->index) : NULL;
    *ret = (struct link_find_cfg){
        .job_id = al->job_id,
        .node = a->loop.cfg->node_name,
        .host = al->host_addr != NULL ? al->host_addr : first,
        .try_scontrol = al->on_slurm,
        /* given explicitly, or several agents on one machine: a loopback address is valid */
        .host_is_me = al->host_addr != NULL ||
                      (mine != NULL && first != NULL && strcmp(mine, first) == 0),
        .ports = ports,
        .nports = near,
        .nfurther = all - near,
        .bind_addr = a->loop.cfg->source_addr,
        .key_in = &a->key_in,
        .log = a->loop.cfg->log,
        .attempt_ms = ATTEMPT_MS,
    };
}
