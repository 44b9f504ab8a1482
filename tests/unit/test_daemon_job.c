/* daemon: a whole job of one node. The test holds the agent's end of the socketpair and checks the
 * daemon's reply to each message. There is no other process, and the kernel chooses the port. */
#include "base/auto.h"
#include "base/io.h"
#include "clock_world.h"
#include "daemon/daemon.h"
#include "net/link.h"
#include "net/listen.h"
#include "rdzv/msg.h"

#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_S = 60, HEARTBEAT_S = 600, USAGE_LIMIT_MS = 2000 };

struct world {
    struct event_base *base;
    struct hostlist *nodes;
    struct daemon *daemon;
    struct link *agent;
    struct msg got[16]; /* received by the agent, in order; further ones are dropped */
    int ngot;
    bool closed, over;
    int code;
};

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct world *w = arg;
    struct dd_err err;
    (void)l;
    if (f->type == FRAME_CONTROL && w->ngot < 16)
        assert_int_equal(msg_decode(&w->got[w->ngot++], f->data, f->len, &err), 0);
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct world *w = arg;
    (void)l;
    (void)clean;
    (void)why;
    w->closed = true;
}

static void on_over(void *arg, int code)
{
    struct world *w = arg;
    w->over = true;
    w->code = code;
}

static void begin_with(struct world *w, int max_restarts, const struct job_stacks_cfg *stacks)
{
    const uint16_t any = 0;
    uint16_t port;
    int fds[2];
    struct dd_err err = {0};
    *w = (struct world){.base = event_base_new()};
    assert_int_equal(hostlist_parse(&w->nodes, "node0", &err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    int fd = net_listen("127.0.0.1", &any, 1, &port, &err);
    assert_true(fd >= 0);
    struct daemon_cfg cfg = {.job_id = "unit",
                             .rdzv = {.min_nodes = 1,
                                      .max_nodes = 1,
                                      .expected = 1,
                                      .capacity = 1,
                                      .max_restarts = max_restarts,
                                      .join_ns = LIMIT_S * DD_NS_PER_S,
                                      .rejoin_ns = LIMIT_S * DD_NS_PER_S,
                                      .nodes = w->nodes},
                             .heartbeat_ns = HEARTBEAT_S * DD_NS_PER_S,
                             .listen_fd = fd,
                             .port = port,
                             .leader_fd = fds[0],
                             .key = {.method = NET_KEY_NONE},
                             .key_in = {.insecure = true, .job_id = "unit"},
                             .stacks = *stacks,
                             .open_store = true,
                             .on_over = on_over,
                             .arg = w};
    store_limits_default(&cfg.limits);
    assert_int_equal(daemon_new(&w->daemon, w->base, &cfg, &err), 0);
    const struct link_cb cb = {.on_frame = on_frame, .on_close = on_close, .arg = w};
    assert_int_equal(link_new_trusted(&w->agent, w->base, fds[1], &cb, &err), 0);
}

static void begin(struct world *w, int max_restarts)
{
    begin_with(w, max_restarts, &(struct job_stacks_cfg){0});
}

static void end(struct world *w)
{
    link_free(w->agent);
    daemon_free(w->daemon);
    assert_true(event_base_dispatch(w->base) >= 0); /* a link that has sent BYE frees itself */
    hostlist_free(w->nodes);
    for (int i = 0; i < w->ngot; i++)
        msg_clear(&w->got[i]);
    event_base_free(w->base);
}

static void say(struct world *w, const struct msg *m)
{
    DD_AUTO(free) char *text = NULL;
    assert_int_equal(msg_encode(&text, m), 0);
    assert_int_equal(link_send(w->agent, FRAME_CONTROL, text, strlen(text)), 0);
}

static void join(struct world *w)
{
    say(w,
        MSG(JOIN, .index = 0, .nnodes = 1, .min_nodes = 1, .slots = 2, .pid = 7, .name = "node0"));
}

/* Wait until the agent has received a message of this type; return the first one. */
static struct msg *await(struct world *w, enum msg_type type)
{
    const uint64_t limit = dd_now_ns() + LIMIT_S * DD_NS_PER_S;
    for (;;) {
        for (int i = 0; i < w->ngot; i++)
            if (w->got[i].type == type)
                return &w->got[i];
        assert_true(dd_now_ns() < limit);
        assert_true(event_base_loop(w->base, EVLOOP_ONCE) == 0);
    }
}

static void await_flag(struct world *w, const bool *flag)
{
    const uint64_t limit = dd_now_ns() + LIMIT_S * DD_NS_PER_S;
    while (!*flag) {
        assert_true(dd_now_ns() < limit);
        assert_true(event_base_loop(w->base, EVLOOP_ONCE) == 0);
    }
}

static void start_round(struct world *w)
{
    join(w);
    const struct msg_plan *p = &await(w, MSG_PLAN)->plan;
    assert_int_equal(p->round, 0);
    assert_string_equal(p->sizes, "2");
    assert_int_equal(strlen(p->token), 32);
    say(w, MSG(STARTED, .round = 0));
    assert_int_equal(await(w, MSG_COMMIT)->commit.round, 0);
}

static void a_job_that_succeeds_ends_with_0(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, MSG(DONE, .round = 0, .left = 2));
    const struct msg_finish *f = &await(&w, MSG_FINISH)->finish;
    assert_int_equal(f->code, 0);
    assert_false(f->lost || f->asked);
    link_bye(w.agent);
    w.agent = NULL;
    await_flag(&w, &w.over);
    assert_int_equal(w.code, 0);
    end(&w);
}

static void a_failure_without_restarts_ends_with_its_code_and_the_report(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, MSG(EXIT, .round = 5, .rank = 0, .code = 9)); /* no such round: ignored */
    say(&w, MSG(EXIT, .round = 0, .rank = 1, .local_rank = 1, .pid = 70, .code = 3,
                .error = "{\"message\": \"boom\"}"));
    assert_int_equal(await(&w, MSG_STOP)->stop.signal, SIGTERM);
    say(&w, MSG(DONE, .round = 0, .stopped = 1));
    const struct msg_finish *f = &await(&w, MSG_FINISH)->finish;
    assert_int_equal(f->code, 3);
    assert_true(f->report);
    assert_non_null(strstr(f->text, "rank 1 on node0 failed"));
    assert_non_null(strstr(f->detail, "boom"));
    assert_non_null(strstr(f->detail, "\"charges\": 1"));
    end(&w);
}

/* The agent of the daemon's node keeps them for a requeued job: it must know the last one before
 * the job ends. */
static void a_follower_of_charges_knows_the_last_one_before_the_end(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, MSG(CTL_REQUEST, .id = 3, .what = "blame", .text = "follow"));
    say(&w, MSG(EXIT, .round = 0, .rank = 1, .local_rank = 1, .pid = 70, .code = 3));
    say(&w, MSG(DONE, .round = 0, .stopped = 1));
    (void)await(&w, MSG_FINISH);
    const struct msg_ctl_reply *r = &await(&w, MSG_CTL_REPLY)->ctl_reply;
    int reply = 0;
    while (w.got[reply].type != MSG_CTL_REPLY)
        assert_true(w.got[reply++].type != MSG_FINISH);
    assert_true(r->ok && r->id == 3 && !r->ends);
    assert_int_equal(strncmp(r->detail, "0 1 1 0 ", 8), 0);
    assert_non_null(strstr(r->detail, " node0\texit code 3\n"));
    end(&w);
}

static int count(const struct world *w, enum msg_type type)
{
    int n = 0;
    for (int i = 0; i < w->ngot; i++)
        n += w->got[i].type == type;
    return n;
}

/* Wait until the daemon has handled all earlier messages. */
static void sync_with(struct world *w)
{
    say(w, MSG(CTL_REQUEST, .id = 99, .what = "status", .text = ""));
    (void)await(w, MSG_CTL_REPLY);
}

/* ---- ranks that run on ---- */

static void pass_time(struct world *w, unsigned ms)
{
    clock_hurry(w->base, ms);
    while (clock_hurrying.left_ms > 0)
        assert_true(event_base_loop(w->base, EVLOOP_ONCE) == 0);
}

static void the_rank_that_still_runs_a_minute_after_the_others_is_named_once(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, MSG(LEFT, .round = 3, .ranks = "1")); /* no such round: ignored */
    say(&w, MSG(LEFT, .round = 0, .ranks = "0"));
    sync_with(&w);
    pass_time(&w, 61000);
    const struct msg_status *s = &await(&w, MSG_STATUS)->status;
    assert_non_null(strstr(
        s->text, "rank 1 on node0 still runs; 1 of 2 ranks exited with 0, the last one 60 s ago"));
    assert_non_null(strstr(s->text, "\n  tip: 'ddctl stacks' shows what it executes"));
    say(&w, MSG(LEFT, .round = 0, .ranks = "0"));
    pass_time(&w, 61000);
    say(&w, MSG(DONE, .round = 0, .left = 2));
    assert_int_equal(await(&w, MSG_FINISH)->finish.code, 0);
    assert_int_equal(count(&w, MSG_STATUS), 1);
    end(&w);
}

/* ---- stacks ---- */

static const struct job_stacks_cfg at_failure = {
    .on_failure = true, .on_hang = true, .all = true, .limit_ns = LIMIT_S * DD_NS_PER_S};

static bool has_got(const struct world *w, enum msg_type type)
{
    for (int i = 0; i < w->ngot; i++)
        if (w->got[i].type == type)
            return true;
    return false;
}

static void fail_a_worker(struct world *w)
{
    say(w, MSG(EXIT, .round = 0, .rank = 1, .local_rank = 1, .pid = 70, .code = 3));
}

#define STACK(ranks)                                                                               \
    "{\"groups\":[{\"ranks\":\"" ranks "\",\"kind\":\"python\",\"state\":\"\",\"note\":\"\","      \
    "\"frames\":[{\"function\":\"step\",\"file\":\"/u/train.py\",\"line\":8}]}]}"

static void stop_waits_for_the_stacks_which_the_report_shows(void **state)
{
    (void)state;
    struct world w;
    begin_with(&w, 0, &at_failure);
    start_round(&w);
    fail_a_worker(&w);
    const struct msg_stacks_request *q = &await(&w, MSG_STACKS_REQUEST)->stacks_request;
    assert_true(q->all && q->round == 0 && q->limit_ms > 0 && q->limit_ms < LIMIT_S * 1000);
    sync_with(&w);
    assert_false(has_got(&w, MSG_STOP));
    say(&w, MSG(STACKS, .id = q->id + 1, .text = STACK("0"))); /* no such question: ignored */
    say(&w, MSG(STACKS, .id = q->id, .text = STACK("0")));
    assert_int_equal(await(&w, MSG_STOP)->stop.signal, SIGTERM);
    say(&w, MSG(DONE, .round = 0, .stopped = 1));
    const struct msg_finish *f = &await(&w, MSG_FINISH)->finish;
    assert_non_null(strstr(f->text, "rank 0: step, train.py:8"));
    assert_non_null(strstr(f->detail, "/u/train.py"));
    end(&w);
}

static void stacks_of_ranks_of_others_are_ignored(void **state)
{
    (void)state;
    struct world w;
    begin_with(&w, 0, &at_failure);
    start_round(&w);
    fail_a_worker(&w);
    say(&w,
        MSG(STACKS, .id = await(&w, MSG_STACKS_REQUEST)->stacks_request.id, .text = STACK("0-2")));
    (void)await(&w, MSG_STOP);
    say(&w, MSG(DONE, .round = 0, .stopped = 1));
    const struct msg_finish *f = &await(&w, MSG_FINISH)->finish;
    assert_null(strstr(f->detail, "train.py"));
    assert_non_null(strstr(f->detail, "invalid answer"));
    end(&w);
}

static void a_stop_request_ends_the_wait_for_stacks(void **state)
{
    (void)state;
    struct world w;
    begin_with(&w, 0, &at_failure);
    start_round(&w);
    fail_a_worker(&w);
    (void)await(&w, MSG_STACKS_REQUEST);
    say(&w, MSG(STOP_REQUEST, .signal = SIGINT, .text = "stopped by SIGINT"));
    assert_int_equal(await(&w, MSG_STOP)->stop.signal, SIGTERM);
    end(&w);
}

static void the_time_limit_ends_the_wait_for_stacks(void **state)
{
    (void)state;
    struct world w;
    begin_with(&w, 0, &(struct job_stacks_cfg){.on_failure = true, .limit_ns = 50 * DD_NS_PER_MS});
    start_round(&w);
    fail_a_worker(&w);
    (void)await(&w, MSG_STOP);
    say(&w, MSG(DONE, .round = 0, .stopped = 1));
    assert_non_null(strstr(await(&w, MSG_FINISH)->finish.detail, "did not answer within"));
    end(&w);
}

static void workers_that_end_by_themselves_end_the_wait_for_stacks(void **state)
{
    (void)state;
    struct world w;
    begin_with(&w, 0, &at_failure);
    start_round(&w);
    fail_a_worker(&w);
    (void)await(&w, MSG_STACKS_REQUEST);
    say(&w, MSG(DONE, .round = 0, .left = 1));
    assert_int_equal(await(&w, MSG_FINISH)->finish.code, 3);
    assert_false(has_got(&w, MSG_STOP));
    end(&w);
}

/* All workers end by themselves, and the next round begins before the stacks have come. */
static void stacks_of_the_round_before_stop_no_later_round(void **state)
{
    (void)state;
    struct world w;
    begin_with(&w, 1, &at_failure);
    start_round(&w);
    fail_a_worker(&w);
    const int64_t id = await(&w, MSG_STACKS_REQUEST)->stacks_request.id;
    say(&w, MSG(DONE, .round = 0, .left = 1));
    while (count(&w, MSG_PLAN) < 2)
        assert_true(event_base_loop(w.base, EVLOOP_ONCE) == 0);
    say(&w, MSG(STARTED, .round = 1));
    say(&w, MSG(STACKS, .id = id, .text = STACK("0")));
    sync_with(&w);
    assert_false(has_got(&w, MSG_STOP));
    end(&w);
}

static void stacks_of_a_hang_are_those_of_its_failure(void **state)
{
    (void)state;
    struct world w;
    begin_with(&w, 0, &at_failure);
    start_round(&w);
    say(&w, MSG(STACKS_WANTED, .round = 0));
    say(&w,
        MSG(STACKS, .id = await(&w, MSG_STACKS_REQUEST)->stacks_request.id, .text = STACK("0-1")));
    assert_int_equal(await(&w, MSG_STACKS_TAKEN)->stacks_taken.round, 0);
    fail_a_worker(&w);
    (void)await(&w, MSG_STOP); /* without a second question */
    say(&w, MSG(DONE, .round = 0, .stopped = 1));
    assert_non_null(strstr(await(&w, MSG_FINISH)->finish.text, "ranks 0-1: step, train.py:8"));
    end(&w);
}

static void a_hang_is_answered_at_once_where_stacks_are_off(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, MSG(STACKS_WANTED, .round = 0));
    assert_int_equal(await(&w, MSG_STACKS_TAKEN)->stacks_taken.round, 0);
    assert_false(has_got(&w, MSG_STACKS_REQUEST));
    end(&w);
}

/* ---- idle nodes ---- */

static void idle_workers_of_all_nodes_are_a_hang(void **state)
{
    static const struct {
        struct msg_idle m;
        bool hangs;
    } rows[] = {
        {{.round = 0, .idle = false}, false},
        {{.round = 1, .idle = true}, false},                  /* of another round */
        {{.round = 0, .idle = true, .stopped = true}, false}, /* on purpose */
        {{.round = 0, .idle = true}, true},
    };
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        say(&w, MSG(IDLE, .round = rows[i].m.round, .idle = rows[i].m.idle,
                    .stopped = rows[i].m.stopped));
        if (rows[i].hangs)
            assert_int_equal(await(&w, MSG_HUNG)->hung.round, 0);
        sync_with(&w);
        assert_int_equal(has_got(&w, MSG_HUNG), rows[i].hangs);
    }
    end(&w);
}

static void ddctl_gets_the_stacks_of_some_ranks(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, MSG(CTL_REQUEST, .id = 5, .what = "stacks",
                .text = "{\"node\":\"\",\"ranks\":\"1\",\"limit_ms\":60000}"));
    const struct msg_stacks_request *q = &await(&w, MSG_STACKS_REQUEST)->stacks_request;
    assert_string_equal(q->ranks, "1");
    say(&w, MSG(STACKS, .id = q->id, .text = STACK("1")));
    const struct msg_ctl_reply *r = &await(&w, MSG_CTL_REPLY)->ctl_reply;
    assert_true(r->id == 5 && r->ok && r->ends);
    assert_non_null(strstr(r->detail, "train.py"));
    end(&w);
}

static void ddctl_is_refused_stacks_that_it_describes_badly(void **state)
{
    static const char *const rows[] = {
        "",
        "{}",
        "[]",
        "{\"limit_ms\":0}",
        "{\"limit_ms\":60001}",
        "{\"limit_ms\":1000,\"ranks\":\"x\"}",
        "{\"limit_ms\":1000,\"ranks\":\"2\"}",
        "{\"limit_ms\":1000,\"node\":\"node1\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world w;
        begin(&w, 0);
        start_round(&w);
        say(&w, MSG(CTL_REQUEST, .id = 5, .what = "stacks", .text = rows[i]));
        assert_false(await(&w, MSG_CTL_REPLY)->ctl_reply.ok);
        assert_false(has_got(&w, MSG_STACKS_REQUEST));
        end(&w);
    }
}

static void before_join_nothing_counts(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    say(&w, MSG(STOP_REQUEST, .signal = SIGINT, .text = "too early"));
    start_round(&w); /* the ignored request does not stop the job */
    end(&w);
}

static void a_stop_request_is_reported_back_with_the_end(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 3);
    start_round(&w);
    say(&w, MSG(STOP_REQUEST, .signal = SIGINT, .text = "stopped by SIGINT"));
    assert_int_equal(await(&w, MSG_STOP)->stop.signal, SIGINT);
    say(&w, MSG(DONE, .round = 0, .stopped = 2));
    const struct msg_finish *f = &await(&w, MSG_FINISH)->finish;
    assert_int_equal(f->code, 128 + SIGINT);
    assert_true(f->asked);
    end(&w);
}

static void a_malformed_message_is_refused_with_the_reason(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    assert_int_equal(link_send(w.agent, FRAME_CONTROL, "{}", 2), 0);
    assert_non_null(strstr(await(&w, MSG_REFUSE)->refuse.text, "cannot read"));
    await_flag(&w, &w.closed);
    end(&w);
}

static void a_node_whose_name_is_no_host_name_is_refused(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    say(&w, MSG(JOIN, .index = 0, .nnodes = 1, .min_nodes = 1, .slots = 2, .name = "a/b"));
    assert_non_null(strstr(await(&w, MSG_REFUSE)->refuse.text, "name"));
    await_flag(&w, &w.closed);
    end(&w);
}

static void a_signal_goes_to_the_workers_once(void **state)
{
    (void)state;
    struct world w;
    int n = 0;
    begin(&w, 0);
    start_round(&w);
    for (int i = 0; i < 2; i++)
        say(&w, MSG(SIGNAL_REQUEST, .signal = SIGUSR1));
    say(&w, MSG(SIGNAL_REQUEST, .signal = SIGUSR2));
    say(&w, MSG(CTL_REQUEST, .id = 4, .what = "status", .text = ""));
    assert_int_equal(await(&w, MSG_CTL_REPLY)->ctl_reply.id, 4);
    for (int i = 0; i < w.ngot; i++)
        n += w.got[i].type == MSG_SIGNAL;
    assert_int_equal(n, 2);
    end(&w);
}

static void ddctl_gets_the_number_of_processes_that_a_signal_has_reached(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, MSG(CTL_REQUEST, .id = 5, .what = "signal", .text = "USR1"));
    const int64_t id = await(&w, MSG_SIGNAL)->signal.id;
    assert_true(id > 0);
    say(&w, MSG(SIGNALLED, .id = id + 1, .reached = 9)); /* no such question: ignored */
    say(&w, MSG(SIGNALLED, .id = id, .reached = 2));
    const struct msg_ctl_reply *a = &await(&w, MSG_CTL_REPLY)->ctl_reply;
    assert_true(a->ok && a->ends && a->id == 5);
    assert_string_equal(a->detail, "{\"sent\":true,\"reached\":2,\"silent\":0}");
    end(&w);
}

static void a_node_that_does_not_count_is_silent_after_the_time_limit(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, MSG(CTL_REQUEST, .id = 5, .what = "signal", .text = "USR1"));
    (void)await(&w, MSG_SIGNAL);
    clock_skip(USAGE_LIMIT_MS);
    assert_non_null(strstr(await(&w, MSG_CTL_REPLY)->ctl_reply.detail, "\"silent\":1"));
    end(&w);
}

/* ---- what workers use ---- */

#define ASK_WORKERS(list)                                                                          \
    MSG(CTL_REQUEST, .id = 5, .what = "workers", .text = "{\"ranks\":\"" list "\"}")

static void ddctl_gets_what_workers_use(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    assert_false(has_got(&w, MSG_USAGE_REQUEST)); /* nobody has asked */
    say(&w, ASK_WORKERS(""));
    const struct msg_usage_request *q = &await(&w, MSG_USAGE_REQUEST)->usage_request;
    assert_true(q->round == 0 && !q->all_lines);
    say(&w, MSG(USAGE, .id = q->id + 1, .text = "{}")); /* no such question: ignored */
    say(&w, MSG(USAGE, .id = q->id,
                .text = "{\"at_ms\":9,\"workers\":[[1,12,\"S\",340,5678,\"step 1\"]]}"));
    const struct msg_ctl_reply *a = &await(&w, MSG_CTL_REPLY)->ctl_reply;
    assert_true(a->ok && a->ends && a->id == 5);
    assert_non_null(strstr(a->detail, "\"silent\":0"));
    assert_non_null(strstr(a->detail, "\"rank\":1"));
    assert_non_null(strstr(a->detail, "\"text\":\"step 1\""));
    end(&w);
}

static void a_node_cannot_answer_for_ranks_of_others(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, ASK_WORKERS("0-1"));
    say(&w, MSG(USAGE, .id = await(&w, MSG_USAGE_REQUEST)->usage_request.id,
                .text = "{\"at_ms\":9,\"workers\":[[2,12,\"S\",340,5678,\"x\"]]}"));
    const struct msg_ctl_reply *a = &await(&w, MSG_CTL_REPLY)->ctl_reply;
    assert_true(a->ok);
    assert_non_null(strstr(a->detail, "\"workers\":[]"));
    end(&w);
}

static void the_time_limit_ends_the_wait_for_what_workers_use(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    start_round(&w);
    say(&w, ASK_WORKERS(""));
    (void)await(&w, MSG_USAGE_REQUEST);
    clock_skip(USAGE_LIMIT_MS);
    const struct msg_ctl_reply *a = &await(&w, MSG_CTL_REPLY)->ctl_reply;
    assert_true(a->ok);
    assert_non_null(strstr(a->detail, "\"silent\":1"));
    end(&w);
}

static void ddctl_is_refused_workers_that_it_describes_badly(void **state)
{
    static const char *const bad[] = {"",
                                      "7",
                                      "{}",
                                      "{\"ranks\":\"x\"}",
                                      "{\"ranks\":\"9\"}",
                                      "{\"ranks\":\"0-1\",\"all_lines\":true}",
                                      "{\"ranks\":\"\",\"all_lines\":true}"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct world w;
        begin(&w, 0);
        start_round(&w);
        say(&w, MSG(CTL_REQUEST, .id = 5, .what = "workers", .text = bad[i]));
        assert_false(await(&w, MSG_CTL_REPLY)->ctl_reply.ok);
        assert_false(has_got(&w, MSG_USAGE_REQUEST));
        end(&w);
    }
}

static void the_daemon_ends_with_its_leaders_agent(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0);
    link_free(w.agent);
    w.agent = NULL;
    await_flag(&w, &w.over);
    assert_int_equal(w.code, 1);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_succeeds_ends_with_0),
        cmocka_unit_test(a_failure_without_restarts_ends_with_its_code_and_the_report),
        cmocka_unit_test(a_follower_of_charges_knows_the_last_one_before_the_end),
        cmocka_unit_test(the_rank_that_still_runs_a_minute_after_the_others_is_named_once),
        cmocka_unit_test(stop_waits_for_the_stacks_which_the_report_shows),
        cmocka_unit_test(stacks_of_ranks_of_others_are_ignored),
        cmocka_unit_test(a_stop_request_ends_the_wait_for_stacks),
        cmocka_unit_test(the_time_limit_ends_the_wait_for_stacks),
        cmocka_unit_test(workers_that_end_by_themselves_end_the_wait_for_stacks),
        cmocka_unit_test(stacks_of_the_round_before_stop_no_later_round),
        cmocka_unit_test(stacks_of_a_hang_are_those_of_its_failure),
        cmocka_unit_test(a_hang_is_answered_at_once_where_stacks_are_off),
        cmocka_unit_test(idle_workers_of_all_nodes_are_a_hang),
        cmocka_unit_test(ddctl_gets_the_stacks_of_some_ranks),
        cmocka_unit_test(ddctl_is_refused_stacks_that_it_describes_badly),
        cmocka_unit_test(ddctl_gets_the_number_of_processes_that_a_signal_has_reached),
        cmocka_unit_test(a_node_that_does_not_count_is_silent_after_the_time_limit),
        cmocka_unit_test(ddctl_gets_what_workers_use),
        cmocka_unit_test(a_node_cannot_answer_for_ranks_of_others),
        cmocka_unit_test(the_time_limit_ends_the_wait_for_what_workers_use),
        cmocka_unit_test(ddctl_is_refused_workers_that_it_describes_badly),
        cmocka_unit_test(before_join_nothing_counts),
        cmocka_unit_test(a_stop_request_is_reported_back_with_the_end),
        cmocka_unit_test(a_malformed_message_is_refused_with_the_reason),
        cmocka_unit_test(a_node_whose_name_is_no_host_name_is_refused),
        cmocka_unit_test(a_signal_goes_to_the_workers_once),
        cmocka_unit_test(the_daemon_ends_with_its_leaders_agent),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
