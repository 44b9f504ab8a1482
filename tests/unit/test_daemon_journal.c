/* daemon: each event is published once; its subscribers are the log that ddctl reads, and the
 * report. */
#include "base/auto.h"
#include "base/buf.h"
#include "daemon/event_log.h"
#include "daemon/report_collect.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct session { /* opaque to the event log */
    char text[1 << 18];
    size_t len;
    int answers, ends;
    int rc;
};

static int session_take(struct session *s, int64_t id, const char *text, size_t n, bool ends)
{
    (void)id;
    s->answers++;
    s->ends += ends;
    if (s->rc == 0 && n > 0 && s->len + n < sizeof(s->text)) {
        memcpy(s->text + s->len, text, n);
        s->len += n;
        s->text[s->len] = '\0';
    }
    return s->rc;
}

static int lines(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

struct seen {
    struct journal_subscriber subscriber;
    char *order;
    char letter;
};

static void note(void *arg, const struct journal_event *e)
{
    struct seen *s = arg;
    const size_t n = strlen(s->order);
    assert_true(e->now_ns > 0 && e->real_ns > 0);
    s->order[n] = s->letter;
    s->order[n + 1] = '\0';
}

static void subscribers_get_each_event_once_in_their_order(void **state)
{
    (void)state;
    char order[16] = "";
    struct journal j;
    struct seen a = {.subscriber = {.on_event = note, .arg = &a}, .order = order, .letter = 'a'};
    struct seen b = {.subscriber = {.on_event = note, .arg = &b}, .order = order, .letter = 'b'};
    journal_init(&j);
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_JOIN});
    journal_subscribe(&j, &a.subscriber);
    journal_subscribe(&j, &b.subscriber);
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_ROUND});
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_FINISH});
    assert_string_equal(order, "abab");
}

static void of_refused_connections_powers_of_two_are_published(void **state)
{
    (void)state;
    char order[16] = "";
    struct journal j;
    struct seen a = {.subscriber = {.on_event = note, .arg = &a}, .order = order, .letter = 'a'};
    journal_init(&j);
    journal_subscribe(&j, &a.subscriber);
    for (uint64_t n = 1; n <= 100; n++)
        journal_refused(&j, n, NULL, NULL, "no key");
    assert_int_equal(strlen(order), 7); /* 1, 2, 4, 8, 16, 32, 64 */
}

static void json_has_the_fields_of_the_kind_alone(void **state)
{
    (void)state;
    json_t *o = journal_json(&(struct journal_event){.kind = JOURNAL_EXIT,
                                                     .real_ns = 1500000000123456789,
                                                     .node = "node\xc3",
                                                     .round = 2,
                                                     .rank = 5,
                                                     .code = 3,
                                                     .workers = 7});
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "event")), "exit");
    assert_string_equal(json_string_value(json_object_get(o, "time")), "2017-07-14T02:40:00.123Z");
    assert_int_equal(json_integer_value(json_object_get(o, "rank")), 5);
    assert_non_null(json_object_get(o, "node")); /* truncated within a character, and still UTF-8 */
    assert_null(json_object_get(o, "workers"));
    json_decref(o);
    assert_null(journal_json(&(struct journal_event){.kind = JOURNAL_NODE_DONE}));
}

static void the_log_keeps_the_last_events(void **state)
{
    (void)state;
    static struct session s;
    struct journal j;
    struct event_log *l;
    s = (struct session){0};
    journal_init(&j);
    assert_int_equal(event_log_new(&l, &j, session_take), 0);
    for (int i = 0; i < EVENT_LOG_KEPT + 10; i++)
        journal_publish(&j, &(struct journal_event){.kind = JOURNAL_STARTED, .round = i});
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_NODE_DONE});
    event_log_follow(l, &s, 1, false);
    assert_int_equal(lines(s.text), EVENT_LOG_KEPT);
    assert_null(strstr(s.text, "\"round\":9}"));
    assert_non_null(strstr(s.text, "\"round\":10}"));
    assert_int_equal(s.ends, 1);
    event_log_free(l);
}

static void a_follower_gets_the_next_events_until_the_end(void **state)
{
    (void)state;
    static struct session s, gone, busy;
    struct journal j;
    struct event_log *l;
    s = gone = busy = (struct session){0};
    journal_init(&j);
    assert_int_equal(event_log_new(&l, &j, session_take), 0);
    event_log_follow(l, &s, 1, true);
    event_log_follow(l, &gone, 2, true);
    event_log_follow(l, &busy, 3, true);
    event_log_forget(l, &gone, -1);
    busy.rc = -1;
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_STARTED});
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_FINISH, .text = ""});
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_LEAVE});
    assert_int_equal(lines(s.text), 2);
    assert_int_equal(s.ends, 1);
    assert_int_equal(gone.answers, 1); /* the first reply, with no kept events */
    assert_int_equal(busy.answers, 2); /* sending the second failed: no longer a follower */
    event_log_free(l);
}

static void followers_beyond_the_limit_get_what_there_is(void **state)
{
    (void)state;
    static struct session s[EVENT_LOG_FOLLOWERS + 1];
    struct journal j;
    struct event_log *l;
    journal_init(&j);
    assert_int_equal(event_log_new(&l, &j, session_take), 0);
    for (int i = 0; i <= EVENT_LOG_FOLLOWERS; i++)
        event_log_follow(l, &s[i], i, true);
    assert_int_equal(s[EVENT_LOG_FOLLOWERS - 1].ends, 0);
    assert_int_equal(s[EVENT_LOG_FOLLOWERS].ends, 1);
    event_log_free(l);
}

static void exits_are_those_of_the_round(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    struct journal j;
    struct event_log *l;
    journal_init(&j);
    assert_int_equal(event_log_new(&l, &j, session_take), 0);
    for (int i = 0; i < 6; i++)
        journal_publish(&j, &(struct journal_event){
                                .kind = JOURNAL_EXIT, .round = i / 3, .rank = i, .node = "n"});
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_STARTED, .round = 1});
    event_log_exits(l, 1, &out);
    assert_int_equal(dd_buf_puts(&out, "]"), 0);
    char text[4096];
    (void)snprintf(text, sizeof(text), "[%s", dd_buf_str(&out));
    json_t *list = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(list), 3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "rank")), 3);
    json_decref(list);
    event_log_free(l);
}

static void the_earliest_failure_by_the_clocks_gives_the_exit_code(void **state)
{
    (void)state;
    struct journal j;
    struct report_collect *c;
    struct dd_err err;
    const struct report_collect_cfg cfg = {.job_id = "job", .nnodes = 2};
    journal_init(&j);
    assert_int_equal(report_collect_new(&c, &j, &cfg, &err), 0);
    journal_publish(&j, &(struct journal_event){.kind = JOURNAL_ROUND, .workers = 2});
    for (int i = 0; i < 2; i++) { /* the later failure is reported first */
        const struct report_exit e = {
            .rank = i, .pid = 7, .code = 3 + i, .at_ns = 9000u - (uint64_t)i, .node = "n"};
        journal_publish(
            &j, &(struct journal_event){.kind = JOURNAL_EXIT, .exit = &e, .by_itself = true});
    }
    assert_int_equal(report_collect_code(c, 3), 4);
    assert_int_equal(report_collect_code(c, 0), 0);
    report_collect_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subscribers_get_each_event_once_in_their_order),
        cmocka_unit_test(of_refused_connections_powers_of_two_are_published),
        cmocka_unit_test(json_has_the_fields_of_the_kind_alone),
        cmocka_unit_test(the_log_keeps_the_last_events),
        cmocka_unit_test(a_follower_gets_the_next_events_until_the_end),
        cmocka_unit_test(followers_beyond_the_limit_get_what_there_is),
        cmocka_unit_test(exits_are_those_of_the_round),
        cmocka_unit_test(the_earliest_failure_by_the_clocks_gives_the_exit_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
