/* The agent's side of a link: find the job's daemon among many candidate addresses and ports. */
#include "net/link.h"

#include "base/io.h"
#include "net/link_attempt_inner.h"
#include "net/resolve.h"
#include "net/tls_inner.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ATTEMPTS_MAX = 128,
    PORTS_MAX = 64,
    FURTHER_MAX = 4096,
    PORTS_SHOWN = 4,
    WALKERS = 16,      /* concurrent attempts at further ports, per address */
    PASS_FIRST_MS = 3, /* agents of one step start within milliseconds of the leader */
    PASS_LAST_MS = 1000,
    PATIENCE = 8,
    PATIENCE_NODE_MS =
        5, /* processor time of a daemon for one node, with a margin for busy machines */
    LOOKUP_LIMIT_MS = 15000,
    LOOKUP_RETRY_MS = 1000,  /* while the name has no address, or before Slurm was asked */
    LOOKUP_AGAIN_MS = 15000, /* once the name has an address */
    LACK_LIMIT_MS = 1000,    /* time after which a lack of memory or of OpenSSL ends the search */
};

/* One address and port. */
struct target {
    struct link_find *find;
    struct net_addr addr;
    struct link_attempt *attempt;
    bool due;   /* not yet tried in this pass */
    bool walks; /* cycles through the further ports */
    size_t nth; /* index of the address */
    unsigned limit_ms;
    uint64_t started_ns;
    enum link_verdict last;
    char why[400];
};

struct link_find {
    struct event_base *base;
    struct link_find_cfg cfg; /* strings and ports are copies */
    char *job_id, *node, *host, *bind_addr;
    uint16_t ports[PORTS_MAX];
    uint16_t *further;
    size_t walked[NET_RESOLVE_MAX]; /* number of further ports tried on each address */
    struct net_tls *tls;
    struct net_resolve *resolve;
    struct event *pass_timer, *lookup_timer;
    struct target **targets;
    size_t ntargets, naddrs, nopen;
    uint64_t begun_ns, resolved_ns; /* 0: not yet */
    unsigned pass_ms;
    uint64_t seed;
    bool skipped_loopback, warned;
    unsigned lookups; /* look-ups started so far */
    char lookup_why[600];
    uint64_t lacking_since_ns; /* every attempt since then has failed for lack of memory or OpenSSL
                                  in this process; 0: the last one has not */
    char lack_why[600];
    char status[1200];
    void (*done)(void *arg, struct link *l);
    void *arg;
};

static void start_due(struct link_find *f);

/* ---- memory ---- */

static void note_lack(struct link_find *f, const char *why)
{
    if (f->lacking_since_ns == 0)
        f->lacking_since_ns = dd_now_ns();
    (void)snprintf(f->lack_why, sizeof(f->lack_why), "%s", why);
}

/* Called at the end of each event. The callback may free f. */
static void check_lack(struct link_find *f)
{
    if (f->lacking_since_ns == 0 || f->cfg.cannot == NULL ||
        dd_now_ns() - f->lacking_since_ns < LACK_LIMIT_MS * DD_NS_PER_MS)
        return;
    (void)event_del(f->pass_timer);
    (void)event_del(f->lookup_timer);
    f->cfg.cannot(f->arg, f->lack_why);
}

static void end_attempts(struct link_find *f)
{
    for (size_t i = 0; i < f->ntargets; i++) {
        link_attempt_free(f->targets[i]->attempt);
        f->targets[i]->attempt = NULL;
    }
    f->nopen = 0;
}

static void forget_targets(struct link_find *f)
{
    end_attempts(f);
    for (size_t i = 0; i < f->ntargets; i++)
        free(f->targets[i]);
    f->ntargets = f->naddrs = 0;
}

void link_find_free(struct link_find *f)
{
    if (f == NULL)
        return;
    forget_targets(f);
    net_resolve_free(f->resolve);
    if (f->pass_timer != NULL)
        event_free(f->pass_timer);
    if (f->lookup_timer != NULL)
        event_free(f->lookup_timer);
    net_tls_free(f->tls);
    free(f->targets);
    free(f->further);
    free(f->job_id);
    free(f->node);
    free(f->host);
    free(f->bind_addr);
    free(f);
}

static void set_timer(struct event *timer, unsigned ms)
{
    const struct timeval tv = dd_timeval(ms * DD_NS_PER_MS);
    (void)evtimer_add(timer, &tv);
}

/* Spread simultaneous actions of many nodes: +-20 %. Src: xorshift64*, Vigna 2016. */
static unsigned jitter(struct link_find *f, unsigned ms)
{
    f->seed ^= f->seed >> 12;
    f->seed ^= f->seed << 25;
    f->seed ^= f->seed >> 27;
    unsigned r = (unsigned)((f->seed * UINT64_C(0x2545f4914f6cdd1d)) >> 40) % 401;
    return ms * (800 + r) / 1000;
}

/* ---- attempts ---- */

static void succeed(struct link_find *f, struct link *l)
{
    end_attempts(f);
    (void)event_del(f->pass_timer);
    (void)event_del(f->lookup_timer);
    net_resolve_free(DD_TAKE(f->resolve));
    link_times(l)->begun = f->begun_ns;
    link_times(l)->resolved = f->resolved_ns;
    f->done(f->arg, l); /* may free f */
}

/* Raise the limit after a timeout. A daemon that answers thousands of agents is slow; if all agents
 * gave up too early, the daemon's work would be wasted. */
static void learn_patience(struct target *g)
{
    unsigned most = g->find->cfg.attempt_ms * PATIENCE;
    if (dd_now_ns() - g->started_ns >= g->limit_ms * DD_NS_PER_MS && g->limit_ms < most)
        g->limit_ms *= 2;
}

/* Note what an attempt that goes on waits for, so that link_find_status() reports it. */
static void link_find_on_slow(void *arg, enum link_verdict v, const char *why)
{
    struct target *g = arg;
    g->last = v;
    (void)snprintf(g->why, sizeof(g->why), "%s", why);
}

static unsigned patience_ms(const struct link_find *f)
{
    return f->cfg.attempt_ms * PATIENCE + f->cfg.nnodes * PATIENCE_NODE_MS;
}

static void link_find_on_tried(void *arg, struct link_attempt *t, enum link_verdict v,
                               struct link *l, const char *why)
{
    struct target *g = arg;
    struct link_find *f = g->find;
    char text[NET_ADDR_TEXT + 8];
    learn_patience(g);
    g->last = v;
    (void)snprintf(g->why, sizeof(g->why), "%s", why);
    if (v == ATTEMPT_BAD_KEY && !f->warned) {
        f->warned = true; /* warn once and continue: the listener may be an impostor */
        dd_log(f->cfg.log, DD_LOG_WARN, "%s %s", net_addr_text(&g->addr, text), why);
    }
    link_attempt_free(t);
    g->attempt = NULL;
    f->nopen--;
    if (v == ATTEMPT_LINK) {
        succeed(f, l);
        return;
    }
    if (v == ATTEMPT_LOCAL)
        note_lack(f, why);
    else
        f->lacking_since_ns = 0;
    start_due(f);
    check_lack(f);
}

static void start_due_of(struct link_find *f, bool walks)
{
    for (size_t i = 0; i < f->ntargets && f->nopen < ATTEMPTS_MAX; i++) {
        struct target *g = f->targets[i];
        if (!g->due || g->attempt != NULL || g->walks != walks)
            continue;
        const struct link_attempt_cfg cfg = {.find = &f->cfg,
                                             .tls = f->cfg.tls != NULL ? f->cfg.tls : &f->tls,
                                             .addr = g->addr,
                                             .limit_ms = g->limit_ms,
                                             /* with patience, one silent port would end the walk */
                                             .silent_ms = walks ? 0 : patience_ms(f),
                                             .busy_ms = patience_ms(f),
                                             .slow = link_find_on_slow,
                                             .done = link_find_on_tried,
                                             .arg = g};
        g->due = false;
        g->started_ns = dd_now_ns();
        if (link_attempt_start(&g->attempt, f->base, &cfg) == 0)
            f->nopen++;
        else
            note_lack(f, "out of memory");
    }
}

static void start_due(struct link_find *f)
{
    start_due_of(f, false);
    start_due_of(f, true);
}

/* Move to the next further port and raise the limit after each cycle. Every agent does this because
 * nothing reveals whether it is needed: an occupied port may refuse connections like a free one, or
 * be silent like a machine that is down. */
static bool walk_on(struct link_find *f, struct target *g)
{
    size_t *walked = &f->walked[g->nth];
    if (f->pass_ms < PASS_LAST_MS)
        return false;
    const size_t rounds = *walked / f->cfg.nfurther;
    net_addr_set_port(&g->addr, f->further[*walked % f->cfg.nfurther]);
    g->limit_ms = f->cfg.attempt_ms * (rounds < PATIENCE ? (unsigned)rounds + 1 : PATIENCE);
    g->last = ATTEMPT_NONE;
    ++*walked;
    return true;
}

static void on_pass(evutil_socket_t fd, short what, void *arg)
{
    struct link_find *f = arg;
    (void)fd;
    (void)what;
    for (size_t i = 0; i < f->ntargets; i++)
        f->targets[i]->due = f->targets[i]->attempt == NULL &&
                             (!f->targets[i]->walks || walk_on(f, f->targets[i]));
    start_due(f);
    set_timer(f->pass_timer, jitter(f, f->pass_ms));
    f->pass_ms = f->pass_ms * 3 / 2 < PASS_LAST_MS ? f->pass_ms * 3 / 2 : PASS_LAST_MS;
    check_lack(f);
}

/* ---- addresses ---- */

static bool is_known(const struct link_find *f, const struct net_addr *a)
{
    for (size_t i = 0; i < f->ntargets; i++)
        if (net_addr_same_host(&f->targets[i]->addr, a))
            return true;
    return false;
}

static size_t targets_each(const struct link_find *f)
{
    return f->cfg.nports + (f->cfg.nfurther > 0 ? WALKERS : 0);
}

static int add_address(struct link_find *f, const struct net_addr *a)
{
    const size_t n = targets_each(f);
    struct target **t = realloc(f->targets, (f->ntargets + n) * sizeof(*t));
    if (t == NULL)
        return -ENOMEM;
    f->targets = t;
    f->walked[f->naddrs] = 0;
    for (size_t i = 0; i < n; i++) {
        struct target *g = calloc(1, sizeof(*g));
        if (g == NULL)
            return -ENOMEM;
        *g = (struct target){.find = f,
                             .addr = *a,
                             .limit_ms = f->cfg.attempt_ms,
                             .walks = i >= f->cfg.nports,
                             .nth = f->naddrs};
        if (!g->walks)
            net_addr_set_port(&g->addr, f->ports[i]);
        f->targets[f->ntargets++] = g;
    }
    f->naddrs++;
    return 0;
}

/* A machine's name often resolves to 127.0.1.1 in /etc/hosts, on this node or on all nodes, which
 * does not reach another machine. A numeric address or "localhost" is used as given. */
static bool may_be_loopback(const struct link_find *f)
{
    struct net_addr a;
    return f->cfg.host_is_me || strcmp(f->cfg.host, "localhost") == 0 ||
           net_addr_parse(&a, f->cfg.host, 0) == 0;
}

static bool link_find_is_wanted(struct link_find *f, const struct net_addr *a)
{
    if (net_addr_is_loopback(a) && !may_be_loopback(f)) {
        f->skipped_loopback = true;
        return false;
    }
    return !is_known(f, a);
}

static void link_find_learn(struct link_find *f, const struct net_addr *addrs, size_t n)
{
    size_t fresh = 0;
    f->skipped_loopback = false;
    for (size_t i = 0; i < n; i++)
        fresh += link_find_is_wanted(f, &addrs[i]);
    if (fresh == 0)
        return;
    if (f->naddrs + fresh >
        NET_RESOLVE_MAX) /* the name's addresses have changed: drop the old ones */
        forget_targets(f);
    for (size_t i = 0; i < n; i++)
        if (link_find_is_wanted(f, &addrs[i]) && add_address(f, &addrs[i]) < 0) {
            note_lack(f, "out of memory");
            break;
        }
    if (f->resolved_ns == 0)
        f->resolved_ns = dd_now_ns();
    f->pass_ms = PASS_FIRST_MS;
    set_timer(f->pass_timer, 0);
}

/* Use the addresses that the caller gave in numeric form. */
static void learn_given(struct link_find *f, char *const *addrs)
{
    struct net_addr known[NET_RESOLVE_MAX];
    size_t n = 0;
    for (size_t i = 0; addrs[i] != NULL && n < NET_RESOLVE_MAX; i++)
        n += net_addr_parse(&known[n], addrs[i], 0) == 0;
    f->cfg.addrs = NULL; /* the caller may free the list after the start */
    link_find_learn(f, known, n);
}

static void link_find_on_looked_up(void *arg, const struct net_addr *addrs, size_t n,
                                   const char *why)
{
    struct link_find *f = arg;
    (void)snprintf(f->lookup_why, sizeof(f->lookup_why), "%s", n == 0 ? why : "");
    link_find_learn(f, addrs, n);
    net_resolve_free(DD_TAKE(f->resolve)); /* frees addrs and why, too */
    bool soon = f->naddrs == 0 || (f->cfg.try_scontrol && f->lookups < 2);
    set_timer(f->lookup_timer, jitter(f, soon ? LOOKUP_RETRY_MS : LOOKUP_AGAIN_MS));
}

static void link_find_on_lookup(evutil_socket_t fd, short what, void *arg)
{
    struct link_find *f = arg;
    struct dd_err err = {0};
    (void)fd;
    (void)what;
    /* A second look-up means that no address of the name has responded: Slurm may have another. */
    enum net_resolve_slurm slurm = !f->cfg.try_scontrol ? NET_RESOLVE_SLURM_NEVER
                                   : f->lookups++ == 0  ? NET_RESOLVE_SLURM_ELSE
                                                        : NET_RESOLVE_SLURM_TOO;
    const struct net_resolve_cfg cfg = {.name = f->cfg.host,
                                        .slurm = slurm,
                                        .timeout_ms = LOOKUP_LIMIT_MS,
                                        .done = link_find_on_looked_up,
                                        .arg = f};
    int rc = net_resolve_start(&f->resolve, f->base, &cfg, &err);
    if (rc == 0)
        return;
    (void)snprintf(f->lookup_why, sizeof(f->lookup_why), "%s", err.text);
    set_timer(f->lookup_timer, jitter(f, LOOKUP_RETRY_MS));
    if (rc == -ENOMEM)
        note_lack(f, err.text);
    check_lack(f);
}

/* ---- start ---- */

static int link_find_copy(char **to, const char **ref, const char *from)
{
    *ref = NULL;
    if (from == NULL)
        return 0;
    *to = strdup(from);
    *ref = *to;
    return *to != NULL ? 0 : -ENOMEM;
}

static int link_find_copy_cfg(struct link_find *f, const struct link_find_cfg *cfg)
{
    f->cfg = *cfg;
    memcpy(f->ports, cfg->ports, cfg->nports * sizeof(f->ports[0]));
    f->cfg.ports = f->ports;
    if (cfg->nfurther > 0) {
        f->further = malloc(cfg->nfurther * sizeof(f->further[0]));
        if (f->further == NULL)
            return -ENOMEM;
        memcpy(f->further, cfg->ports + cfg->nports, cfg->nfurther * sizeof(f->further[0]));
    }
    if (f->cfg.attempt_ms == 0)
        f->cfg.attempt_ms = 3000;
    if (link_find_copy(&f->job_id, &f->cfg.job_id, cfg->job_id) < 0 ||
        link_find_copy(&f->node, &f->cfg.node, cfg->node) < 0 ||
        link_find_copy(&f->host, &f->cfg.host, cfg->host) < 0 ||
        link_find_copy(&f->bind_addr, &f->cfg.bind_addr, cfg->bind_addr) < 0)
        return -ENOMEM;
    return 0;
}

static int check_cfg(const struct link_find_cfg *cfg, struct dd_err *err)
{
    struct net_addr a;
    if (cfg->job_id == NULL || cfg->job_id[0] == '\0' || strlen(cfg->job_id) > 255)
        return dd_err_set(err, -EINVAL, "invalid job id '%.260s': expected 1 to 255 bytes",
                          cfg->job_id != NULL ? cfg->job_id : "");
    if (cfg->node == NULL || strlen(cfg->node) > 255)
        return dd_err_set(err, -EINVAL, "invalid node name '%.260s': expected at most 255 bytes",
                          cfg->node != NULL ? cfg->node : "");
    if (cfg->nports == 0 || cfg->nports > PORTS_MAX || cfg->nfurther > FURTHER_MAX)
        return dd_err_set(err, -EINVAL,
                          "invalid number of ports to try: %zu first (expected 1 to %d), %zu later "
                          "(expected at most %d)",
                          cfg->nports, PORTS_MAX, cfg->nfurther, FURTHER_MAX);
    if (cfg->bind_addr != NULL && net_addr_parse(&a, cfg->bind_addr, 0) < 0)
        return dd_err_set(err, -EINVAL, "invalid source address '%s': expected a numeric address",
                          cfg->bind_addr);
    return 0;
}

int link_find_start(struct link_find **ret, struct event_base *base,
                    const struct link_find_cfg *cfg, void (*done)(void *arg, struct link *l),
                    void *arg, struct dd_err *err)
{
    int rc = check_cfg(cfg, err);
    if (rc < 0)
        return rc;
    struct link_find *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return dd_err_set(err, -ENOMEM, "cannot search for the daemon: out of memory");
    f->base = base;
    f->begun_ns = dd_now_ns();
    f->done = done;
    f->arg = arg;
    f->pass_ms = PASS_FIRST_MS;
    f->seed = (dd_now_ns() ^ (uint64_t)getpid() << 32) | 1;
    f->pass_timer = evtimer_new(base, on_pass, f);
    f->lookup_timer = evtimer_new(base, link_find_on_lookup, f);
    rc = link_find_copy_cfg(f, cfg);
    if (rc < 0 || f->pass_timer == NULL || f->lookup_timer == NULL) {
        link_find_free(f);
        return dd_err_set(err, -ENOMEM, "cannot search for the daemon: out of memory");
    }
    if (cfg->addrs != NULL)
        learn_given(f, cfg->addrs);
    else
        set_timer(f->lookup_timer, 0);
    *ret = f;
    return 0;
}

/* ---- status ---- */

/* Return the target whose last result is the most informative; NULL: there are no targets. */
static const struct target *most_telling(const struct link_find *f)
{
    const struct target *best = NULL;
    for (size_t i = 0; i < f->ntargets; i++)
        if (best == NULL || f->targets[i]->last > best->last)
            best = f->targets[i];
    return best;
}

enum link_listener link_find_listener(const struct link_find *f)
{
    static const enum link_listener of[] = {
        [ATTEMPT_NO_LISTENER] = LINK_LISTENER_NONE, [ATTEMPT_SILENT] = LINK_LISTENER_SILENT,
        [ATTEMPT_FOREIGN] = LINK_LISTENER_FOREIGN,  [ATTEMPT_OTHER] = LINK_LISTENER_FOREIGN,
        [ATTEMPT_BUSY] = LINK_LISTENER_BUSY,
    };
    const struct target *g = most_telling(f);
    const enum link_verdict last = g != NULL ? g->last : ATTEMPT_NONE;
    return last > ATTEMPT_BUSY ? LINK_LISTENER_OURS : of[last];
}

bool link_find_waits_for_daemon(const struct link_find *f)
{
    const struct target *g = most_telling(f);
    if (g == NULL)
        return false;
    return g->last == ATTEMPT_NONE || g->last == ATTEMPT_NO_LISTENER || g->last == ATTEMPT_SILENT ||
           g->last == ATTEMPT_BUSY;
}

/* "node1 (10.0.0.1, fd00::1) ports 21013, 4711" */
static void put_place(const struct link_find *f, struct dd_buf *out)
{
    char text[NET_ADDR_TEXT];
    (void)dd_buf_printf(out, "%s (", f->cfg.host);
    for (size_t i = 0; i < f->ntargets; i += targets_each(f))
        (void)dd_buf_printf(out, "%s%s", i > 0 ? ", " : "",
                            net_addr_host(&f->targets[i]->addr, text));
    (void)dd_buf_printf(out, ") port%s", f->cfg.nports > 1 ? "s" : "");
    const size_t shown = f->cfg.nports > PORTS_SHOWN ? PORTS_SHOWN - 1 : f->cfg.nports;
    for (size_t i = 0; i < shown; i++)
        (void)dd_buf_printf(out, "%s%u", i > 0 ? ", " : " ", f->ports[i]);
    if (shown < f->cfg.nports)
        (void)dd_buf_printf(out, " and %zu more", f->cfg.nports - shown);
}

static void put_targets(const struct link_find *f, struct dd_buf *out)
{
    const struct target *g = most_telling(f);
    char text[NET_ADDR_TEXT + 8];
    if (g->last >= ATTEMPT_BUSY) {
        (void)dd_buf_printf(out, "%s %s", net_addr_text(&g->addr, text), g->why);
        return;
    }
    (void)dd_buf_puts(out, "no daemon of this job at ");
    put_place(f, out);
    if (g->last == ATTEMPT_UNREACHABLE)
        (void)dd_buf_printf(out, ": %s", g->why);
    else if (g->last >= ATTEMPT_SILENT)
        (void)dd_buf_printf(out, ": %s %s", net_addr_text(&g->addr, text), g->why);
}

const char *link_find_status(struct link_find *f)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(sizeof(f->status) - 1);
    if (f->ntargets > 0)
        put_targets(f, &out);
    else if (f->lookup_why[0] != '\0')
        (void)dd_buf_printf(&out, "found no address of %s: %s", f->cfg.host, f->lookup_why);
    else if (f->skipped_loopback)
        (void)dd_buf_printf(
            &out,
            "%s resolves only to a loopback address on this node, not to an address of that host",
            f->cfg.host);
    else
        (void)dd_buf_printf(&out, "resolving %s", f->cfg.host);
    const char *text = dd_buf_str(&out);
    (void)snprintf(f->status, sizeof(f->status), "%s", text != NULL ? text : "out of memory");
    return f->status;
}
