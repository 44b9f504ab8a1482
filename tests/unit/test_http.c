/* http: request heads, keys and values, packed tables, and the requests of Horovod's workers. */
#include "http/delta.h"
#include "http/rendezvous.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const unsigned char seed[KV_SEED] = "0123456789abcde";

static struct kv_name name_of(const char *text)
{
    struct kv_name n;
    assert_true(kv_name_parse(&n, text, strlen(text)));
    return n;
}

/* ---- requests ---- */

static void heads_are_read_or_refused(void **state)
{
    static const struct {
        const char *text;
        int rc; /* 1: complete */
        enum http_method method;
        const char *name;
        size_t body;
    } rows[] = {
        {"PUT /global/0 HTTP/1.1\r\nHost: a\r\nContent-Length: 136\r\n\r\n", 1, HTTP_PUT,
         "global/0", 136},
        {"PUT /global/0 HTTP/1.1\r\ncontent-length:7 \r\n\r\n", 1, HTTP_PUT, "global/0", 7},
        {"GET /local_n.x-1/rank_3 HTTP/1.0\r\nContent-Length: 0\r\n\r\n", 1, HTTP_GET,
         "local_n.x-1/rank_3", 0},
        {"DELETE /cross_0/1 HTTP/1.1\r\n\r\n", 1, HTTP_DELETE, "cross_0/1", 0},
        {"GET /global/0 HTTP/1.1\r\n", 0, 0, NULL, 0},
        {"GET /global HTTP/1.1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"GET /global/ HTTP/1.1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"GET //0 HTTP/1.1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"GET /a/b/c HTTP/1.1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"GET http://h/a/b HTTP/1.1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"POST /a/b HTTP/1.1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"get /a/b HTTP/1.1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"GET /a/b HTTP/2.0\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"GET /a/b\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"GET /a/b HTTP/1.1\r\nno colon\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"GET /a/b HTTP/1.1\r\nContent-Length: 5\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"PUT /a/b HTTP/1.1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: \r\n\r\n", -EINVAL, 0, NULL, 0},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", -EINVAL, 0, NULL, 0},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", -EINVAL, 0, NULL,
         0},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", -EINVAL, 0,
         NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http_request r;
        const size_t len = strlen(rows[i].text);
        int rc = http_request_parse(&r, rows[i].text, len);
        if (rc != (rows[i].rc == 1 ? (int)len : rows[i].rc))
            fail_msg("row %zu gave %d", i, rc);
        if (rc <= 0)
            continue;
        assert_int_equal(r.method, rows[i].method);
        assert_int_equal(r.body, rows[i].body);
        assert_int_equal(r.name.len, strlen(rows[i].name));
        assert_memory_equal(r.name.text, rows[i].name, r.name.len);
        for (size_t n = 0; n < len; n++) /* every prefix is incomplete */
            assert_int_equal(http_request_parse(&r, rows[i].text, n), 0);
    }
}

static void a_head_without_end_is_refused(void **state)
{
    static char text[HTTP_HEAD_MAX + 100] = "GET /a/b HTTP/1.1\r\nX: ";
    struct http_request r;
    (void)state;
    memset(text + strlen(text), 'x', sizeof(text) - strlen(text) - 1);
    assert_int_equal(http_request_parse(&r, text, HTTP_HEAD_MAX - 1), 0);
    assert_int_equal(http_request_parse(&r, text, HTTP_HEAD_MAX), -EMSGSIZE);
    memcpy(text + sizeof(text) - 5, "\r\n\r\n", 5);
    assert_int_equal(http_request_parse(&r, text, sizeof(text) - 1), -EMSGSIZE);
}

/* ---- keys and values ---- */

static struct kv *new_kv(size_t keys, size_t value, size_t bytes)
{
    struct kv *kv;
    assert_int_equal(
        kv_new(&kv, &(struct kv_limits){.max_keys = keys, .max_value = value, .max_bytes = bytes},
               seed),
        0);
    return kv;
}

static struct kv_value *value_of(struct kv *kv, const char *text)
{
    struct kv_value *v;
    assert_int_equal(kv_value_new(&v, kv, strlen(text)), 0);
    memcpy(v->data, text, v->len);
    return v;
}

static void expect(struct kv_value *v, const char *text)
{
    assert_non_null(v);
    assert_int_equal(v->len, strlen(text));
    assert_memory_equal(v->data, text, v->len);
    kv_value_unref(v);
}

static void a_value_outlives_the_one_that_takes_its_place(void **state)
{
    struct kv *kv = new_kv(10, 100, 1000);
    (void)state;
    assert_int_equal(kv_put(kv, name_of("s/k"), value_of(kv, "old"), true), 0);
    struct kv_value *held = kv_get(kv, name_of("s/k"));
    assert_int_equal(kv_put(kv, name_of("s/k"), value_of(kv, "new"), true), 0);
    expect(held, "old");
    expect(kv_get(kv, name_of("s/k")), "new");
    assert_null(kv_get(kv, name_of("s2/k")));
    kv_clear(kv, "s", 1);
    assert_null(kv_get(kv, name_of("s/k")));
    kv_free(kv);
}

static void who_waits_gets_it_once_and_may_leave(void **state)
{
    struct kv *kv = new_kv(10, 100, 1000);
    struct kv_waiter a = {0};
    struct kv_waiter b = {0};
    struct kv_waiter c = {0};
    (void)state;
    assert_int_equal(kv_wait(kv, name_of("s/k"), &a), 0);
    assert_int_equal(kv_wait(kv, name_of("s/k"), &b), 0);
    assert_int_equal(kv_wait(kv, name_of("s/k"), &c), 0);
    kv_wait_end(kv, &b);
    assert_null(kv_ready(kv));
    assert_int_equal(kv_put(kv, name_of("s/k"), value_of(kv, "v"), true), 0);
    kv_wait_end(kv, &c); /* c leaves before kv_ready() returns it */
    assert_ptr_equal(kv_ready(kv), &a);
    expect(a.value, "v");
    assert_null(kv_ready(kv));
    kv_free(kv);
}

static void limits_hold_for_keys_values_and_all_together(void **state)
{
    struct kv *kv = new_kv(2, 100, 250);
    struct kv_waiter w = {0};
    struct kv_value *v;
    (void)state;
    assert_int_equal(kv_value_new(&v, kv, 101), -EMSGSIZE);
    assert_int_equal(kv_put(kv, name_of("s/1"), value_of(kv, "1"), true), 0);
    assert_int_equal(kv_wait(kv, name_of("s/2"), &w), 0);
    assert_int_equal(kv_put(kv, name_of("s/3"), value_of(kv, "3"), true), -ENOSPC);
    kv_wait_end(kv, &w); /* a key without value ends with its last waiter */
    assert_int_equal(kv_put(kv, name_of("s/3"), value_of(kv, "3"), true), 0);
    assert_int_equal(kv_value_new(&v, kv, 100), 0);
    struct kv_value *more;
    assert_int_equal(kv_value_new(&more, kv, 100), -ENOSPC);
    kv_value_unref(v);
    assert_int_equal(kv_value_new(&v, kv, 100), 0);
    kv_value_unref(v);
    kv_free(kv);
}

/* ---- tables ---- */

enum { RECORD = 136 };

static void addresses_become_small_and_come_back(void **state)
{
    unsigned char table[200 * RECORD];
    unsigned char back[sizeof(table)];
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    (void)state;
    memset(table, 0, sizeof(table));
    for (size_t i = 0; i < 200; i++) {
        const uint64_t number = 0x1000 + 250 + i; /* the low byte overflows */
        memcpy(table + i * RECORD, "\2\0\x75\x31\x0a\0\0\7", 8);
        memcpy(table + i * RECORD + 128, &number, 8);
    }
    assert_int_equal(delta_pack(&out, table, sizeof(table), RECORD), 0);
    assert_true(out.len < 60);
    assert_int_equal(delta_unpack(back, sizeof(back), out.data, out.len), 0);
    assert_memory_equal(back, table, sizeof(table));
    assert_int_equal(delta_unpack(back, sizeof(back) - 1, out.data, out.len), -EPROTO);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(delta_unpack(back, sizeof(back), out.data, n), -EPROTO);
}

static void any_bytes_come_back(void **state)
{
    static const size_t strides[] = {0, 1, 7, 8, 16, 24, 136, 4096};
    unsigned char bytes[1000];
    unsigned char back[1000];
    unsigned x = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        x = x * 1103515245 + 12345;
        bytes[i] = x >> 30 ? 0 : (unsigned char)(x >> 16);
    }
    for (size_t s = 0; s < sizeof(strides) / sizeof(strides[0]); s++)
        for (size_t n = 0; n < sizeof(bytes); n += 37) {
            DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
            assert_int_equal(delta_pack(&out, bytes, n, strides[s]), 0);
            assert_int_equal(delta_unpack(back, n, out.data, out.len), 0);
            assert_memory_equal(back, bytes, n);
        }
}

/* ---- the rendezvous ---- */

enum { NODES = 3 };
static const int sizes[NODES] = {2, 1, 2};

static void new_nodes(struct rendezvous *r[NODES], int nnodes)
{
    int first = 0;
    for (int i = 0; i < nnodes; i++) {
        const struct rendezvous_cfg cfg = {.nnodes = nnodes,
                                           .node_rank = i,
                                           .first_rank = first,
                                           .world_size = nnodes == 1 ? 2 : 5,
                                           .sizes = sizes};
        assert_int_equal(rendezvous_new(&r[i], &cfg, seed, NULL), 0);
        first += sizes[i];
    }
}

static void put(struct rendezvous *r, const char *name, const char *text)
{
    assert_int_equal(rendezvous_put(r, name_of(name), value_of(rendezvous_kv(r), text)), 200);
}

static void get(struct rendezvous *r, const char *name, const char *text)
{
    struct kv_waiter w = {0};
    struct kv_value *v = NULL;
    int status = rendezvous_get(r, name_of(name), &w, &v);
    kv_wait_end(rendezvous_kv(r), &w);
    if (text == NULL)
        assert_null(v);
    else
        assert_int_equal(status, 200);
    if (text != NULL)
        expect(v, text);
}

static bool no_part(struct rendezvous *r)
{
    struct rendezvous_part part;
    return rendezvous_next_part(r, &part) == 0;
}

/* Exchange the parts of all nodes, as the agents do. */
static void exchange(struct rendezvous *r[NODES], const char *name)
{
    for (int i = 0; i < NODES; i++) {
        struct rendezvous_part part;
        assert_int_equal(rendezvous_next_part(r[i], &part), 1);
        assert_string_equal(part.name, name);
        for (int k = 0; k < NODES; k++)
            if (k != i)
                assert_int_equal(rendezvous_take_part(r[k], part.data.data, part.data.len, NULL),
                                 0);
        dd_buf_done(&part.data);
    }
}

static void workers_of_one_node_meet_and_meet_again(void **state)
{
    struct rendezvous *r[NODES];
    (void)state;
    new_nodes(r, 1);
    for (int i = 0; i < 2; i++) {
        put(r[0], "global/rank_0", "host");
        get(r[0], "global/1", NULL);
        put(r[0], "global/0", i == 0 ? "a" : "A");
        put(r[0], "global/1", i == 0 ? "b" : "B");
        assert_true(no_part(r[0])); /* there is no other node */
        get(r[0], "global/0", i == 0 ? "a" : "A");
        get(r[0], "global/1", i == 0 ? "b" : "B");
        rendezvous_delete(r[0], name_of("global/0"));
        get(r[0], "global/1", i == 0 ? "b" : "B"); /* the other worker has not finished */
        rendezvous_delete(r[0], name_of("global/0"));
        get(r[0], "global/1", i == 0 ? "b" : "B");
        rendezvous_delete(r[0], name_of("global/1"));
        get(r[0], "global/0", NULL);
    }
    rendezvous_free(r[0]);
}

static void a_label_is_not_waited_for(void **state)
{
    struct rendezvous *r[NODES];
    struct kv_waiter w = {0};
    struct kv_value *v;
    (void)state;
    new_nodes(r, 1);
    assert_int_equal(rendezvous_get(r[0], name_of("global/rank_1"), &w, &v), 404);
    assert_int_equal(rendezvous_get(r[0], name_of("global/1"), &w, &v), 0);
    put(r[0], "global/1", "x");
    assert_ptr_equal(kv_ready(rendezvous_kv(r[0])), &w);
    expect(w.value, "x");
    rendezvous_free(r[0]);
}

static void a_label_is_told_only_where_it_has_been_put(struct rendezvous *r[NODES])
{
    get(r[2], "global/rank_0", "host0");
    get(r[2], "global/rank_1", NULL);
}

static void nodes_exchange_once_for_each_kind_of_scope(void **state)
{
    struct rendezvous *r[NODES];
    (void)state;
    new_nodes(r, NODES);
    for (int again = 0; again < 2; again++) {
        put(r[0], "global/rank_0", "host0");
        put(r[0], "global/0", again ? "addresses of 0 again" : "addresses of 0");
        assert_true(no_part(r[0])); /* its rank 1 has put nothing yet */
        put(r[0], "global/1", "addresses of 1");
        put(r[1], "global/2", "addresses of 2");
        put(r[2], "global/3", "addresses of 3");
        put(r[2], "global/4", "");
        exchange(r, again ? "hvd/global/1" : "hvd/global/0");
        get(r[1], "global/0", again ? "addresses of 0 again" : "addresses of 0");
        get(r[1], "global/4", "");
        get(r[0], "global/2", "addresses of 2");
        a_label_is_told_only_where_it_has_been_put(r);
        for (int i = 0; i < 5; i++) {
            char name[16];
            (void)snprintf(name, sizeof(name), "global/%d", i);
            rendezvous_delete(r[i < 2 ? 0 : i < 3 ? 1 : 2], name_of(name));
        }
        put(r[0], "cross_0/0",
            "c0 of node 0"); /* in cross_1, node 2 is number 1: node 1 has one worker */
        put(r[0], "cross_1/0", "c1 of node 0");
        put(r[1], "cross_0/1", "c0 of node 1");
        put(r[2], "cross_0/2", "c0 of node 2");
        put(r[2], "cross_1/1", "c1 of node 2");
        exchange(r, again ? "hvd/cross/1" : "hvd/cross/0");
        get(r[0], "cross_0/1", "c0 of node 1");
        get(r[0], "cross_1/1", "c1 of node 2");
        get(r[2], "cross_1/0", "c1 of node 0");
        rendezvous_delete(r[0], name_of("cross_0/0"));
        rendezvous_delete(r[0], name_of("cross_1/0"));
        rendezvous_delete(r[1], name_of("cross_0/1"));
        rendezvous_delete(r[2], name_of("cross_0/2"));
        rendezvous_delete(r[2], name_of("cross_1/1"));
        get(r[0], "global/4", NULL);
        get(r[0], "cross_0/2", NULL);
    }
    for (int i = 0; i < NODES; i++)
        rendezvous_free(r[i]);
}

#define SET_OF_ALL "_process_set_hash_1a"
#define SET_OF_SOME "_process_set_hash_2b"

static void tell_news(struct rendezvous *r[NODES], int from)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    assert_true(rendezvous_has_news(r[from]));
    assert_int_equal(rendezvous_take_news(r[from], &out), 0);
    assert_false(rendezvous_has_news(r[from]));
    for (int k = 0; k < NODES; k++)
        if (k != from)
            assert_int_equal(rendezvous_take_part(r[k], out.data, out.len, NULL), 0);
}

static void process_sets_are_told_once_by_all_or_as_they_come(void **state)
{
    struct rendezvous *r[NODES];
    (void)state;
    new_nodes(r, NODES);
    for (int i = 0; i < 5; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "global/%d", i);
        put(r[i < 2 ? 0 : i < 3 ? 1 : 2], name, "four");
    }
    exchange(r, "hvd/global/0");
    for (int i = 0; i < 5; i++) { /* as long as in "global": all ranks are members */
        char name[64];
        (void)snprintf(name, sizeof(name), "global" SET_OF_ALL "/rank_%d", i);
        put(r[i < 2 ? 0 : i < 3 ? 1 : 2], name, "host");
        (void)snprintf(name, sizeof(name), "global" SET_OF_ALL "/%d", i);
        put(r[i < 2 ? 0 : i < 3 ? 1 : 2], name, "FOUR");
    }
    exchange(r, "hvd/set-global/0");
    get(r[1], "global" SET_OF_ALL "/4", "FOUR");
    for (int i = 0; i < NODES; i++)
        assert_false(rendezvous_has_news(r[i]));
    put(r[0], "global" SET_OF_SOME "/rank_0", "h0");
    put(r[0], "global" SET_OF_SOME "/0", "a");
    put(r[0], "local_n" SET_OF_SOME "/0", "stays here");
    assert_true(no_part(r[0]));
    tell_news(r, 0);
    put(r[2], "global" SET_OF_SOME "/1", "b");
    put(r[2], "cross_0" SET_OF_SOME "/1", "c");
    tell_news(r, 2);
    get(r[2], "global" SET_OF_SOME "/0", "a");
    get(r[2], "global" SET_OF_SOME "/rank_0", "h0");
    get(r[2], "local_n" SET_OF_SOME "/0", NULL);
    get(r[0], "global" SET_OF_SOME "/1", "b");
    get(r[0], "cross_0" SET_OF_SOME "/1", "c");
    rendezvous_delete(r[0], name_of("global" SET_OF_SOME "/0"));
    get(r[0], "global" SET_OF_SOME "/1", NULL);
    for (int i = 0; i < NODES; i++)
        rendezvous_free(r[i]);
}

static void a_put_that_is_repeated_changes_nothing(void **state)
{
    struct rendezvous *r[NODES];
    struct rendezvous_part part;
    (void)state;
    new_nodes(r, NODES);
    put(r[1], "global/2", "same");
    put(r[1], "global/2", "same");
    assert_int_equal(rendezvous_next_part(r[1], &part), 1);
    dd_buf_done(&part.data);
    put(r[1], "global/2", "same");
    assert_true(no_part(r[1]));
    put(r[1], "global/2", "of another meeting");
    assert_int_equal(rendezvous_next_part(r[1], &part), 1);
    assert_string_equal(part.name, "hvd/global/1");
    dd_buf_done(&part.data);
    for (int i = 0; i < NODES; i++)
        rendezvous_free(r[i]);
}

static void another_node_cannot_speak_for_workers_of_this_one(void **state)
{
    static const char *const stolen[] = {
        "global/0",  "global/rank_1", "cross_0/0", "cross_1/rank_0",
        "local_n/0", "global/5",      "x/1",       "rank_and_size/n:0"};
    struct rendezvous *r[NODES];
    (void)state;
    new_nodes(r, NODES);
    for (size_t i = 0; i < sizeof(stolen) / sizeof(stolen[0]); i++) {
        unsigned char part[64] = {(unsigned char)strlen(stolen[i]), 0, 0, 0, 0, 0, 0, 0, 4};
        struct dd_err err;
        memcpy(part + 12, stolen[i], strlen(stolen[i]));
        part[12 + strlen(stolen[i])] = 8; /* the stride of an empty value */
        assert_int_equal(rendezvous_take_part(r[0], part, 16 + strlen(stolen[i]), &err), -EPROTO);
    }
    for (int i = 0; i < NODES; i++)
        rendezvous_free(r[i]);
}

static void elastic_workers_are_told_who_they_are(void **state)
{
    struct rendezvous *r[NODES];
    (void)state;
    new_nodes(r, NODES);
    get(r[2], "rank_and_size/some.node:1", "4,5,1,2,1,2");
    get(r[2], "rank_and_size/some.node:2", NULL);
    get(r[2], "rank_and_size/some.node", NULL);
    put(r[2], "worker_addresses/some.node:1", "anything");
    get(r[2], "worker_addresses/some.node:1", NULL);
    for (int i = 0; i < NODES; i++)
        rendezvous_free(r[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_read_or_refused),
        cmocka_unit_test(a_head_without_end_is_refused),
        cmocka_unit_test(a_value_outlives_the_one_that_takes_its_place),
        cmocka_unit_test(who_waits_gets_it_once_and_may_leave),
        cmocka_unit_test(limits_hold_for_keys_values_and_all_together),
        cmocka_unit_test(addresses_become_small_and_come_back),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(workers_of_one_node_meet_and_meet_again),
        cmocka_unit_test(a_label_is_not_waited_for),
        cmocka_unit_test(nodes_exchange_once_for_each_kind_of_scope),
        cmocka_unit_test(process_sets_are_told_once_by_all_or_as_they_come),
        cmocka_unit_test(a_put_that_is_repeated_changes_nothing),
        cmocka_unit_test(another_node_cannot_speak_for_workers_of_this_one),
        cmocka_unit_test(elastic_workers_are_told_who_they_are),
    };
    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
