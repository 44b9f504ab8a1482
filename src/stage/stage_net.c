/* The links of ddrun-stage: to the parent, and from the children. */
#include "base/io.h"
#include "base/num.h"
#include "net/handshake_pool.h"
#include "net/listen.h"
#include "stage/stage_inner.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

enum {
    HELLO_MS = 20000,
    UNPROVEN_MAX = 256,
    CONNECT_S = 120, /* time limit for the first link */
    FIRST_S = 60, /* share of CONNECT_S for the parent itself, before other ancestors are tried */
    HEAL_S = 25,  /* time limit for another link after the loss of one */
    TRY_S = 5,    /* time for each parent in turn */
    KEEP_S = 30,  /* time for which chunks are kept for a lost child: longer than HEAL_S */
};

/* ---- children ---- */

bool serve_send_frame(const struct stage_child *c, const struct dd_buf *frame)
{
    const int rc = link_send(c->link, FRAME_STAGE, frame->data, frame->len);
    if (rc < 0 && rc != -EPIPE)
        link_fail(c->link, "STAGE", rc);
    return rc == 0;
}

/* Keep no more chunks for a child without a link: it has another parent, or the loss of its node is
 * reported by its agent or the daemon. */
static void net_on_given_up(evutil_socket_t fd, short what, void *arg)
{
    struct stage_child *c = arg;
    (void)fd;
    (void)what;
    c->needed = false;
    serve_pump(c->serve);
}

static void net_keep_place(struct stage_child *c, int seconds)
{
    const struct timeval limit = {.tv_sec = seconds};
    if (c->given_up == NULL)
        c->given_up = evtimer_new(c->serve->base, net_on_given_up, c);
    if (c->given_up == NULL || evtimer_add(c->given_up, &limit) < 0)
        serve_fail(c->serve, "--stage: out of memory");
}

static struct stage_child *net_add_child(struct serve *s)
{
    if (s->nchildren == STAGE_CHILDREN)
        return NULL;
    struct stage_child *c = &s->children[s->nchildren];
    *c = (struct stage_child){.serve = s,
                              .rank = -1,
                              .bit = 1U << s->nchildren,
                              .needed = true,
                              .tally = STAGE_TALLY_NONE};
    s->nchildren++;
    return c;
}

/* Return the child for the node of this rank: the one with this rank, one that has not connected
 * yet, or a new one for a node that has lost its parent. NULL: there are too many. */
static struct stage_child *net_child_of(struct serve *s, int rank)
{
    struct stage_child *ret = NULL;
    for (int i = 0; i < s->nchildren; i++) {
        if (s->children[i].rank == rank)
            return &s->children[i];
        if (ret == NULL && s->children[i].rank < 0)
            ret = &s->children[i];
    }
    return ret != NULL ? ret : net_add_child(s);
}

static void net_forget(struct stage_caller *from)
{
    if (from->child != NULL && from->child->link == from->link)
        from->child->link = NULL;
    from->child = NULL;
    link_free(DD_TAKE(from->link));
}

static void net_take_child(struct stage_caller *from, int rank)
{
    struct serve *s = from->serve;
    struct stage_child *c = net_child_of(s, rank);
    if (c == NULL) {
        net_forget(from);
        return;
    }
    for (int i = 0; i < STAGE_CALLERS; i++) /* an old link whose loss was not detected */
        if (s->callers[i].child == c)
            net_forget(&s->callers[i]);
    if (c->given_up != NULL)
        (void)evtimer_del(c->given_up);
    c->rank = rank;
    c->link = from->link;
    c->needed = c->waits = true;
    c->head_sent = c->end_sent = false;
    from->child = c;
    serve_renew_child(s, c);
    serve_pump(s);
}

static void net_on_child_frame(void *arg, struct link *l, const struct frame *f)
{
    struct stage_caller *from = arg;
    struct stage_frame sf;
    (void)l;
    if (f->type != FRAME_STAGE || stage_frame_decode(&sf, f->data, f->len) < 0)
        return;
    if (from->child != NULL && sf.type == STAGE_TALLY)
        serve_take_tally(from->serve, from->child, &sf.tally);
    if (sf.type != STAGE_ACK)
        return;
    if (from->child != NULL)
        serve_take_ack(from->serve, from->child, sf.seq);
    else if (sf.seq >= STAGE_ACK_HELLO)
        net_take_child(from, (int)(sf.seq - STAGE_ACK_HELLO));
}

static void net_on_child_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct stage_caller *from = arg;
    struct stage_child *c = from->child;
    (void)l;
    (void)why;
    net_forget(from);
    if (c == NULL || !c->needed)
        return;
    if (!clean || !c->has_end) /* the child and the nodes below will report again */
        c->tally = STAGE_TALLY_NONE;
    net_keep_place(c, KEEP_S);
}

static void net_on_link(void *arg, struct link *l)
{
    struct serve *s = arg;
    for (int i = 0; i < STAGE_CALLERS; i++) {
        struct stage_caller *c = &s->callers[i];
        if (c->link != NULL)
            continue;
        *c = (struct stage_caller){.serve = s, .link = l};
        link_set_cb(l, &(struct link_cb){.on_frame = net_on_child_frame,
                                         .on_close = net_on_child_close,
                                         .arg = c});
        return;
    }
    link_free(l);
}

/* ---- the parent ---- */

static char *const *net_parent(const struct serve *s, int i)
{
    return s->round.texts.v + STAGE_ROUND_PARENTS + (ptrdiff_t)i * STAGE_PARENT_TEXTS;
}

const char *serve_parent_name(const struct serve *s)
{
    return s->nparents > 0 ? net_parent(s, s->at_parent)[STAGE_PARENT_NAME] : "";
}

void serve_ack(const struct serve *s, uint32_t seq)
{
    serve_send_up(s, &(struct stage_frame){.type = STAGE_ACK, .seq = seq});
}

static void net_on_parent_frame(void *arg, struct link *l, const struct frame *f)
{
    (void)l;
    if (f->type == FRAME_STAGE)
        serve_take_frame(arg, f);
}

static void net_seek_parent(struct serve *s, int seconds);

void serve_leave_parent(struct serve *s, const char *why)
{
    link_free(DD_TAKE(s->parent));
    (void)snprintf(s->lost_why, sizeof(s->lost_why),
                   "%.100s lost the connection to %.100s, which sends the copy: %.150s",
                   s->setup.texts.v[STAGE_SETUP_NODE], serve_parent_name(s), why);
    /* restart the time limit if the last link has delivered a chunk */
    if (!s->reconnected || s->ledger.received > s->lost_received)
        s->connect_end_ns = dd_now_ns() + HEAL_S * DD_NS_PER_S;
    s->lost_received = s->ledger.received;
    s->reconnected = true;
    s->answered = false;
    net_seek_parent(s, TRY_S);
}

static void net_on_parent_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct serve *s = arg;
    (void)l;
    if (s->end.len > 0 && clean) /* the parent has received all ACKs */
        link_free(DD_TAKE(s->parent));
    else
        serve_leave_parent(s, why);
}

static void net_on_found(void *arg, struct link *l)
{
    struct serve *s = arg;
    const uint32_t rank = (uint32_t)strtoul(s->round.texts.v[STAGE_ROUND_RANK], NULL, 10);
    s->parent = l;
    s->told = STAGE_TALLY_NONE;
    (void)evtimer_del(s->connect_event);
    link_find_free(DD_TAKE(s->find));
    link_set_cb(l, &(struct link_cb){
                       .on_frame = net_on_parent_frame, .on_close = net_on_parent_close, .arg = s});
    serve_ack(s, STAGE_ACK_HELLO | rank);
}

static int net_find_parent(struct serve *s, struct dd_err *err)
{
    char *const *parent = net_parent(s, s->at_parent);
    char *const *setup = s->setup.texts.v;
    char *addrs[] = {parent[STAGE_PARENT_ADDR], NULL};
    int port;
    if (dd_num_int(parent[STAGE_PARENT_PORT], 1, 65535, &port) < 0)
        return dd_err_set(err, -EINVAL, "--stage: invalid port '%s' of %s",
                          parent[STAGE_PARENT_PORT], parent[STAGE_PARENT_NAME]);
    const uint16_t ports[] = {(uint16_t)port};
    const struct link_find_cfg cfg = {
        .job_id = setup[STAGE_SETUP_JOB],
        .node = setup[STAGE_SETUP_NODE],
        .host = parent[STAGE_PARENT_ADDR],
        .addrs = addrs,
        .host_is_me = true,
        .ports = ports,
        .nports = 1,
        .bind_addr = setup[STAGE_SETUP_BIND][0] != '\0' ? setup[STAGE_SETUP_BIND] : NULL,
        .key_in = &s->key_in,
        .attempt_ms = HELLO_MS};
    return link_find_start(&s->find, s->base, &cfg, net_on_found, s, err);
}

static void net_give_up(struct serve *s, const char *status)
{
    char why[600];
    if (s->end.len > 0) { /* END was received: no chunk is missing */
        link_find_free(DD_TAKE(s->find));
        return;
    }
    if (s->lost_why[0] != '\0')
        (void)snprintf(why, sizeof(why), "--stage: %s", s->lost_why);
    else
        (void)snprintf(why, sizeof(why),
                       "--stage: %s cannot connect to %s, which sends the copy: %.300s",
                       s->setup.texts.v[STAGE_SETUP_NODE], serve_parent_name(s), status);
    serve_fail(s, why);
}

/* The time for this parent is over: try the next one. */
static void net_on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct serve *s = arg;
    (void)fd;
    (void)what;
    if (dd_now_ns() >= s->connect_end_ns) {
        net_give_up(s, link_find_status(s->find));
        return;
    }
    link_find_free(DD_TAKE(s->find));
    s->at_parent = (s->at_parent + 1) % s->nparents;
    net_seek_parent(s, TRY_S);
}

static void net_seek_parent(struct serve *s, int seconds)
{
    struct dd_err err = {0};
    const uint64_t now = dd_now_ns();
    const uint64_t left = s->connect_end_ns > now ? s->connect_end_ns - now : 0;
    const uint64_t wait = left / DD_NS_PER_S < (uint64_t)seconds ? left : seconds * DD_NS_PER_S;
    const struct timeval limit = {.tv_sec = (time_t)(wait / DD_NS_PER_S),
                                  .tv_usec = (suseconds_t)(wait % DD_NS_PER_S / 1000)};
    if (s->connect_event == NULL)
        s->connect_event = evtimer_new(s->base, net_on_limit, s);
    if (s->connect_event == NULL || evtimer_add(s->connect_event, &limit) < 0)
        serve_fail(s, "--stage: out of memory");
    if (net_find_parent(s, &err) < 0)
        serve_fail(s, err.text);
}

/* ---- start and end ---- */

/* Accept with the key of the round; until it is known, connections wait in the kernel's queue. */
static int net_accept(struct serve *s, struct dd_err *err)
{
    const struct handshake_pool_cfg cfg = {.base = s->base,
                                           .accept = {.job_id = s->setup.texts.v[STAGE_SETUP_JOB],
                                                      .key = &s->key,
                                                      .key_in = &s->key_in,
                                                      .timeout_ms = HELLO_MS},
                                           .fd = s->listen_fd,
                                           .most = UNPROVEN_MAX,
                                           .on_link = net_on_link,
                                           .arg = s};
    return handshake_pool_new(&s->handshakes, &cfg, err);
}

static int net_use_key(struct serve *s, struct dd_err *err)
{
    static char *none[] = {NULL};
    s->key_in = (struct net_key_input){
        .env = none,
        .psk = s->round.texts.v[STAGE_ROUND_KEY],
        .psk_source = "the round",
        .job_id = s->setup.texts.v[STAGE_SETUP_JOB],
        .insecure = strcmp(s->setup.texts.v[STAGE_SETUP_INSECURE], "1") == 0};
    if (s->key_in.insecure)
        s->key_in.psk = NULL;
    return net_key_for_leader(&s->key, &s->key_in, err);
}

int serve_listen(struct serve *s, uint16_t *ret_port, struct dd_err *err)
{
    const uint16_t any = 0;
    const char *addr = s->setup.texts.v[STAGE_SETUP_LISTEN];
    s->listen_fd = net_listen(addr[0] != '\0' ? addr : NULL, &any, 1, ret_port, err);
    return s->listen_fd < 0 ? s->listen_fd : 0;
}

int serve_link_up(struct serve *s, int children, struct dd_err *err)
{
    s->nparents = (int)(s->round.texts.n - STAGE_ROUND_PARENTS) / STAGE_PARENT_TEXTS;
    for (int i = 0; i < children; i++)
        net_keep_place(net_add_child(s), CONNECT_S);
    int rc = net_use_key(s, err);
    if (rc == 0 && children > 0)
        rc = net_accept(s, err);
    if (rc < 0 || s->nparents == 0)
        return rc;
    s->connect_end_ns = dd_now_ns() + CONNECT_S * DD_NS_PER_S;
    net_seek_parent(s, FIRST_S);
    return 0;
}

void serve_close_links(struct serve *s)
{
    for (int i = 0; i < STAGE_CALLERS; i++)
        if (s->callers[i].link != NULL)
            link_bye(DD_TAKE(s->callers[i].link));
    for (int i = 0; i < s->nchildren; i++)
        s->children[i].link = NULL;
    if (s->parent != NULL)
        link_bye(DD_TAKE(s->parent));
}
