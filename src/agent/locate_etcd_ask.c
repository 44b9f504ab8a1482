/* Requests of an agent to etcd for the key that names the leader, and their replies. */
#include "agent/locate_etcd_inner.h"

#include "agent/agent.h"
#include "agent/round.h"
#include "net/addr.h"
#include "web/etcd_url.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

enum { CALL_MS = 4000 };

/* ---- this agent's entry ---- */

static int add_addrs(const struct agent_cfg *cfg, struct dd_strv *to)
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    char text[NET_ADDR_TEXT];
    struct net_addr addr;
    size_t n = 0;
    int rc = 0;
    if (cfg->listen_addr != NULL)
        return dd_strv_push(to, cfg->listen_addr);
    (void)net_ifaces(&ifs, &n, NULL);
    if (cfg->iface != NULL && net_iface_addr(ifs, n, cfg->iface, &addr) == 0)
        rc = dd_strv_push(to, net_addr_host(&addr, text));
    for (size_t i = 0; i < n && to->n < ENTRY_ADDRS_MAX && rc == 0; i++) {
        const char *one = net_addr_host(&ifs[i].addr, text);
        const bool known = to->n > 0 && strcmp(to->v[0], one) == 0;
        if (!ifs[i].loopback && ifs[i].up && strchr(one, '%') == NULL && !known)
            rc = dd_strv_push(to, one);
    }
    return rc == 0 && to->n == 0 ? dd_strv_push(to, "127.0.0.1") : rc;
}

static int own_value(struct locate_etcd *d, char **ret)
{
    const struct agent_loop *l = d->where->loop;
    DD_AUTO(entry) struct entry e = {
        .port = d->port, .epoch = l->machine.epoch, .started = locate_etcd_is_started(d)};
    (void)snprintf(e.id, sizeof(e.id), "%s", d->id);
    (void)snprintf(e.secret, sizeof(e.secret), "%s", d->secret);
    (void)snprintf(e.node, sizeof(e.node), "%s", l->cfg->node_name);
    int rc = add_addrs(l->cfg, &e.addrs);
    return rc == 0 ? entry_encode(ret, &e) : rc;
}

/* ---- errors ---- */

/* End the agent with an error: without a daemon, only the user can correct the cause. */
void locate_etcd_give_up(struct locate_etcd *d, const char *why)
{
    struct agent_loop *l = d->where->loop;
    d->over = true;
    evtimer_del(d->timer);
    dd_log(l->cfg->log, DD_LOG_ERR, "--rdzv-endpoint: %s", why);
    agent_step(l, (struct am_event){.kind = AM_FAILED, .code = 2});
}

static void in_trouble(struct locate_etcd *d, bool for_good)
{
    struct agent_loop *l = d->where->loop;
    if (for_good && !uplink_is_up(d->where->uplink) && !locate_etcd_is_started(d) &&
        l->machine.state != AM_LEAVING) {
        locate_etcd_give_up(d, d->trouble);
        return;
    }
    if (!d->reported && uplink_is_up(d->where->uplink))
        dd_log(l->cfg->log, DD_LOG_NOTICE,
               "%s; the job continues, but new nodes cannot join it now", d->trouble);
    d->reported = d->reported || uplink_is_up(d->where->uplink);
}

static void no_trouble(struct locate_etcd *d)
{
    if (d->reported)
        dd_log(d->where->loop->cfg->log, DD_LOG_NOTICE, "etcd accepts requests again");
    d->reported = d->fresh = false;
    d->trouble[0] = '\0';
}

/* ---- requests ---- */

static void locate_etcd_ask_on_answer(void *arg, const struct web_answer *a);

static void on_helper(void *arg, pid_t pid)
{
    const struct locate_etcd *d = arg;
    round_protect(d->round, pid);
}

static int helper_of(struct locate_etcd *d, struct dd_err *err)
{
    struct agent_loop *l = d->where->loop;
    const struct web_cfg cfg = {.base = l->base,
                                .helper = d->cfg->helper,
                                .env = l->cfg->env,
                                .started = on_helper,
                                .arg = d};
    return d->web != NULL ? 0 : web_new(&d->web, &cfg, err);
}

/* Encode the body of d->call, or of AUTH before it. */
static int locate_etcd_ask_encode(struct locate_etcd *d, char **ret, int64_t revision)
{
    DD_AUTO(free) char *value = NULL;
    struct etcd_ask ask = {.call = d->authenticating ? ETCD_AUTH : d->call,
                           .user = d->cfg->url->user,
                           .password = d->cfg->password != NULL ? d->cfg->password : "",
                           .key = d->key,
                           .lease = d->lease,
                           .revision = revision,
                           .ttl = CLAIM_TTL_S};
    int rc = ask.call == ETCD_PUT ? own_value(d, &value) : 0;
    ask.value = value;
    return rc == 0 ? etcd_ask_encode(ret, &ask) : rc;
}

static int locate_etcd_ask_post(struct locate_etcd *d, const char *body)
{
    const struct etcd_url *e = d->cfg->url;
    struct web_request r = {.body = body,
                            .cacert = e->cacert,
                            .cert = e->cert,
                            .key = e->key,
                            .limit_ms = CALL_MS,
                            .direct = true};
    DD_AUTO(strv) struct dd_strv texts = {0};
    const enum etcd_call call = d->authenticating ? ETCD_AUTH : d->call;
    int rc = 0;
    for (size_t i = 0; i < e->bases.n && rc == 0; i++)
        rc = dd_strv_pushf(&texts, "%s%s", e->bases.v[(d->first + i) % e->bases.n],
                           etcd_path(call));
    if (rc == 0 && d->token != NULL && !d->authenticating)
        rc = dd_strv_pushf(&texts, "Authorization: %s", d->token);
    for (size_t i = 0; i < texts.n; i++)
        *(i < e->bases.n ? &r.urls[i] : &r.headers[0]) = texts.v[i];
    return rc == 0 ? web_post(d->web, &r, locate_etcd_ask_on_answer, d) : rc;
}

void locate_etcd_ask(struct locate_etcd *d, enum etcd_call call, int64_t revision)
{
    DD_AUTO(free) char *body = NULL;
    struct dd_err err = {0};
    d->call = call;
    d->authenticating = d->cfg->url->user != NULL && d->token == NULL && !d->no_auth;
    int rc = helper_of(d, &err);
    if (rc == 0)
        rc = locate_etcd_ask_encode(d, &body, revision);
    if (rc == 0)
        rc = locate_etcd_ask_post(d, body);
    if (rc == 0)
        return;
    (void)snprintf(d->trouble, sizeof(d->trouble), "cannot query etcd: %s",
                   err.text[0] != '\0' ? err.text : strerror(-rc));
    in_trouble(d, true);
    if (!d->over)
        locate_etcd_step(d, CLAIM_FAILED, NULL);
}

/* ---- replies ---- */

static void locate_etcd_ask_on_seen(struct locate_etcd *d, const struct etcd_answer *a)
{
    DD_AUTO(entry) struct entry e = {0};
    struct claim_seen seen = {.there = a->there, .revision = a->revision};
    struct dd_err err = {0};
    if (a->there && entry_decode(&e, a->value, &err) < 0) {
        (void)snprintf(d->trouble, sizeof(d->trouble), "invalid value of key '%s' in etcd: %s",
                       d->key, err.text);
        in_trouble(d, true);
        if (!d->over)
            locate_etcd_step(d, CLAIM_FAILED, NULL);
        return;
    }
    seen.started = e.started;
    seen.epoch = e.epoch;
    seen.mine = a->there && strcmp(e.id, d->id) == 0 && a->lease == d->lease;
    seen.same = seen.mine && e.port == d->port && e.epoch == d->where->loop->machine.epoch &&
                e.started == locate_etcd_is_started(d);
    if (seen.same || (a->there && !uplink_is_up(d->where->uplink)))
        no_trouble(d); /* else only a successful write counts: a full etcd still answers reads */
    if (a->there && !seen.mine) {
        entry_done(&d->seen);
        d->seen = e;
        e = (struct entry){0};
    }
    locate_etcd_step(d, CLAIM_READ, &seen);
}

static void locate_etcd_ask_on_done(struct locate_etcd *d, struct etcd_answer *a)
{
    if (d->authenticating) {
        free(d->token);
        d->token = DD_TAKE(a->token);
        d->fresh = true;
        locate_etcd_ask(d, d->call, d->claim.put_over);
        return;
    }
    d->fresh = false;
    if (d->call == ETCD_PUT) /* a lease or a read value does not show that etcd accepts writes */
        no_trouble(d);
    switch (d->call) {
    case ETCD_READ:
        locate_etcd_ask_on_seen(d, a);
        break;
    case ETCD_GRANT:
        d->lease = a->lease;
        locate_etcd_step(d, CLAIM_GRANTED, NULL);
        break;
    case ETCD_KEEP:
        locate_etcd_step(d, CLAIM_KEPT, NULL);
        break;
    case ETCD_PUT:
        locate_etcd_step(d, CLAIM_WON, NULL);
        break;
    case ETCD_REVOKE:
    case ETCD_AUTH:
    case ETCD_CALLS:
    default:
        break;
    }
}

static void on_result(struct locate_etcd *d, enum etcd_result result, const struct dd_err *err)
{
    const struct etcd_url *e = d->cfg->url;
    switch (result) {
    case ETCD_LOST:
        no_trouble(d);
        locate_etcd_step(d, CLAIM_BEATEN, NULL);
        return;
    case ETCD_NO_LEASE:
        d->lease = 0;
        locate_etcd_step(d, CLAIM_LEASE_GONE, NULL);
        return;
    case ETCD_NO_AUTH:
        d->no_auth = d->fresh = true;
        locate_etcd_ask(d, d->call, d->claim.put_over);
        return;
    case ETCD_NO_TOKEN: /* etcd has restarted, or the token has expired */
        free(DD_TAKE(d->token));
        d->no_auth = false;
        if (e->user != NULL && !d->authenticating && !d->fresh) {
            locate_etcd_ask(d, d->call, d->claim.put_over);
            return;
        }
        d->fresh = false;
        break;
    case ETCD_REFUSED:
        d->no_auth = false; /* authentication may have been enabled */
        break;
    case ETCD_FAILED:
    case ETCD_DONE:
    default:
        break;
    }
    if (e->user != NULL)
        (void)snprintf(d->trouble, sizeof(d->trouble), "%s, for the user '%.60s': %s",
                       e->bases.v[d->first], e->user, err->text);
    else
        (void)snprintf(d->trouble, sizeof(d->trouble), "%s: %s", e->bases.v[d->first], err->text);
    in_trouble(d, result == ETCD_REFUSED);
    d->first = (d->first + 1) % e->bases.n; /* try another server */
    if (!d->over)
        locate_etcd_step(d, CLAIM_FAILED, NULL);
}

static void locate_etcd_ask_on_answer(void *arg, const struct web_answer *w)
{
    struct locate_etcd *d = arg;
    const struct etcd_url *e = d->cfg->url;
    DD_AUTO(etcd_answer) struct etcd_answer a = {0};
    struct dd_err err = {0};
    const enum etcd_call call = d->authenticating ? ETCD_AUTH : d->call;
    if (d->over || d->resting)
        return;
    if (w->status == 0) {
        (void)snprintf(d->trouble, sizeof(d->trouble), "%s (%s%s): %s",
                       w->set_up ? "cannot connect to etcd" : "etcd does not respond",
                       e->bases.v[0], e->bases.n > 1 ? " and others" : "", w->error);
        in_trouble(d, w->set_up);
        if (!d->over)
            locate_etcd_step(d, CLAIM_FAILED, NULL);
        return;
    }
    d->first = (d->first + (size_t)w->from) % e->bases.n;
    const enum etcd_result result = etcd_answer_decode(&a, call, w->status, w->body, &err);
    if (result == ETCD_DONE)
        locate_etcd_ask_on_done(d, &a);
    else
        on_result(d, result, &err);
}

/* The reply does not matter: the lease expires anyway. */
void locate_etcd_revoke(struct locate_etcd *d, web_done_f *done)
{
    const int64_t lease = d->lease;
    DD_AUTO(free) char *body = NULL;
    const struct etcd_ask ask = {.call = ETCD_REVOKE, .lease = lease};
    d->lease = 0;
    d->claim.lease = false;
    d->call = ETCD_REVOKE;
    d->authenticating = false;
    if (lease == 0 || d->web == NULL || etcd_ask_encode(&body, &ask) < 0)
        return;
    const struct etcd_url *e = d->cfg->url;
    struct web_request r = {.body = body,
                            .cacert = e->cacert,
                            .cert = e->cert,
                            .key = e->key,
                            .limit_ms = LOCATE_ETCD_REVOKE_MS,
                            .direct = true};
    char url[ETCD_TEXT_MAX];
    char token[ETCD_TOKEN_MAX + 32];
    (void)snprintf(url, sizeof(url), "%s%s", e->bases.v[d->first], etcd_path(ETCD_REVOKE));
    (void)snprintf(token, sizeof(token), "Authorization: %s", d->token != NULL ? d->token : "");
    r.urls[0] = url;
    r.headers[0] = d->token != NULL ? token : NULL;
    d->revoking = web_post(d->web, &r, done, d) == 0;
}
