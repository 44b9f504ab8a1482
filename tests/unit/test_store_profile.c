/* store: counters per operation of the protocol, and the most frequent keys of requests. */
#include "report/profile_text.h"
#include "store/c10d_ops.h"
#include "store/profile_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { CONNS = 2, MIB = 1 << 20 };

/* ---- hot keys ---- */

static void name_key(struct hot_keys *h, const char *key)
{
    hot_keys_add(h, (struct store_bytes){(const unsigned char *)key, strlen(key)});
}

static void frequent_keys_are_found_among_many(void **state)
{
    (void)state;
    struct hot_keys h = {.n = 0};
    const struct hot_key *top[HOT_KEYS_SHOWN];
    for (int i = 0; i < 10000; i++) {
        char once[32];
        (void)snprintf(once, sizeof(once), "once/%d", i);
        name_key(&h, once);
        if (i % 4 == 0)
            name_key(&h, "hot");
        if (i % 8 == 0)
            name_key(&h, "");
    }
    assert_int_equal(hot_keys_top(&h, top), HOT_KEYS_SHOWN);
    assert_int_equal(top[0]->len, 3);
    assert_memory_equal(top[0]->key, "hot", 3);
    assert_int_equal(top[1]->len, 0);
    assert_true(top[0]->n >= 2500 && top[0]->n - top[0]->over <= 2500);
    assert_true(top[1]->n >= 1250 && top[1]->n - top[1]->over <= 1250);
    for (size_t i = 1; i < HOT_KEYS_SHOWN; i++)
        assert_true(top[i]->n <= top[i - 1]->n);
}

static void few_keys_are_counted_exactly(void **state)
{
    (void)state;
    struct hot_keys h = {.n = 0};
    const struct hot_key *top[HOT_KEYS_SHOWN];
    char longest[8192];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(hot_keys_top(&h, top), 0);
    name_key(&h, longest);
    name_key(&h, "a");
    name_key(&h, longest);
    assert_int_equal(hot_keys_top(&h, top), 2);
    assert_int_equal(top[0]->len, sizeof(longest) - 1);
    assert_int_equal(top[0]->n, 2);
    assert_int_equal(top[1]->n, 1);
    assert_int_equal(top[0]->over + top[1]->over, 0);
}

/* ---- requests ---- */

static uint64_t time_ns;

static uint64_t clock_now(void)
{
    return time_ns;
}

struct rig {
    struct c10d c10d;
    struct c10d_conn conn[CONNS];
    struct store_out out;
    struct hot_keys keys;
};

static void on_woken(struct c10d_conn *c)
{
    (void)c;
}

static const struct c10d_calls calls = {.woken = on_woken};

static void rig_begin(struct rig *r, bool measured)
{
    static const unsigned char seed[DD_SIPHASH_SEED] = "fixed for tests";
    static const unsigned char validate[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    const struct store_engine_limits el = {MIB, 64 * MIB};
    struct dd_err err;
    *r = (struct rig){.c10d = {.calls = &calls}};
    r->c10d.limits = (struct store_limits){.max_key = 8192,
                                           .max_value = MIB,
                                           .max_count = 1000,
                                           .max_bytes = 64 * MIB,
                                           .max_request = MIB,
                                           .max_output = MIB};
    if (measured) {
        r->c10d.profile.now = clock_now;
        r->c10d.profile.keys = &r->keys;
    }
    assert_int_equal(store_engine_new(&r->c10d.engine, &el, seed), 0);
    store_out_init(&r->out, store_engine_account(r->c10d.engine), MIB);
    for (int i = 0; i < CONNS; i++) {
        c10d_conn_init(&r->conn[i], &r->c10d);
        assert_int_equal(c10d_feed(&r->conn[i], validate, sizeof(validate), &r->out, &err), 0);
    }
}

static void rig_end(struct rig *r)
{
    for (int i = 0; i < CONNS; i++)
        c10d_conn_done(&r->conn[i]);
    store_out_done(&r->out);
    store_engine_clear(r->c10d.engine);
    store_engine_free(r->c10d.engine);
}

static void send_request(struct rig *r, int conn, const void *bytes, size_t n)
{
    struct dd_err err;
    assert_int_equal(c10d_feed(&r->conn[conn], bytes, n, &r->out, &err), 0);
}

/* Requests: SET of key "k" to "value", GET of "k", WAIT for "k", MULTI_GET of "k" and "k". */
static const unsigned char set_k[] = "\x01\x01\0\0\0\0\0\0\0k\x05\0\0\0\0\0\0\0value";
static const unsigned char get_k[] = "\x03\x01\0\0\0\0\0\0\0k";
static const unsigned char wait_k[] = "\x06\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k";
static const unsigned char multi_get_k[] =
    "\x0a\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k\x01\0\0\0\0\0\0\0k";
#define SEND(r, conn, request) send_request(r, conn, request, sizeof(request) - 1)

static void requests_and_replies_are_counted_by_kind_and_size(void **state)
{
    (void)state;
    struct rig r;
    rig_begin(&r, false);
    SEND(&r, 0, wait_k);
    SEND(&r, 1, set_k);
    SEND(&r, 1, get_k);
    SEND(&r, 1, wait_k);
    const struct store_profile *p = &r.c10d.profile;
    assert_int_equal(p->ops[C10D_SET].n, 1);
    assert_int_equal(p->ops[C10D_SET].bytes_in, sizeof(set_k) - 1);
    assert_int_equal(p->ops[C10D_SET].bytes_out, 0);
    assert_int_equal(p->ops[C10D_GET].bytes_out, 8 + 5);
    assert_int_equal(p->ops[C10D_WAIT].n, 2);
    assert_int_equal(p->ops[C10D_WAIT].bytes_out, 2);
    assert_int_equal(p->ops[C10D_WAIT].waits, 0); /* not measured */
    assert_int_equal(p->requests[4], 1);          /* get_k: 10 bytes */
    assert_int_equal(p->requests[5], 3);
    assert_int_equal(p->replies[1], 2);
    assert_int_equal(p->replies[4], 1);
    rig_end(&r);
}

static void a_wait_lasts_from_its_request_to_its_reply(void **state)
{
    (void)state;
    struct rig r;
    rig_begin(&r, true);
    time_ns = 1000;
    SEND(&r, 0, wait_k);
    time_ns = 1700;
    SEND(&r, 1, set_k);
    SEND(&r, 1, wait_k); /* replied to at once */
    SEND(&r, 1, multi_get_k);
    const struct store_op_profile *w = &r.c10d.profile.ops[C10D_WAIT];
    assert_int_equal(w->n, 2);
    assert_int_equal(w->waits, 1);
    assert_int_equal(w->wait_ns, 700);
    assert_int_equal(w->wait_max_ns, 700);
    const struct hot_key *top[HOT_KEYS_SHOWN];
    assert_int_equal(hot_keys_top(&r.keys, top), 1);
    assert_int_equal(top[0]->n, 5);
    rig_end(&r);
}

static void sizes_are_classes_of_powers_of_two(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        unsigned k;
    } rows[] = {{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 3}, {1023, 10}, {1024, 11}, {SIZE_MAX, 39}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(store_profile_class(rows[i].n), rows[i].k);
}

/* ---- text ---- */

static void the_table_names_operations_sizes_and_escaped_keys(void **state)
{
    (void)state;
    struct rig r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    rig_begin(&r, true);
    hot_keys_add(&r.keys, (struct store_bytes){(const unsigned char *)"a\n\xff", 3});
    SEND(&r, 0, set_k);
    json_t *o = store_profile_json(&r.c10d.profile, &(struct store_stats){.conns = 7});
    assert_int_equal(profile_text(o, &out), 0);
    const char *text = dd_buf_str(&out);
    assert_non_null(strstr(text, "\nSET "));
    assert_non_null(strstr(text, "  a\\x0a\\xff\n"));
    assert_non_null(strstr(text, "         16-31                        1             0\n"));
    assert_non_null(strstr(text, "connections: 7 open"));
    json_decref(o);
    rig_end(&r);
}

static void an_unused_store_is_a_sentence_and_no_empty_table(void **state)
{
    (void)state;
    static const struct store_profile unused = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    json_t *o = store_profile_json(&unused, &(struct store_stats){0});
    assert_int_equal(profile_text(o, &out), 0);
    assert_string_equal(dd_buf_str(&out), "no worker has used the store\n");
    json_decref(o);
}

static void the_table_escapes_control_characters_once(void **state)
{
    (void)state;
    static const char answer[] = "{\"operations\":[{\"operation\":\"S\\u001b[2JT\"}],"
                                 "\"keys\":[{\"key\":\"k\\\\x0a\\u001b[1m\"}]}";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    json_t *o = json_loads(answer, 0, NULL);
    assert_int_equal(profile_text(o, &out), 0);
    assert_null(strchr(dd_buf_str(&out), '\x1b'));
    assert_non_null(strstr(dd_buf_str(&out), "\nS\\x1b[2JT "));
    assert_non_null(strstr(dd_buf_str(&out), "  k\\x0a\\x1b[1m\n"));
    json_decref(o);
}

static void an_answer_of_another_version_is_no_crash(void **state)
{
    (void)state;
    static const char *const answers[] = {"{}", "{\"operations\":[1,null],\"keys\":[[]]}",
                                          "{\"operations\":{},\"measured\":true,\"sizes\":[{}]}"};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
        json_t *o = json_loads(answers[i], 0, NULL);
        assert_int_equal(profile_text(o, &out), 0);
        json_decref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequent_keys_are_found_among_many),
        cmocka_unit_test(few_keys_are_counted_exactly),
        cmocka_unit_test(requests_and_replies_are_counted_by_kind_and_size),
        cmocka_unit_test(a_wait_lasts_from_its_request_to_its_reply),
        cmocka_unit_test(sizes_are_classes_of_powers_of_two),
        cmocka_unit_test(the_table_names_operations_sizes_and_escaped_keys),
        cmocka_unit_test(an_unused_store_is_a_sentence_and_no_empty_table),
        cmocka_unit_test(the_table_escapes_control_characters_once),
        cmocka_unit_test(an_answer_of_another_version_is_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
