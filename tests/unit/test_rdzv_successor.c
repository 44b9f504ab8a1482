/* The successors of a lost daemon, and their turns. */
#include "rdzv/successor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void place_is_the_lost_daemons_node_then_node_rank_order(void **state)
{
    (void)state;
    static int index[] = {4, 2, 7, 0, 9, 1, 3, 5, 6, 8};
    const struct rdzv_members last = {.tie = 7, .n = 10, .index = index};
    static const struct {
        int index, place;
    } rows[] = {{7, 0}, {4, 1}, {2, 2}, {0, 3}, {9, 4}, {6, 8}, {8, -1}, {11, -1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(successor_place(&last, rows[i].index), rows[i].place);
}

static void turns_do_not_fall_together(void **state)
{
    (void)state;
    assert_int_equal(successor_turn_ms(0, false), 0);
    assert_int_equal(successor_turn_ms(0, true),
                     successor_turn_ms(1, true)); /* its own daemon was lost */
    for (int place = 1; place < RDZV_SUCCESSORS; place++)
        assert_true(successor_turn_ms(place + 1, false) >= successor_turn_ms(place, false) + 1000);
}

static void limit_outlasts_every_turn_and_grace(void **state)
{
    (void)state;
    for (int n = 2; n < 20; n++) {
        const struct rdzv_members last = {.n = n};
        const int place = n < RDZV_SUCCESSORS ? n : RDZV_SUCCESSORS;
        assert_true(successor_limit_ms(&last, 0, 30000) > 30000 + successor_turn_ms(place, true));
    }
}

static void waits_grow_up_to_a_bound(void **state)
{
    (void)state;
    unsigned wait = 0;
    unsigned before = 0;
    for (int i = 0; i < 20; i++) {
        unsigned ms = successor_again_ms(&wait);
        assert_true(ms >= before && ms > 0 && ms <= 5000);
        before = ms;
    }
    assert_int_equal(before, 5000);
}

static void succession_needs_a_next_round_and_other_nodes(void **state)
{
    (void)state;
    static const struct {
        int min, max, restarts, n;
        bool possible;
    } rows[] = {{4, 4, 0, 4, false},
                {4, 4, 1, 4, true},
                {2, 4, 0, 4, true},
                {2, 4, 0, 1, false},
                {1, 1, 5, 1, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct rdzv_cfg cfg = {
            .min_nodes = rows[i].min, .max_nodes = rows[i].max, .max_restarts = rows[i].restarts};
        const struct rdzv_members last = {.n = rows[i].n};
        assert_int_equal(successor_possible(&cfg, &last), rows[i].possible);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place_is_the_lost_daemons_node_then_node_rank_order),
        cmocka_unit_test(turns_do_not_fall_together),
        cmocka_unit_test(limit_outlasts_every_turn_and_grace),
        cmocka_unit_test(waits_grow_up_to_a_bound),
        cmocka_unit_test(succession_needs_a_next_round_and_other_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
