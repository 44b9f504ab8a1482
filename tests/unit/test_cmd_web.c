/* Which requests 'ddctl web' answers. */
#include "cmd/ddctl_web_guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TOKEN "000102030405060708090a0b0c0d0eff"
#define WITH_TOKEN "?token=" TOKEN

static void token_is_the_secret_in_hexadecimal(void **state)
{
    unsigned char secret[WEB_SECRET];
    char token[WEB_TOKEN + 1];
    (void)state;
    for (unsigned char i = 0; i < WEB_SECRET; i++)
        secret[i] = i;
    secret[WEB_SECRET - 1] = 0xff;
    web_token(token, secret);
    assert_string_equal(token, TOKEN);
}

static void only_loopback_hosts_are_accepted(void **state)
{
    static const char *const good[] = {"127.0.0.1", "127.0.0.1:80",    "[::1]",
                                       "[::1]:1",   "localhost:65535", "LocalHost"};
    static const char *const bad[] = {
        "",           "evil.example",    "127.0.0.1.evil.example", "127.0.0.1:",  "127.0.0.1:8x",
        "127.0.0.11", "localhost.:80",   "localhost:123456",       "::1",         "[::1",
        "localhost ", "127.0.0.1:80:80", "evil@127.0.0.1",         "127.0.0.1/x", " localhost"};
    (void)state;
    assert_false(web_host_is_loopback(NULL));
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(web_host_is_loopback(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(web_host_is_loopback(bad[i]));
}

#define LOG "/log.json" WITH_TOKEN

static const struct {
    const char *target;
    int result;
} rows[] = {
    {LOG "&rank=0", WEB_LOG},
    {LOG, WEB_NOT_FOUND},
    {LOG "&rank=2147483648", WEB_FORBIDDEN},
    {LOG "&rank=99999999999999999999", WEB_FORBIDDEN},
    {LOG "&rank=-1", WEB_FORBIDDEN},
    {LOG "&rank=", WEB_FORBIDDEN},
    {LOG "&rank=1x", WEB_FORBIDDEN},
    {LOG "&rank=1&rank=2", WEB_FORBIDDEN},
    {LOG "&rank=%31", WEB_FORBIDDEN},
    {LOG "&", WEB_FORBIDDEN},
    {"/log.json?rank=1&token=" TOKEN, WEB_FORBIDDEN},
    {"/log.json?token=000102030405060708090a0b0c0d0efe&rank=1", WEB_FORBIDDEN},
    {"/log.json?token=&rank=1", WEB_FORBIDDEN},
    {"/log.json", WEB_FORBIDDEN},
    {"/state.json" WITH_TOKEN "&rank=1", WEB_NOT_FOUND},
    {"/web.js" WITH_TOKEN "&rank=1", WEB_NOT_FOUND},
    {"/" WITH_TOKEN, WEB_PAGE},
    {"/state.json" WITH_TOKEN, WEB_STATE},
    {"/timeline.json" WITH_TOKEN, WEB_TIMELINE},
    {"/web.js", WEB_SCRIPT},
    {"/web.css", WEB_STYLE},
    {"/web.css" WITH_TOKEN, WEB_STYLE},
    {"/", WEB_FORBIDDEN},
    {"/state.json", WEB_FORBIDDEN},
    {"/state.json?", WEB_FORBIDDEN},
    {"/state.json?token=", WEB_FORBIDDEN},
    {"/state.json?" TOKEN, WEB_FORBIDDEN},
    {"/state.json?token=000102030405060708090a0b0c0d0efe", WEB_FORBIDDEN},
    {"/state.json?token=100102030405060708090a0b0c0d0eff", WEB_FORBIDDEN},
    {"/state.json?token=000102030405060708090a0b0c0d0ef", WEB_FORBIDDEN},
    {"/state.json" WITH_TOKEN "0", WEB_FORBIDDEN},
    {"/state.json?Token=" TOKEN, WEB_FORBIDDEN},
    {"/state.json?x=1&token=" TOKEN, WEB_FORBIDDEN},
    {"/nothing", WEB_FORBIDDEN}, /* without the token, no path is confirmed or denied */
    {"/nothing" WITH_TOKEN, WEB_NOT_FOUND},
    {"/web.js/" WITH_TOKEN, WEB_NOT_FOUND},
    {"//web.js", WEB_FORBIDDEN},
    {"/../web.js", WEB_FORBIDDEN},
    {"http://127.0.0.1/" WITH_TOKEN, WEB_NOT_FOUND},
    {"", WEB_FORBIDDEN},
    {WITH_TOKEN, WEB_NOT_FOUND},
};

static void only_the_token_opens_what_shows_the_job(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int rank;
        assert_int_equal(web_route(rows[i].target, "127.0.0.1:8080", TOKEN, &rank), rows[i].result);
        assert_int_equal(web_route(rows[i].target, "evil.example", TOKEN, &rank), WEB_FORBIDDEN);
        assert_int_equal(web_route(rows[i].target, NULL, TOKEN, &rank), WEB_FORBIDDEN);
    }
}

static void a_log_is_that_of_the_rank_behind_the_token(void **state)
{
    static const struct {
        const char *target;
        int rank;
    } ranks[] = {{LOG "&rank=0", 0},
                 {LOG "&rank=4095", 4095},
                 {LOG "&rank=2147483647", INT32_MAX},
                 {"/state.json" WITH_TOKEN, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        int rank = 7;
        (void)web_route(ranks[i].target, "localhost", TOKEN, &rank);
        assert_int_equal(rank, ranks[i].rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_is_the_secret_in_hexadecimal),
        cmocka_unit_test(only_loopback_hosts_are_accepted),
        cmocka_unit_test(only_the_token_opens_what_shows_the_job),
        cmocka_unit_test(a_log_is_that_of_the_rank_behind_the_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
