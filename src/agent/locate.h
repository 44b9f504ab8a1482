/* Where to look for a daemon of this job: shared by the locators (locate_*.c), each of which has a
 * method of its own. A locator passes the link of a daemon to uplink_found(), or raises AM_LEAD,
 * AM_ELSEWHERE or AM_FAILED. */
#ifndef DD_AGENT_LOCATE_H
#define DD_AGENT_LOCATE_H

#include "agent/agent_loop.h"
#include "agent/uplink.h"
#include "alloc/alloc.h"
#include "net/key.h"
#include "net/link.h"
#include "rdzv/elect.h"

/* Written by locate.c only. */
struct locate {
    struct agent_loop *loop;
    struct uplink *uplink;
    /* alloc->index is this node's position in the host list of the first daemon. */
    const struct alloc *alloc;
    struct net_key_input key_in; /* key_in of the configuration, with the job id */
};

void locate_init(struct locate *l, struct agent_loop *loop, struct uplink *uplink);
void locate_set_alloc(struct locate *l, const struct alloc *alloc);         /* borrowed */
void locate_set_psk(struct locate *l, const char *psk, const char *source); /* borrowed */
bool locate_is_first_node(const struct locate *l);

/* Write the candidate ports of daemons of this job: the user's port alone; else those of the
 * scheduler, then elected ones. Any daemon may listen on the first *ret_near of them, the first
 * daemon (with etcd, any daemon) on all. Returns the number of ports. */
enum { LOCATE_PORTS = ALLOC_MAX_PORTS + ELECT_WALK };
size_t locate_ports(const struct locate *l, uint16_t out[LOCATE_PORTS], size_t *ret_near);
void locate_find_cfg(const struct locate *l, struct link_find_cfg *ret,
                     uint16_t ports[LOCATE_PORTS]); /* ret borrows ports */

/* Listen on the first free candidate port. Returns the socket, or < 0. */
int locate_bind(const struct locate *l, uint16_t *ret_port, struct dd_err *err);

#endif
