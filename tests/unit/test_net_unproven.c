/* net/unproven: a source that floods loses its own connections. */
#include "base/io.h"
#include "net/unproven.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MOST = 8 };

struct world {
    struct unproven_set set;
    struct conn {
        struct unproven u;
        bool there;
    } conns[MOST];
};

static void evict(struct unproven *u)
{
    struct conn *c = (struct conn *)(void *)((char *)u - offsetof(struct conn, u));
    assert_true(c->there);
    c->there = false;
    unproven_remove(u);
}

/* Add connections 0, 1, 2, ..., one nanosecond apart; each letter is a source machine. */
static void set_up(struct world *w, const char *sources)
{
    *w = (struct world){.conns[0].there = false};
    unproven_set_init(&w->set);
    for (size_t i = 0; sources[i] != '\0'; i++) {
        char text[] = "10.0.0.1";
        struct net_addr from;
        text[7] = (char)('1' + sources[i] - 'a');
        assert_int_equal(net_addr_parse(&from, text, (uint16_t)(1000 + i)), 0);
        w->conns[i] = (struct conn){.u = {.evict = evict}, .there = true};
        assert_int_equal(unproven_add(&w->set, &w->conns[i].u, &from, i), 0);
    }
}

static void assert_there(const struct world *w, const char *wanted)
{
    size_t n = 0;
    for (size_t i = 0; wanted[i] != '\0'; i++) {
        assert_int_equal(w->conns[i].there, wanted[i] == '1');
        n += wanted[i] == '1';
    }
    assert_int_equal(w->set.n, n);
}

static void age_begins_again_and_does_not_count_while_ddrund_is_awaited(void **state)
{
    struct world w;
    (void)state;
    set_up(&w, "aab");
    unproven_is_foreign(&w.conns[2].u);
    unproven_renew(&w.conns[0].u, 50, false);
    unproven_renew(&w.conns[2].u, 50, true);
    unproven_expire(&w.set, 100, 60);
    assert_there(&w, "101");
    unproven_expire(&w.set, 1000, 60);
    assert_there(&w, "001");
    unproven_renew(&w.conns[2].u, 1000, false);
    unproven_expire(&w.set, 1060, 60);
    assert_there(&w, "000");
    unproven_renew(&w.conns[2].u, 2000, false); /* it has left: no effect */
    assert_int_equal(w.set.n, 0);
    unproven_set_done(&w.set);
}

static void a_renewed_connection_is_the_last_of_its_source_to_go(void **state)
{
    struct world w;
    (void)state;
    set_up(&w, "aa");
    unproven_renew(&w.conns[0].u, 10, false);
    assert_true(unproven_evict_one(&w.set, 10));
    assert_there(&w, "10");
    assert_true(unproven_evict_one(&w.set, 10));
    unproven_set_done(&w.set);
}

static void the_largest_source_loses_its_oldest(void **state)
{
    struct world w;
    (void)state;
    set_up(&w, "abbcb");
    assert_true(unproven_evict_one(&w.set, 10));
    assert_there(&w, "10111");
    unproven_remove(&w.conns[2].u);
    unproven_remove(&w.conns[2].u); /* no effect */
    w.conns[2].there = false;
    for (size_t left = w.set.n; left > 0; left--)
        assert_true(unproven_evict_one(&w.set, 10));
    assert_false(unproven_evict_one(&w.set, 10));
    assert_true(LIST_EMPTY(&w.set.sources));
    unproven_set_done(&w.set);
}

static void foreign_ones_go_first(void **state)
{
    struct world w;
    (void)state;
    set_up(&w, "aaab");
    unproven_keep(&w.conns[3].u, 1000);
    unproven_is_foreign(&w.conns[3].u);
    unproven_is_foreign(&w.conns[3].u);
    assert_true(unproven_evict_one(&w.set, 10));
    assert_there(&w, "1110");
    unproven_set_done(&w.set);
    assert_there(&w, "0000");
}

static void kept_ones_stay_for_their_time(void **state)
{
    struct world w;
    (void)state;
    set_up(&w, "aaab");
    unproven_keep(&w.conns[0].u, 1000);
    assert_true(unproven_evict_one(&w.set, 10)); /* evicts the one of the other source */
    assert_there(&w, "1110");
    assert_false(unproven_evict_one(&w.set, 999));
    assert_true(unproven_evict_one(&w.set, 1000));
    assert_there(&w, "0110");
    unproven_set_done(&w.set);
}

static void all_expire_by_their_age(void **state)
{
    struct world w;
    (void)state;
    set_up(&w, "abcd");
    unproven_is_foreign(&w.conns[1].u);
    unproven_expire(&w.set, 101, 100);
    assert_there(&w, "0011");
    unproven_set_done(&w.set);
}

static void sources_are_machines_and_ipv6_networks(void **state)
{
    static const char *const texts[] = {"fd00::1", "fd00::2", "fd00:0:0:1::1"};
    struct world w;
    (void)state;
    set_up(&w, "a");
    unproven_set_done(&w.set);
    assert_true(LIST_EMPTY(&w.set.sources));
    for (size_t i = 0; i < 3; i++) {
        struct net_addr from;
        assert_int_equal(net_addr_parse(&from, texts[i], 1), 0);
        for (size_t k = 8; k < 16; k++)
            from.in6.sin6_addr.s6_addr[k] = 0; /* as unproven_source_of() does */
        w.conns[i] = (struct conn){.u = {.evict = evict}, .there = true};
        assert_int_equal(unproven_add(&w.set, &w.conns[i].u, &from, i), 0);
    }
    assert_ptr_equal(w.conns[0].u.source, w.conns[1].u.source);
    assert_ptr_not_equal(w.conns[0].u.source, w.conns[2].u.source);
    unproven_set_done(&w.set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(age_begins_again_and_does_not_count_while_ddrund_is_awaited),
        cmocka_unit_test(a_renewed_connection_is_the_last_of_its_source_to_go),
        cmocka_unit_test(the_largest_source_loses_its_oldest),
        cmocka_unit_test(foreign_ones_go_first),
        cmocka_unit_test(kept_ones_stay_for_their_time),
        cmocka_unit_test(all_expire_by_their_age),
        cmocka_unit_test(sources_are_machines_and_ipv6_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
