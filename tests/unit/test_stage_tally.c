/* --stage: what the nodes report of their progress. */
#include "stage/stage_tally.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void node_that_keeps_the_others_waiting_is_the_slowest(void **state)
{
    (void)state;
    static const struct {
        struct stage_tally child; /* of rank 1, beside one of rank 2 that lacks two chunks */
        uint32_t lacks, slowest, lag;
    } rows[] = {
        {{0, 0, STAGE_NOBODY}, 9, 1, 9}, /* nothing is known of the nodes below rank 1 */
        {{0, 9, 7}, 9, 7, 9},
        {{0, 8, 7}, 9, 7, 8},
        {{0, 1, 7}, 9, 1, 8}, /* rank 7 lacks little of what rank 1 has */
        {{0, 9, 7}, 0, 2, 2}, /* rank 7 has acknowledged all since it has reported */
        {{0, 0, STAGE_NOBODY}, 1, 2, 2},
    };
    const struct stage_tally other = STAGE_TALLY_NONE;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage_tally t = STAGE_TALLY_NONE;
        stage_tally_add(&t, &rows[i].child, 1, rows[i].lacks, 5);
        stage_tally_add(&t, &other, 2, 2, 5);
        if (t.slowest != rows[i].slowest || t.lag != rows[i].lag)
            fail_msg("row %zu: rank %u lacks %u", i, t.slowest, t.lag);
    }
}

static void nodes_that_are_done_are_at_most_those_of_the_subtree(void **state)
{
    (void)state;
    struct stage_tally t = STAGE_TALLY_NONE;
    const struct stage_tally three = {.done = 3, .slowest = STAGE_NOBODY};
    const struct stage_tally huge = {.done = UINT32_MAX, .slowest = STAGE_NOBODY};
    stage_tally_add(&t, &three, 1, 0, 5);
    assert_int_equal(t.done, 3);
    stage_tally_add(&t, &three, 2, 0, 5);
    assert_int_equal(t.done, 5);
    stage_tally_add(&t, &huge, 3, 0, 5);
    assert_int_equal(t.done, 5);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_that_keeps_the_others_waiting_is_the_slowest),
        cmocka_unit_test(nodes_that_are_done_are_at_most_those_of_the_subtree),
    };
    return cmocka_run_group_tests_name("stage_tally", tests, NULL, NULL);
}
