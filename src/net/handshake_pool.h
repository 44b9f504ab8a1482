/* Callers at a listening socket, until they have proved the key. Anybody may call and say nothing:
 * there may be so many of those at a time; then the source with the most of them loses its oldest
 * (net/unproven.h). */
#ifndef DD_NET_CALLERS_H
#define DD_NET_CALLERS_H

#include "net/link.h"

struct callers_cfg {
    struct event_base *base;
    struct link_accept_cfg accept; /* `shared` is not looked at; what it points to is lent */
    int fd;                        /* listening; lent */
    int receive;                   /* SO_RCVBUF of a connection; 0: the kernel's */
    size_t most;                   /* silent ones */
    void (*on_link)(void *arg, struct link *l); /* takes l, which waits for link_set_cb() */
    void *arg;
};

struct callers;

int callers_new(struct callers **ret, const struct callers_cfg *cfg); /* 0 or -ENOMEM */
void callers_free(struct callers *c); /* NULL does nothing; not within on_link */

#endif
