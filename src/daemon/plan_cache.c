#include "daemon/plan_cache.h"

#include "base/io.h"
#include "rdzv/charges.h"
#include "rdzv/ports.h"
#include "rdzv/restart_ages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Tolerated silence of an agent that starts workers: files may load slowly, and so may ddrun-pmix.
 */
enum { START_MS = 20000 };

int plan_cache_init(struct plan_cache *c, struct dd_err *err)
{
    uint64_t random[2];
    *c = (struct plan_cache){.round = -1};
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return dd_err_set(err, -EIO, "cannot create the token of the job: getrandom failed: %m");
    (void)snprintf(c->token, sizeof(c->token), "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return 0;
}

void plan_cache_done(struct plan_cache *c)
{
    plan_clear(&c->plan);
    free(c->sizes);
    free(c->members);
    free(c->ports);
    free(c->charges);
}

/* Write the ports that the nodes hold, in node rank order. If the first node holds only its
 * coordinator's port, write only that one. A node without ports has an empty entry. */
static int plan_cache_add_ports(const struct rdzv *machine, const struct session_set *set,
                                int nnodes, struct dd_buf *out)
{
    char text[NET_ADDR_TEXT];
    int rc = 0;
    for (int k = 0; k < nnodes && rc == 0; k++) {
        const struct session *s = session_of_id(set, rdzv_id_of_rank(machine, k));
        if (k > 0)
            rc = dd_buf_append(out, ";", 1);
        if (rc < 0 || s == NULL || s->ports == NULL)
            continue;
        const struct net_addr *peer = link_peer(s->link);
        /* a loopback peer runs on the daemon's node */
        const bool away = peer->len > 0 && !net_addr_is_loopback(peer);
        rc = ports_append(out, s->ports, away ? net_addr_host(peer, text) : "");
        if (k == 0 && ports_count(s->ports) == 1)
            break;
    }
    return rc;
}

/* Generate the texts that are equal for all members of the round. id: any member. */
static int plan_cache_fill(struct plan_cache *c, const struct rdzv *machine,
                           const struct session_set *set, int id)
{
    DD_AUTO(plan) struct plan p = {0};
    DD_AUTO(buf) struct dd_buf sizes = DD_BUF_INIT(MSG_MAX_BYTES / 2);
    DD_AUTO(buf) struct dd_buf members = DD_BUF_INIT(MSG_MAX_BYTES / 2);
    DD_AUTO(buf) struct dd_buf ports = DD_BUF_INIT(MSG_MAX_BYTES / 2);
    DD_AUTO(buf) struct dd_buf charges = DD_BUF_INIT(CHARGES_BYTES);
    if (c->round == rdzv_round(machine))
        return 0;
    int rc = rdzv_plan(machine, id, &p);
    if (rc == 0)
        rc = plan_sizes_format(&sizes, p.sizes, p.nnodes);
    if (rc == 0)
        rc = rdzv_members_format(&members, rdzv_planned(machine));
    if (rc == 0)
        rc = rdzv_charges_format(machine, dd_now_ns(), &charges);
    if (rc < 0)
        return rc;
    if (plan_cache_add_ports(machine, set, p.nnodes, &ports) < 0)
        dd_buf_clear(&ports); /* too long: an agent that needs the ports reports the error */
    plan_cache_done(c);
    c->sizes = dd_buf_steal(&sizes);
    c->members = dd_buf_steal(&members);
    c->ports = dd_buf_steal(&ports);
    c->charges = charges.len > 0 ? dd_buf_steal(&charges) : NULL;
    if (c->sizes == NULL || c->members == NULL || c->ports == NULL)
        return -ENOMEM;
    c->round = p.round;
    c->plan = p;
    p = (struct plan){0};
    return 0;
}

/* Add the addresses at which a node may find the next daemon. */
static void plan_cache_add_addrs(const struct rdzv *machine, const struct session_set *set,
                                 struct dd_strv *out)
{
    char text[NET_ADDR_TEXT];
    for (int k = 0; k <= RDZV_SUCCESSORS; k++) {
        const struct session *s = session_of_id(set, rdzv_id_of_rank(machine, k));
        if (s == NULL)
            break;
        const struct net_addr *peer = link_peer(s->link);
        (void)dd_strv_push(out, peer->len > 0 ? net_addr_host(peer, text) : "");
    }
}

/* Write the ages of the last restarts; "" unless --max-restarts limits the restarts per time. */
static void plan_cache_put_spent(const struct rdzv *machine, struct dd_buf *out)
{
    uint64_t ages[RESTART_AGES_MAX];
    int n = rdzv_ages(machine, dd_now_ns(), ages, RESTART_AGES_MAX);
    for (int i = 0; i < n; i++)
        ages[i] /= DD_NS_PER_MS;
    (void)restart_ages_format(out, ages, n);
}

void plan_cache_send_plan(struct plan_cache *c, const struct rdzv *machine, struct session *s)
{
    const struct plan *p = &c->plan;
    int rc = plan_cache_fill(c, machine, s->set, s->id);
    if (rc < 0) {
        dd_log(s->set->cfg.log, DD_LOG_ERR, "cannot make the plan of the round for %s: %s", s->name,
               strerror(-rc));
        link_fail(s->link, msg_type_name(MSG_PLAN), rc);
        return;
    }
    DD_AUTO(buf) struct dd_buf spent = DD_BUF_INIT(1024);
    DD_AUTO(strv) struct dd_strv addrs = {0};
    plan_cache_put_spent(machine, &spent);
    plan_cache_add_addrs(machine, s->set, &addrs);
    session_send(s, MSG(PLAN, .round = p->round, .node_rank = rdzv_node_rank(machine, s->id),
                        .restart_count = p->restart_count, .max_restarts = p->max_restarts,
                        .master_port = p->master_port, .addr = rdzv_master_addr(machine, s->id),
                        .addrs = &addrs, .sizes = c->sizes, .nodes = p->nodes,
                        .members = c->members, .spent = dd_buf_str(&spent), .charges = c->charges,
                        .ports = c->ports, .token = c->token));
    link_excuse(s->link, START_MS);
}

void plan_cache_send_members(struct plan_cache *c, const struct rdzv *machine, struct session *s)
{
    int rc = plan_cache_fill(c, machine, s->set, rdzv_id_of_rank(machine, 0));
    if (rc < 0) { /* not fatal: a spare node waits for a place anyway */
        dd_log(s->set->cfg.log, DD_LOG_WARN, "cannot send the members of the round to %s: %s",
               s->name, strerror(-rc));
        return;
    }
    DD_AUTO(strv) struct dd_strv addrs = {0};
    plan_cache_add_addrs(machine, s->set, &addrs);
    session_send(
        s, MSG(ROUND_MEMBERS, .addr = c->plan.master_addr, .addrs = &addrs, .members = c->members));
}
