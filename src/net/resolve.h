/* Name look-ups that block nobody: a short-lived child asks the system's resolver. */
#ifndef DD_NET_RESOLVE_H
#define DD_NET_RESOLVE_H

#include "base/err.h"
#include "net/addr.h"

struct event_base;
struct net_resolve;

enum { NET_RESOLVE_MAX = 32 };

/* When Slurm is asked too: the NodeAddr that `scontrol show node NAME` prints. */
enum net_resolve_slurm {
    NET_RESOLVE_SLURM_NEVER,
    NET_RESOLVE_SLURM_ELSE, /* when the resolver fails or gives only loopback addresses */
    NET_RESOLVE_SLURM_TOO,  /* in any case */
};

struct net_resolve_cfg {
    const char *name;
    enum net_resolve_slurm slurm;
    unsigned timeout_ms;
    /* Once, from the loop, with the addresses (port 0; lent until the look-up is freed), or n = 0
     * and a sentence in why. */
    void (*done)(void *arg, const struct net_addr *addrs, size_t n, const char *why);
    void *arg;
};

/* Duplicates are gone. The child is ended after timeout_ms; what it had found until then counts. A
 * numeric name needs no child. */
int net_resolve_start(struct net_resolve **ret, struct event_base *base,
                      const struct net_resolve_cfg *cfg, struct dd_err *err);
void net_resolve_free(
    struct net_resolve *r); /* ends the child; no callback afterwards; legal inside done */

#endif
