/* daemon: the phases of the agents in the file of --timeline, and their times. */
#include "base/io.h"
#include "base/strv.h"
#include "daemon/timeline.h"
#include "rdzv/msg.h"

#include <event2/event.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define S INT64_C(1000000000)

struct world {
    char dir[64], path[96];
    struct event_base *base;
    struct journal journal;
    struct timeline *timeline;
    struct dd_log log;
};

static void begin(struct world *w)
{
    *w = (struct world){.dir = "/tmp/timelineXXXXXX", .log = {.fd = -1}};
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->path, sizeof(w->path), "%s/t.json", w->dir);
    w->base = event_base_new();
    journal_init(&w->journal);
    const struct timeline_cfg cfg = {
        .base = w->base, .path = w->path, .job_id = "job", .log = &w->log};
    assert_int_equal(timeline_new(&w->timeline, &w->journal, &cfg, NULL), 0);
}

static void publish(struct world *w, enum journal_kind kind, int round)
{
    journal_publish(&w->journal,
                    &(struct journal_event){.kind = kind, .round = round, .workers = 2});
}

/* Wait until the file is complete, and return its events; NULL: there is no file. */
static json_t *end(struct world *w)
{
    timeline_free(w->timeline);
    assert_true(wait(NULL) > 0);
    json_t *all = json_load_file(w->path, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(unlink(w->path), all != NULL ? 0 : -1);
    assert_int_equal(rmdir(w->dir), 0);
    event_base_free(w->base);
    return all;
}

static json_t *event(const json_t *all, const char *name, int nth)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *e = json_array_get(all, i);
        if (strcmp(json_string_value(json_object_get(e, "name")), name) == 0 && nth-- == 0)
            return e;
    }
    return NULL;
}

static json_int_t number(const json_t *e, const char *name)
{
    return json_integer_value(json_object_get(e, name));
}

static void send_phases(struct world *w, struct timeline_peer *p, int64_t sent_ns, int n,
                        const char *text)
{
    DD_AUTO(strv) struct dd_strv phases = {0};
    struct report_clock clock = {0};
    report_clock_update(&clock, sent_ns, dd_now_ns());
    for (int i = 0; i < n; i++)
        assert_int_equal(dd_strv_push(&phases, text), 0);
    const struct msg_phases m = {.round = 0, .sent_ns = sent_ns, .phases = &phases};
    timeline_take(w->timeline, p, &clock, &m);
}

static const struct msg_join two_workers = {.name = "n1", .slots = 2};

static void daemon_without_a_round_leaves_no_file(void **state)
{
    struct world w;
    struct timeline_peer p;
    (void)state;
    begin(&w);
    timeline_add_peer(w.timeline, &p, &two_workers, true);
    send_phases(&w, &p, 1, 1, "join -1 5 9 0");
    assert_null(end(&w));
}

static void file_has_what_was_known_before_the_first_round(void **state)
{
    struct world w;
    struct timeline_peer p;
    (void)state;
    begin(&w);
    timeline_add_peer(w.timeline, &p, &two_workers, true);
    send_phases(&w, &p, (int64_t)dd_now_ns(), 1, "join -1 5000 9000 0");
    publish(&w, JOURNAL_ROUND, 0);
    publish(&w, JOURNAL_FINISH, 0);
    json_t *all = end(&w);
    assert_string_equal(json_string_value(json_object_get(event(all, "process_name", 0), "ph")),
                        "M");
    assert_int_equal(number(event(all, "join", 0), "dur"), 4);
    assert_non_null(event(all, "exec", 0));
    assert_non_null(event(all, "round 0", 0));
    json_decref(all);
}

/* The agent's clock is a day ahead of the daemon's; its phase ended when it sent the message. */
static void phases_of_another_machine_are_moved_to_the_daemons_clock(void **state)
{
    struct world w;
    struct timeline_peer p;
    char text[100];
    (void)state;
    begin(&w);
    publish(&w, JOURNAL_ROUND, 0);
    const json_int_t asked_us = (json_int_t)(dd_now_real_ns() / 1000);
    timeline_add_peer(w.timeline, &p, &two_workers, false);
    const int64_t sent = (int64_t)dd_now_ns() + 86400 * S;
    (void)snprintf(text, sizeof(text), "join -1 %lld %lld 0", (long long)(sent - 2 * S),
                   (long long)sent);
    send_phases(&w, &p, sent, 1, text);
    json_t *all = end(&w);
    const json_t *clock = event(all, "clock", 0);
    const json_t *join = event(all, "join", 0);
    const json_int_t error = number(json_object_get(clock, "args"), "error_us");
    assert_true(error >= 0 && number(join, "dur") >= 2000000 - 1);
    const json_int_t ended = number(join, "ts") + number(join, "dur");
    assert_true(ended <= number(clock, "ts") + 1 && ended >= asked_us - 1);
    json_decref(all);
}

static void hostile_phases_are_bounded_and_never_in_the_future(void **state)
{
    struct world w;
    struct timeline_peer p;
    int n = 0;
    (void)state;
    begin(&w);
    publish(&w, JOURNAL_ROUND, 0);
    timeline_add_peer(w.timeline, &p, &two_workers, false);
    send_phases(&w, &p, INT64_MAX, 1, "join -1 0 9223372036854775807 0");
    for (int i = 0; i < 100; i++)
        send_phases(&w, &p, i % 2 == 0 ? 0 : INT64_MAX, MSG_MAX_LIST,
                    "stop -1 1 9223372036854775807 0");
    send_phases(&w, &p, 0, 1, "nonsense");
    publish(&w, JOURNAL_ROUND, 1);
    send_phases(&w, &p, 0, 1, "spawn -1 1 2 0");
    json_t *all = end(&w);
    const uint64_t now_us = dd_now_real_ns() / 1000;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *e = json_array_get(all, i);
        n += strcmp(json_string_value(json_object_get(e, "name")), "stop") == 0;
        assert_true(number(e, "ts") >= 0 && number(e, "dur") >= 0);
        assert_true((uint64_t)(number(e, "ts") + number(e, "dur")) <= now_us + 1);
    }
    assert_int_equal(n, 64 + 4 * 2 - 1);
    assert_non_null(event(all, "spawn", 0));
    json_decref(all);
}

static void first_use_of_the_store_is_an_event_of_each_round_and_node(void **state)
{
    struct world w;
    struct timeline_peer p;
    (void)state;
    begin(&w);
    timeline_add_peer(w.timeline, &p, &two_workers, true);
    for (int round = 0; round < 2; round++) {
        publish(&w, JOURNAL_ROUND, round);
        for (int i = 0; i < 3; i++) {
            timeline_store_used(w.timeline, &p);
            timeline_store_used(w.timeline, NULL);
        }
    }
    json_t *all = end(&w);
    assert_int_equal(number(event(all, "first-store", 0), "pid"), 1);
    assert_int_equal(number(event(all, "first-store", 1), "pid"), 0);
    assert_int_equal(number(json_object_get(event(all, "first-store", 2), "args"), "round"), 1);
    assert_non_null(event(all, "first-store", 3));
    assert_null(event(all, "first-store", 4));
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(daemon_without_a_round_leaves_no_file),
        cmocka_unit_test(file_has_what_was_known_before_the_first_round),
        cmocka_unit_test(phases_of_another_machine_are_moved_to_the_daemons_clock),
        cmocka_unit_test(hostile_phases_are_bounded_and_never_in_the_future),
        cmocka_unit_test(first_use_of_the_store_is_an_event_of_each_round_and_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
