/* hostlist: expressions, folding, set operations. */
#include "hostlist/hostlist.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "failing_alloc.h"

static char *joined(const struct hostlist *h)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(32 << 20);
    for (size_t i = 0; i < hostlist_count(h); i++)
        assert_int_equal(dd_buf_printf(&b, i > 0 ? ",%s" : "%s", hostlist_nth(h, i)), 0);
    return dd_buf_steal(&b);
}

static struct hostlist *parsed(const char *expr)
{
    struct hostlist *h = NULL;
    struct dd_err err = {.text = ""};
    if (hostlist_parse(&h, expr, &err) != 0)
        fail_msg("%s", err.text);
    return h;
}

static void assert_names(const struct hostlist *h, const char *names)
{
    DD_AUTO(free) char *s = joined(h);
    assert_string_equal(s, names);
}

static void assert_folds(const struct hostlist *h, const char *expr)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(32 << 20);
    assert_int_equal(hostlist_fold(h, &b), 0);
    assert_string_equal(dd_buf_str(&b), expr);
}

static void parse_refuses_what_is_wrong_and_says_where(void **state)
{
    (void)state;
    static const struct {
        const char *expr;
        const char *text;
    } rows[] = {
        {"n[1-3", "'[1-3' has an unmatched '[' (character 2 of host list 'n[1-3')"},
        {"n[", "'[' has an unmatched '['"},
        {"n[[1-2]", "'[[1-2]' has an unmatched '['"},
        {"a,n]", "']' is an unmatched ']' (character 4 of host list 'a,n]')"},
        {"n[1-2]]", "']' is an unmatched ']' (character 7"},
        {"n[]", "'' is not a number or a range such as 1-4 (character 3"},
        {"n[1,]", "'' is not a number or a range such as 1-4 (character 5"},
        {"n[,1]", "'' is not a number"},
        {"n[a-b]", "'a-b' is not a number or a range"},
        {"n[1-]", "'1-' is not a number or a range"},
        {"n[-1]", "'-1' is not a number or a range"},
        {"n[1-2-3]", "'1-2-3' is not a number or a range"},
        {"n[0x1-2]", "'0x1-2' is not a number or a range"},
        {"n[ 1-2]", "' 1-2' is not a number or a range"},
        {"n[1 - 2]", "'1 - 2' is not a number or a range"},
        {"ok,n[5,3-1]",
         "'3-1' is a descending range; the smaller number must come first (character 8 of"},
        {"n[18446744073709551616]", "has a number of more than 64 bits"},
        {"n[1-999999999999999999999999]", "has a number of more than 64 bits"},
        {"a@b", "'@' is not allowed in a host name (character 2 of host list 'a@b')"},
        {"n[1-2]$x", "'$' is not allowed in a host name"},
        {"a;b", "';' is not allowed in a host name"},
        {"a\x01", "'\\x01' is not allowed in a host name (character 2 of host list 'a\\x01')"},
        {"\xc3\xa9", "'\\xc3' is not allowed in a host name"},
        {"[1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1]",
         "'[1]' exceeds the limit of 16 brackets in one name (character 49"},
        {"n[0-65536]", "has more than 65536 names (character 3)"},
        {"n[0-99999999][0-9]", "has more than 65536 names (character 3)"},
        {"n[0-18446744073709551615]", "has more than 65536 names"},
        {"n[1-40000,50000-90000]", "has more than 65536 names (character 11)"},
        {"n[0-9999][0-9]", "has more than 65536 names (character 10)"},
        {"n[0-65535],m", "has more than 65536 names (character 12)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hostlist *h = NULL;
        struct dd_err err = {.text = ""};
        int rc = hostlist_parse(&h, rows[i].expr, &err);
        assert_null(h);
        assert_int_equal(rc, strstr(rows[i].text, "more than 65536") != NULL ? -E2BIG : -EINVAL);
        if (strstr(err.text, rows[i].text) == NULL)
            fail_msg("'%s' is refused with \"%s\"", rows[i].expr, err.text);
    }
}

static void parse_refuses_a_name_that_is_too_long(void **state)
{
    (void)state;
    char expr[300];
    struct dd_err err;
    memset(expr, 'a', sizeof(expr));
    memcpy(expr + 251, "[8-9]", 6); /* 252 characters */
    hostlist_free(parsed(expr));
    memcpy(expr + 251, "[0008-9]", 9); /* 255 */
    hostlist_free(parsed(expr));
    static const char *const ends[] = {"[8-10000]", "[00008-9]", "[8]aaaa", "aaaaa"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct hostlist *h;
        memcpy(expr + 251, ends[i], strlen(ends[i]) + 1);
        assert_int_equal(hostlist_parse(&h, expr, &err), -EINVAL);
        assert_non_null(strstr(err.text, "more than 255 characters"));
    }
}

static void parse_expands_as_slurm_does(void **state)
{
    (void)state;
    static const struct {
        const char *expr;
        const char *names;
        const char *folded;
    } rows[] = {
        {"", "", ""},
        {" ,\t\n", "", ""},
        {"a", "a", "a"},
        {"a,,b, c d,", "a,b,c,d", "a,b,c,d"},
        {"n[1-3]", "n1,n2,n3", "n[1-3]"},
        {"n[01-3]", "n01,n02,n03", "n[01-03]"},
        {"n[1-03]", "n1,n2,n3", "n[1-3]"},
        {"n[0-00]", "n0", "n0"},
        {"n[9-010]", "n9,n10", "n[9-10]"},
        {"n[8-11]", "n8,n9,n10,n11", "n[8-11]"},
        {"n[099-101]", "n099,n100,n101", "n[099-101]"},
        {"n[01-3,5,007]", "n01,n02,n03,n5,n007", "n[01-03,5,007]"},
        {"n[5,3,1]", "n5,n3,n1", "n[5,3,1]"},
        {"n1,n1,n[1,1]", "n1,n1,n1,n1", "n[1,1,1,1]"},
        {"[1-3]", "1,2,3", "[1-3]"},
        {"n[1]", "n1", "n1"},
        {"gpu[001-004,7],login", "gpu001,gpu002,gpu003,gpu004,gpu7,login", "gpu[001-004,7],login"},
        {"n[18446744073709551614-18446744073709551615]",
         "n18446744073709551614,n18446744073709551615",
         "n18446744073709551614,n18446744073709551615"},
        {"n[00000000000000000000001-2]", "n00000000000000000000001,n00000000000000000000002",
         "n00000000000000000000001,n00000000000000000000002"},
        /* two brackets: row-major, adjacent or not */
        {"n[1-2][3-4]", "n13,n14,n23,n24", "n[13-14,23-24]"},
        {"a[1-2]-[3-4]", "a1-3,a1-4,a2-3,a2-4", "a[1-2]-[3-4]"},
        {"a[1,3-4,2]b[1,3]", "a1b1,a1b3,a3b1,a3b3,a4b1,a4b3,a2b1,a2b3", "a[1,3-4,2]b[1,3]"},
        /* three and more: the last one varies fastest, then the first, the last but one slowest */
        {"a[1-2]b[3-4]c[5-6]", "a1b3c5,a1b3c6,a2b3c5,a2b3c6,a1b4c5,a1b4c6,a2b4c5,a2b4c6",
         "a[1-2]b3c[5-6],a[1-2]b4c[5-6]"},
        {"[1-2]a[1-2]b[1-2]c[1-2]",
         "1a1b1c1,1a1b1c2,2a1b1c1,2a1b1c2,1a2b1c1,1a2b1c2,2a2b1c1,2a2b1c2,"
         "1a1b2c1,1a1b2c2,2a1b2c1,2a1b2c2,1a2b2c1,1a2b2c2,2a2b2c1,2a2b2c2",
         "[1-2]a1b1c[1-2],[1-2]a2b1c[1-2],[1-2]a1b2c[1-2],[1-2]a2b2c[1-2]"},
        /* Slurm 22.05 rejects text after the last bracket; ddrun accepts it */
        {"n[1-3]x", "n1x,n2x,n3x", "n[1-3]x"},
        {"gpu-a-[1-2].cluster.org", "gpu-a-1.cluster.org,gpu-a-2.cluster.org",
         "gpu-a-[1-2].cluster.org"},
        {"a[1-2]b[3-4]x", "a1b3x,a1b4x,a2b3x,a2b4x", "a[1-2]b[3-4]x"},
        {"fe80::[1-2],10.0.0.[1-2]", "fe80::1,fe80::2,10.0.0.1,10.0.0.2",
         "fe80::[1-2],10.0.0.[1-2]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(hostlist) struct hostlist *h = parsed(rows[i].expr);
        assert_names(h, rows[i].names);
        assert_folds(h, rows[i].folded);
    }
}

static void fold_finds_the_number_that_varies(void **state)
{
    (void)state;
    static const struct {
        const char *names;
        const char *folded;
    } rows[] = {
        {"n1,n11,n111", "n[1,11,111]"},
        {"n19,n29", "n[19,29]"},
        {"r1n4,r2n1", "r1n4,r2n1"},
        {"r1n1,r1n2,r2n1,r2n2,r3n1", "r[1-2]n[1-2],r3n1"},
        {"a,a,b", "a,a,b"},
        {"a,a1,a2,a", "a,a[1-2],a"},
        {"n1a,n2b,n3b", "n1a,n[2-3]b"},
        {"x1y,x1y", "x[1,1]y"},
        {"n09,n10,n011", "n[09-10,011]"},
        {"n9,n010", "n[9,010]"},
        {"n00,n0", "n[00,0]"},
        {"n99999999999999999,n999999999999999998,n999999999999999999",
         "n[99999999999999999,999999999999999998-999999999999999999]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(hostlist) struct hostlist *h = parsed(rows[i].names);
        assert_folds(h, rows[i].folded);
        DD_AUTO(hostlist) struct hostlist *again = parsed(rows[i].folded);
        assert_names(again, rows[i].names);
    }
}

static void fold_keeps_what_was_there_when_it_does_not_fit(void **state)
{
    (void)state;
    DD_AUTO(hostlist) struct hostlist *h = parsed("n[1-9],x,y");
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(8);
    assert_int_equal(dd_buf_puts(&b, "at "), 0);
    assert_int_equal(hostlist_fold(h, &b), -EMSGSIZE);
    assert_string_equal(dd_buf_str(&b), "at ");
}

/* ---- property: folding an expression and parsing the result yields the same names ---- */

enum { TERMS_MAX = 24, TERM_SIZE = 64 };

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (uint32_t)(*seed >> 33) % n;
}

static void random_term(uint64_t *seed, char *out)
{
    static const char *const literals[] = {"n", "r1", "-", "x.y", "0", "a2b", "9", ""};
    char *p = out;
    uint32_t brackets = random_below(seed, 4);
    p += sprintf(p, "%s", literals[random_below(seed, 7)]);
    for (uint32_t i = 0; i < brackets; i++) {
        uint32_t lo = random_below(seed, 12);
        int width = (int)random_below(seed, 4);
        if (random_below(seed, 3) == 0)
            p += sprintf(p, "[%0*u,%u]", width, lo, random_below(seed, 12));
        else
            p += sprintf(p, "[%0*u-%u]", width, lo, lo + random_below(seed, 4));
        p += sprintf(p, "%s", literals[random_below(seed, 8)]);
    }
}

static void join_terms(char terms[][TERM_SIZE], const size_t *chosen, size_t n, char *out)
{
    *out = '\0';
    for (size_t i = 0; i < n; i++)
        out += sprintf(out, i > 0 ? ",%s" : "%s", terms[chosen[i]]);
}

static bool folds_back(const char *expr)
{
    DD_AUTO(hostlist) struct hostlist *h = parsed(expr);
    DD_AUTO(hostlist) struct hostlist *again = NULL;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 20);
    if (hostlist_fold(h, &b) != 0 || hostlist_parse(&again, dd_buf_str(&b), NULL) != 0)
        return false;
    DD_AUTO(free) char *before = joined(h);
    DD_AUTO(free) char *after = joined(again);
    return strcmp(before, after) == 0;
}

/* Drop halves, quarters ... single terms while the expression still fails. */
static size_t shrink(char terms[][TERM_SIZE], size_t *chosen, size_t n)
{
    char expr[TERMS_MAX * TERM_SIZE];
    for (size_t cut = n / 2; cut > 0; cut /= 2)
        for (size_t at = 0; at + cut <= n;) {
            size_t kept[TERMS_MAX];
            memcpy(kept, chosen, at * sizeof(*kept));
            memcpy(kept + at, chosen + at + cut, (n - at - cut) * sizeof(*kept));
            join_terms(terms, kept, n - cut, expr);
            if (folds_back(expr)) {
                at += cut;
                continue;
            }
            n -= cut;
            memcpy(chosen, kept, n * sizeof(*kept));
        }
    return n;
}

static void fold_expands_to_the_same_names(void **state)
{
    (void)state;
    const char *given = getenv("DD_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10)
                                  : (uint64_t)time(NULL) * 2654435761U + 1;
    uint64_t start = seed;
    for (unsigned round = 0; round < 2000; round++) {
        char terms[TERMS_MAX][TERM_SIZE];
        char expr[TERMS_MAX * TERM_SIZE];
        size_t chosen[TERMS_MAX];
        size_t n = 1 + random_below(&seed, TERMS_MAX);
        for (size_t i = 0; i < n; i++) {
            chosen[i] = i;
            random_term(&seed, terms[i]);
        }
        join_terms(terms, chosen, n, expr);
        if (folds_back(expr))
            continue;
        n = shrink(terms, chosen, n);
        join_terms(terms, chosen, n, expr);
        fail_msg("DD_TEST_SEED=%llu: '%s' does not fold back", (unsigned long long)start, expr);
    }
}

/* ---- lists ---- */

static void push_takes_literal_names_only(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "a b", "n[1-2]", "a,b", "a/b", "\xff"};
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    assert_int_equal(hostlist_new(&h), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(hostlist_push(h, bad[i]), -EINVAL);
    char name[257];
    memset(name, 'a', 256);
    name[256] = '\0';
    assert_false(hostlist_name_ok(name));
    assert_true(hostlist_name_ok(name + 1));
    assert_int_equal(hostlist_push(h, "A_b-c.d:e1"), 0);
    assert_names(h, "A_b-c.d:e1");
    assert_null(hostlist_nth(h, 1));
}

static void push_stops_at_the_limit(void **state)
{
    (void)state;
    DD_AUTO(hostlist) struct hostlist *h = parsed("n[0-65535]");
    assert_int_equal(hostlist_push(h, "x"), -E2BIG);
    assert_int_equal(hostlist_count(h), HOSTLIST_MAX);
}

static void sets_keep_the_order_of_first_appearance(void **state)
{
    (void)state;
    DD_AUTO(hostlist) struct hostlist *a = parsed("n3,n1,n3,n2");
    DD_AUTO(hostlist) struct hostlist *b = parsed("n4,n1,n4");
    DD_AUTO(hostlist) struct hostlist *none = parsed("");
    DD_AUTO(hostlist) struct hostlist *both = NULL;
    DD_AUTO(hostlist) struct hostlist *less = NULL;
    DD_AUTO(hostlist) struct hostlist *all = NULL;
    DD_AUTO(hostlist) struct hostlist *once = NULL;
    DD_AUTO(hostlist) struct hostlist *common = NULL;
    DD_AUTO(hostlist) struct hostlist *twice = NULL;
    assert_int_equal(hostlist_intersection(&common, a, b), 0);
    assert_names(common, "n1");
    assert_int_equal(hostlist_intersection(&twice, b, b), 0);
    assert_names(twice, "n4,n1,n4");
    assert_int_equal(hostlist_union(&both, a, b), 0);
    assert_names(both, "n3,n1,n2,n4");
    assert_int_equal(hostlist_difference(&less, a, b), 0);
    assert_names(less, "n3,n3,n2");
    assert_int_equal(hostlist_difference(&all, a, none), 0);
    assert_names(all, "n3,n1,n3,n2");
    assert_int_equal(hostlist_uniq(&once, a), 0);
    assert_names(once, "n3,n1,n2");
}

/* Quadratic algorithms would take 2^32 comparisons: minutes instead of milliseconds. */
static void sets_are_quick_at_the_limit(void **state)
{
    (void)state;
    DD_AUTO(hostlist) struct hostlist *a = parsed("n[0-65535]");
    DD_AUTO(hostlist) struct hostlist *b = parsed("n[1-65535],x");
    DD_AUTO(hostlist) struct hostlist *both = NULL;
    DD_AUTO(hostlist) struct hostlist *less = NULL;
    DD_AUTO(hostlist) struct hostlist *once = NULL;
    clock_t begin = clock();
    assert_int_equal(hostlist_difference(&less, a, b), 0);
    assert_names(less, "n0");
    assert_int_equal(hostlist_uniq(&once, a), 0);
    assert_int_equal(hostlist_count(once), HOSTLIST_MAX);
    assert_int_equal(hostlist_union(&both, a, b), -E2BIG);
    assert_null(both);
    assert_folds(once, "n[0-65535]");
    assert_true(clock() - begin < 5 * CLOCKS_PER_SEC);
}

static int everything(void)
{
    DD_AUTO(hostlist) struct hostlist *a = NULL;
    DD_AUTO(hostlist) struct hostlist *b = NULL;
    DD_AUTO(hostlist) struct hostlist *less = NULL;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
    int rc = hostlist_parse(&a, "r[1-3]n[01-40],login", NULL);
    if (rc == 0)
        rc = hostlist_uniq(&b, a);
    if (rc == 0)
        rc = hostlist_difference(&less, a, b);
    if (rc == 0)
        rc = hostlist_push(less, "x");
    if (rc == 0)
        rc = hostlist_fold(a, &out);
    if (rc == 0 && (rc = hostlist_matches("a[1-3]*,b", "b", NULL)) > 0)
        rc = 0;
    return rc;
}

static void a_pattern_names_hosts_by_lists_and_stars(void **state)
{
    static const struct {
        const char *pattern, *name;
        int matches;
    } rows[] = {
        {"n[1-4]", "n3", 1},
        {"n[1-4]", "n5", 0},
        {"n[1-4]", "n3.site", 1},
        {"n3.site", "n3", 0},
        {"n3.site", "n3.site", 1},
        {"*", "n3", 1},
        {"gpu*,n[1-2]*", "n2a", 1},
        {"gpu*", "GPU7", 1},
        {"*.site", "n3.site", 1},
        {"*.site", "n3", 0},
        {"*[1-2]*", "login1a.site", 1},
        {"", "n3", 0},
        {"n?", "n3", -EINVAL},
        {"n[1-", "n3", -EINVAL},
        {"a:b", "a:b", -EINVAL},
        {"n[1-70000]", "n3", -E2BIG},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct dd_err err = {.text = ""};
        assert_int_equal(hostlist_matches(rows[i].pattern, rows[i].name, &err), rows[i].matches);
        assert_true((rows[i].matches < 0) == (err.text[0] != '\0'));
    }
}

static void no_memory_is_an_error_like_any_other(void **state)
{
    (void)state;
    unsigned n = 0;
    int rc;
    do {
        fail_at = ++n;
        rc = everything();
        assert_true(rc == 0 || rc == -ENOMEM);
    } while (rc != 0);
    assert_true(fail_at > 0); /* the last round had no failure */
    fail_at = 0;
    assert_true(n > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_refuses_what_is_wrong_and_says_where),
        cmocka_unit_test(parse_refuses_a_name_that_is_too_long),
        cmocka_unit_test(parse_expands_as_slurm_does),
        cmocka_unit_test(fold_finds_the_number_that_varies),
        cmocka_unit_test(fold_keeps_what_was_there_when_it_does_not_fit),
        cmocka_unit_test(fold_expands_to_the_same_names),
        cmocka_unit_test(push_takes_literal_names_only),
        cmocka_unit_test(push_stops_at_the_limit),
        cmocka_unit_test(sets_keep_the_order_of_first_appearance),
        cmocka_unit_test(sets_are_quick_at_the_limit),
        cmocka_unit_test(a_pattern_names_hosts_by_lists_and_stars),
        cmocka_unit_test(no_memory_is_an_error_like_any_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
