#include "cmd/local_machine.h"

#include "base/io.h"
#include "net/addr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCAL_MACHINE_ADDRESSES_MAX = 8 };

/* Read the addresses unless they have been read: most starts do not need them. */
static int local_machine_read_addrs(struct local_machine *m, struct dd_err *err)
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    size_t n = 0;
    int rc = m->addrs.n == 0 ? net_ifaces(&ifs, &n, err) : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        char text[NET_ADDR_TEXT];
        rc = dd_strv_push(&m->addrs, net_addr_host(&ifs[i].addr, text));
    }
    return rc == -ENOMEM ? dd_err_set(err, rc, "out of memory") : rc;
}

int local_machine_discover(struct local_machine *m, struct dd_err *err)
{
    return gethostname(m->hostname, sizeof(m->hostname) - 1) < 0
               ? dd_err_set(err, -errno, "cannot get the name of this machine: %m")
               : 0;
}

void local_machine_done(struct local_machine *m)
{
    dd_strv_done(&m->addrs);
}

static char *const *local_machine_addrs(void *machine)
{
    struct local_machine *m = machine;
    return local_machine_read_addrs(m, NULL) == 0 ? m->addrs.v : NULL;
}

void local_machine_describe(struct local_machine *m, struct alloc_input *in)
{
    in->env = environ;
    in->hostname = m->hostname;
    in->local_addrs = local_machine_addrs;
    in->machine = m;
    in->read_file = dd_read_file;
}

int local_machine_addresses(struct local_machine *m, struct dd_strv *ret, const struct alloc *a,
                            int index, struct dd_err *err)
{
    int rc = local_machine_read_addrs(m, err);
    if (rc < 0)
        return rc;
    rc = dd_strv_push(ret, index >= 0 ? hostlist_nth(a->nodes, (size_t)index) : m->hostname);
    for (size_t i = 0; rc == 0 && i < m->addrs.n && ret->n < LOCAL_MACHINE_ADDRESSES_MAX; i++) {
        struct net_addr addr;
        if (net_addr_parse(&addr, m->addrs.v[i], 0) == 0 && !net_addr_is_loopback(&addr) &&
            strchr(m->addrs.v[i], '%') == NULL) /* a scoped address is valid on this machine only */
            rc = dd_strv_push(ret, m->addrs.v[i]);
    }
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
}
