/* lib/c10d_wire and lib/allgather_records: requests as torch sends them, replies in any pieces, and
 * malformed ones. */
#include "lib/allgather_records.h"
#include "lib/c10d_wire.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Src: recorded from torch 2.13.0 */
static void wire_writes_what_torch_writes(void **state)
{
    (void)state;
    static const char expected[] =
        "\x00\xce\xf7\x85\x3c\x0d\xda\x36\x00\x00"
        "\x01\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v"
        "\x09\x03\0\0\0\0\0\0\0/ap\x02\0\0\0\0\0\0\0po"
        "\x03\x02\0\0\0\0\0\0\0/k"
        "\x04\x02\0\0\0\0\0\0\0/n\xf9\xff\xff\xff\xff\xff\xff\xff"
        "\x06\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k\x02\0\0\0\0\0\0\0/n"
        "\x08\x02\0\0\0\0\0\0\0/k"
        "\x0a\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0/m1\x03\0\0\0\0\0\0\0/m2"
        "\x12\x03\0\0\0\0\0\0\0/b2\x02\0\0\0\0\0\0\0";
    const char *keys[] = {"k", "n"};
    struct wire w;
    wire_init(&w, 100);
    wire_hello(&w, 0x36da);
    wire_set(&w, (struct wire_key){"/", "k"}, (struct wire_value){NULL, 0, "v", 1});
    wire_append(&w, (struct wire_key){"/", "ap"}, (struct wire_value){"p", 1, "o", 1});
    wire_get(&w, (struct wire_key){"/", "k"});
    wire_add(&w, (struct wire_key){"/", "n"}, -7);
    wire_wait(&w, "/", keys, 2);
    wire_delete(&w, (struct wire_key){"/", "k"});
    wire_multi_get(&w, 2);
    wire_key(&w, (struct wire_key){"/", "m1"});
    wire_key(&w, (struct wire_key){"/", "m2"});
    wire_barrier(&w, (struct wire_key){"/", "b2"}, 2);
    assert_int_equal(w.rc, 0);
    assert_int_equal(w.out.len, sizeof(expected) - 1);
    assert_memory_equal(w.out.data, expected, w.out.len);
    wire_done_with(&w);
    wire_init(&w, 0);
    wire_cancel_wait(&w);
    assert_memory_equal(w.out.data, "\x0c", 1);
    wire_done_with(&w);
}

static const char answer[] = "\x07\0\0\0"
                             "\x01\0\0\0\0\0\0\0"
                             "\0"
                             "\x03\0\0\0\0\0\0\0abc"
                             "\0\0\0\0\0\0\0\0"
                             "\x01\0\0\0\0\0\0\0d";

static void ask(struct wire *w, size_t max)
{
    wire_init(w, max);
    wire_ping(w, 7);
    wire_delete(w, (struct wire_key){"", "x"});
    wire_barrier(w, (struct wire_key){"", "b"}, 2);
    wire_multi_get(w, 3);
}

static void wire_takes_an_answer_in_any_pieces(void **state)
{
    (void)state;
    const size_t n = sizeof(answer) - 1;
    for (size_t piece = 1; piece <= n; piece++) {
        struct wire w;
        ask(&w, 4);
        for (size_t at = 0; at < n; at += piece) {
            size_t len = piece < n - at ? piece : n - at;
            assert_false(wire_done(&w));
            assert_int_equal(wire_feed(&w, answer + at, len), len);
        }
        assert_true(wire_done(&w));
        assert_int_equal(w.number, 1);
        assert_int_equal(w.nstrs, 3);
        assert_memory_equal(w.in.data, "abcd", 4);
        assert_int_equal(w.strs[1].len, 0);
        assert_int_equal(w.strs[2].off, 3);
        assert_int_equal(wire_feed(&w, "more", 4), 0); /* not part of this reply */
        wire_done_with(&w);
    }
}

static void wire_refuses_other_answers(void **state)
{
    (void)state;
    const size_t n = sizeof(answer) - 1;
    const struct {
        size_t at;
        char byte;
        int rc;
    } rows[] = {
        {0, 8, -EPROTO},    /* another nonce */
        {12, 1, -EPROTO},   /* not the end of a wait */
        {13, 5, -EMSGSIZE}, /* more than max_in */
        {20, '\x80', -EMSGSIZE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct wire w;
        char bad[sizeof(answer)];
        memcpy(bad, answer, sizeof(answer));
        bad[rows[i].at] = rows[i].byte;
        ask(&w, 4);
        assert_int_equal(wire_feed(&w, bad, n), rows[i].rc);
        wire_done_with(&w);
    }
}

static void wire_understands_a_wait_that_ended_as_it_was_taken_back(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t n;
        long rc;
    } rows[] = {{"\1", 1, 1}, {"\0\1", 2, 2}, {"\0\0", 2, -EPROTO}, {"\2", 1, -EPROTO}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct wire w;
        wire_init(&w, 0);
        wire_cancel_wait(&w);
        assert_int_equal(wire_feed(&w, rows[i].bytes, rows[i].n), rows[i].rc);
        assert_int_equal(wire_done(&w), rows[i].rc > 0);
        wire_done_with(&w);
    }
}

static void records_are_each_members_once(void **state)
{
    (void)state;
    unsigned char b[200];
    struct record v[3];
    record_head(b, 2, 3, false);
    memcpy(b + 12, "abc", 3);
    record_head(b + 15, 0, (uint64_t)1 << 40, true);
    assert_int_equal(records_parse(v, 3, b, 27), 2);
    assert_true(v[0].apart && v[0].len == (uint64_t)1 << 40);
    assert_null(v[1].p);
    assert_memory_equal(v[2].p, "abc", 3);
    assert_int_equal(records_parse(v, 3, b, 0), 0);
    assert_int_equal(records_parse(v, 2, b, 27), -EPROTO); /* no such member */
    for (size_t n = 1; n < 27; n++)
        if (n != 15)
            assert_int_equal(records_parse(v, 3, b, n), -EPROTO);
    record_head(b + 15, 2, 0, false);
    assert_int_equal(records_parse(v, 3, b, 27), -EPROTO); /* a duplicate */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_writes_what_torch_writes),
        cmocka_unit_test(wire_takes_an_answer_in_any_pieces),
        cmocka_unit_test(wire_refuses_other_answers),
        cmocka_unit_test(wire_understands_a_wait_that_ended_as_it_was_taken_back),
        cmocka_unit_test(records_are_each_members_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
