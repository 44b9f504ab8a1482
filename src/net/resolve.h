/* Name look-ups that do not block: a short-lived child calls the system's resolver. */
#ifndef DD_NET_RESOLVE_H
#define DD_NET_RESOLVE_H

#include "base/err.h"
#include "net/addr.h"

struct event_base;
struct net_resolve;

enum { NET_RESOLVE_MAX = 32 };

/* Whether Slurm is also asked: the NodeAddr that `scontrol show node NAME` prints. */
enum net_resolve_slurm {
    NET_RESOLVE_SLURM_NEVER,
    NET_RESOLVE_SLURM_ELSE, /* when the resolver fails or gives only loopback addresses */
    NET_RESOLVE_SLURM_TOO,  /* always */
};

struct net_resolve_cfg {
    const char *name;
    enum net_resolve_slurm slurm;
    unsigned timeout_ms;
    /* Called once, from the event loop, with the addresses (port 0, valid until the look-up is
     * freed), or n = 0 and an error message in why. */
    void (*done)(void *arg, const struct net_addr *addrs, size_t n, const char *why);
    void *arg;
};

/* Start a look-up; duplicate addresses are removed. The child is killed after timeout_ms; addresses
 * received by then are returned. A numeric name needs no child. */
int net_resolve_start(struct net_resolve **ret, struct event_base *base,
                      const struct net_resolve_cfg *cfg, struct dd_err *err);
void net_resolve_free(
    struct net_resolve *r); /* kills the child; no further callback; allowed inside done */

#endif
