/* The links of ddrun-stage: to the parent, and from the children. */
#include "base/num.h"
#include "net/handshake_pool.h"
#include "net/listen.h"
#include "stage/stage_inner.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>

enum { HELLO_MS = 20000, UNPROVEN_MAX = 256, CONNECT_S = 120 };

/* ---- children ---- */

bool serve_send_frame(struct stage_child *c, const struct dd_buf *frame)
{
    return link_send(c->link, FRAME_STAGE, frame->data, frame->len) == 0;
}

static void net_on_child_frame(void *arg, struct link *l, const struct frame *f)
{
    struct stage_child *c = arg;
    struct serve *s = c->serve;
    struct stage_frame sf;
    (void)l;
    if (f->type != FRAME_STAGE || stage_frame_decode(&sf, f->data, f->len) < 0 ||
        sf.type != STAGE_ACK)
        return;
    if (c->number >= 0) {
        serve_take_ack(s, c->number, sf.seq);
        return;
    }
    for (int i = 0; i < s->expected && c->number < 0; i++)
        if ((s->children & 1U << i) == 0)
            c->number = i;
    if (c->number < 0)
        return;
    s->children |= 1U << c->number;
    serve_pump(s);
}

static void net_on_child_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct stage_child *c = arg;
    char text[LINK_WHY_MAX + 100];
    char node[4 * 64];
    (void)clean;
    (void)dd_log_escape(node, sizeof(node), link_node(l), strnlen(link_node(l), 60));
    (void)snprintf(text, sizeof(text), "lost the connection to %s: %s", node, why);
    link_free(l);
    c->link = NULL;
    if (c->number >= 0 && !c->end_sent)
        serve_lost(c->serve, text);
}

static void net_on_link(void *arg, struct link *l)
{
    struct serve *s = arg;
    for (int i = 0; i < STAGE_CALLERS; i++) {
        struct stage_child *c = &s->callers[i];
        if (c->link != NULL || c->number >= 0)
            continue;
        c->link = l;
        link_set_cb(l, &(struct link_cb){.on_frame = net_on_child_frame,
                                         .on_close = net_on_child_close,
                                         .arg = c});
        return;
    }
    link_free(l);
}

/* ---- the parent ---- */

void serve_ack(const struct serve *s, uint32_t seq)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64);
    const struct stage_frame f = {.type = STAGE_ACK, .seq = seq};
    if (s->parent != NULL && stage_frame_encode(&out, &f) == 0)
        (void)link_send(s->parent, FRAME_STAGE, out.data, out.len);
}

static void net_on_parent_frame(void *arg, struct link *l, const struct frame *f)
{
    (void)l;
    if (f->type == FRAME_STAGE)
        serve_take_frame(arg, f);
}

static void net_on_parent_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct serve *s = arg;
    char text[LINK_WHY_MAX + 400];
    (void)clean;
    (void)snprintf(text, sizeof(text), "%s lost the connection to %s, which sends the copy: %s",
                   s->setup.texts.v[STAGE_SETUP_NODE], s->round.texts.v[STAGE_ROUND_PARENT], why);
    link_free(l);
    s->parent = NULL;
    if (s->end.len == 0 || s->received < s->total)
        serve_lost(s, text);
}

static void net_on_found(void *arg, struct link *l)
{
    struct serve *s = arg;
    s->parent = l;
    (void)evtimer_del(s->connect_event);
    link_find_free(s->find);
    s->find = NULL;
    link_set_cb(l, &(struct link_cb){
                       .on_frame = net_on_parent_frame, .on_close = net_on_parent_close, .arg = s});
    serve_ack(s, (uint32_t)STAGE_ACK_HELLO);
}

static void net_on_limit(evutil_socket_t fd, short what, void *arg)
{
    const struct serve *s = arg;
    char why[600];
    (void)fd;
    (void)what;
    (void)snprintf(why, sizeof(why),
                   "--stage: %s cannot connect to %s, which sends the copy: %.300s",
                   s->setup.texts.v[STAGE_SETUP_NODE], s->round.texts.v[STAGE_ROUND_PARENT],
                   link_find_status(s->find));
    serve_fail(s, why);
}

static int net_connect(struct serve *s, struct dd_err *err)
{
    char *const *round = s->round.texts.v;
    char *const *setup = s->setup.texts.v;
    char *addrs[] = {round[STAGE_ROUND_ADDR], NULL};
    int port;
    if (dd_num_int(round[STAGE_ROUND_PORT], 1, 65535, &port) < 0)
        return dd_err_set(err, -EINVAL, "--stage: invalid port '%s'", round[STAGE_ROUND_PORT]);
    const uint16_t ports[] = {(uint16_t)port};
    const struct link_find_cfg cfg = {
        .job_id = setup[STAGE_SETUP_JOB],
        .node = setup[STAGE_SETUP_NODE],
        .host = round[STAGE_ROUND_ADDR],
        .addrs = addrs,
        .host_is_me = true,
        .ports = ports,
        .nports = 1,
        .bind_addr = setup[STAGE_SETUP_BIND][0] != '\0' ? setup[STAGE_SETUP_BIND] : NULL,
        .key_in = &s->key_in,
        .attempt_ms = HELLO_MS};
    const struct timeval limit = {.tv_sec = CONNECT_S};
    s->connect_event = evtimer_new(s->base, net_on_limit, s);
    if (s->connect_event == NULL || evtimer_add(s->connect_event, &limit) < 0)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    return link_find_start(&s->find, s->base, &cfg, net_on_found, s, err);
}

/* ---- start and end ---- */

/* The key is that of the round, which has not come yet: connections wait in the kernel's queue. */
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
    for (int i = 0; i < STAGE_CALLERS; i++)
        s->callers[i] = (struct stage_child){.serve = s, .number = -1};
    s->listen_fd = net_listen(addr[0] != '\0' ? addr : NULL, &any, 1, ret_port, err);
    return s->listen_fd < 0 ? s->listen_fd : 0;
}

int serve_link_up(struct serve *s, struct dd_err *err)
{
    int rc = net_use_key(s, err);
    if (rc == 0 && s->expected > 0)
        rc = net_accept(s, err);
    if (rc == 0 && s->round.texts.v[STAGE_ROUND_ADDR][0] != '\0')
        rc = net_connect(s, err);
    return rc;
}

void serve_close_links(struct serve *s)
{
    for (int i = 0; i < STAGE_CALLERS; i++)
        if (s->callers[i].link != NULL)
            link_bye(DD_TAKE(s->callers[i].link));
    if (s->parent != NULL)
        link_bye(DD_TAKE(s->parent));
}
