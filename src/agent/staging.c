#include "agent/staging.h"

#include "agent/agent.h"
#include "agent/node_exchange.h"
#include "base/auto.h"
#include "base/io.h"
#include "base/num.h"
#include "hostlist/hostlist.h"
#include "net/addr.h"
#include "rdzv/msg.h"
#include "stage/compile_cache.h"
#include "stage/compile_dir.h"
#include "stage/stage_client.h"
#include "stage/stage_interpreters.h"
#include "stage/stage_source.h"
#include "stage/stage_tree.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BAD_INPUT = 2, PART_MAX = 1024 + STAGE_INTERPRETERS_TEXT };

#define PREFIX "--stage: " /* prefix of the messages of ddrun-stage */

/* One of the options that copy to the nodes. */
struct staging_option {
    const char *name, *exchange;
    bool optional; /* a node without a copy goes on */
};

static const struct staging_option stage_option = {.name = "--stage", .exchange = "stage"};
static const struct staging_option compile_cache_option = {
    .name = "--compile-cache", .exchange = "compile-cache", .optional = true};

struct staging {
    const struct round *round;
    const struct staging_option *option;
    const struct staging_cfg *cfg;
    struct stage_client client;
    struct event *event;
    struct stage_client images; /* mounts and serves images, until the end of the job */
    struct event *images_event; /* NULL: there is no image */
    char key[STAGE_KEY_TEXT]; /* key that this node offers for the round; all nodes use that of the
                                 first node */
    bool has;                 /* the copies are complete and the images are mounted, or `without` */
    bool without;             /* this node goes on without the copies, until the end of the job */
    bool offered;             /* this node has contributed to the exchange of the round */
    struct stage_msg ready;   /* READY of ddrun-stage; without texts: not received yet */
    struct dd_strv also;      /* interpreters that are copied beside the paths of the option */
    int fds[STAGE_CLIENT_FDS]; /* namespaces that show the copies */
    int nfds;
    int kept;     /* locks a kept copy; -1: none */
    int pair[2];  /* socket pair of this round; the workers read from pair[1]; -1: closed */
    bool started; /* the workers of this round run */
    bool agreed;  /* the nodes of this round have exchanged which of them need a copy */
    bool over;    /* the round has ended; the helper may still send to other nodes */
    int outside;  /* nodes of this round that take no part: they have copies */
};

/* True if the copies are complete. The helper may still be mounting images, even while the next
 * round begins. */
static bool staging_has_copies(const struct staging *st)
{
    return st->has || st->ready.texts.n > 0;
}

static void staging_give(struct staging *st);
static int staging_offer(struct staging *st, const char *port, struct dd_err *err);

/* Continue without a copy, and report to the other nodes that this node needs none. */
static void staging_go_without(struct staging *st, const char *why)
{
    struct dd_err err = {0};
    const struct round *r = st->round;
    const size_t skip = strncmp(why, PREFIX, strlen(PREFIX)) == 0 ? strlen(PREFIX) : 0;
    if (st->without)
        return;
    st->without = st->has = true;
    dd_log(r->cfg->log, DD_LOG_WARN, "%s: %s goes on without it: %s", st->option->name,
           r->cfg->node_name, why + skip);
    if (!st->offered && staging_offer(st, "0", &err) < 0)
        dd_log(r->cfg->log, DD_LOG_WARN, "%s: %s", st->option->name, err.text);
    staging_give(st);
}

static void staging_fail(struct staging *st, const char *why)
{
    const struct round *r = st->round;
    if (st->option->optional) {
        staging_go_without(st, why);
        return;
    }
    dd_log(r->cfg->log, DD_LOG_INFO, "%s", why); /* the job's report contains the reason */
    round_send(r, MSG(STOP_REQUEST, .code = BAD_INPUT, .text = why));
}

/* ---- progress ---- */

static void staging_show(const struct staging *st, const char *text)
{
    const struct round *r = st->round;
    if (r->port->progress != NULL && !st->option->optional)
        r->port->progress(r->port_arg, text);
}

/* Write ", 5 of 8 nodes done, slowest node7". */
static void staging_put_nodes(const struct staging *st, char *out, size_t size, int done,
                              int slowest)
{
    const struct plan *p = &st->round->plan;
    DD_AUTO(hostlist) struct hostlist *names = NULL;
    const char *name = NULL;
    if (slowest >= 0 && slowest < p->nnodes && hostlist_parse(&names, p->nodes, NULL) == 0)
        name = hostlist_nth(names, (size_t)slowest);
    (void)snprintf(out, size, ", %d of %d nodes done%s%s", done + st->outside, p->nnodes,
                   name != NULL ? ", slowest " : "", name != NULL ? name : "");
}

/* Show the progress of STAGE_MSG_PROGRESS: "DONE ALL NODES SLOWEST". */
static void staging_take_progress(const struct staging *st, const char *text)
{
    enum { MIB = 1 << 20 };
    uint64_t done, all;
    int nodes, slowest;
    char line[500], more[350] = "";
    if (st->over ||
        sscanf(text, "%" SCNu64 " %" SCNu64 " %d %d", &done, &all, &nodes, &slowest) != 4 ||
        all == 0) {
        staging_show(st, "");
        return;
    }
    if (st->round->plan.nnodes > 1)
        staging_put_nodes(st, more, sizeof(more), nodes, slowest);
    (void)snprintf(line, sizeof(line), "ddrun: copying: %" PRIu64 " of %" PRIu64 " MiB (%d%%)%s",
                   done / MIB + (all < MIB && done == all), all / MIB + (all < MIB),
                   (int)((double)done / (double)all * 100), more);
    staging_show(st, line);
}

static void staging_end_helper(struct staging *st)
{
    staging_show(st, "");
    if (st->event != NULL)
        event_free(st->event);
    st->event = NULL;
    stage_client_end(&st->client);
}

/* ---- workers ---- */

/* True if the copies are complete and the nodes have agreed. st NULL: the round has no such copies.
 */
static bool staging_settled(const struct staging *st)
{
    return st != NULL && st->has && st->agreed;
}

static void staging_tell(const struct staging *st)
{
    const struct round *r = st->round;
    if (staging_settled(st) && r->port->staged != NULL)
        r->port->staged(r->port_arg);
}

/* Send a packet for each worker to the socket from which all workers that are executed read. Wait
 * until all nodes have agreed: the round ends on this node when the workers exit, and by then this
 * node's place in the tree must be known. */
static void staging_give(struct staging *st)
{
    const struct round *r = st->round;
    int rc = 0;
    staging_tell(st);
    if (!staging_settled(st) || !st->started || st->pair[0] < 0)
        return;
    char *const without[] = {st->cfg->dir->path, NULL};
    for (int i = 0; i < r->plan.local_size && rc == 0; i++)
        rc = st->without ? stage_client_send(st->pair[0], STAGE_MSG_WITHOUT, without, NULL, 0)
                         : stage_client_send(st->pair[0], STAGE_MSG_READY, st->ready.texts.v,
                                             st->fds, st->nfds);
    close(DD_TAKE_FD(st->pair[0]));
    if (rc < 0 && rc != -EPIPE && !st->option->optional) { /* -EPIPE: all workers have exited */
        char why[120];
        (void)snprintf(why, sizeof(why), PREFIX "cannot pass the copies to the workers: %s",
                       strerror(-rc));
        staging_fail(st, why);
    }
}

int compile_cache_put_variables(const struct staging_cfg *c, struct dd_strv *env)
{
    int rc = 0;
    if (c->paths == NULL || c->paths->n == 0 || c->dir->path == NULL)
        return 0;
    for (const struct compile_cache_var *v = compile_cache_vars; v->name != NULL && rc == 0; v++) {
        if (dd_env_get(env->v, v->name) != NULL)
            continue;
        rc = v->dir == NULL
                 ? dd_env_set(env, v->name, v->value)
                 : dd_env_setf(env, v->name, "%s/" COMPILE_DIR_CACHE "/%s", c->dir->path, v->dir);
    }
    return rc;
}

static int staging_env(void *state, const struct round *r, int local_rank, struct worker_spec *spec)
{
    const struct staging *st = state;
    (void)r;
    (void)local_rank;
    spec->via = st->cfg->helper;
    spec->via_fd = st->pair[1];
    return 0;
}

/* Let the worker wait for the caches. */
static int compile_cache_wait(const struct staging *st, struct worker_spec *spec)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    int rc = dd_strv_push(&argv, st->cfg->helper);
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

static int compile_cache_env(void *state, const struct round *r, int local_rank,
                             struct worker_spec *spec)
{
    const struct staging *st = state;
    (void)r;
    (void)local_rank;
    if (st->without) {
        /* the interpreter of --warm may have read the variables */
        spec->must_execute = st->cfg->dir->path != NULL ? "its node goes on without --compile-cache"
                                                        : NULL;
        return 0;
    }
    const int rc = compile_cache_put_variables(st->cfg, &spec->env);
    return rc < 0 || staging_settled(st) ? rc : compile_cache_wait(st, spec);
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

/* What a node contributes to the exchange: "HAS PORT ADDRESS KEY NAME KIND"; "-": unknown. Further
 * lines name interpreters that the node also copies if it is the root of the tree. */
struct offer {
    enum stage_has has;
    char port[8], addr[NET_ADDR_TEXT], key[STAGE_KEY_TEXT], name[256], kind[64];
    struct dd_strv also;
};

static int offer_parse_also(struct dd_strv *ret, char *lines)
{
    int rc = dd_strv_split(ret, lines, "\n");
    for (size_t i = 0; i < ret->n && rc == 0; i++)
        rc = ret->v[i][0] == '/' && ret->n <= STAGE_INTERPRETERS ? 0 : -EPROTO;
    return rc;
}

static int offer_parse(struct offer *ret, const struct exchange_part *part)
{
    char text[PART_MAX];
    int has;
    const int n = part->len < sizeof(text) ? (int)part->len : 0;
    (void)snprintf(text, sizeof(text), "%.*s", n, n > 0 ? (const char *)part->data : "");
    char *lines = text + strcspn(text, "\n");
    if (*lines != '\0')
        *lines++ = '\0';
    if (sscanf(text, "%d %7s %63s %64s %255s %63s", &has, ret->port, ret->addr, ret->key, ret->name,
               ret->kind) != 6)
        return -EPROTO;
    if (has < STAGE_HAS_NONE || has > STAGE_HAS_EXACT)
        return -EPROTO;
    ret->has = (enum stage_has)has;
    return offer_parse_also(&ret->also, lines);
}

static void offers_free(struct offer *offers, int n)
{
    for (int i = 0; i < n && offers != NULL; i++)
        dd_strv_done(&offers[i].also);
    free(offers);
}

/* Append address, port and name of the parent, of its parent, and so on. */
static int staging_put_parents(const struct staging *st, const struct offer *offers,
                               const struct stage_place *place, struct dd_strv *texts)
{
    int rc = 0;
    for (int i = 0; i < place->depth && rc == 0; i++) {
        const struct offer *parent = &offers[place->parents[i]];
        /* the daemon's node offers no address: it is that of the plan */
        rc = dd_strv_push(texts, strcmp(parent->addr, "-") == 0 ? st->round->plan.master_addr
                                                                : parent->addr);
        rc = rc == 0 ? dd_strv_push(texts, parent->port) : rc;
        rc = rc == 0 ? dd_strv_push(texts, parent->name) : rc;
    }
    return rc;
}

/* Return what a node counts as having. It gets no copy if its kind of processor is not that of the
 * first node, whose compiled code it may be unable to run, or if the first node cannot send. */
static enum stage_has offer_has(const struct offer *o, const struct offer *first)
{
    const bool reads = strcmp(first->port, "0") != 0 || first->has != STAGE_HAS_CHANGED;
    return o->has == STAGE_HAS_NONE && (strcmp(o->kind, first->kind) != 0 || !reads)
               ? STAGE_HAS_CHANGED
               : o->has;
}

/* --compile-cache: this node begins with empty caches. */
static int staging_begin_empty(struct staging *st, struct dd_err *err)
{
    const struct staging_cfg *c = st->cfg;
    char none[] = "";
    char *const texts[] = {[STAGE_READY_SUMMARY] = none,
                           [STAGE_READY_KEPT] = none,
                           c->paths->v[0],
                           c->dir->path,
                           NULL};
    int rc = compile_dir_arrange(c->dir->fd, err);
    staging_end_helper(st);
    st->ready = (struct stage_msg){.type = STAGE_MSG_READY};
    rc = rc == 0 ? dd_strv_copy(&st->ready.texts, texts) : rc;
    st->has = rc == 0;
    return rc;
}

/* Send ddrun-stage the interpreters that the root copies beside the paths of the option. */
static int staging_send_also(struct staging *st, const struct offer *root)
{
    dd_strv_done(&st->also);
    const int rc = dd_strv_copy(&st->also, root->also.v);
    return rc < 0 || st->also.n == 0
               ? rc
               : stage_client_send(st->client.fd, STAGE_MSG_ALSO, st->also.v, NULL, 0);
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
        has[i] = offer_has(&offers[i], &offers[0]);
    if (!staging_has_copies(st) && has[p->node_rank] != STAGE_HAS_NONE)
        return staging_begin_empty(st, err);
    const struct stage_place place = stage_tree_place(has, n, p->node_rank);
    if (!place.takes_part) {
        staging_end_helper(st);
        return 0;
    }
    st->outside = n - 1 - place.below;
    const bool receives = place.depth > 0;
    int rc = receives ? staging_send_also(st, &offers[stage_tree_root(has, n)]) : 0;
    rc = rc == 0 ? dd_strv_push(&texts, offers[0].key) : rc;
    rc = rc == 0 ? dd_strv_pushf(&texts, "%d", place.children) : rc;
    rc = rc == 0 ? dd_strv_pushf(&texts, "%d", place.below) : rc;
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
            (void)(rc == -ENOMEM
                       ? dd_err_set(&err, rc, PREFIX "out of memory")
                       : dd_err_set(&err, rc,
                                    PREFIX "malformed data from node rank %d, perhaps another "
                                           "version of ddrun",
                                    i));
    if (rc == 0)
        rc = staging_join_tree(st, offers, n, &err);
    offers_free(offers, n);
    st->agreed = rc == 0 || st->option->optional;
    if (rc < 0)
        staging_fail(st, err.text);
    staging_give(st);
}

static enum stage_has staging_what(const struct staging *st)
{
    return !staging_has_copies(st) ? STAGE_HAS_NONE
           : st->nfds > 0          ? STAGE_HAS_EXACT
                                   : STAGE_HAS_CHANGED;
}

static int staging_offer(struct staging *st, const char *port, struct dd_err *err)
{
    const struct round *r = st->round;
    char text[PART_MAX];
    int n = snprintf(text, sizeof(text), "%d %s %s %s %.255s %s", (int)staging_what(st), port,
                     r->addr[0] != '\0' ? r->addr : "-", st->key, r->cfg->node_name,
                     st->cfg->kind != NULL ? st->cfg->kind : "-");
    for (size_t i = 0; i < st->also.n; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "\n%s", st->also.v[i]);
    const struct exchange_part part = {(const unsigned char *)text, (size_t)n};
    st->offered = true;
    if (r->plan.nnodes > 1)
        return node_exchange_begin(r, st->option->exchange, &part, staging_on_offers, st, err);
    staging_on_offers(st, &part, 1);
    return 0;
}

/* ---- the helper ---- */

static void staging_complete(struct staging *st)
{
    st->has = true;
    staging_give(st);
}

static void staging_fail_images(struct staging *st, const char *why)
{
    char text[1200];
    (void)snprintf(text, sizeof(text), "--stage: %.200s %s the image: %.900s",
                   st->round->cfg->node_name, st->has ? "has lost" : "cannot mount", why);
    staging_fail(st, text);
}

static void staging_mount_images(struct staging *st)
{
    const int rc = stage_client_send(st->images.fd, STAGE_MSG_READY, st->ready.texts.v, NULL, 0);
    if (rc < 0)
        staging_fail_images(st, strerror(-rc));
}

static void staging_on_images(evutil_socket_t fd, short what, void *arg)
{
    struct staging *st = arg;
    int fds[STAGE_CLIENT_FDS];
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    (void)what;
    const int n = stage_client_receive(fd, &m, fds);
    if (n == -EAGAIN)
        return;
    if (n > 0 && m.type == STAGE_MSG_READY && !st->has) {
        st->nfds = n;
        memcpy(st->fds, fds, (size_t)n * sizeof(*fds));
        staging_complete(st);
        return;
    }
    (void)event_del(st->images_event);
    staging_fail_images(st, n == 0 && m.type == STAGE_MSG_FAILED
                                ? m.texts.v[0]
                                : "the process that serves it exited unexpectedly");
}

static int staging_start_images(struct staging *st, struct dd_err *err)
{
    const struct round *r = st->round;
    int rc = stage_client_start(&st->images, st->cfg->helper, "mount", r->cfg->env, err);
    if (rc < 0)
        return rc;
    (void)dd_fd_nonblock(st->images.fd);
    st->images_event = event_new(r->base, st->images.fd, EV_READ | EV_PERSIST, staging_on_images,
                                 st);
    return st->images_event != NULL && event_add(st->images_event, NULL) == 0
               ? 0
               : dd_err_set(err, -ENOMEM, "--stage: out of memory");
}

static void staging_end_images(struct staging *st)
{
    if (st->images_event != NULL)
        event_free(st->images_event);
    st->images_event = NULL;
    stage_client_end(&st->images);
}

static void staging_take_ready(struct staging *st, struct stage_msg *m, const int *fds, int n)
{
    if (staging_has_copies(st))
        return;
    staging_show(st, "");
    st->ready = *m;
    *m = (struct stage_msg){0};
    st->nfds = n;
    memcpy(st->fds, fds, (size_t)n * sizeof(*fds));
    if (n > 0 && strcmp(st->ready.texts.v[STAGE_READY_KEPT], "1") == 0)
        st->kept = st->fds[--st->nfds];
    dd_log(st->round->cfg->log, DD_LOG_INFO, "%s %s",
           st->cfg->kind != NULL ? "--compile-cache:" : "staged",
           st->ready.texts.v[STAGE_READY_SUMMARY]);
    if (st->images_event != NULL)
        staging_mount_images(st);
    else
        staging_complete(st);
}

static void staging_take_port(struct staging *st, const struct stage_msg *m)
{
    struct dd_err err = {0};
    if (staging_what(st) != STAGE_HAS_EXACT) {
        dd_strv_done(&st->also);
        if (dd_strv_copy(&st->also, m->texts.v + 1) < 0)
            (void)dd_err_set(&err, -ENOMEM, "--stage: out of memory");
    }
    if (err.text[0] != '\0' || staging_offer(st, m->texts.v[0], &err) < 0)
        staging_fail(st, err.text);
}

static void staging_lose_helper(struct staging *st)
{
    char why[300];
    staging_end_helper(st);
    (void)snprintf(why, sizeof(why), PREFIX "ddrun-stage exited unexpectedly on %.200s",
                   st->round->cfg->node_name);
    if (!staging_has_copies(st))
        staging_fail(st, why);
}

static void staging_on_message(evutil_socket_t fd, short what, void *arg)
{
    struct staging *st = arg;
    int fds[STAGE_CLIENT_FDS];
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    (void)what;
    const int n = stage_client_receive(fd, &m, fds);
    if (n == -EAGAIN)
        return;
    if (n < 0) {
        staging_lose_helper(st);
    } else if (m.type == STAGE_MSG_PORT) {
        staging_take_port(st, &m);
    } else if (m.type == STAGE_MSG_READY) {
        staging_take_ready(st, &m, fds, n);
    } else if (m.type == STAGE_MSG_PROGRESS) {
        staging_take_progress(st, m.texts.v[0]);
    } else if (m.type == STAGE_MSG_WARNING) {
        dd_log(st->round->cfg->log, DD_LOG_WARN, "%s%s",
               st->cfg->kind != NULL ? "--compile-cache: " : "", m.texts.v[0]);
    } else if (m.type == STAGE_MSG_WITHOUT) {
        staging_fail(st, m.texts.v[0]);
    } else if (m.type == STAGE_MSG_FAILED) {
        staging_end_helper(st);
        staging_fail(st, m.texts.v[0]);
    }
}

/* Append the paths that this node would read for others: its exact copies, else the sources. */
static int staging_put_sources(const struct staging *st, struct dd_strv *texts)
{
    int rc = 0;
    if (staging_what(st) != STAGE_HAS_EXACT)
        return dd_strv_copy(texts, st->cfg->paths->v);
    for (size_t i = STAGE_READY_PAIRS; i + 1 < st->ready.texts.n && rc == 0; i += 2)
        rc = dd_strv_push(texts, st->ready.texts.v[i + 1]);
    return rc;
}

static int staging_setup(struct staging *st, struct dd_err *err)
{
    const struct agent_cfg *cfg = st->round->cfg;
    const struct staging_cfg *c = st->cfg;
    DD_AUTO(strv) struct dd_strv texts = {0};
    char most[24];
    const bool reads = c->kind == NULL && st->round->plan.node_rank == 0 &&
                       staging_what(st) != STAGE_HAS_EXACT;
    (void)snprintf(most, sizeof(most), "%llu", (unsigned long long)c->most);
    const char *const setup[STAGE_SETUP_SOURCES] = {
        [STAGE_SETUP_JOB] = cfg->alloc->job_id,
        [STAGE_SETUP_NODE] = cfg->node_name,
        [STAGE_SETUP_LISTEN] = cfg->listen_addr,
        [STAGE_SETUP_BIND] = cfg->source_addr,
        [STAGE_SETUP_INSECURE] = cfg->key_in.insecure ? "1" : "0",
        [STAGE_SETUP_KEEP] = c->keep && !staging_has_copies(st) ? "1" : "0",
        [STAGE_SETUP_MOUNT] = c->mount ? "1" : "0",
        [STAGE_SETUP_CACHE] = c->kind,
        [STAGE_SETUP_MOST] = most,
        [STAGE_SETUP_READS] = reads ? "1" : "0",
        [STAGE_SETUP_DIR] = staging_has_copies(st) ? NULL : c->dir->path,
        [STAGE_SETUP_SPARE] = c->spare != NULL ? c->spare->path : NULL,
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
    int rc = stage_client_start(&st->client, st->cfg->helper, "serve", r->cfg->env, err);
    if (rc < 0)
        return rc;
    (void)dd_fd_nonblock(st->client.fd);
    st->event = event_new(r->base, st->client.fd, EV_READ | EV_PERSIST, staging_on_message, st);
    if (st->event == NULL || event_add(st->event, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    return staging_setup(st, err);
}

/* ---- hooks ---- */

static struct staging *staging_new(const struct round *r, const struct staging_cfg *c,
                                   const struct staging_option *o)
{
    struct staging *st = malloc(sizeof(*st));
    if (st != NULL)
        *st = (struct staging){.round = r,
                               .option = o,
                               .cfg = c,
                               .client = {.fd = -1},
                               .images = {.fd = -1},
                               .kept = -1,
                               .pair = {-1, -1}};
    return st;
}

static int staging_create(void **state, const struct round *r, struct dd_err *err)
{
    const struct staging_cfg *c = &r->cfg->staging;
    if (c->paths == NULL || c->paths->n == 0)
        return 0;
    struct staging *st = *state = staging_new(r, c, &stage_option);
    if (st == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    return stage_sources_have_image(c->paths->v) ? staging_start_images(st, err) : 0;
}

static int compile_cache_create(void **state, const struct round *r, struct dd_err *err)
{
    const struct staging_cfg *c = &r->cfg->compile_cache;
    if (c->paths == NULL || c->paths->n == 0)
        return 0;
    struct staging *st = *state = staging_new(r, c, &compile_cache_option);
    if (st == NULL)
        return dd_err_set(err, -ENOMEM, "--compile-cache: out of memory");
    st->has = st->without = c->dir->path == NULL; /* ddrun has printed the reason */
    return 0;
}

static int staging_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct staging *st = *state;
    if (st == NULL)
        return 0;
    st->started = st->agreed = st->offered = st->over = false;
    staging_end_helper(st); /* the helper of the previous round */
    int rc = stage_client_make_key(st->key, err);
    if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, st->pair) < 0)
        rc = dd_err_set(err, -errno, "%s: cannot create a socket pair: %m", st->option->name);
    if (rc < 0)
        return rc;
    stage_client_limit(st->pair[0]);
    /* other nodes may need this node to read its copy, or the first node to read the source */
    const bool reads = r->plan.node_rank == 0 || staging_what(st) == STAGE_HAS_EXACT;
    if (st->without || (staging_has_copies(st) && (!reads || r->plan.nnodes == 1)))
        return staging_offer(st, "0", err);
    rc = staging_start_helper(st, err);
    if (rc == 0 || !st->option->optional)
        return rc;
    staging_end_helper(st);
    staging_fail(st, err->text);
    return 0;
}

static void staging_end(void *state, const struct round *r)
{
    struct staging *st = state;
    node_exchange_drop(r, st);
    st->over = true;
    staging_show(st, "");
    /* A helper with complete copies may still send to other nodes, and then exits by itself. */
    if (!staging_has_copies(st) || !st->agreed)
        staging_end_helper(st);
    for (int i = 0; i < 2; i++)
        if (st->pair[i] >= 0)
            close(DD_TAKE_FD(st->pair[i]));
}

static void staging_destroy(void *state)
{
    struct staging *st = state;
    staging_end_helper(st);
    staging_end_images(st);
    for (int i = 0; i < st->nfds; i++)
        close(st->fds[i]);
    if (st->kept >= 0)
        close(st->kept);
    dd_strv_done(&st->ready.texts);
    dd_strv_done(&st->also);
    free(st);
}

bool staging_is_settled(const struct round *r)
{
    return staging_settled(features_state(r, &staging_feature));
}

bool compile_cache_is_settled(const struct round *r)
{
    return staging_settled(features_state(r, &compile_cache_feature));
}

int staging_ticket(const struct round *r, struct dd_err *err)
{
    const struct staging *st = features_state(r, &staging_feature);
    int pair[2];
    if (st == NULL || !st->has || st->nfds == 0)
        return dd_err_set(err, -ENOTSUP, "the copies of --stage are not mounted on this node");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return dd_err_set(err, -errno, "cannot create a socket pair: %m");
    const int rc = stage_client_send(pair[0], STAGE_MSG_READY, st->ready.texts.v, st->fds,
                                     st->nfds);
    close(pair[0]);
    if (rc == 0)
        return pair[1];
    close(pair[1]);
    return dd_err_set(err, rc, "cannot pass the copies of --stage: %s", strerror(-rc));
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

const struct round_feature compile_cache_feature = {
    .name = "compile-cache",
    .create = compile_cache_create,
    .prepare = staging_prepare,
    .worker_env = compile_cache_env,
    .started = staging_started,
    .end = staging_end,
    .destroy = staging_destroy,
};
