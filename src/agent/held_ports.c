/* Ports for what the workers listen on: bound here and never listened on, so that a worker takes
 * them without a race, and with SO_REUSEPORT, so that no other user can. gRPC sets it (JAX;
 * TensorFlow where TF_GRPC_REUSE_PORT=1); Paddle and MindSpore set SO_REUSEADDR alone, for which
 * the kernel compares no users. Src: TensorFlow 2.21 and JAX 0.10, measured; Paddle 3
 * (paddle/phi/core/distributed/store/tcp_utils.cc). */
#include "agent/inner.h"

#include "net/addr.h"
#include "net/listen.h"
#include "rdzv/ports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct held_ports {
    int n;
    int fds[PORTS_MAX];
    uint16_t ports[PORTS_MAX];
    char *text; /* for the daemon */
    bool open;  /* to servers of all users; once that was reported, it is not any more */
};

void ports_free(struct agent *a)
{
    for (int i = 0; a->ports != NULL && i < a->ports->n; i++)
        close(a->ports->fds[i]);
    if (a->ports != NULL)
        free(a->ports->text);
    free(a->ports);
    a->ports = NULL;
}

/* The daemon sees where we come from; the workers' network, if it is another one, only we know. */
static int describe(const struct agent *a, struct held_ports *h)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(MSG_MAX_BYTES / 2);
    DD_AUTO(free) struct net_iface *ifs = NULL;
    char text[NET_ADDR_TEXT] = "";
    struct net_addr addr;
    size_t n = 0;
    if (a->cfg->iface != NULL && net_ifaces(&ifs, &n, NULL) == 0 &&
        net_iface_addr(ifs, n, a->cfg->iface, &addr) == 0)
        (void)net_addr_host(&addr, text);
    int rc = ports_format(&out, text, h->ports, h->n);
    h->text = rc == 0 ? dd_buf_steal(&out) : NULL;
    return h->text == NULL ? -ENOMEM : 0;
}

void ports_renew(struct agent *a)
{
    struct held_ports *h = calloc(1, sizeof(*h));
    const bool workers = framework_wants_ports(a->cfg->frameworks);
    const int want = 1 + (workers ? a->cfg->slots : 0);
    const enum net_reserve how = framework_reuses_port(a->cfg->frameworks) ? NET_RESERVE_PORT
                                                                           : NET_RESERVE_ADDR;
    int rc = h == NULL ? -ENOMEM : 0;
    ports_free(a);
    while (rc == 0 && h->n < want) {
        rc = net_reserve(how, &h->fds[h->n], &h->ports[h->n]);
        h->n += rc == 0;
    }
    a->ports = h;
    if (h != NULL)
        h->open = how == NET_RESERVE_ADDR;
    if (rc == 0)
        rc = describe(a, h);
    if (rc == 0)
        return;
    dd_log(a->cfg->log, workers ? DD_LOG_WARN : DD_LOG_INFO,
           "cannot reserve %d ports for the workers: %s", want, strerror(-rc));
    ports_free(a);
}

void ports_check(struct agent *a)
{
    struct held_ports *h = a->ports;
    uid_t uid;
    for (int i = 0; h != NULL && h->open && i < h->n; i++)
        if (net_port_taken(h->ports[i], &uid)) {
            dd_log(
                a->cfg->log, DD_LOG_ERR,
                "uid %u listens on port %u of %s, which was held for a worker; each restart takes other ports",
                (unsigned)uid, h->ports[i], a->cfg->node_name);
            h->open = false;
        }
}

const char *ports_text(const struct agent *a)
{
    return a->ports != NULL ? a->ports->text : "";
}
