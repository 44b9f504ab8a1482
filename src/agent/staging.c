#include "agent/staging.h"

#include "agent/agent.h"
#include "agent/node_exchange.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"
#include "net/addr.h"
#include "rdzv/msg.h"
#include "stage/stage_client.h"
#include "stage/stage_tree.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BAD_INPUT = 2, PART_MAX = 1024 };

struct staging {
    const struct round *round;
    struct stage_client client;
    struct event *event;
    char key[STAGE_KEY_TEXT];  /* offered for the round; that of the first node is used */
    bool has;                  /* the copies are complete */
    struct stage_msg ready;    /* as ddrun-stage has sent it, once `has` */
    int fds[STAGE_CLIENT_FDS]; /* namespaces that show the copies */
    int nfds;
    int kept;     /* locks a kept copy; -1: none */
    int pair[2];  /* of this round; the workers read from pair[1]; -1: none */
    bool started; /* the workers of this round run */
    bool agreed;  /* the nodes of this round know who needs a copy */
};

static void staging_fail(const struct staging *st, const char *why)
{
    const struct round *r = st->round;
    dd_log(r->cfg->log, DD_LOG_INFO, "%s", why); /* the job's report contains the reason */
    round_send(r, MSG(STOP_REQUEST, .code = BAD_INPUT, .text = why));
}

static void staging_end_helper(struct staging *st)
{
    if (st->event != NULL)
        event_free(st->event);
    st->event = NULL;
    stage_client_end(&st->client);
}

/* ---- workers ---- */

/* All workers read from one socket, each one packet. Not before all nodes have agreed: when the
 * workers exit, the round is over on this node, and its part in the tree must be known. */
static void staging_give(struct staging *st)
{
    const struct round *r = st->round;
    int rc = 0;
    if (!st->has || !st->started || !st->agreed || st->pair[0] < 0)
        return;
    for (int i = 0; i < r->plan.local_size && rc == 0; i++)
        rc = stage_client_send(st->pair[0], STAGE_MSG_READY, st->ready.texts.v, st->fds, st->nfds);
    close(DD_TAKE_FD(st->pair[0]));
    if (rc < 0 && rc != -EPIPE) /* -EPIPE: all have exited */
        staging_fail(st, "--stage: cannot pass the copies to the workers");
}

static int staging_env(void *state, const struct round *r, int local_rank, struct worker_spec *spec)
{
    const struct staging *st = state;
    DD_AUTO(strv) struct dd_strv argv = {0};
    (void)local_rank;
    int rc = dd_strv_push(&argv, r->cfg->staging.helper);
    rc = rc == 0 ? dd_strv_push(&argv, "enter") : rc;
    rc = rc == 0 ? dd_strv_pushf(&argv, "%d", worker_spec_fd(spec, st->pair[1])) : rc;
    rc = rc == 0 ? dd_strv_copy(&argv, spec->argv.v) : rc;
    if (rc < 0)
        return rc;
    dd_strv_done(&spec->argv);
    spec->argv = argv;
    argv = (struct dd_strv){0};
    return 0;
}

static int staging_started(void *state, const struct round *r, struct dd_err *err)
{
    struct staging *st = state;
    (void)r;
    (void)err;
    close(DD_TAKE_FD(st->pair[1]));
    st->started = true;
    staging_give(st);
    return 0;
}

/* ---- the tree ---- */

/* What a node contributes to the exchange: "HAS PORT ADDRESS KEY NAME". */
struct offer {
    enum stage_has has;
    char port[8], addr[NET_ADDR_TEXT], key[STAGE_KEY_TEXT], name[256];
};

static int offer_parse(struct offer *ret, const struct exchange_part *part)
{
    char text[PART_MAX];
    int has;
    const int n = part->len < sizeof(text) ? (int)part->len : 0;
    (void)snprintf(text, sizeof(text), "%.*s", n, n > 0 ? (const char *)part->data : "");
    if (sscanf(text, "%d %7s %63s %64s %255s", &has, ret->port, ret->addr, ret->key, ret->name) !=
        5)
        return -EPROTO;
    if (has < STAGE_HAS_NONE || has > STAGE_HAS_EXACT)
        return -EPROTO;
    ret->has = (enum stage_has)has;
    return 0;
}

/* The addresses of the parent, its parent … */
static int staging_put_parents(const struct staging *st, const struct offer *offers,
                               const struct stage_place *place, struct dd_strv *texts)
{
    int rc = 0;
    for (int i = 0; i < place->depth && rc == 0; i++) {
        const struct offer *parent = &offers[place->parents[i]];
        /* the daemon's node does not know its own address */
        rc = dd_strv_push(texts, strcmp(parent->addr, "-") == 0 ? st->round->plan.master_addr
                                                                : parent->addr);
        rc = rc == 0 ? dd_strv_push(texts, parent->port) : rc;
        rc = rc == 0 ? dd_strv_push(texts, parent->name) : rc;
    }
    return rc;
}

static int staging_join_tree(struct staging *st, const struct offer *offers, int n,
                             struct dd_err *err)
{
    const struct plan *p = &st->round->plan;
    DD_AUTO(free) enum stage_has *has = calloc((size_t)n, sizeof(*has));
    DD_AUTO(strv) struct dd_strv texts = {0};
    if (has == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    for (int i = 0; i < n; i++)
        has[i] = offers[i].has;
    const struct stage_place place = stage_tree_place(has, n, p->node_rank);
    if (!place.takes_part) {
        staging_end_helper(st);
        return 0;
    }
    int rc = dd_strv_push(&texts, offers[0].key);
    rc = rc == 0 ? dd_strv_pushf(&texts, "%d", place.children) : rc;
    rc = rc == 0 ? dd_strv_pushf(&texts, "%d", p->node_rank) : rc;
    rc = rc == 0 ? staging_put_parents(st, offers, &place, &texts) : rc;
    rc = rc == 0 ? stage_client_send(st->client.fd, STAGE_MSG_ROUND, texts.v, NULL, 0) : rc;
    return rc == 0 ? 0 : dd_err_set(err, rc, "--stage: cannot start the copy: %s", strerror(-rc));
}

static void staging_on_offers(void *arg, const struct exchange_part *parts, int n)
{
    struct staging *st = arg;
    struct dd_err err = {0};
    struct offer *offers = calloc((size_t)n, sizeof(*offers));
    int rc = offers == NULL ? dd_err_set(&err, -ENOMEM, "--stage: out of memory") : 0;
    for (int i = 0; i < n && rc == 0; i++)
        if ((rc = offer_parse(&offers[i], &parts[i])) < 0)
            (void)dd_err_set(&err, rc,
                             "--stage: a node was started without --stage, or with another version "
                             "of ddrun");
    if (rc == 0)
        rc = staging_join_tree(st, offers, n, &err);
    free(offers);
    if (rc < 0) {
        staging_fail(st, err.text);
        return;
    }
    st->agreed = true;
    staging_give(st);
}

static enum stage_has staging_what(const struct staging *st)
{
    return !st->has ? STAGE_HAS_NONE : st->nfds > 0 ? STAGE_HAS_EXACT : STAGE_HAS_CHANGED;
}

static int staging_offer(struct staging *st, const char *port, struct dd_err *err)
{
    const struct round *r = st->round;
    char text[PART_MAX];
    const int n = snprintf(text, sizeof(text), "%d %s %s %s %.255s", (int)staging_what(st), port,
                           r->addr[0] != '\0' ? r->addr : "-", st->key, r->cfg->node_name);
    const struct exchange_part part = {(const unsigned char *)text, (size_t)n};
    if (r->plan.nnodes > 1)
        return node_exchange_begin(r, "stage", &part, staging_on_offers, st, err);
    staging_on_offers(st, &part, 1);
    return 0;
}

/* ---- the helper ---- */

static void staging_take_ready(struct staging *st, struct stage_msg *m, const int *fds, int n)
{
    if (st->has)
        return;
    st->has = true;
    st->ready = *m;
    *m = (struct stage_msg){0};
    st->nfds = n;
    memcpy(st->fds, fds, (size_t)n * sizeof(*fds));
    if (n > 0 && strcmp(st->ready.texts.v[STAGE_READY_KEPT], "1") == 0)
        st->kept = st->fds[--st->nfds];
    dd_log(st->round->cfg->log, DD_LOG_INFO, "staged %s", st->ready.texts.v[STAGE_READY_SUMMARY]);
    staging_give(st);
}

static void staging_on_message(evutil_socket_t fd, short what, void *arg)
{
    struct staging *st = arg;
    struct dd_err err = {0};
    int fds[STAGE_CLIENT_FDS];
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    (void)what;
    const int n = stage_client_receive(fd, &m, fds);
    if (n == -EAGAIN)
        return;
    if (n < 0) {
        staging_end_helper(st);
        if (!st->has)
            staging_fail(st, "--stage: ddrun-stage exited unexpectedly");
    } else if (m.type == STAGE_MSG_PORT) {
        if (staging_offer(st, m.texts.v[0], &err) < 0)
            staging_fail(st, err.text);
    } else if (m.type == STAGE_MSG_READY) {
        staging_take_ready(st, &m, fds, n);
    } else if (m.type == STAGE_MSG_WARNING) {
        dd_log(st->round->cfg->log, DD_LOG_WARN, "%s", m.texts.v[0]);
    } else if (m.type == STAGE_MSG_FAILED) {
        staging_end_helper(st);
        staging_fail(st, m.texts.v[0]);
    }
}

/* What this node would read for others: its exact copies in place of the sources. */
static int staging_put_sources(const struct staging *st, struct dd_strv *texts)
{
    int rc = 0;
    if (staging_what(st) != STAGE_HAS_EXACT)
        return dd_strv_copy(texts, st->round->cfg->staging.paths->v);
    for (size_t i = STAGE_READY_PAIRS; i + 1 < st->ready.texts.n && rc == 0; i += 2)
        rc = dd_strv_push(texts, st->ready.texts.v[i + 1]);
    return rc;
}

static int staging_setup(struct staging *st, struct dd_err *err)
{
    const struct agent_cfg *cfg = st->round->cfg;
    const struct staging_cfg *c = &cfg->staging;
    DD_AUTO(strv) struct dd_strv texts = {0};
    const char *const setup[STAGE_SETUP_SOURCES] = {
        [STAGE_SETUP_JOB] = cfg->alloc->job_id,
        [STAGE_SETUP_NODE] = cfg->node_name,
        [STAGE_SETUP_LISTEN] = cfg->listen_addr,
        [STAGE_SETUP_BIND] = cfg->source_addr,
        [STAGE_SETUP_INSECURE] = cfg->key_in.insecure ? "1" : "0",
        [STAGE_SETUP_KEEP] = c->keep && !st->has ? "1" : "0",
        [STAGE_SETUP_MOUNT] = c->mount ? "1" : "0",
        [STAGE_SETUP_DIR] = st->has ? NULL : c->dir->path,
        [STAGE_SETUP_SPARE] = c->spare->path,
    };
    int rc = 0;
    for (int i = 0; i < STAGE_SETUP_SOURCES && rc == 0; i++)
        rc = dd_strv_push(&texts, setup[i] != NULL ? setup[i] : "");
    rc = rc == 0 ? staging_put_sources(st, &texts) : rc;
    if (rc == 0)
        rc = stage_client_send(st->client.fd, STAGE_MSG_SETUP, texts.v, NULL, 0);
    return rc == 0 ? 0
                   : dd_err_set(err, rc, "--stage: cannot communicate with '%s': %s", c->helper,
                                strerror(-rc));
}

static int staging_start_helper(struct staging *st, struct dd_err *err)
{
    const struct round *r = st->round;
    int rc = stage_client_start(&st->client, r->cfg->staging.helper, "serve", r->cfg->env, err);
    if (rc < 0)
        return rc;
    (void)dd_fd_nonblock(st->client.fd);
    st->event = event_new(r->base, st->client.fd, EV_READ | EV_PERSIST, staging_on_message, st);
    if (st->event == NULL || event_add(st->event, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    return staging_setup(st, err);
}

/* ---- hooks ---- */

static int staging_create(void **state, const struct round *r, struct dd_err *err)
{
    const struct staging_cfg *c = &r->cfg->staging;
    if (c->paths == NULL || c->paths->n == 0)
        return 0;
    struct staging *st = *state = calloc(1, sizeof(*st));
    if (st == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    *st = (struct staging){.round = r, .client = {.fd = -1}, .kept = -1, .pair = {-1, -1}};
    return 0;
}

static int staging_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct staging *st = *state;
    if (st == NULL)
        return 0;
    st->started = st->agreed = false;
    staging_end_helper(st); /* of the round before */
    int rc = stage_client_make_key(st->key, err);
    if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, st->pair) < 0)
        rc = dd_err_set(err, -errno, "--stage: cannot create a socket pair: %m");
    if (rc < 0)
        return rc;
    stage_client_limit(st->pair[0]);
    /* a node that has a copy may have to read it for the others, and the first node the source */
    const bool reads = r->plan.node_rank == 0 || staging_what(st) == STAGE_HAS_EXACT;
    return st->has && (!reads || r->plan.nnodes == 1) ? staging_offer(st, "0", err)
                                                      : staging_start_helper(st, err);
}

static void staging_end(void *state, const struct round *r)
{
    struct staging *st = state;
    node_exchange_drop(r, st);
    if (!st->has || !st->agreed) /* else other nodes may still receive from it; it exits then */
        staging_end_helper(st);
    for (int i = 0; i < 2; i++)
        if (st->pair[i] >= 0)
            close(DD_TAKE_FD(st->pair[i]));
}

static void staging_destroy(void *state)
{
    struct staging *st = state;
    staging_end_helper(st);
    for (int i = 0; i < st->nfds; i++)
        close(st->fds[i]);
    if (st->kept >= 0)
        close(st->kept);
    dd_strv_done(&st->ready.texts);
    free(st);
}

const struct round_feature staging_feature = {
    .name = "stage",
    .create = staging_create,
    .prepare = staging_prepare,
    .worker_env = staging_env,
    .started = staging_started,
    .end = staging_end,
    .destroy = staging_destroy,
};
