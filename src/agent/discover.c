#include "agent/discover_inner.h"

#include "base/io.h"
#include "web/etcd_url.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

bool discover_is_started(const struct agent *a)
{
    return a->memory.last.n > 0 || round_is_running(a->round) ||
           (a->discover != NULL && a->discover->begun);
}

/* ---- what to do ---- */

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
    uint16_t ports[AGENT_PORTS];
    const uint16_t port = (uint16_t)d->seen.port;
    struct dd_err err = {0};
    close_listener(d);
    if (d->secret[0] != '\0' && d->seen.secret[0] != '\0')
        memcpy(d->secret, d->seen.secret, sizeof(d->secret));
    agent_find_cfg(a, &cfg, ports);
    cfg.host = d->seen.node;
    cfg.addrs = d->seen.addrs.v;
    cfg.host_is_me = true; /* numbers that were meant */
    cfg.try_scontrol = false;
    cfg.ports = &port;
    cfg.nports = 1;
    cfg.nfurther = 0;
    if (agent_connect(a, &cfg, &err) < 0)
        discover_give_up(d, err.text);
}

static void host(struct discover *d)
{
    struct agent *a = d->agent;
    struct dd_err err = {0};
    link_find_free(DD_TAKE(a->find));
    host_stop(a); /* the daemon that has given way may not be gone yet */
    a->index = 0;
    if (agent_be_host(a, &err) < 0)
        discover_give_up(d, err.text);
}

/* Our daemon has begun nothing: it sends its guests there, where we go ourselves. */
static void yield(struct discover *d)
{
    struct agent *a = d->agent;
    struct link *own = DD_TAKE(a->link);
    dd_log(a->cfg->log, DD_LOG_NOTICE,
           "this job goes on under the daemon on %s already: joining it", d->seen.node);
    if (own != NULL) {
        agent_tell(own, MSG(PROBE_RESULT, .addr = d->seen.addrs.v[0]));
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
            discover_give_up(d, err.text);
            return;
        }
    }
    discover_ask(d, ETCD_PUT, revision);
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
            agent_send(a, MSG(PROBE_RESULT, .addr = ""));
        d->wanted = false;
        break;
    case CLAIM_DO_NOTHING:
    default:
        break;
    }
}

void discover_step(struct discover *d, enum claim_event e, const struct claim_seen *seen)
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
        discover_ask(d, calls[out.ask], 0);
    if (!d->over)
        act(d, out.act);
}

/* ---- beginning and end ---- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct discover *d = arg;
    if (d->resting)
        web_free(DD_TAKE(d->web));
    else if (!d->over)
        discover_step(d, CLAIM_TIME, NULL);
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
    if (d->timer == NULL ||
        asprintf(&d->key, "%s/%s/host", a->cfg->etcd->prefix, a->cfg->alloc->run_id) < 0)
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
    discover_step(d, CLAIM_BEGIN, NULL);
    return 0;
}

bool discover_again(struct agent *a, const char *why)
{
    struct dd_err err = {0};
    if (a->discover == NULL || a->discover->over || a->state != AGENT_JOINED ||
        discover_is_started(a) || a->discover->claim.hosting ||
        a->signals.last != 0) /* our own daemon does not end by itself */
        return false;
    dd_log(a->cfg->log, DD_LOG_NOTICE,
           "the daemon is gone before the first round: %s; looking in etcd once more", why);
    if (discover_begin(a, &err) == 0)
        return true;
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", err.text);
    return false;
}

bool discover_check(struct agent *a)
{
    struct discover *d = a->discover;
    if (d == NULL || d->over || !d->claim.hosting ||
        discover_is_started(a)) /* then it is for the members to look */
        return false;
    d->wanted = true;
    discover_step(d, CLAIM_CHECK, NULL);
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
    const bool known = !d->claim.hosting && d->port == port &&
                       a->epoch == 0; /* as it was written */
    d->port = port;
    claim_set(&d->claim, true, a->epoch, discover_is_started(a));
    if (!known)
        discover_step(d, CLAIM_CHANGED, NULL);
}

void discover_changed(struct agent *a)
{
    struct discover *d = a->discover;
    if (d == NULL || d->over || !d->claim.hosting || d->claim.started == discover_is_started(a))
        return;
    claim_set(&d->claim, true, a->epoch, discover_is_started(a));
    discover_step(d, CLAIM_CHANGED, NULL);
}

void discover_begun(struct agent *a)
{
    if (a->discover != NULL)
        a->discover->begun = true;
    discover_changed(a);
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
    discover_revoke(d, on_rest);
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
        discover_revoke(d, on_last);
}

void discover_free(struct agent *a)
{
    struct discover *d = a->discover;
    if (d == NULL)
        return;
    discover_over(a);
    a->discover = NULL;
    if (d->web != NULL && d->last_word)
        (void)web_finish(d->web, DISCOVER_LAST_WORD_MS);
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
