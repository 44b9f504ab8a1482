#include "agent/discover.h"

#include "agent/inner.h"
#include "base/io.h"
#include "net/addr.h"
#include "web/claim.h"
#include "web/client.h"
#include "web/entry.h"
#include "web/etcd.h"
#include "web/etcd_url.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { CALL_MS = 4000, LAST_WORD_MS = 1000 };

struct discover {
    struct agent *agent;
    struct web *web;     /* NULL: nothing is to be asked */
    struct event *timer; /* for the claim; or, where `resting`, to end the helper */
    struct claim claim;
    char *key, *token;
    char id[ENTRY_ID + 1];
    char secret[ENTRY_SECRET + 1]; /* "": the nodes have a key of their own */
    int64_t lease;                 /* 0: none */
    size_t first;                  /* of the URLs, which answered last */
    enum etcd_call call;           /* under way, or after AUTH */
    bool authenticating, no_auth;
    bool fresh;                    /* what AUTH has said is not tried yet */
    int listen_fd; /* bound for the claim, until the daemon gets it; -1 */
    uint16_t port; /* where we listen */
    struct entry seen;
    bool begun;    /* our daemon has begun a round, without this node */
    bool wanted;   /* our daemon waits for a word */
    bool resting;  /* another node is the host */
    bool over;     /* the job, or all hope */
    bool last_word; /* etcd is told that the lease is over */
    bool told;     /* that etcd does not answer */
    char trouble[700];
};

static bool is_started(const struct agent *a)
{
    return a->memory.last.n > 0 || a->group != NULL || (a->discover != NULL && a->discover->begun);
}

/* ---- what we say of ourselves --------------------------------------------------------------------- */

static int add_addrs(const struct agent *a, struct dd_strv *to)
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    char text[NET_ADDR_TEXT];
    struct net_addr addr;
    size_t n = 0;
    int rc = 0;
    if (a->cfg->listen_addr != NULL)
        return dd_strv_push(to, a->cfg->listen_addr);
    (void)net_ifaces(&ifs, &n, NULL);
    if (a->cfg->iface != NULL && net_iface_addr(ifs, n, a->cfg->iface, &addr) == 0)
        rc = dd_strv_push(to, net_addr_host(&addr, text));
    for (size_t i = 0; i < n && to->n < ENTRY_ADDRS_MAX && rc == 0; i++) {
        const char *one = net_addr_host(&ifs[i].addr, text);
        const bool known = to->n > 0 && strcmp(to->v[0], one) == 0;
        if (!ifs[i].loopback && ifs[i].up && strchr(one, '%') == NULL && !known)
            rc = dd_strv_push(to, one);
    }
    return rc == 0 && to->n == 0 ? dd_strv_push(to, "127.0.0.1") : rc;
}

static int own_value(struct discover *d, char **ret)
{
    const struct agent *a = d->agent;
    DD_AUTO(entry) struct entry e = {.port = d->port, .epoch = a->epoch, .started = is_started(a)};
    (void)snprintf(e.id, sizeof(e.id), "%s", d->id);
    (void)snprintf(e.secret, sizeof(e.secret), "%s", d->secret);
    (void)snprintf(e.node, sizeof(e.node), "%s", a->cfg->node_name);
    int rc = add_addrs(a, &e.addrs);
    return rc == 0 ? entry_encode(ret, &e) : rc;
}

/* ---- trouble ------------------------------------------------------------------------------------- */

/* While there is no daemon yet, it is for the user to mend. */
static void give_up(struct discover *d, const char *why)
{
    struct agent *a = d->agent;
    d->over = true;
    evtimer_del(d->timer);
    dd_log(a->cfg->log, DD_LOG_ERR, "--rdzv-endpoint: %s", why);
    agent_leave(a, 2);
}

static void in_trouble(struct discover *d, bool for_good)
{
    struct agent *a = d->agent;
    if (for_good && a->link == NULL && !is_started(a) && a->state != AGENT_LEAVING) {
        give_up(d, d->trouble);
        return;
    }
    if (!d->told && a->link != NULL)
        dd_log(a->cfg->log, DD_LOG_NOTICE, "%s; the job goes on, but nodes that come now may not find it", d->trouble);
    d->told = d->told || a->link != NULL;
}

static void no_trouble(struct discover *d)
{
    if (d->told)
        dd_log(d->agent->cfg->log, DD_LOG_NOTICE, "etcd answers again");
    d->told = d->fresh = false;
    d->trouble[0] = '\0';
}

/* ---- questions ----------------------------------------------------------------------------------- */

static void step(struct discover *d, enum claim_event e, const struct claim_seen *seen);
static void on_answer(void *arg, const struct web_answer *a);

/* The body of d->call, or of AUTH before it. */
static int encode(struct discover *d, char **ret, int64_t revision)
{
    const struct agent_cfg *cfg = d->agent->cfg;
    DD_AUTO(free) char *value = NULL;
    struct etcd_ask ask = {.call = d->authenticating ? ETCD_AUTH : d->call,
                           .user = cfg->etcd->user,
                           .password = cfg->etcd_password != NULL ? cfg->etcd_password : "",
                           .key = d->key,
                           .lease = d->lease,
                           .revision = revision,
                           .ttl = CLAIM_TTL_S};
    int rc = ask.call == ETCD_PUT ? own_value(d, &value) : 0;
    ask.value = value;
    return rc == 0 ? etcd_ask_encode(ret, &ask) : rc;
}

static int post(struct discover *d, const char *body)
{
    const struct etcd_url *e = d->agent->cfg->etcd;
    struct web_request r = {.body = body, .cacert = e->cacert, .cert = e->cert, .key = e->key, .limit_ms = CALL_MS,
                            .direct = true};
    DD_AUTO(strv) struct dd_strv texts = {0};
    const enum etcd_call call = d->authenticating ? ETCD_AUTH : d->call;
    int rc = 0;
    for (size_t i = 0; i < e->bases.n && rc == 0; i++)
        rc = dd_strv_pushf(&texts, "%s%s", e->bases.v[(d->first + i) % e->bases.n], etcd_path(call));
    if (rc == 0 && d->token != NULL && !d->authenticating)
        rc = dd_strv_pushf(&texts, "Authorization: %s", d->token);
    for (size_t i = 0; i < texts.n; i++)
        *(i < e->bases.n ? &r.urls[i] : &r.headers[0]) = texts.v[i];
    return rc == 0 ? web_post(d->web, &r, on_answer, d) : rc;
}

static int helper_of(struct discover *d, struct dd_err *err);

static void ask_etcd(struct discover *d, enum etcd_call call, int64_t revision)
{
    DD_AUTO(free) char *body = NULL;
    struct dd_err err = {0};
    d->call = call;
    d->authenticating = d->agent->cfg->etcd->user != NULL && d->token == NULL && !d->no_auth;
    int rc = helper_of(d, &err);
    if (rc == 0)
        rc = encode(d, &body, revision);
    if (rc == 0)
        rc = post(d, body);
    if (rc == 0)
        return;
    (void)snprintf(d->trouble, sizeof(d->trouble), "etcd cannot be asked: %s", strerror(-rc));
    in_trouble(d, true);
    if (!d->over)
        step(d, CLAIM_FAILED, NULL);
}

/* ---- answers ------------------------------------------------------------------------------------- */

static void on_seen(struct discover *d, const struct etcd_answer *a)
{
    DD_AUTO(entry) struct entry e = {0};
    struct claim_seen seen = {.there = a->there, .revision = a->revision};
    struct dd_err err = {0};
    if (a->there && entry_decode(&e, a->value, &err) < 0) {
        (void)snprintf(d->trouble, sizeof(d->trouble), "%s in etcd: %s", d->key, err.text);
        in_trouble(d, true);
        if (!d->over)
            step(d, CLAIM_FAILED, NULL);
        return;
    }
    no_trouble(d);
    seen.started = e.started;
    seen.epoch = e.epoch;
    seen.mine = a->there && strcmp(e.id, d->id) == 0 && a->lease == d->lease;
    seen.same = seen.mine && e.port == d->port && e.epoch == d->agent->epoch && e.started == is_started(d->agent);
    if (a->there && !seen.mine) {
        entry_done(&d->seen);
        d->seen = e;
        e = (struct entry){0};
    }
    step(d, CLAIM_READ, &seen);
}

static void on_done(struct discover *d, struct etcd_answer *a)
{
    if (d->authenticating) {
        free(d->token);
        d->token = DD_TAKE(a->token);
        d->fresh = true;
        ask_etcd(d, d->call, d->claim.put_over);
        return;
    }
    if (d->call == ETCD_PUT) /* a lease alone is not all; what was read may be trouble itself */
        no_trouble(d);
    switch (d->call) {
    case ETCD_READ:
        on_seen(d, a);
        break;
    case ETCD_GRANT:
        d->lease = a->lease;
        step(d, CLAIM_GRANTED, NULL);
        break;
    case ETCD_KEEP:
        step(d, CLAIM_KEPT, NULL);
        break;
    case ETCD_PUT:
        step(d, CLAIM_WON, NULL);
        break;
    case ETCD_REVOKE:
    case ETCD_AUTH:
    case ETCD_CALLS:
    default:
        break;
    }
}

static void on_result(struct discover *d, enum etcd_result result, const struct dd_err *err)
{
    const struct etcd_url *e = d->agent->cfg->etcd;
    switch (result) {
    case ETCD_LOST:
        no_trouble(d);
        step(d, CLAIM_BEATEN, NULL);
        return;
    case ETCD_NO_LEASE:
        d->lease = 0;
        step(d, CLAIM_LEASE_GONE, NULL);
        return;
    case ETCD_NO_AUTH:
        d->no_auth = d->fresh = true;
        ask_etcd(d, d->call, d->claim.put_over);
        return;
    case ETCD_NO_TOKEN: /* etcd was started again, or ours is old */
        free(DD_TAKE(d->token));
        d->no_auth = false;
        if (e->user != NULL && !d->authenticating && !d->fresh) {
            ask_etcd(d, d->call, d->claim.put_over);
            return;
        }
        d->fresh = false;
        break;
    case ETCD_REFUSED:
        d->no_auth = false; /* by now it may ask who we are */
        break;
    case ETCD_FAILED:
    case ETCD_DONE:
    default:
        break;
    }
    if (e->user != NULL)
        (void)snprintf(d->trouble, sizeof(d->trouble), "%s, for the user '%.60s': %s", e->bases.v[d->first], e->user, err->text);
    else
        (void)snprintf(d->trouble, sizeof(d->trouble), "%s: %s", e->bases.v[d->first], err->text);
    in_trouble(d, result == ETCD_REFUSED);
    d->first = (d->first + 1) % e->bases.n; /* another one may know more */
    if (!d->over)
        step(d, CLAIM_FAILED, NULL);
}

static void on_answer(void *arg, const struct web_answer *w)
{
    struct discover *d = arg;
    const struct etcd_url *e = d->agent->cfg->etcd;
    DD_AUTO(etcd_answer) struct etcd_answer a = {0};
    struct dd_err err = {0};
    const enum etcd_call call = d->authenticating ? ETCD_AUTH : d->call;
    if (d->over || d->resting)
        return;
    if (w->status == 0) {
        (void)snprintf(d->trouble, sizeof(d->trouble), "etcd does not answer (%s%s): %s", e->bases.v[0],
                       e->bases.n > 1 ? " and others" : "", w->error);
        in_trouble(d, w->set_up);
        if (!d->over)
            step(d, CLAIM_FAILED, NULL);
        return;
    }
    d->first = (d->first + (size_t)w->from) % e->bases.n;
    const enum etcd_result result = etcd_answer_decode(&a, call, w->status, w->body, &err);
    if (result == ETCD_DONE)
        on_done(d, &a);
    else
        on_result(d, result, &err);
}

/* ---- what to do --------------------------------------------------------------------------------------- */

static void close_listener(struct discover *d)
{
    if (d->listen_fd >= 0)
        close(DD_TAKE_FD(d->listen_fd));
}

/* The key in etcd says where to go. */
static void follow(struct discover *d)
{
    struct agent *a = d->agent;
    struct link_find_cfg cfg;
    uint16_t hashed[ELECT_PORTS];
    const uint16_t port = (uint16_t)d->seen.port;
    struct dd_err err = {0};
    close_listener(d);
    if (d->secret[0] != '\0' && d->seen.secret[0] != '\0')
        memcpy(d->secret, d->seen.secret, sizeof(d->secret));
    agent_find_cfg(a, &cfg, hashed);
    cfg.host = d->seen.node;
    cfg.addrs = d->seen.addrs.v;
    cfg.host_is_me = true; /* numbers that were meant */
    cfg.try_scontrol = false;
    cfg.ports = &port;
    cfg.nports = 1;
    if (agent_connect(a, &cfg, &err) < 0)
        give_up(d, err.text);
}

static void host(struct discover *d)
{
    struct agent *a = d->agent;
    struct dd_err err = {0};
    link_find_free(DD_TAKE(a->find));
    host_stop(a); /* the daemon that has given way may not be gone yet */
    a->index = 0;
    if (agent_be_host(a, &err) < 0)
        give_up(d, err.text);
}

/* Our daemon has begun nothing: it sends its guests there, where we go ourselves. */
static void yield(struct discover *d)
{
    struct agent *a = d->agent;
    struct link *own = DD_TAKE(a->link);
    dd_log(a->cfg->log, DD_LOG_NOTICE, "this job goes on under the daemon on %s already: joining it", d->seen.node);
    if (own != NULL) {
        agent_tell(own, &(struct msg){.type = MSG_LOOKED, .addr = d->seen.addrs.v[0]});
        link_bye(own);
    }
    d->wanted = false;
    a->index = -1; /* that daemon has a first node already */
    agent_seek_begin(a);
    follow(d);
}

static void bind_and_put(struct discover *d, int64_t revision)
{
    struct dd_err err = {0};
    if (!d->claim.hosting && d->listen_fd < 0) {
        d->listen_fd = host_bind(d->agent, &d->port, &err);
        if (d->listen_fd < 0) {
            give_up(d, err.text);
            return;
        }
    }
    ask_etcd(d, ETCD_PUT, revision);
}

static void act(struct discover *d, enum claim_do what)
{
    struct agent *a = d->agent;
    switch (what) {
    case CLAIM_DO_HOST:
        host(d);
        break;
    case CLAIM_DO_FOLLOW:
        if (a->link == NULL)
            follow(d);
        break;
    case CLAIM_DO_YIELD:
        yield(d);
        break;
    case CLAIM_DO_STAY:
        if (d->wanted)
            agent_send(a, &(struct msg){.type = MSG_LOOKED});
        d->wanted = false;
        break;
    case CLAIM_DO_NOTHING:
    default:
        break;
    }
}

static void step(struct discover *d, enum claim_event e, const struct claim_seen *seen)
{
    static const enum etcd_call calls[] = {
        [CLAIM_ASK_READ] = ETCD_READ, [CLAIM_ASK_GRANT] = ETCD_GRANT, [CLAIM_ASK_KEEP] = ETCD_KEEP};
    const struct claim_out out = claim_step(&d->claim, e, seen);
    const struct timeval wait = dd_timeval(out.wait_ms * DD_NS_PER_MS);
    if (d->agent->state == AGENT_LEAVING && !d->claim.hosting)
        return;
    if (out.ask != CLAIM_ASK_NOTHING)
        evtimer_del(d->timer);
    else if (out.wait_ms > 0)
        evtimer_add(d->timer, &wait);
    if (out.ask == CLAIM_ASK_PUT)
        bind_and_put(d, out.revision);
    else if (out.ask != CLAIM_ASK_NOTHING)
        ask_etcd(d, calls[out.ask], 0);
    if (!d->over)
        act(d, out.act);
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct discover *d = arg;
    if (d->resting)
        web_free(DD_TAKE(d->web));
    else if (!d->over)
        step(d, CLAIM_TIME, NULL);
}

static void on_helper(void *arg, pid_t pid)
{
    agent_protect(arg, pid);
}

static int helper_of(struct discover *d, struct dd_err *err)
{
    struct agent *a = d->agent;
    const struct web_cfg cfg = {.base = a->base, .helper = a->cfg->web_helper, .env = a->cfg->env, .started = on_helper, .arg = a};
    return d->web != NULL ? 0 : web_new(&d->web, &cfg, err);
}

static void to_hex(char *out, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* The job's secret, where the nodes have none in common: of whoever becomes the host. */
static int make_secret(struct discover *d, struct dd_err *err)
{
    struct agent *a = d->agent;
    unsigned char bytes[ENTRY_SECRET / 2];
    struct net_key_input in = a->key_in;
    struct net_key key = {0};
    in.psk = NULL;
    int rc = net_key_guest(&key, &in, err);
    const bool have = in.insecure || key.method == NET_KEY_SHARED;
    explicit_bzero(&key, sizeof(key));
    if (rc < 0 || have)
        return rc;
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return dd_err_set(err, -EIO, "no random numbers");
    to_hex(d->secret, bytes, sizeof(bytes));
    explicit_bzero(bytes, sizeof(bytes));
    a->key_in.psk = d->secret;
    a->key_in.psk_source = "the secret beside the host's name in etcd";
    return 0;
}

static int discover_new(struct agent *a, struct dd_err *err)
{
    unsigned char id[ENTRY_ID / 2];
    struct discover *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    a->discover = d;
    d->agent = a;
    d->listen_fd = -1;
    d->timer = evtimer_new(a->base, on_timer, d);
    if (d->timer == NULL || asprintf(&d->key, "%s/%s/host", a->cfg->etcd->prefix, a->cfg->alloc->run_id) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (getrandom(id, sizeof(id), 0) != sizeof(id))
        return dd_err_set(err, -EIO, "no random numbers");
    to_hex(d->id, id, sizeof(id));
    return make_secret(d, err);
}

/* After another node has been the host: what was under way is forgotten. */
static void wake(struct discover *d)
{
    if (!d->resting)
        return;
    d->resting = d->begun = d->last_word = false;
    evtimer_del(d->timer);
    web_free(DD_TAKE(d->web));
    d->lease = 0;
    d->claim = (struct claim){0};
}

int discover_begin(struct agent *a, struct dd_err *err)
{
    int rc = a->discover == NULL ? discover_new(a, err) : 0;
    struct discover *d = a->discover;
    if (rc < 0)
        return rc;
    wake(d);
    agent_seek_begin(a);
    step(d, CLAIM_BEGIN, NULL);
    return 0;
}

bool discover_again(struct agent *a, const char *why)
{
    struct dd_err err = {0};
    if (a->discover == NULL || a->discover->over || a->state != AGENT_JOINED || is_started(a) ||
        a->discover->claim.hosting || a->signals.last != 0) /* our own daemon does not end by itself */
        return false;
    dd_log(a->cfg->log, DD_LOG_NOTICE, "the daemon is gone before the first round: %s; looking in etcd once more", why);
    if (discover_begin(a, &err) == 0)
        return true;
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", err.text);
    return false;
}

bool discover_check(struct agent *a)
{
    struct discover *d = a->discover;
    if (d == NULL || d->over || !d->claim.hosting || is_started(a)) /* then it is for the members to look */
        return false;
    d->wanted = true;
    step(d, CLAIM_CHECK, NULL);
    return true;
}

const char *discover_status(const struct agent *a)
{
    const struct discover *d = a->discover;
    if (d == NULL || a->link != NULL)
        return NULL;
    return d->trouble[0] != '\0' ? d->trouble : "etcd is being asked";
}

int discover_take_listener(struct agent *a, uint16_t *ret_port)
{
    struct discover *d = a->discover;
    if (d == NULL || d->listen_fd < 0)
        return -1;
    *ret_port = d->port;
    return DD_TAKE_FD(d->listen_fd);
}

void discover_hosting(struct agent *a, uint16_t port)
{
    struct discover *d = a->discover;
    if (d == NULL || d->over)
        return;
    wake(d);
    const bool known = !d->claim.hosting && d->port == port && a->epoch == 0; /* as it was written */
    d->port = port;
    claim_set(&d->claim, true, a->epoch, is_started(a));
    if (!known)
        step(d, CLAIM_CHANGED, NULL);
}

void discover_changed(struct agent *a)
{
    struct discover *d = a->discover;
    if (d == NULL || d->over || !d->claim.hosting || d->claim.started == is_started(a))
        return;
    claim_set(&d->claim, true, a->epoch, is_started(a));
    step(d, CLAIM_CHANGED, NULL);
}

void discover_begun(struct agent *a)
{
    if (a->discover != NULL)
        a->discover->begun = true;
    discover_changed(a);
}

/* On its way out, whatever comes of it: the lease ends by itself. */
static void revoke_lease(struct discover *d, web_done_f *done)
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
    const struct etcd_url *e = d->agent->cfg->etcd;
    struct web_request r = {.body = body, .cacert = e->cacert, .cert = e->cert, .key = e->key, .limit_ms = LAST_WORD_MS,
                            .direct = true};
    char url[ETCD_TEXT_MAX];
    char token[ETCD_TOKEN_MAX + 32];
    (void)snprintf(url, sizeof(url), "%s%s", e->bases.v[d->first], etcd_path(ETCD_REVOKE));
    (void)snprintf(token, sizeof(token), "Authorization: %s", d->token != NULL ? d->token : "");
    r.urls[0] = url;
    r.headers[0] = d->token != NULL ? token : NULL;
    d->last_word = web_post(d->web, &r, done, d) == 0;
}

static void on_rest(void *arg, const struct web_answer *a)
{
    const struct timeval now = {0};
    struct discover *d = arg;
    (void)a;
    if (d->resting)
        evtimer_add(d->timer, &now);
}

/* No helper while there is nothing to ask. */
void discover_following(struct agent *a)
{
    struct discover *d = a->discover;
    const struct timeval now = {0};
    if (d == NULL || d->over)
        return;
    d->resting = true;
    claim_set(&d->claim, false, 0, false);
    evtimer_del(d->timer);
    revoke_lease(d, on_rest);
    if (!d->last_word)
        evtimer_add(d->timer, &now);
}

static void on_last(void *arg, const struct web_answer *a)
{
    (void)arg;
    (void)a;
}

void discover_over(struct agent *a)
{
    struct discover *d = a->discover;
    if (d == NULL || d->over)
        return;
    d->over = true;
    evtimer_del(d->timer);
    if (d->claim.fails == 0)
        revoke_lease(d, on_last);
}

void discover_free(struct agent *a)
{
    struct discover *d = a->discover;
    if (d == NULL)
        return;
    discover_over(a);
    a->discover = NULL;
    if (d->web != NULL && d->last_word)
        (void)web_finish(d->web, LAST_WORD_MS);
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
