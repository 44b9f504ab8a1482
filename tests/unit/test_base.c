/* base: buffers, cursors, strings, environment blocks, numbers, errors. */
#include "base/cursor.h"
#include "base/err.h"
#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "base/sig.h"
#include "base/strv.h"
#include "base/uid.h"
#include "base/utf8.h"

#include <errno.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void buf_refuses_more_than_its_limit(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(10);
    assert_int_equal(dd_buf_append(&b, "0123456789", 10), 0);
    assert_int_equal(dd_buf_append(&b, "x", 1), -EMSGSIZE);
    assert_int_equal(b.len, 10);
    assert_string_equal(dd_buf_str(&b), "0123456789");
    dd_buf_consume(&b, 4);
    assert_string_equal(dd_buf_str(&b), "456789");
    assert_int_equal(dd_buf_printf(&b, "%d", 12345), -EMSGSIZE);
    assert_int_equal(dd_buf_printf(&b, "%d", 1234), 0);
    assert_string_equal(dd_buf_str(&b), "4567891234");
}

static void cursor_fails_at_the_end_and_stays_failed(void **state)
{
    (void)state;
    struct dd_rd r = dd_rd_of("\x01\x02\x00\x00\x00\xff", 6);
    assert_int_equal(dd_rd_u8(&r), 1);
    assert_int_equal(dd_rd_u32(&r), 2);
    assert_int_equal(dd_rd_u64(&r), 0);
    assert_true(r.failed);
    assert_int_equal(dd_rd_u8(&r), 0);
}

static void cursor_writes_what_it_reads(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(100);
    assert_int_equal(dd_wr_le(&b, (uint64_t)-7, 8), 0);
    assert_int_equal(dd_wr_be(&b, 0x1234, 2), 0);
    struct dd_rd r = dd_rd_of(b.data, b.len);
    assert_int_equal(dd_rd_i64(&r), -7);
    assert_int_equal(dd_rd_u16_be(&r), 0x1234);
    assert_false(r.failed);
}

static void env_sets_replaces_and_removes(void **state)
{
    (void)state;
    DD_AUTO(strv) struct dd_strv env = {0};
    assert_int_equal(dd_env_set(&env, "A", "1"), 0);
    assert_int_equal(dd_env_set(&env, "AB", "2"), 0);
    assert_int_equal(dd_env_setf(&env, "A", "%d", 3), 0);
    assert_int_equal(env.n, 2);
    assert_string_equal(dd_env_get(env.v, "A"), "3");
    assert_null(dd_env_get(env.v, "B"));
    dd_env_unset_prefix(&env, "A");
    assert_int_equal(env.n, 0);
    assert_null(env.v[0]);
}

static int note_change(void *arg, const char *name, const char *value)
{
    return value != NULL ? dd_strv_pushf(arg, "%s=%s", name, value)
                         : dd_strv_pushf(arg, "-%s", name);
}

static void environments_differ_in_what_is_set_and_unset(void **state)
{
    (void)state;
    DD_AUTO(strv) struct dd_strv before = {0};
    DD_AUTO(strv) struct dd_strv after = {0};
    assert_int_equal(
        dd_strv_split(&before, "B=1 NOTHING AA=1 A=1 SAME=x=y TWICE=1 TWICE=2 GONE= GONE=1", " "),
        0);
    assert_int_equal(dd_strv_split(&after, "NEW= TWICE=1 SAME=x=y A=2 BB=1 AA=1 NOTHING= B=1", " "),
                     0);
    static const char *const changes[] = {"NEW=", "A=2", "BB=1", "NOTHING=", "-GONE", "-GONE"};
    DD_AUTO(strv) struct dd_strv found = {0};
    assert_int_equal(dd_env_diff(before.v, after.v, note_change, &found), 0);
    assert_int_equal(found.n, sizeof(changes) / sizeof(changes[0]));
    for (size_t i = 0; i < found.n; i++)
        assert_string_equal(found.v[i], changes[i]);
    assert_int_equal(dd_env_diff(NULL, NULL, note_change, &found), 0);
    assert_int_equal(dd_env_diff(NULL, after.v, note_change, &found), 0);
    assert_int_equal(found.n, 6 + 8);
}

static void numbers_take_digits_only(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        uint64_t value;
    } rows[] = {
        {"0", 0, 0},
        {"42", 0, 42},
        {"100", 0, 100},
        {"101", -ERANGE, 0},
        {"", -EINVAL, 0},
        {" 4", -EINVAL, 0},
        {"4 ", -EINVAL, 0},
        {"+4", -EINVAL, 0},
        {"0x4", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"99999999999999999999999", -ERANGE, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t v = 0;
        assert_int_equal(dd_num_u64(rows[i].text, 0, 100, &v), rows[i].rc);
        if (rows[i].rc == 0)
            assert_int_equal(v, rows[i].value);
    }
    const char *list = "12 7;";
    uint64_t taken;
    assert_int_equal(dd_num_take(&list, ' ', 0, 11, &taken), -ERANGE);
    assert_int_equal(dd_num_take(&list, ';', 0, 12, &taken), -EINVAL);
    assert_int_equal(dd_num_take(&list, ' ', 0, 12, &taken), 0);
    assert_true(taken == 12 && strcmp(list, "7;") == 0);
    int n;
    assert_int_equal(dd_num_int("-12", -20, 5, &n), 0);
    assert_int_equal(n, -12);
    assert_int_equal(dd_num_int("--1", -20, 5, &n), -EINVAL);
}

static void durations_take_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        uint64_t ns;
    } rows[] = {
        {"5", 0, 5000000000},
        {"0.1", 0, 100000000},
        {"250ms", 0, 250000000},
        {"2m", 0, 120000000000},
        {"1.5h", 0, 5400000000000},
        {"5x", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"99999999999999d", -ERANGE, 0},
        {"-5", -EINVAL, 0},
        {"0.999999d", 0, 86399913600000}, /* the fraction does not overflow */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t v = 0;
        assert_int_equal(dd_num_duration_ns(rows[i].text, &v), rows[i].rc);
        if (rows[i].rc == 0)
            assert_int_equal(v, rows[i].ns);
    }
    uint64_t bytes;
    assert_int_equal(dd_num_bytes("64M", &bytes), 0);
    assert_int_equal(bytes, 64 << 20);
}

static void errors_get_their_place_in_front(void **state)
{
    (void)state;
    struct dd_err err = {0};
    assert_int_equal(dd_err_set(&err, -EINVAL, "host name '%s' has a space", "n 3"), -EINVAL);
    assert_int_equal(dd_err_where(&err, -EINVAL, "%s:%d", "nodes", 3), -EINVAL);
    assert_string_equal(err.text, "nodes:3: host name 'n 3' has a space");
    assert_int_equal(dd_err_set(NULL, -ENOMEM, "x"), -ENOMEM);
}

static void errors_have_their_tip_on_a_line_of_its_own(void **state)
{
    (void)state;
    struct dd_err err = {0};
    assert_int_equal(dd_err_tip(&err, dd_err_set(&err, -EINVAL, "unknown option '%s'", "--npoc"),
                                "did you mean '%s'?", "--nproc"),
                     -EINVAL);
    assert_string_equal(err.text, "unknown option '--npoc'\n  tip: did you mean '--nproc'?");
    assert_int_equal(dd_err_tip(NULL, -ENOENT, "x"), -ENOENT);
    memset(err.text, 'x', sizeof(err.text) - 1); /* no room for a tip: the text stays as it is */
    err.text[sizeof(err.text) - 1] = '\0';
    assert_int_equal(dd_err_tip(&err, -EINVAL, "a tip"), -EINVAL);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_null(strstr(err.text, "tip"));
}

static void peer_text_is_escaped(void **state)
{
    (void)state;
    char out[32];
    assert_string_equal(dd_log_escape(out, sizeof(out), "a\n\x1b[b", 5), "a\\x0a\\x1b[b");
}

static void what_is_no_utf8_becomes_a_question_mark(void **state)
{
    (void)state;
    static const struct {
        const char *text, *clean;
    } rows[] = {
        {"plain", "plain"},
        {"n\xc3\xb6"
         "de \xe2\x82\xac \xf0\x9f\x98\x80",
         "n\xc3\xb6"
         "de \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff\xfe", "??"},
        {"a\xc3", "a?"}, /* truncated */
        {"\xc3(", "?("},
        {"\x80\xbf", "??"}, /* continuation bytes without a first byte */
        {"\xc0\xaf", "??"}, /* overlong encoding */
        {"\xe0\x80\xaf", "???"},
        {"\xed\xa0\x80", "???"},      /* half of a UTF-16 surrogate pair */
        {"\xf4\x90\x80\x80", "????"}, /* beyond U+10FFFF */
        {"\xf0\x9f\x98", "???"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(free) char *s = strdup(rows[i].text);
        assert_string_equal(dd_utf8_clean(s), rows[i].clean);
        assert_int_equal(dd_utf8_is(rows[i].text), strcmp(rows[i].text, rows[i].clean) == 0);
    }
}

/* Signals to all processes of a job: channel, time in ms, and whether it is a copy of the last
 * signal. */
static void copies_of_a_signal_are_known_by_their_way(void **state)
{
    (void)state;
    enum { WAYS = 3 };
    static const struct {
        int way;
        unsigned ms;
        bool copy;   /* of a signal that ends jobs */
        bool notice; /* the same for one that announces something */
    } come[] = {
        {0, 0, false, false},     {1, 240, true, true},    /* at nearly the same time */
        {2, 1900, true, true},    {2, 1950, false, false}, /* late: only the first of its channel */
        {0, 2000, true, true},    {0, 2300, false, false}, /* the same channel again */
        {1, 2540, true, true},    {1, 2560, false, false},
        {2, 7559, true, true},    {0, 7600, false, true},   /* the machine stalled */
        {0, 50000, false, false}, {1, 80001, false, false}, /* too late for a copy */
    };
    static const int sigs[] = {SIGTERM, SIGUSR2};
    const uint64_t begin = 77 * DD_NS_PER_S;
    for (size_t k = 0; k < 2; k++) {
        uint64_t taken = 0;
        uint64_t heard[WAYS] = {0};
        for (size_t i = 0; i < sizeof(come) / sizeof(come[0]); i++)
            assert_int_equal(dd_signal_is_copy(sigs[k], &taken, &heard[come[i].way],
                                               begin + come[i].ms * DD_NS_PER_MS),
                             k == 0 ? come[i].copy : come[i].notice);
    }
}

static void uid_map_is_full_only_if_every_uid_is_itself(void **state)
{
    (void)state;
    assert_true(dd_uid_map_is_full("         0          0 4294967295\n"));
    assert_false(dd_uid_map_is_full("         0          0 4294967294\n"));
    assert_false(dd_uid_map_is_full("         0      20001          1\n"));
    assert_false(dd_uid_map_is_full("     65534      20001          1\n"));
    assert_false(
        dd_uid_map_is_full("         0          0      65534\n     65534      65534 4294901761\n"));
    assert_false(dd_uid_map_is_full(""));
}

static void no_uid_is_own_where_own_is_what_unmapped_ones_look_like(void **state)
{
    const struct dd_uid me = {.own = 65534}, lost = {.own = 65534, .ambiguous = true};
    struct dd_uid self;
    (void)state;
    assert_true(dd_uid_is_own(&me, 65534));
    assert_false(dd_uid_is_own(&me, 20001));
    assert_false(dd_uid_is_own(&lost, 65534));
    dd_uid_read(&self);
    assert_int_equal(self.own, geteuid());
}

static void a_path_lies_in_a_directory_by_whole_names(void **state)
{
    (void)state;
    assert_true(dd_path_lies_in("/a/b", 4, "/a"));
    assert_true(dd_path_lies_in("/a", 2, "/a"));
    assert_true(dd_path_lies_in("/a:/b", 2, "/a"));
    assert_false(dd_path_lies_in("/ab", 3, "/a"));
    assert_false(dd_path_lies_in("/a", 2, "/a/b"));
}

static void names_realtime_signals(void **state)
{
    (void)state;
    assert_string_equal(dd_signal_name(SIGRTMIN), "RTMIN");
    assert_string_equal(dd_signal_name(SIGRTMIN + 2), "RTMIN+2");
    assert_string_equal(dd_signal_name(SIGRTMAX + 1), "?");
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
        assert_int_equal(dd_signal_parse(dd_signal_name(sig)), sig);
    assert_int_equal(dd_signal_parse("RTMIN+31"), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_lies_in_a_directory_by_whole_names),
        cmocka_unit_test(buf_refuses_more_than_its_limit),
        cmocka_unit_test(cursor_fails_at_the_end_and_stays_failed),
        cmocka_unit_test(cursor_writes_what_it_reads),
        cmocka_unit_test(env_sets_replaces_and_removes),
        cmocka_unit_test(environments_differ_in_what_is_set_and_unset),
        cmocka_unit_test(numbers_take_digits_only),
        cmocka_unit_test(durations_take_units),
        cmocka_unit_test(errors_get_their_place_in_front),
        cmocka_unit_test(errors_have_their_tip_on_a_line_of_its_own),
        cmocka_unit_test(peer_text_is_escaped),
        cmocka_unit_test(copies_of_a_signal_are_known_by_their_way),
        cmocka_unit_test(what_is_no_utf8_becomes_a_question_mark),
        cmocka_unit_test(uid_map_is_full_only_if_every_uid_is_itself),
        cmocka_unit_test(no_uid_is_own_where_own_is_what_unmapped_ones_look_like),
        cmocka_unit_test(names_realtime_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
