/* rdzv: the parts of all nodes, assembled from pieces. */
#include "rdzv/exchange.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { NODES = 3, BIG = 600 * 1024 };

/* Send a node's part in pieces; return the result of the last one. */
static int give(struct exchange *x, unsigned node, const char *name, const void *data, size_t n)
{
    const struct exchange_part part = {data, n};
    size_t at = 0;
    int rc;
    do {
        DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(1 << 20);
        struct exchange_piece p;
        assert_int_equal(exchange_piece_encode(&bytes, 7, node, name, &part, &at), 0);
        assert_int_equal(exchange_piece_decode(&p, bytes.data, bytes.len), 0);
        assert_int_equal(p.round, 7);
        rc = exchange_take(x, &p, NULL);
    } while (rc == 0 && at < n);
    assert_int_equal(at, n);
    return rc;
}

static void parts_come_together_in_any_order(void **state)
{
    (void)state;
    struct exchange *x;
    DD_AUTO(free) char *big = malloc(BIG);
    assert_int_equal(exchange_new(&x, NODES), 0);
    memset(big, 'x', BIG);
    big[BIG - 1] = 'y';
    assert_int_equal(give(x, 2, "a", "two", 3), 0);
    assert_int_equal(give(x, 2, "b", "", 0), 0);
    assert_int_equal(give(x, 0, "b", "zero", 4), 0);
    assert_int_equal(give(x, 0, "a", big, BIG), 0);
    assert_null(exchange_parts(x, "a"));
    assert_int_equal(give(x, 1, "a", "", 0), 1);
    const struct exchange_part *parts = exchange_parts(x, "a");
    assert_non_null(parts);
    assert_int_equal(parts[0].len, BIG);
    assert_memory_equal(parts[0].data, big, BIG);
    assert_int_equal(parts[1].len, 0);
    assert_int_equal(parts[2].len, 3);
    assert_memory_equal(parts[2].data, "two", 3);
    exchange_drop(x, "a");
    assert_null(exchange_parts(x, "a"));
    assert_int_equal(give(x, 1, "b", "one", 3), 1);
    assert_int_equal(give(x, 2, "a", "the name is free again", 22), 0);
    exchange_free(x);
}

static void a_name_with_nodes_waits_for_these_alone(void **state)
{
    (void)state;
    static const char *const wrong[] = {"a@",   "a@3",  "a@x",   "a@2-1", "a@1,0",
                                        "a@0,", "a@0-", "a@0,0", "a@-1",  "a@@0"};
    struct exchange *x;
    assert_int_equal(exchange_new(&x, NODES), 0);
    assert_int_equal(give(x, 2, "a@0,2", "two", 3), 0);
    assert_int_equal(give(x, 1, "a@0,2", "", 0), -EPROTO);
    assert_int_equal(give(x, 0, "a", "", 0), 0);
    assert_int_equal(give(x, 0, "a@0,2", "", 0), 1);
    const struct exchange_part *parts = exchange_parts(x, "a@0,2");
    assert_non_null(parts);
    assert_int_equal(parts[2].len, 3);
    assert_int_equal(parts[1].len, 0);
    assert_true(exchange_takes_part(x, "a@0,2", 0));
    assert_false(exchange_takes_part(x, "a@0,2", 1));
    assert_int_equal(give(x, 1, "b@1", "one", 3), 1);
    assert_int_equal(give(x, 2, "c@1-2", "", 0), 0);
    assert_int_equal(give(x, 1, "c@1-2", "", 0), 1);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(give(x, 0, wrong[i], "", 0), -EPROTO);
        assert_false(exchange_is_open(x, wrong[i]));
    }
    exchange_free(x);
}

static int take(struct exchange *x, unsigned node, const char *name, size_t n, unsigned left)
{
    static unsigned char zeros[EXCHANGE_PIECE];
    struct exchange_piece p = {.node_rank = node, .left = left, .data = {zeros, n}};
    (void)snprintf(p.name, sizeof(p.name), "%s", name);
    return exchange_take(x, &p, NULL);
}

static void nodes_are_held_to_what_they_said(void **state)
{
    (void)state;
    struct exchange *x;
    assert_int_equal(exchange_new(&x, NODES), 0);
    assert_int_equal(take(x, 3, "a", 1, 0), -EPROTO);
    assert_int_equal(take(x, 0, "a", 1, 5), 0);
    assert_int_equal(take(x, 0, "a", 1, 5), -EPROTO);
    assert_int_equal(take(x, 0, "a", 2, 3), 0);
    assert_int_equal(take(x, 0, "a", 3, 0), 0);
    assert_int_equal(take(x, 0, "a", 1, 0), -EPROTO);
    assert_int_equal(take(x, 1, "a", EXCHANGE_PIECE, EXCHANGE_MAX - EXCHANGE_PIECE - 6), 0);
    assert_int_equal(take(x, 2, "a", 1, 0), -EMSGSIZE);
    exchange_free(x);
}

static void so_many_at_a_time(void **state)
{
    (void)state;
    struct exchange *x;
    char name[16];
    assert_int_equal(exchange_new(&x, NODES), 0);
    for (int i = 0; i < EXCHANGE_OPEN_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(take(x, 0, name, 1, 0), 0);
    }
    assert_int_equal(take(x, 0, "another", 1, 0), -EMSGSIZE);
    assert_int_equal(take(x, 1, "n0", 1, 0), 0);
    exchange_free(x);
}

static void pieces_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int rc;
    } rows[] = {
        {"\0\0\0\1\0\0\0\2\0\0\0\3\1nd", 15, 0},         {"\0\0\0\1\0\0\0\2\0\0\0\0\1n", 14, 0},
        {"\0\0\0\1\0\0\0\2\0\0\0\3\1n", 14, -EPROTO},    /* empty, though more is left */
        {"\0\0\0\1\0\0\0\2\0\0\0\3\4n", 14, -EPROTO},    /* truncated name */
        {"\0\0\0\1\0\0\0\2\0\0\0\0\0n", 14, -EPROTO},    /* no name */
        {"\0\0\0\1\0\0\0\2\0\0\0\0\1 ", 14, -EPROTO},    /* a space in the name */
        {"\0\0\0\1\0\0\0\2\x7f\0\0\0\1nd", 15, -EPROTO}, /* too much is left */
        {"\0\0\0\1\0\0\0\2\0\0\0", 11, -EPROTO},         {"", 0, -EPROTO},
    };
    struct exchange_piece p;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(exchange_piece_decode(&p, rows[i].bytes, rows[i].n), rows[i].rc);
    assert_int_equal(exchange_piece_decode(&p, rows[0].bytes, rows[0].n), 0);
    assert_int_equal(p.round, 1);
    assert_int_equal(p.node_rank, 2);
    assert_int_equal(p.left, 3);
    assert_string_equal(p.name, "n");
    assert_int_equal(p.data.len, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_together_in_any_order),
        cmocka_unit_test(a_name_with_nodes_waits_for_these_alone),
        cmocka_unit_test(nodes_are_held_to_what_they_said),
        cmocka_unit_test(so_many_at_a_time),
        cmocka_unit_test(pieces_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
