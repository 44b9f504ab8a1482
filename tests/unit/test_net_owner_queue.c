/* net/owner_queue on a kernel without sock_diag, for connections of this test. */
#include "base/auto.h"
#include "net/listen.h"
#include "net/owner_queue.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MANY = 64, NOBODY = 65534, UNANSWERED = 1 };

static int lists_read; /* since the start of the test */

/* In place of libc's: netlink is forbidden. */
int socket(int domain, int type, int protocol)
{
    errno = EPERM;
    return domain == AF_NETLINK ? -1 : (int)syscall(SYS_socket, domain, type, protocol);
}

/* In place of libc's: counts the readings of /proc/net/tcp. */
FILE *fopen(const char *path, const char *mode)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    (void)mode;
    lists_read += strcmp(path, "/proc/net/tcp") == 0;
    return fd < 0 ? NULL : fdopen(fd, "r");
}

struct world {
    struct event_base *base;
    struct net_peer *peer;
    struct owner_queue *queue;
    int listener;
    uint16_t port;
};

/* A connection, and the query about its client. */
struct call {
    struct owner_query query;
    struct world *world;
    struct call *then; /* connects and asks when this one is answered */
    int client, server;
    int rc;
    uid_t uid;
};

static struct net_addr name_of(int fd, bool other_end)
{
    struct sockaddr_storage ss;
    struct net_addr a;
    socklen_t len = sizeof(ss);
    assert_int_equal(other_end ? getpeername(fd, (struct sockaddr *)&ss, &len)
                               : getsockname(fd, (struct sockaddr *)&ss, &len),
                     0);
    assert_int_equal(net_addr_from_sockaddr(&a, (struct sockaddr *)&ss, len), 0);
    return a;
}

static void take(struct world *w, struct call *c)
{
    do
        c->server = accept(w->listener, NULL, NULL);
    while (c->server < 0 && errno == EAGAIN);
    assert_true(c->server >= 0);
    c->world = w;
    c->rc = UNANSWERED;
}

/* mapped: by an IPv6 socket, which only /proc/net/tcp6 lists. */
static void call(struct world *w, struct call *c, bool mapped)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(w->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = to.sin_port};
    to6.sin6_addr.s6_addr[10] = to6.sin6_addr.s6_addr[11] = 0xff;
    memcpy(to6.sin6_addr.s6_addr + 12, &to.sin_addr, 4);
    c->client = socket(mapped ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(mapped ? connect(c->client, (struct sockaddr *)&to6, sizeof(to6))
                            : connect(c->client, (struct sockaddr *)&to, sizeof(to)),
                     0);
    take(w, c);
}

static void on_answer(struct owner_query *q, int rc, uid_t uid);

static void ask(struct call *c)
{
    const struct net_addr here = name_of(c->server, false);
    const struct net_addr there = name_of(c->server, true);
    c->query.answered = on_answer;
    assert_int_equal(owner_queue_ask(c->world->queue, &c->query, &there, &here, &c->uid),
                     -EINPROGRESS);
}

static void on_answer(struct owner_query *q, int rc, uid_t uid)
{
    struct call *c = (struct call *)(void *)((char *)q - offsetof(struct call, query));
    c->rc = rc;
    c->uid = uid;
    if (c->then == NULL)
        return;
    call(c->world, c->then, false);
    ask(c->then);
}

static void run_until(const struct world *w, const struct call *c)
{
    while (c->rc == UNANSWERED)
        assert_int_equal(event_base_loop(w->base, EVLOOP_ONCE), 0);
}

static void hang_up(struct call *c)
{
    if (c->client >= 0)
        (void)close(c->client);
    (void)close(c->server);
}

static int set_up(void **state)
{
    static struct world w;
    const uint16_t any = 0;
    lists_read = 0;
    w = (struct world){.base = event_base_new()};
    w.listener = net_listen("127.0.0.1", &any, 1, &w.port, NULL);
    *state = &w;
    return w.listener < 0 || net_peer_new(&w.peer) < 0 ||
           owner_queue_new(&w.queue, w.base, w.peer) < 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    owner_queue_free(w->queue);
    net_peer_free(w->peer);
    event_base_free(w->base);
    return close(w->listener);
}

static void one_reading_serves_all_that_wait(void **state)
{
    struct world *w = *state;
    struct call calls[MANY] = {0};
    for (int i = 0; i < MANY; i++) {
        call(w, &calls[i], i % 8 == 0);
        ask(&calls[i]);
    }
    for (int i = 0; i < MANY; i++)
        run_until(w, &calls[i]);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(calls[i].rc, 0);
        hang_up(&calls[i]);
    }
    assert_int_equal(lists_read, 1);
}

/* A list that was read before the connection existed says nothing about it. */
static void query_that_comes_during_a_reading_waits_for_the_next(void **state)
{
    struct world *w = *state;
    struct call second = {.rc = UNANSWERED};
    struct call first = {.then = &second};
    call(w, &first, false);
    ask(&first);
    run_until(w, &second);
    assert_int_equal(first.rc, 0);
    assert_int_equal(second.rc, 0);
    assert_int_equal(lists_read, 2);
    hang_up(&first);
    hang_up(&second);
}

static void socket_that_its_program_has_closed_has_no_owner(void **state)
{
    struct world *w = *state;
    struct call gone = {0};
    call(w, &gone, false);
    (void)close(gone.client);
    gone.client = -1;
    ask(&gone);
    run_until(w, &gone);
    assert_int_equal(gone.rc, -ENOENT);
    hang_up(&gone);
}

static void query_that_is_forgotten_is_not_answered(void **state)
{
    struct world *w = *state;
    struct call calls[3] = {0};
    for (int i = 0; i < 3; i++) {
        call(w, &calls[i], false);
        ask(&calls[i]);
    }
    owner_query_forget(&calls[1].query);
    owner_query_forget(&calls[1].query);
    run_until(w, &calls[0]);
    run_until(w, &calls[2]);
    assert_int_equal(calls[1].rc, UNANSWERED);
    for (int i = 0; i < 3; i++)
        hang_up(&calls[i]);
}

static void socket_of_another_user_is_told(void **state)
{
    struct world *w = *state;
    struct call c = {.client = -1};
    int ends[2];
    if (geteuid() != 0)
        skip();
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        struct call theirs = {0};
        struct net_addr to;
        (void)close(ends[1]);
        theirs.client = setuid(NOBODY) == 0 ? socket(AF_INET, SOCK_STREAM, 0) : -1;
        if (net_addr_parse(&to, "127.0.0.1", w->port) == 0 &&
            connect(theirs.client, &to.sa, to.len) == 0)
            (void)!read(ends[0], &byte, 1); /* until the test closes its end */
        _exit(0);
    }
    take(w, &c);
    ask(&c);
    run_until(w, &c);
    assert_int_equal(c.rc, -EPERM);
    assert_int_equal(c.uid, NOBODY);
    (void)close(ends[0]);
    (void)close(ends[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    hang_up(&c);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(one_reading_serves_all_that_wait),
        CASE(query_that_comes_during_a_reading_waits_for_the_next),
        CASE(socket_that_its_program_has_closed_has_no_owner),
        CASE(query_that_is_forgotten_is_not_answered),
        CASE(socket_of_another_user_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
