/* daemon_session: messages of the agents of a job to ddrund, from JOIN to the end, in any order,
 * while nodes join and leave and time passes. Agents accept every message that ddrund sends, and
 * the job ends once, when all agents have left.
 *
 * The first byte chooses the job. Then steps of (kind and agent, arguments); agent 0 is that of
 * ddrund's own node. Only the daemon's listener is replaced: links are socketpairs. */
#include "base/cursor.h"
#include "daemon/daemon.h"
#include "daemon/demux.h"
#include "daemon/dispatch.h"
#include "fake_clock.h"
#include "rdzv/msg.h"

#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { AGENTS = 4, STEPS_MAX = 200, FIELDS_MAX = 24, END_S = 100 };
enum step { CONNECT, JOIN, SEND, EXCHANGE, BYTES, BYE, LEAVE, PASS_TIME, STEP_MAX };

struct agent {
    int fd; /* -1: none */
    struct dd_buf in;
};

static struct {
    struct event_base *base;
    struct daemon *daemon;
    struct demux_cfg demux;
    struct agent agents[AGENTS];
    int nnodes, min_nodes;
    int round; /* of the last plan */
    int over;
} world;

static const char *const names[AGENTS] = {"n0", "n1", "n2", "n3"};
static const char *const texts[] = {"",
                                    "n0",
                                    "n1",
                                    "n2",
                                    "status",
                                    "signal",
                                    "drain",
                                    "keys",
                                    "key",
                                    "events",
                                    "follow",
                                    "forget",
                                    "USR1",
                                    "10",
                                    "metrics",
                                    "15",
                                    "/4711",
                                    "profile",
                                    "1200 60",
                                    "0 0 0 0 n0",
                                    "x/y",
                                    "10.0.0.1:4711",
                                    "::1",
                                    "no disk",
                                    "0 1 0 0 n[0-1]",
                                    "65536 2 1 0 n[0-2]",
                                    "ddrun_event/1",
                                    "\xff\xfe",
                                    "{\"message\": \"boom\"}"};
static const char *const exchanges[] = {"a", "?a", "a@0-1", "a@0,2", "a@", "a@2-0", "b@0-1,1"};
enum { TEXTS = sizeof(texts) / sizeof(texts[0]), NAMES = sizeof(exchanges) / sizeof(exchanges[0]) };

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* ---- the listener, which is replaced ---- */

int __wrap_demux_new(struct demux **ret, const struct demux_cfg *cfg, struct dd_err *err);
void __wrap_demux_free(struct demux *d);
void __wrap_demux_drop_workers(struct demux *d);

int __wrap_demux_new(struct demux **ret, const struct demux_cfg *cfg, struct dd_err *err)
{
    (void)err;
    world.demux = *cfg;
    *ret = NULL;
    return 0;
}

void __wrap_demux_free(struct demux *d)
{
    (void)d;
}

void __wrap_demux_drop_workers(struct demux *d)
{
    (void)d;
}

/* ---- the agents ---- */

static int new_pair(struct agent *a)
{
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    a->fd = pair[0];
    return pair[1];
}

static void leave(struct agent *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    dd_buf_done(&a->in);
    a->in = DD_BUF_INIT(64 << 20);
}

static void connect_agent(struct agent *a)
{
    const struct link_cb none = {0};
    struct link *l;
    if (a->fd >= 0 || a == &world.agents[0] || !world.demux.may_connect(world.demux.arg))
        return;
    must(link_new_trusted(&l, world.base, new_pair(a), &none, NULL) == 0);
    world.demux.on_link(world.demux.arg, l);
}

static void take_frame(const struct frame *f)
{
    DD_AUTO(msg) struct msg m = {0};
    if (f->type != FRAME_CONTROL)
        return;
    must(msg_decode(&m, f->data, f->len, NULL) == 0 && !dispatch_handles(m.type));
    if (m.type == MSG_PLAN)
        world.round = m.plan.round;
}

static void read_all(struct agent *a)
{
    static unsigned char chunk[1 << 16];
    struct frame f;
    ssize_t n;
    while (a->fd >= 0 && (n = recv(a->fd, chunk, sizeof(chunk), 0)) > 0)
        must(dd_buf_append(&a->in, chunk, (size_t)n) == 0);
    for (long used; (used = frame_decode(&f, a->in.data, a->in.len, FRAME_MAX, NULL)) > 0;) {
        take_frame(&f);
        dd_buf_consume(&a->in, (size_t)used);
    }
}

static void send_frame(const struct agent *a, uint16_t type, const void *bytes, size_t n)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 21);
    must(frame_encode(&out, type, bytes, n) == 0);
    if (a->fd >= 0)
        (void)send(a->fd, out.data, out.len, MSG_NOSIGNAL);
}

/* ---- messages of agents ---- */

/* Read a number: one byte, or 0xff and four bytes, or 0xfe and the upper four bytes of eight. */
static int64_t number_of(struct dd_rd *r)
{
    const uint8_t v = dd_rd_u8(r);
    if (v < 0xfe)
        return v;
    const int64_t n = (int32_t)dd_rd_u32_be(r);
    return v == 0xff ? n : n * (INT64_C(1) << 32);
}

static void set_field(const struct msg_field *f, struct msg *m, struct dd_rd *r)
{
    void *at = (char *)m + f->offset;
    if (f->kind == MSG_INT)
        *(int *)at = (int)number_of(r);
    else if (f->kind == MSG_INT64)
        *(int64_t *)at = number_of(r);
    else if (f->kind == MSG_BOOL)
        *(bool *)at = dd_rd_u8(r) % 2 != 0;
    else if (f->kind == MSG_STR)
        *(const char **)at = texts[dd_rd_u8(r) % TEXTS];
}

/* Send the message after changing fields of it as the input says: (count, then field and value of
 * each). Other fields keep their values. */
static void send_message(const struct agent *a, struct msg *m, struct dd_rd *r)
{
    const struct msg_field *fields = msg_fields(m->type);
    DD_AUTO(free) char *text = NULL;
    size_t n = 0;
    while (fields[n].name != NULL)
        n++;
    for (unsigned i = dd_rd_u8(r) % FIELDS_MAX; i > 0 && n > 0; i--)
        set_field(&fields[dd_rd_u8(r) % n], m, r);
    must(msg_encode(&text, m) == 0);
    send_frame(a, FRAME_CONTROL, text, strlen(text));
}

static void send_join(const struct agent *a, struct dd_rd *r)
{
    const int index = (int)(a - world.agents);
    send_message(a,
                 MSG(JOIN, .index = index, .nnodes = world.nnodes, .min_nodes = world.min_nodes,
                     .slots = 2, .pid = 100 + index, .name = names[index],
                     .addr = index > 0 ? "10.0.0.1" : ""),
                 r);
}

static void send_any(const struct agent *a, struct dd_rd *r)
{
    struct msg m = {.type = (enum msg_type)(dd_rd_u8(r) % MSG_TYPE_MAX)};
    if (m.type == MSG_STARTED)
        m.started.round = world.round;
    else if (m.type == MSG_EXIT)
        m.exit.round = world.round;
    else if (m.type == MSG_LEFT)
        m.left.round = world.round;
    else if (m.type == MSG_DONE)
        m.done.round = world.round;
    else if (m.type == MSG_SUCCESS_CRITERIA_MET)
        m.success_criteria_met.round = world.round;
    send_message(a, &m, r);
}

static void send_exchange(const struct agent *a, struct dd_rd *r)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    const char *name = exchanges[dd_rd_u8(r) % NAMES];
    const uint32_t rank = (uint32_t)number_of(r);
    const struct exchange_part part = {.data = (const unsigned char *)"part", .len = 4};
    size_t at = 0;
    must(exchange_piece_encode(&out, (uint32_t)world.round, rank, name, &part, &at) == 0);
    send_frame(a, FRAME_EXCHANGE, out.data, out.len);
}

static void send_bytes(const struct agent *a, struct dd_rd *r)
{
    const uint16_t type = dd_rd_u8(r) % (FRAME_LAUNCH + 2);
    size_t n = dd_rd_u8(r);
    n = n < dd_rd_left(r) ? n : dd_rd_left(r);
    send_frame(a, type, dd_rd_bytes(r, n), n);
}

static void pass_time(uint64_t ms)
{
    fake_clock_pass(ms);
    (void)event_base_loop(world.base, EVLOOP_NONBLOCK);
}

static void step(struct dd_rd *r)
{
    const unsigned how = dd_rd_u8(r);
    struct agent *a = &world.agents[how % AGENTS];
    const enum step what = (enum step)(how / AGENTS % STEP_MAX);
    if (what == CONNECT)
        connect_agent(a);
    else if (what == JOIN)
        send_join(a, r);
    else if (what == SEND)
        send_any(a, r);
    else if (what == EXCHANGE)
        send_exchange(a, r);
    else if (what == BYTES)
        send_bytes(a, r);
    else if (what == BYE)
        send_frame(a, FRAME_BYE, "", 0);
    else if (what == LEAVE)
        leave(a);
    else
        pass_time(100 * (uint64_t)dd_rd_u8(r));
    (void)event_base_loop(world.base, EVLOOP_NONBLOCK);
    for (int i = 0; i < AGENTS; i++)
        read_all(&world.agents[i]);
}

/* ---- the job ---- */

static void on_over(void *arg, int code)
{
    (void)arg;
    must(++world.over == 1 && code >= 0 && code <= 255);
}

static void start(unsigned how, const struct hostlist *nodes, const struct dd_log *log)
{
    world.min_nodes = 1 + (int)(how & 1);
    world.nnodes = 2 + (int)(how >> 1 & 1);
    struct daemon_cfg cfg = {.job_id = "job.1",
                             .rdzv = {.min_nodes = world.min_nodes,
                                      .max_nodes = world.nnodes,
                                      .expected = world.nnodes,
                                      .capacity = 3,
                                      .max_restarts = (int)(how >> 2 & 1),
                                      .restart_window_ns = (how >> 3 & 1) * 10 * DD_NS_PER_S,
                                      .join_ns = 60 * DD_NS_PER_S,
                                      .last_call_ns = 2 * DD_NS_PER_S,
                                      .rejoin_ns = 5 * DD_NS_PER_S,
                                      .grow = (enum rdzv_grow)(how >> 4 & 1),
                                      .probes_first = (int)(how >> 5 & 1),
                                      .nodes = nodes},
                             .heartbeat_ns = 15 * DD_NS_PER_S,
                             .listen_fd = -1,
                             .port = 4711,
                             .leader_fd = new_pair(&world.agents[0]),
                             .key = {.method = NET_KEY_NONE},
                             .key_in = {.insecure = true, .job_id = "job.1"},
                             .log = log,
                             .on_over = on_over};
    store_limits_default(&cfg.limits);
    must(daemon_new(&world.daemon, world.base, &cfg, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct dd_log log = {.level = DD_LOG_DEBUG, .fd = -1, .who = "ddrund"};
    static struct hostlist *nodes;
    struct dd_rd r = dd_rd_of(data, size);
    if (world.base == NULL) {
        (void)signal(SIGPIPE, SIG_IGN);
        world.base = event_base_new();
        log.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        must(world.base != NULL && hostlist_parse(&nodes, "n[0-2]", NULL) == 0);
    }
    world.round = world.over = 0;
    for (int i = 0; i < AGENTS; i++)
        world.agents[i] = (struct agent){.fd = -1, .in = DD_BUF_INIT(64 << 20)};
    start(dd_rd_u8(&r), nodes, &log);
    for (int i = 0; i < STEPS_MAX && dd_rd_left(&r) > 0 && world.over == 0; i++)
        step(&r);
    for (int i = 0; i < AGENTS; i++)
        leave(&world.agents[i]);
    for (int s = 0; s < END_S && world.over == 0; s++)
        pass_time(1000);
    must(world.over == 1);
    daemon_free(world.daemon);
    pass_time(2000); /* links that have sent BYE end in this time */
    must(event_base_get_num_events(world.base, EVENT_BASE_COUNT_ADDED) == 0);
    return 0;
}
