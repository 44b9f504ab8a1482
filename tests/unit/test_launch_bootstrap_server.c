/* launch: the bootstrap server, and nodes that fetch their payload from it. */
#include "launch/bootstrap_server.h"
#include "launch/parent_link.h"
#include "worker/spawn.h"

#include "base/sig.h"

#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = 2, INDEX = 1, HANG_S = 60, FETCH_MS = 30000, TOLD = 5 };

/* The parent, which starts the node. */
struct bed {
    struct event_base *base;
    struct bootstrap_server *server;
    struct net_key key;
    struct net_key_input key_in;
    struct dd_buf payload;
    bool wanted; /* still to be started by this parent */
    int came, output;
};

static bool give_task(void *arg, int index, struct launch_task *ret)
{
    (void)arg;
    *ret = (struct launch_task){.output = true};
    return index == INDEX;
}

static bool on_fetched(void *arg, int index)
{
    struct bed *b = arg;
    assert_int_equal(index, INDEX);
    if (!b->wanted)
        return false;
    b->came++;
    bootstrap_server_send(b->server, index, LAUNCH_SIGNAL, index, SIGTERM | DD_SIGNAL_AT_ONCE);
    return true;
}

static int on_output(void *arg, int index, int which, const void *p, size_t n)
{
    struct bed *b = arg;
    (void)p;
    b->output += (int)n;
    bootstrap_server_send(b->server, index, LAUNCH_CREDIT, which, (uint32_t)n);
    return 0;
}

static void on_message(void *arg, int index, const struct launch_msg *w)
{
    (void)arg;
    (void)index;
    (void)w;
}

static void on_gone(void *arg, int index)
{
    (void)arg;
    (void)index;
}

static void bed_new(struct bed *b, bool wanted)
{
    struct alloc alloc = {.source = "launcher",
                          .job_id = (char *)(uintptr_t)"1",
                          .run_id = (char *)(uintptr_t)"1",
                          .nnodes = NODES};
    struct bootstrap_payload payload = {.directory = (char *)(uintptr_t)"/", .alloc = &alloc};
    struct dd_err err = {0};
    *b = (struct bed){.base = event_base_new(),
                      .payload = DD_BUF_INIT(BOOTSTRAP_MAX),
                      .wanted = wanted,
                      .key_in = {.job_id = "launch.1", .insecure = true}};
    assert_int_equal(hostlist_parse(&alloc.nodes, "node[0-1]", NULL), 0);
    assert_int_equal(dd_strv_push(&payload.argv, "ddrun"), 0);
    assert_int_equal(bootstrap_payload_encode(&b->payload, &payload), 0);
    hostlist_free(alloc.nodes);
    dd_strv_done(&payload.argv);
    assert_int_equal(net_key_for_leader(&b->key, &b->key_in, &err), 0);
    const struct bootstrap_server_cfg cfg = {.id = "launch.1",
                                             .payload = &b->payload,
                                             .key = &b->key,
                                             .key_in = &b->key_in,
                                             .nnodes = NODES,
                                             .task = give_task,
                                             .on_fetched = on_fetched,
                                             .on_message = on_message,
                                             .on_output = on_output,
                                             .on_gone = on_gone,
                                             .arg = b};
    assert_int_equal(bootstrap_server_new(&b->server, b->base, &cfg, &err), 0);
}

static void bed_done(struct bed *b)
{
    bootstrap_server_free(b->server);
    dd_buf_done(&b->payload);
    event_base_free(b->base);
}

/* ---- the node, a process of its own ---- */

struct node {
    struct parent_link *parent;
    uint32_t signal;
};

static void leave_when_all_is_out(struct node *n)
{
    if (n->signal != 0 && parent_link_empty(n->parent))
        event_base_loopbreak(parent_link_base(n->parent));
}

static void on_up_word(void *arg, const struct launch_msg *w)
{
    struct node *n = arg;
    if (w->type == LAUNCH_SIGNAL && w->node == INDEX)
        n->signal = w->value;
    leave_when_all_is_out(n);
}

static void on_up_room(void *arg)
{
    leave_when_all_is_out(arg);
}

static void on_up_lost(void *arg, const char *why)
{
    (void)why;
    event_base_loopbreak(parent_link_base(((struct node *)arg)->parent));
}

static int fetch_and_wait(const char *argument)
{
    struct launch_ticket ticket;
    struct bootstrap_payload payload = {0};
    struct launch_task task = {0};
    struct node n = {0};
    struct dd_err err = {0};
    const struct dd_log log = {.fd = -1};
    if (launch_ticket_parse(&ticket, strchr(argument, '=') + 1, &err) < 0)
        return 1;
    const struct net_key_input key_in = {.job_id = ticket.id, .insecure = true};
    const struct bootstrap_fetch_cfg cfg = {
        .ticket = &ticket, .key_in = &key_in, .log = &log, .limit_ms = FETCH_MS, .stdin_fd = -1};
    if (bootstrap_fetch(&n.parent, &payload, &task, &cfg, &err) < 0)
        return 2;
    parent_link_start(n.parent, &(struct parent_link_cb){.on_message = on_up_word,
                                                         .on_room = on_up_room,
                                                         .on_lost = on_up_lost,
                                                         .arg = &n});
    parent_link_write(n.parent, 1, "last words\n", 11);
    event_base_dispatch(parent_link_base(n.parent));
    return n.signal == (SIGTERM | DD_SIGNAL_AT_ONCE) && parent_link_empty(n.parent) ? TOLD : 3;
}

static pid_t start_node(const struct bed *b)
{
    char *addresses[] = {(char *)(uintptr_t)"127.0.0.1", NULL};
    const struct launch_ticket start = {.hosts = {.v = addresses, .n = 1}};
    DD_AUTO(free) char *argument = bootstrap_server_argument(b->server, INDEX, &start);
    assert_non_null(argument);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(HANG_S);
        spawn_close_from(3);
        _exit(fetch_and_wait(argument));
    }
    return pid;
}

static int end_of(struct bed *b, pid_t pid)
{
    int status = 0;
    const struct timeval little = {.tv_usec = 10000};
    (void)alarm(HANG_S); /* only ends a hang */
    while (waitpid(pid, &status, WNOHANG) == 0) {
        event_base_loopexit(b->base, &little);
        event_base_dispatch(b->base);
    }
    (void)alarm(0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void a_node_that_is_wanted_comes_and_is_heard(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b, true);
    assert_int_equal(end_of(&b, start_node(&b)), TOLD);
    assert_int_equal(b.came, 1);
    assert_int_equal(b.output, 11);
    bed_done(&b);
}

/* Another parent was ordered to start the node while it fetched its task: the server signals it to
 * leave, and the parent ignores its output. */
static void a_node_that_is_not_wanted_any_more_is_told_to_leave(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b, false);
    assert_int_equal(end_of(&b, start_node(&b)), TOLD);
    assert_false(bootstrap_server_is_connected(b.server, INDEX));
    assert_true(b.came == 0 && b.output == 0);
    b.wanted = true; /* the start was handed back to this parent */
    assert_int_equal(end_of(&b, start_node(&b)), TOLD);
    assert_int_equal(b.came, 1);
    bed_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_is_wanted_comes_and_is_heard),
        cmocka_unit_test(a_node_that_is_not_wanted_any_more_is_told_to_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
