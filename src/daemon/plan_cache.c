/* Ports that the nodes hold for their workers: kept for each guest, told to all in PLAN. */
#include "daemon/inner.h"

#include "rdzv/ports.h"

#include <stdlib.h>
#include <string.h>

void guest_take_ports(struct guest *g, const char *ports)
{
    int n = ports_count(ports);
    if (n < 0)
        dd_log(g->daemon->cfg.log, DD_LOG_WARN, "the ports of %s are not understood", g->name);
    free(g->ports);
    g->ports = n > 0 ? strdup(ports) : NULL;
}

/* Of all nodes when they hold some for their workers, else of the first. */
static int add_ports(struct daemon *d, const struct plan *p, struct dd_buf *out)
{
    char text[NET_ADDR_TEXT];
    int rc = 0;
    for (int k = 0; k < p->nnodes && rc == 0; k++) {
        int id = rdzv_id_of_rank(d->machine, k);
        const struct guest *g = id < 0 ? NULL : d->by_id[id];
        if (k > 0)
            rc = dd_buf_append(out, ";", 1);
        if (rc < 0 || g == NULL || g->ports == NULL)
            continue;
        const struct net_addr *peer = link_peer(g->link);
        /* what comes from a loopback address runs beside the daemon */
        const bool away = peer->len > 0 && !net_addr_is_loopback(peer);
        rc = ports_append(out, g->ports, away ? net_addr_host(peer, text) : "");
        if (k == 0 && ports_count(g->ports) == 1)
            break;
    }
    return rc;
}

char *guests_ports_text(struct daemon *d, const struct plan *p)
{
    DD_AUTO(buf) struct dd_buf ports = DD_BUF_INIT(MSG_MAX_BYTES / 2);
    if (add_ports(d, p, &ports) < 0)
        dd_buf_clear(&ports); /* too long: who needs them says so */
    return dd_buf_steal(&ports);
}
