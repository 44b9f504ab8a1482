#include "agent/held_ports.h"

#include "agent/agent.h"
#include "base/auto.h"
#include "net/addr.h"
#include "net/listen.h"
#include "rdzv/msg.h"
#include "rdzv/ports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct held_ports {
    int n; /* number of reserved ports; 0: none could be reserved */
    int fds[PORTS_MAX];
    uint16_t ports[PORTS_MAX];
    char *text; /* the ports as JOIN and DONE carry them; NULL: none */
    bool open;  /* report if another user takes one of the ports; cleared after the report */
};

/* Do not clear the arrays, of 24 KiB: touching their pages would delay each start. */
static void held_ports_clear(struct held_ports *h)
{
    h->n = 0;
    h->text = NULL;
    h->open = false;
}

static void held_ports_close(struct held_ports *h)
{
    for (int i = 0; i < h->n; i++)
        close(h->fds[i]);
    free(h->text);
    held_ports_clear(h);
}

/* Write the ports as text, with the address of --iface if it is set; otherwise the daemon uses this
 * node's address of the link. */
static int held_ports_describe(struct held_ports *h, const struct agent_cfg *cfg)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(MSG_MAX_BYTES / 2);
    DD_AUTO(free) struct net_iface *ifs = NULL;
    char text[NET_ADDR_TEXT] = "";
    struct net_addr addr;
    size_t n = 0;
    if (cfg->iface != NULL && net_ifaces(&ifs, &n, NULL) == 0 &&
        net_iface_addr(ifs, n, cfg->iface, &addr) == 0)
        (void)net_addr_host(&addr, text);
    int rc = ports_format(&out, text, h->ports, h->n);
    h->text = rc == 0 ? dd_buf_steal(&out) : NULL;
    return h->text == NULL ? -ENOMEM : 0;
}

/* Reserve new ports; none if too few are free. */
static void held_ports_renew(struct held_ports *h, const struct agent_cfg *cfg)
{
    const bool workers = framework_wants_ports(cfg->frameworks);
    const int want = 1 + (workers ? cfg->slots : 0);
    const enum net_reserve how = framework_reuses_port(cfg->frameworks) ? NET_RESERVE_PORT
                                                                        : NET_RESERVE_ADDR;
    int rc = 0;
    held_ports_close(h);
    while (rc == 0 && h->n < want) {
        rc = net_reserve(how, &h->fds[h->n], &h->ports[h->n]);
        h->n += rc == 0;
    }
    h->open = how == NET_RESERVE_ADDR;
    if (rc == 0)
        rc = held_ports_describe(h, cfg);
    if (rc == 0)
        return;
    dd_log(cfg->log, workers ? DD_LOG_WARN : DD_LOG_INFO,
           "cannot reserve ports for the workers (%d needed): %s", want, strerror(-rc));
    held_ports_close(h);
}

const char *held_ports_text(const struct round *r)
{
    const struct held_ports *h = features_state(r, &held_ports_feature);
    return h != NULL && h->text != NULL ? h->text : "";
}

/* ---- hooks ---- */

static int held_ports_create(void **state, const struct round *r, struct dd_err *err)
{
    struct held_ports *h = *state = malloc(sizeof(*h));
    if (h == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    held_ports_clear(h);
    held_ports_renew(h, r->cfg);
    return 0;
}

/* A worker has failed: report once if another user listens on one of the reserved ports, which
 * SO_REUSEADDR allows. */
static void held_ports_verdict(void *state, const struct round *r, const struct worker_end *end)
{
    struct held_ports *h = state;
    uint16_t port;
    uid_t uid;
    if (!h->open || end->exit.code == 0 || r->stop_sig != 0 ||
        !net_ports_taken(h->ports, (size_t)h->n, &port, &uid))
        return;
    dd_log(r->cfg->log, DD_LOG_ERR,
           "uid %u listens on port %u of %s, which ddrun had reserved for a worker; each restart "
           "uses other ports",
           (unsigned)uid, port, r->cfg->node_name);
    h->open = false;
}

static void held_ports_end(void *state, const struct round *r)
{
    held_ports_renew(state, r->cfg);
}

static void held_ports_destroy(void *state)
{
    held_ports_close(state);
    free(state);
}

const struct round_feature held_ports_feature = {
    .name = "held-ports",
    .create = held_ports_create,
    .verdict = held_ports_verdict,
    .end = held_ports_end,
    .destroy = held_ports_destroy,
};
