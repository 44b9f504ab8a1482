#include "agent/locate_etcd_inner.h"

#include "agent/agent.h"

#include "base/io.h"
#include "web/etcd_url.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

bool locate_etcd_is_started(const struct locate_etcd *d)
{
    return d->history->last.n > 0 || d->where->loop->machine.begun;
}

/* ---- steps of the claim ---- */

static void close_listener(struct locate_etcd *d)
{
    if (d->listen_fd >= 0)
        close(DD_TAKE_FD(d->listen_fd));
}

/* Return the status of the search, lent; NULL: no search. */
static const char *locate_etcd_status(const void *arg)
{
    const struct locate_etcd *d = arg;
    if (uplink_is_up(d->where->uplink))
        return NULL;
    return d->trouble[0] != '\0' ? d->trouble : "querying etcd";
}

/* Connect to the address in the key. */
int locate_etcd_follow(struct locate_etcd *d, struct dd_err *err)
{
    struct link_find_cfg cfg;
    uint16_t ports[LOCATE_PORTS];
    const uint16_t port = (uint16_t)d->seen.port;
    close_listener(d);
    if (d->secret[0] != '\0' && d->seen.secret[0] != '\0')
        memcpy(d->secret, d->seen.secret, sizeof(d->secret));
    locate_find_cfg(d->where, &cfg, ports);
    cfg.host = d->seen.node;
    cfg.addrs = d->seen.addrs.v;
    cfg.host_is_me = true; /* numeric addresses */
    cfg.try_scontrol = false;
    cfg.ports = &port;
    cfg.nports = 1;
    cfg.nfurther = 0;
    locate_leader_begin(d->leader, locate_etcd_status, d);
    return locate_leader_connect(d->leader, &cfg, err);
}

static void locate_etcd_connect(struct locate_etcd *d)
{
    struct dd_err err = {0};
    if (locate_etcd_follow(d, &err) < 0)
        locate_etcd_give_up(d, err.text);
}

static void locate_etcd_lead(struct locate_etcd *d)
{
    locate_leader_stop(d->leader);
    agent_step(d->where->loop, (struct am_event){.kind = AM_LEAD});
}

/* Redirect the nodes of this node's daemon to the daemon that etcd names, which this node joins,
 * too. */
void locate_etcd_yield(struct locate_etcd *d)
{
    dd_log(d->where->loop->cfg->log, DD_LOG_NOTICE, "joining the job's current daemon on %s",
           d->seen.node);
    uplink_give_way(d->where->uplink, d->seen.addrs.v[0]);
    d->wanted = false;
}

static void bind_and_put(struct locate_etcd *d, int64_t revision)
{
    struct dd_err err = {0};
    if (!d->claim.hosting && d->listen_fd < 0) {
        d->listen_fd = locate_bind(d->where, &d->port, &err);
        if (d->listen_fd < 0) {
            locate_etcd_give_up(d, err.text);
            return;
        }
    }
    locate_etcd_ask(d, ETCD_PUT, revision);
}

static void locate_etcd_act(struct locate_etcd *d, enum claim_do what)
{
    switch (what) {
    case CLAIM_DO_HOST:
        locate_etcd_lead(d);
        break;
    case CLAIM_DO_FOLLOW:
        if (!uplink_is_up(d->where->uplink))
            locate_etcd_connect(d);
        break;
    case CLAIM_DO_YIELD:
        agent_step(d->where->loop, (struct am_event){.kind = AM_ELSEWHERE});
        break;
    case CLAIM_DO_STAY:
        if (d->wanted)
            uplink_send(d->where->uplink, MSG(PROBE_RESULT, .addr = ""));
        d->wanted = false;
        break;
    case CLAIM_DO_NOTHING:
    default:
        break;
    }
}

void locate_etcd_step(struct locate_etcd *d, enum claim_event e, const struct claim_seen *seen)
{
    static const enum etcd_call calls[] = {
        [CLAIM_ASK_READ] = ETCD_READ, [CLAIM_ASK_GRANT] = ETCD_GRANT, [CLAIM_ASK_KEEP] = ETCD_KEEP};
    const struct claim_out out = claim_step(&d->claim, e, seen);
    const struct timeval wait = dd_timeval(out.wait_ms * DD_NS_PER_MS);
    if (d->where->loop->machine.state == AM_LEAVING && !d->claim.hosting)
        return;
    if (out.ask != CLAIM_ASK_NOTHING)
        evtimer_del(d->timer);
    else if (out.wait_ms > 0)
        evtimer_add(d->timer, &wait);
    if (out.ask == CLAIM_ASK_PUT)
        bind_and_put(d, out.revision);
    else if (out.ask != CLAIM_ASK_NOTHING)
        locate_etcd_ask(d, calls[out.ask], 0);
    if (!d->over)
        locate_etcd_act(d, out.act);
}

/* ---- beginning and end ---- */

static void locate_etcd_on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct locate_etcd *d = arg;
    if (d->resting)
        web_free(DD_TAKE(d->web));
    else if (!d->over)
        locate_etcd_step(d, CLAIM_TIME, NULL);
}

static void locate_etcd_to_hex(char *out, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Make a secret for the job if the nodes share none. All nodes use that of the leader. */
static int make_secret(struct locate_etcd *d, struct dd_err *err)
{
    unsigned char bytes[ENTRY_SECRET / 2];
    struct net_key_input in = d->where->key_in;
    struct net_key key = {0};
    in.psk = NULL;
    int rc = net_key_for_agent(&key, &in, err);
    const bool have = in.insecure || key.method == NET_KEY_SHARED;
    explicit_bzero(&key, sizeof(key));
    if (rc < 0 || have)
        return rc;
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    locate_etcd_to_hex(d->secret, bytes, sizeof(bytes));
    explicit_bzero(bytes, sizeof(bytes));
    locate_set_psk(d->where, d->secret, "the job's secret in etcd");
    return 0;
}

int locate_etcd_new(struct locate_etcd **ret, const struct locate_etcd_parts *parts,
                    struct dd_err *err)
{
    const struct locate *where = parts->where;
    unsigned char id[ENTRY_ID / 2];
    struct locate_etcd *d = *ret = calloc(1, sizeof(*d));
    if (d == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *d = (struct locate_etcd){.cfg = parts->cfg,
                              .where = parts->where,
                              .leader = parts->leader,
                              .history = parts->history,
                              .round = parts->round,
                              .listen_fd = -1};
    d->timer = evtimer_new(where->loop->base, locate_etcd_on_timer, d);
    if (d->timer == NULL ||
        asprintf(&d->key, "%s/%s/host", parts->cfg->url->prefix, where->alloc->run_id) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (getrandom(id, sizeof(id), 0) != sizeof(id))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    locate_etcd_to_hex(d->id, id, sizeof(id));
    return make_secret(d, err);
}

/* Start anew after another node has led: discard pending requests. */
static void wake(struct locate_etcd *d)
{
    if (!d->resting)
        return;
    d->resting = d->revoking = false;
    evtimer_del(d->timer);
    web_free(DD_TAKE(d->web));
    d->lease = 0;
    d->claim = (struct claim){0};
}

void locate_etcd_start(struct locate_etcd *d)
{
    wake(d);
    locate_leader_begin(d->leader, locate_etcd_status, d);
    locate_etcd_step(d, CLAIM_BEGIN, NULL);
}

void locate_etcd_check(struct locate_etcd *d)
{
    if (d == NULL || d->over || !d->claim.hosting)
        return;
    d->wanted = true;
    locate_etcd_step(d, CLAIM_CHECK, NULL);
}

int locate_etcd_take_listener(struct locate_etcd *d, uint16_t *ret_port)
{
    if (d == NULL || d->listen_fd < 0)
        return -1;
    *ret_port = d->port;
    return DD_TAKE_FD(d->listen_fd);
}

void locate_etcd_hosting(struct locate_etcd *d, uint16_t port)
{
    if (d == NULL || d->over)
        return;
    wake(d);
    const bool known = !d->claim.hosting && d->port == port &&
                       d->where->loop->machine.epoch == 0; /* the key in etcd has these values */
    d->port = port;
    claim_set(&d->claim, true, d->where->loop->machine.epoch, locate_etcd_is_started(d));
    if (!known)
        locate_etcd_step(d, CLAIM_CHANGED, NULL);
}

void locate_etcd_changed(struct locate_etcd *d)
{
    if (d == NULL || d->over || !d->claim.hosting || d->claim.started == locate_etcd_is_started(d))
        return;
    claim_set(&d->claim, true, d->where->loop->machine.epoch, locate_etcd_is_started(d));
    locate_etcd_step(d, CLAIM_CHANGED, NULL);
}

static void on_rest(void *arg, const struct web_answer *a)
{
    const struct timeval now = {0};
    struct locate_etcd *d = arg;
    (void)a;
    if (d->resting)
        evtimer_add(d->timer, &now);
}

/* End the helper, since only the leader sends requests. */
void locate_etcd_following(struct locate_etcd *d)
{
    const struct timeval now = {0};
    if (d == NULL || d->over)
        return;
    d->resting = true;
    claim_set(&d->claim, false, 0, false);
    evtimer_del(d->timer);
    locate_etcd_revoke(d, on_rest);
    if (!d->revoking)
        evtimer_add(d->timer, &now);
}

static void on_last(void *arg, const struct web_answer *a)
{
    (void)arg;
    (void)a;
}

void locate_etcd_over(struct locate_etcd *d)
{
    if (d == NULL || d->over)
        return;
    d->over = true;
    evtimer_del(d->timer);
    if (d->claim.fails == 0)
        locate_etcd_revoke(d, on_last);
}

void locate_etcd_free(struct locate_etcd *d)
{
    if (d == NULL)
        return;
    locate_etcd_over(d);
    if (d->web != NULL && d->revoking)
        (void)web_finish(d->web, LOCATE_ETCD_REVOKE_MS);
    web_free(d->web);
    close_listener(d);
    if (d->timer != NULL)
        event_free(d->timer);
    entry_done(&d->seen);
    explicit_bzero(d->secret, sizeof(d->secret));
    free(d->key);
    free(d->token);
    free(d);
}
