#include "agent/locate.h"

#include "agent/agent.h"
#include "net/listen.h"
#include "rdzv/elect.h"

#include <errno.h>
#include <string.h>

enum { ATTEMPT_MS = 3000 };

void locate_init(struct locate *l, struct agent_loop *loop, struct uplink *uplink)
{
    const struct agent_cfg *c = loop->cfg;
    *l = (struct locate){.loop = loop, .uplink = uplink, .alloc = c->alloc, .key_in = c->key_in};
    l->key_in.job_id = c->alloc->job_id;
}

void locate_set_alloc(struct locate *l, const struct alloc *alloc)
{
    l->alloc = alloc;
}

void locate_set_psk(struct locate *l, const char *psk, const char *source)
{
    l->key_in.psk = psk;
    l->key_in.psk_source = source;
}

bool locate_is_first_node(const struct locate *l)
{
    return l->alloc->index == 0;
}

/* Write the ports of the options or the scheduler, then `hashed` ports that follow from the job id.
 * Return their number. */
static size_t locate_list_ports(const struct locate *l, uint16_t out[LOCATE_PORTS], size_t hashed)
{
    const struct alloc *al = l->alloc;
    const size_t given = (size_t)al->nports;
    memcpy(out, al->ports, given * sizeof(out[0]));
    if (hashed > 0)
        elect_ports(al->job_id, net_key_seed(&l->key_in), out + given, hashed);
    return given + hashed;
}

/* Write only the first candidate ports, on which any daemon may listen: hashing all would take
 * 0.05 ms of each start. */
static size_t locate_near_ports(const struct locate *l, uint16_t out[LOCATE_PORTS])
{
    return locate_list_ports(l, out, l->alloc->nports > 0 ? 0 : ELECT_PORTS);
}

size_t locate_ports(const struct locate *l, uint16_t out[LOCATE_PORTS], size_t *ret_near)
{
    const struct alloc *al = l->alloc;
    *ret_near = al->nports > 0 ? (size_t)al->nports : ELECT_PORTS;
    return locate_list_ports(l, out, al->port_is_fixed ? 0 : ELECT_WALK);
}

/* All candidate ports serve the first daemon, for which other nodes search them all, and with etcd
 * any daemon, since the key in etcd contains the port. Otherwise only the near ports are probed and
 * used. */
int locate_bind(const struct locate *l, uint16_t *port, struct dd_err *err)
{
    const struct alloc *al = l->alloc;
    uint16_t ports[LOCATE_PORTS];
    const char *addr = l->loop->cfg->listen_addr;
    size_t near;
    if (addr == NULL && al->nnodes == 1)
        addr = "127.0.0.1"; /* no other node connects */
    const bool further = l->loop->machine.epoch == 0 || l->loop->machine_cfg.etcd;
    int fd = net_listen(addr, ports, locate_near_ports(l, ports), port, further ? NULL : err);
    if (fd < 0 && further)
        fd = net_listen(addr, ports, locate_ports(l, ports, &near), port, err);
    return fd == -EADDRINUSE || fd == -EACCES ? dd_err_tip(err, fd, "%s", l->loop->cfg->port_tip)
                                              : fd;
}

void locate_find_cfg(const struct locate *l, struct link_find_cfg *ret,
                     uint16_t ports[LOCATE_PORTS])
{
    size_t near;
    const size_t all = locate_ports(l, ports, &near);
    const struct alloc *al = l->alloc;
    const char *first = hostlist_nth(al->nodes, 0);
    const char *mine = al->index >= 0 ? hostlist_nth(al->nodes, (size_t)al->index) : NULL;
    *ret = (struct link_find_cfg){
        .job_id = al->job_id,
        .node = l->loop->cfg->node_name,
        .host = al->host_addr != NULL ? al->host_addr : first,
        .try_scontrol = al->on_slurm,
        /* given explicitly, or several agents on one machine: a loopback address is valid */
        .host_is_me = al->host_addr != NULL ||
                      (mine != NULL && first != NULL && strcmp(mine, first) == 0),
        .ports = ports,
        .nports = near,
        .nfurther = all - near,
        .bind_addr = l->loop->cfg->source_addr,
        .key_in = &l->key_in,
        .log = l->loop->cfg->log,
        .attempt_ms = ATTEMPT_MS,
        .nnodes = al->nnodes > 0 ? (unsigned)al->nnodes : 0,
    };
}
