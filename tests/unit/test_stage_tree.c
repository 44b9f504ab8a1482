/* --stage: the tree of the nodes, and the ledger of the chunks. */
#include "stage/stage_ledger.h"
#include "stage/stage_tree.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int root_of(const enum stage_has *has, int n)
{
    for (int i = 0; i < n; i++)
        if (has[i] == STAGE_HAS_EXACT)
            return i;
    return 0;
}

/* Each node that needs a copy has one parent, which counts it, and the way up ends at the root. */
static void check_tree(const enum stage_has *has, int n)
{
    int children[64] = {0};
    int below[64] = {0};
    const int root = root_of(has, n);
    for (int me = 0; me < n; me++) {
        const struct stage_place p = stage_tree_place(has, n, me);
        if (me != root)
            assert_int_equal(p.takes_part, has[me] == STAGE_HAS_NONE);
        if (me == root)
            assert_int_equal(p.depth, 0);
        if (me == root || !p.takes_part)
            continue;
        assert_in_range(p.depth, 1, STAGE_TREE_DEPTH - 1);
        assert_int_equal(p.parents[p.depth - 1], root);
        children[p.parents[0]]++;
        for (int i = 0; i < p.depth; i++)
            below[p.parents[i]]++;
        const struct stage_place up = stage_tree_place(has, n, p.parents[0]);
        assert_true(up.takes_part);
        assert_int_equal(up.depth, p.depth - 1);
        assert_memory_equal(up.parents, p.parents + 1, (size_t)up.depth * sizeof(int));
    }
    for (int me = 0; me < n; me++) {
        assert_int_equal(stage_tree_place(has, n, me).children, children[me]);
        assert_in_range(children[me], 0, STAGE_FANOUT);
        if (stage_tree_place(has, n, me).takes_part)
            assert_int_equal(stage_tree_place(has, n, me).below, below[me]);
    }
}

static void every_node_without_a_copy_has_a_way_to_the_root(void **state)
{
    (void)state;
    enum stage_has has[64] = {STAGE_HAS_NONE};
    for (int n = 1; n <= 64; n++)
        check_tree(has, n);
    for (int numbers = 0; numbers < 729; numbers++) {
        for (int i = 0, left = numbers; i < 6; i++, left /= 3)
            has[i] = (enum stage_has)(left % 3);
        check_tree(has, 6);
    }
}

static void first_node_reads_the_source_if_no_other_has_an_exact_copy(void **state)
{
    (void)state;
    const enum stage_has all[] = {STAGE_HAS_CHANGED, STAGE_HAS_EXACT};
    const enum stage_has other[] = {STAGE_HAS_CHANGED, STAGE_HAS_NONE};
    const enum stage_has own[] = {STAGE_HAS_NONE, STAGE_HAS_CHANGED};
    const enum stage_has late[] = {STAGE_HAS_NONE, STAGE_HAS_EXACT, STAGE_HAS_EXACT};
    assert_false(stage_tree_place(all, 2, 0).takes_part);
    assert_true(stage_tree_place(other, 2, 0).takes_part);
    assert_true(stage_tree_place(own, 2, 0).takes_part);
    assert_int_equal(stage_tree_place(own, 2, 0).children, 0);
    assert_int_equal(stage_tree_place(late, 3, 0).parents[0], 1);
    assert_int_equal(stage_tree_place(late, 3, 1).children, 1);
    assert_false(stage_tree_place(late, 3, 2).takes_part);
}

/* ---- ledger ---- */

static void chunk_that_comes_twice_counts_once(void **state)
{
    (void)state;
    struct stage_ledger l = {0};
    unsigned char once[STAGE_DIGEST], twice[STAGE_DIGEST];
    assert_int_equal(stage_ledger_take(&l, 0), STAGE_NEWS_NEW);
    assert_int_equal(stage_ledger_take(&l, 0), STAGE_NEWS_HELD);
    stage_ledger_digest(&l, 0, (const unsigned char *)"0123456789012345678901234567890");
    stage_ledger_release(&l, 0);
    assert_int_equal(stage_ledger_total(&l, 1, once), 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(stage_ledger_take(&l, 0), STAGE_NEWS_GONE);
    assert_int_equal(l.received, 1);
    assert_int_equal(l.released, 1);
    assert_int_equal(stage_ledger_total(&l, 1, twice), 0);
    assert_memory_equal(once, twice, STAGE_DIGEST);
    assert_true(stage_ledger_total(&l, 1000, twice) < 0); /* more than memory exists for */
    stage_ledger_done(&l);
}

static void copy_with_a_gap_is_incomplete(void **state)
{
    (void)state;
    struct stage_ledger l = {0};
    unsigned char digest[STAGE_DIGEST];
    assert_true(stage_ledger_is_complete(&l, 0));
    assert_int_equal(stage_ledger_take(&l, 0), STAGE_NEWS_NEW);
    assert_int_equal(stage_ledger_take(&l, 2), STAGE_NEWS_NEW);
    assert_false(stage_ledger_is_complete(&l, 2));
    assert_false(stage_ledger_is_complete(&l, 3));
    assert_true(stage_ledger_total(&l, 2, digest) < 0);
    assert_int_equal(stage_ledger_take(&l, 1), STAGE_NEWS_NEW);
    assert_true(stage_ledger_is_complete(&l, 3));
    stage_ledger_done(&l);
}

static void chunk_beyond_the_window_is_refused(void **state)
{
    (void)state;
    struct stage_ledger l = {0};
    assert_int_equal(stage_ledger_take(&l, STAGE_WINDOW), -EPROTO);
    assert_int_equal(stage_ledger_take(&l, UINT32_MAX), -EPROTO);
    assert_int_equal(stage_ledger_take(&l, STAGE_WINDOW - 1), STAGE_NEWS_NEW);
    for (uint32_t i = 0; i < STAGE_WINDOW - 1; i++)
        assert_int_equal(stage_ledger_take(&l, i), STAGE_NEWS_NEW);
    assert_int_equal(stage_ledger_take(&l, STAGE_WINDOW), -EPROTO); /* none has been released */
    stage_ledger_release(&l, 0);
    assert_int_equal(stage_ledger_take(&l, STAGE_WINDOW), STAGE_NEWS_NEW);
    for (uint32_t i = 1; i < 5000; i++) {
        stage_ledger_release(&l, i);
        assert_int_equal(stage_ledger_take(&l, STAGE_WINDOW + i), STAGE_NEWS_NEW);
    }
    stage_ledger_done(&l);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_without_a_copy_has_a_way_to_the_root),
        cmocka_unit_test(first_node_reads_the_source_if_no_other_has_an_exact_copy),
        cmocka_unit_test(chunk_that_comes_twice_counts_once),
        cmocka_unit_test(copy_with_a_gap_is_incomplete),
        cmocka_unit_test(chunk_beyond_the_window_is_refused),
    };
    return cmocka_run_group_tests_name("stage_tree", tests, NULL, NULL);
}
