/* Credentials made and read by a thread: the event loop goes on while munged does not answer. */
#include "config.h"

#include "base/auto.h"
#include "net/credential.h"
#include "net_munged.h"

#include <event2/event.h>
#include <sys/socket.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

struct world {
    struct event_base *base;
    struct credential_maker *maker;
    struct credential_reader *reader;
    struct net_key key;
    int answers, ticks;
    int rc;
    char text[4096];
};

static void on_done(void *arg, const char *text, const struct dd_err *err)
{
    struct world *w = arg;
    w->answers++;
    w->rc = text != NULL ? 0 : err->rc;
    (void)snprintf(w->text, sizeof(w->text), "%s", text != NULL ? text : err->text);
    (void)event_base_loopbreak(w->base);
}

static void start(struct world *w, const char *munge_socket)
{
    const struct net_key_input in = {.job_id = "job.1", .munge_socket = munge_socket};
    const struct credential_maker_cb cb = {.done = on_done, .arg = w};
    *w = (struct world){.base = event_base_new(), .key = {.method = NET_KEY_MUNGE}};
    assert_int_equal(net_key_random(w->key.bytes), 0);
    assert_int_equal(credential_maker_new(&w->maker, w->base, &w->key, &in, &cb, NULL), 0);
    assert_int_equal(credential_maker_ask(w->maker), 0);
}

static void on_read(void *arg, const struct net_key *key, const struct dd_err *err)
{
    struct world *w = arg;
    credential_reader_free(DD_TAKE(w->reader));
    w->answers++;
    w->rc = err->rc;
    if (key != NULL)
        w->key = *key;
    (void)snprintf(w->text, sizeof(w->text), "%s", err->text);
    (void)event_base_loopbreak(w->base);
}

static void start_reading(struct world *w, const char *munge_socket, const char *cred)
{
    const struct net_key_input in = {.job_id = "job.1", .munge_socket = munge_socket};
    const struct credential_reader_cb cb = {.done = on_read, .arg = w};
    *w = (struct world){.base = event_base_new()};
    assert_int_equal(credential_reader_new(&w->reader, w->base, &in, cred, &cb, NULL), 0);
}

static void end(struct world *w)
{
    credential_maker_free(w->maker);
    credential_reader_free(w->reader);
    event_base_free(w->base);
}

#if HAVE_MUNGE

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct world *w = arg;
    (void)fd;
    (void)what;
    if (++w->ticks == 5)
        (void)event_base_loopbreak(w->base);
}

static void run_until_the_fifth_tick(struct world *w)
{
    const struct timeval soon = {.tv_usec = 20000};
    struct event *tick = event_new(w->base, -1, EV_PERSIST, on_tick, w);
    (void)event_add(tick, &soon);
    (void)event_base_dispatch(w->base);
    event_free(tick);
}

static void the_loop_goes_on_while_munged_is_silent(void **state)
{
    char dir[] = "/tmp/ddrun-silent-XXXXXX";
    char path[64];
    struct world w;
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/socket", dir);
    const int fd = munged_silent(path);
    for (int reads = 0; reads < 2; reads++) {
        if (reads)
            start_reading(&w, path, "MUNGE:AwQFAAC8:");
        else
            start(&w, path);
        const int asked = accept(fd, NULL, NULL);
        assert_true(asked >= 0);
        run_until_the_fifth_tick(&w);
        assert_int_equal(w.ticks, 5);
        assert_int_equal(w.answers, 0);
        end(&w); /* does not wait for the thread */
        (void)close(asked);
    }
    (void)close(fd);
    (void)unlink(path);
    (void)rmdir(dir);
}

static void each_request_has_one_answer(void **state)
{
    struct munged m;
    struct world w;
    struct world there;
    (void)state;
    const char *why = munged_start(&m);
    if (why[0] != '\0') {
        munged_stop(&m);
        print_message("skipped: %s\n", why);
        skip();
    }
    start(&w, m.socket);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(credential_maker_ask(w.maker),
                         0); /* the first time, it is asked already */
        (void)event_base_dispatch(w.base);
        assert_int_equal(w.answers, i);
        assert_int_equal(w.rc, 0);
        start_reading(&there, m.socket, w.text);
        (void)event_base_dispatch(there.base);
        assert_int_equal(there.answers, 1);
        assert_int_equal(there.rc, 0);
        assert_memory_equal(there.key.bytes, w.key.bytes, NET_KEY_LEN);
        end(&there);
    }
    (void)event_base_loop(w.base, EVLOOP_NONBLOCK);
    assert_int_equal(w.answers, 3);
    end(&w);
    munged_stop(&m);
}

#endif

static void a_failure_has_its_reason(void **state)
{
    struct world w;
    (void)state;
    start(&w, "/nonexistent/munge.socket");
    (void)event_base_dispatch(w.base);
    assert_int_equal(w.answers, 1);
    assert_true(w.rc < 0 && w.text[0] != '\0');
    end(&w);
#if HAVE_MUNGE
    start_reading(&w, "/nonexistent/munge.socket", "MUNGE:AwQFAAC8:");
    (void)event_base_dispatch(w.base);
    assert_int_equal(w.answers, 1);
    assert_true(w.rc < 0 && w.text[0] != '\0');
    end(&w);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if HAVE_MUNGE
        cmocka_unit_test(the_loop_goes_on_while_munged_is_silent),
        cmocka_unit_test(each_request_has_one_answer),
#endif
        cmocka_unit_test(a_failure_has_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
