#include "agent/locators.h"

#include "agent/agent.h"
#include "base/auto.h"

#include <errno.h>

int locators_init(struct locators *l, struct agent_loop *loop, struct uplink *uplink,
                  const struct round_history *history, const struct round *round,
                  struct dd_err *err)
{
    locate_init(&l->where, loop, uplink);
    if (locate_leader_new(&l->leader, &l->where) < 0 ||
        locate_peers_new(&l->peers, &l->where) < 0 ||
        locate_members_new(&l->members, &l->where, history) < 0 ||
        locate_local_new(&l->local, &l->where, l->leader) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    l->etcd_parts = (struct locate_etcd_parts){.cfg = &loop->cfg->etcd,
                                               .where = &l->where,
                                               .leader = l->leader,
                                               .history = history,
                                               .round = round};
    return 0;
}

/* Start the search in etcd. Create its state on first use, so that errors of etcd are reported
 * after the health check. */
static int start_etcd(struct locators *l, struct dd_err *err)
{
    int rc = l->etcd == NULL ? locate_etcd_new(&l->etcd, &l->etcd_parts, err) : 0;
    if (rc == 0)
        locate_etcd_start(l->etcd);
    return rc;
}

int locators_start(struct locators *l, struct dd_err *err)
{
    return l->where.loop->machine_cfg.etcd ? start_etcd(l, err)
                                           : locate_leader_start(l->leader, NULL, err);
}

int locators_start_there(struct locators *l, const char *addr, struct dd_err *err)
{
    if (!l->where.loop->machine_cfg.etcd)
        return locate_leader_start(l->leader, addr, err);
    return addr != NULL ? start_etcd(l, err) : locate_etcd_follow(l->etcd, err);
}

void locators_stop_probes(struct locators *l)
{
    locate_peers_stop(l->peers);
    locate_members_stop(l->members);
}

void locators_stop(struct locators *l)
{
    if (l->local == NULL) /* made last: locators_init() has failed */
        return;
    locators_stop_probes(l);
    locate_leader_stop(l->leader);
}

void locators_done(struct locators *l)
{
    locate_etcd_free(DD_TAKE(l->etcd));
    locate_local_free(DD_TAKE(l->local));
    locate_members_free(DD_TAKE(l->members));
    locate_peers_free(DD_TAKE(l->peers));
    locate_leader_free(DD_TAKE(l->leader));
}
