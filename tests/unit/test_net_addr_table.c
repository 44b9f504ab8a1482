/* net/addr_table: an entry is found by its host, among many. */
#include "net/addr_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MANY = 5000 };

static struct net_addr address(const char *text, uint16_t port)
{
    struct net_addr a;
    assert_int_equal(net_addr_parse(&a, text, port), 0);
    return a;
}

static struct net_addr numbered(int i)
{
    char text[32];
    (void)snprintf(text, sizeof(text), i % 2 == 0 ? "10.0.%d.%d" : "fd00::%x:%x", i >> 8, i & 255);
    return address(text, (uint16_t)i);
}

static void entries_are_found_until_they_are_removed(void **state)
{
    struct addr_table t = {0};
    struct addr_entry *e = calloc(MANY, sizeof(*e));
    (void)state;
    assert_non_null(e);
    for (int i = 0; i < MANY; i++) {
        const struct net_addr a = numbered(i);
        assert_null(addr_table_find(&t, &a));
        e[i].addr = a;
        assert_int_equal(addr_table_add(&t, &e[i]), 0);
    }
    for (int i = 0; i < MANY; i += 3)
        addr_table_remove(&t, &e[i]);
    for (int i = 0; i < MANY; i++) {
        const struct net_addr a = numbered(i);
        assert_ptr_equal(addr_table_find(&t, &a), i % 3 == 0 ? NULL : &e[i]);
    }
    addr_table_done(&t);
    free(e);
}

static void the_chains_stay_short(void **state)
{
    struct addr_table t = {0};
    struct addr_entry *e = calloc(MANY, sizeof(*e));
    size_t longest = 0;
    (void)state;
    assert_non_null(e);
    for (int i = 0; i < MANY; i++) {
        e[i].addr = numbered(i);
        assert_int_equal(addr_table_add(&t, &e[i]), 0);
    }
    for (size_t i = 0; i < t.nbuckets; i++) {
        const struct addr_entry *in;
        size_t n = 0;
        LIST_FOREACH (in, &t.buckets[i], entry)
            n++;
        longest = n > longest ? n : longest;
    }
    assert_in_range(longest, 1, 16);
    addr_table_done(&t);
    free(e);
}

static void the_port_does_not_matter_nor_does_an_unknown_scope(void **state)
{
    struct addr_table t = {0};
    struct addr_entry v4 = {.addr = address("10.0.0.1", 1)};
    struct addr_entry v6 = {.addr = address("fe80::1", 1)};
    struct net_addr a = address("10.0.0.1", 2);
    (void)state;
    assert_int_equal(addr_table_add(&t, &v4), 0);
    assert_int_equal(addr_table_add(&t, &v6), 0);
    assert_ptr_equal(addr_table_find(&t, &a), &v4);
    a = v6.addr;
    a.in6.sin6_scope_id = 3;
    assert_ptr_equal(addr_table_find(&t, &a), &v6);
    addr_table_done(&t);
}

static void unknown_addresses_are_one_host(void **state)
{
    struct addr_table t = {0};
    struct addr_entry unknown = {.addr = {.len = 0}};
    const struct net_addr a = address("10.0.0.1", 1);
    (void)state;
    assert_int_equal(addr_table_add(&t, &unknown), 0);
    assert_ptr_equal(addr_table_find(&t, &(struct net_addr){.len = 0}), &unknown);
    assert_null(addr_table_find(&t, &a));
    addr_table_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_found_until_they_are_removed),
        cmocka_unit_test(the_chains_stay_short),
        cmocka_unit_test(the_port_does_not_matter_nor_does_an_unknown_scope),
        cmocka_unit_test(unknown_addresses_are_one_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
