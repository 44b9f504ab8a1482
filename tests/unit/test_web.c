/* web: URLs and replies of etcd, the entry of a host, and the claim that decides which node is
 * host. */
#include "base/auto.h"
#include "web/claim.h"
#include "web/client.h"
#include "web/entry.h"
#include "web/etcd.h"
#include "web/etcd_url.h"
#include "web/web_wire.h"

#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- URLs ---- */

static void urls_are_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text, *first, *last, *prefix, *user, *password, *cacert;
    } rows[] = {
        {"etcd://h", "http://h:2379", "http://h:2379", "/ddrun", NULL, NULL, NULL},
        {"etcd://h/", "http://h:2379", "http://h:2379", "/ddrun", NULL, NULL, NULL},
        {"etcd://h:1/a/b/", "http://h:1", "http://h:1", "/a/b", NULL, NULL, NULL},
        {"etcds://h1,h2:7,[fd00::1]:9/a", "https://h1:2379", "https://[fd00::1]:9", "/a", NULL,
         NULL, NULL},
        {"etcd://u@h/a", "http://h:2379", "http://h:2379", "/a", "u", NULL, NULL},
        {"etcd://u%40x:p%3a:%2fq@h/a", "http://h:2379", "http://h:2379", "/a", "u@x", "p::/q",
         NULL},
        {"etcds://h?cacert=/ca.pem", "https://h:2379", "https://h:2379", "/ddrun", NULL, NULL,
         "/ca.pem"},
        {"etcds://h/a?cacert=/c%26a&cert=/c&key=/k", "https://h:2379", "https://h:2379", "/a", NULL,
         NULL, "/c&a"},
        {"etcds://u@h?password-file=/p", "https://h:2379", "https://h:2379", "/ddrun", "u", NULL,
         NULL},
        {"etcd://\xc3\xa9:p@h/a", "http://h:2379", "http://h:2379", "/a", "\xc3\xa9", "p", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(etcd_url) struct etcd_url u = {0};
        struct dd_err err = {0};
        if (etcd_url_parse(&u, rows[i].text, &err) < 0)
            fail_msg("'%s': %s", rows[i].text, err.text);
        assert_string_equal(u.bases.v[0], rows[i].first);
        assert_string_equal(u.bases.v[u.bases.n - 1], rows[i].last);
        assert_string_equal(u.prefix, rows[i].prefix);
        const char *const pairs[][2] = {
            {u.user, rows[i].user}, {u.password, rows[i].password}, {u.cacert, rows[i].cacert}};
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(pairs[k][0] == NULL, pairs[k][1] == NULL);
            if (pairs[k][1] != NULL)
                assert_string_equal(pairs[k][0], pairs[k][1]);
        }
    }
}

static void malformed_urls_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "etcd://u%40x:p%3a:/q@h/a", /* a '/' must be written as %2f */
        "etcd://",
        "etcd://h:",
        "etcd://h:0",
        "etcd://h:65536",
        "etcd://h,,g",
        "etcd://h,",
        "etcd://[::1",
        "etcd://[]:1",
        "etcd://h h/a",
        "etcd://@h/a",
        "etcd://h?cacert=/c",
        "etcds://h?cert=/c",
        "etcds://h?cacert=",
        "etcds://h?ca=/c",
        "etcds://h?password-file=/p",
        "etcd://u%ff@h/a",
        "etcd://u:\xc3@h/a",
        "etcds://h?cacert=/%ff",
        "etcd://h/a%0a",
        "http://h",
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(etcd_url) struct etcd_url u = {0};
        struct dd_err err = {0};
        if (etcd_url_parse(&u, rows[i], &err) == 0)
            fail_msg("'%s' was taken", rows[i]);
        assert_string_not_equal(err.text, "");
    }
}

static void a_refused_url_does_not_tell_its_password(void **state)
{
    (void)state;
    static const char *const rows[] = {"etcd://u:geheim@h:x/a", "etcd://u:geheim@h?x=1",
                                       "etcd://u:geheim@",      "etcd://u:ge%01heim@h",
                                       "etcd://u:geheim/1@h",   "etcd://u:geheim?1@h",
                                       "etcd://u:12?heim@h",    "etcd://u:12?heim=1@h"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct etcd_url u;
        struct dd_err err = {0};
        assert_true(etcd_url_parse(&u, rows[i], &err) < 0);
        assert_null(strstr(err.text, "heim"));
    }
}

/* ---- etcd's JSON ---- */

struct answer_row {
    enum etcd_call call;
    int status;
    const char *body;
    enum etcd_result result;
    bool there;
    int64_t revision, lease;
    const char *text;
};

static void check_answer(const struct answer_row *row)
{
    DD_AUTO(etcd_answer) struct etcd_answer a = {0};
    struct dd_err err = {0};
    enum etcd_result r = etcd_answer_decode(&a, row->call, row->status, row->body, &err);
    const char *text = row->call == ETCD_AUTH ? a.token : a.value;
    if (r != row->result || a.there != row->there || a.revision != row->revision ||
        a.lease != row->lease)
        fail_msg("%s: result %d, there %d, revision %lld, lease %lld", row->body, (int)r, a.there,
                 (long long)a.revision, (long long)a.lease);
    assert_int_equal(text == NULL, row->text == NULL);
    if (text != NULL)
        assert_string_equal(text, row->text);
}

static void answers_to_reads_are_understood(void **state)
{
    (void)state;
    static const struct answer_row rows[] = {
        {ETCD_READ, 401, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}",
         ETCD_NO_TOKEN, false, 0, 0, NULL},
        {ETCD_READ, 400, "{\"error\":\"etcdserver: user name is empty\",\"code\":3}", ETCD_REFUSED,
         false, 0, 0, NULL},
        {ETCD_READ, 403, "{\"error\":\"etcdserver: permission denied\",\"code\":7}", ETCD_REFUSED,
         false, 0, 0, NULL},
        {ETCD_READ, 503, "{\"error\":\"etcdserver: no leader\",\"code\":14}", ETCD_FAILED, false, 0,
         0, NULL},
        {ETCD_READ, 502, "<html>", ETCD_FAILED, false, 0, 0, NULL},
        {ETCD_READ, 200, "{\"header\":{\"revision\":\"1\"}}", ETCD_DONE, false, 0, 0, NULL},
        {ETCD_READ, 200,
         "{\"kvs\":[{\"mod_revision\":\"5\",\"value\":\"aG9zdA==\",\"lease\":\"7\"}]}", ETCD_DONE,
         true, 5, 7, "host"},
        {ETCD_READ, 200, "{\"kvs\":[{\"mod_revision\":5,\"value\":\"aG8=\"}]}", ETCD_DONE, true, 5,
         0, "ho"},
        {ETCD_READ, 200, "{\"kvs\":[{\"mod_revision\":\"5\",\"value\":\"aG9=z\"}]}", ETCD_FAILED,
         false, 0, 0, NULL},
        {ETCD_READ, 200, "{\"kvs\":[{\"mod_revision\":\"5\",\"value\":\"AA==\"}]}", ETCD_FAILED,
         false, 0, 0, NULL},
        {ETCD_READ, 200, "{\"kvs\":[{\"mod_revision\":\"-5\",\"value\":\"aG8=\"}]}", ETCD_FAILED,
         false, 0, 0, NULL},
        {ETCD_READ, 200,
         "{\"kvs\":[{\"mod_revision\":\"99999999999999999999\",\"value\":\"aG8=\"}]}", ETCD_FAILED,
         false, 0, 0, NULL},
        {ETCD_READ, 200, "{\"kvs\":[{\"value\":\"aG8=\"}]}", ETCD_FAILED, false, 0, 0, NULL},
        {ETCD_READ, 200, "{\"kvs\":{}}", ETCD_DONE, false, 0, 0, NULL},
        {ETCD_READ, 200, "[]", ETCD_FAILED, false, 0, 0, NULL},
        {ETCD_READ, 200, "", ETCD_FAILED, false, 0, 0, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_answer(&rows[i]);
}

static void answers_about_tokens_leases_and_writes_are_understood(void **state)
{
    (void)state;
    static const struct answer_row rows[] = {
        {ETCD_AUTH, 200, "{\"token\":\"HGSp.13\"}", ETCD_DONE, false, 0, 0, "HGSp.13"},
        {ETCD_AUTH, 200, "{\"token\":\"a b\"}", ETCD_FAILED, false, 0, 0, NULL},
        {ETCD_AUTH, 200, "{\"token\":\"a\\r\\nX: y\"}", ETCD_FAILED, false, 0, 0, NULL},
        {ETCD_AUTH, 200, "{}", ETCD_FAILED, false, 0, 0, NULL},
        {ETCD_AUTH, 400,
         "{\"error\":\"etcdserver: authentication failed, invalid user ID or password\",\"code\":3}",
         ETCD_REFUSED, false, 0, 0, NULL},
        {ETCD_AUTH, 412, "{\"error\":\"etcdserver: authentication is not enabled\",\"code\":9}",
         ETCD_NO_AUTH, false, 0, 0, NULL},
        {ETCD_KEEP, 400, "{\"error\":\"etcdserver: revision of auth store is old\",\"code\":3}",
         ETCD_NO_TOKEN, false, 0, 0, NULL},
        {ETCD_GRANT, 200, "{\"ID\":\"5986869398273903621\",\"TTL\":\"10\"}", ETCD_DONE, false, 0,
         5986869398273903621, NULL},
        {ETCD_GRANT, 200, "{\"TTL\":\"10\"}", ETCD_FAILED, false, 0, 0, NULL},
        {ETCD_KEEP, 200, "{\"result\":{\"ID\":\"77\",\"TTL\":\"10\"}}\n", ETCD_DONE, false, 0, 10,
         NULL},
        {ETCD_KEEP, 200, "{\"result\":{\"ID\":\"77\"}}\n", ETCD_NO_LEASE, false, 0, 0, NULL},
        {ETCD_PUT, 200, "{\"succeeded\":true,\"header\":{\"revision\":\"3\"}}", ETCD_DONE, true, 3,
         0, NULL},
        {ETCD_PUT, 200, "{\"header\":{\"revision\":\"3\"}}", ETCD_LOST, false, 0, 0, NULL},
        {ETCD_PUT, 404, "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}",
         ETCD_NO_LEASE, false, 0, 0, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_answer(&rows[i]);
}

static void questions_are_what_etcd_expects(void **state)
{
    (void)state;
    static const struct {
        struct etcd_ask ask;
        const char *body;
    } rows[] = {
        {{.call = ETCD_AUTH, .user = "u", .password = "p\""},
         "{\"name\":\"u\",\"password\":\"p\\\"\"}"},
        {{.call = ETCD_READ, .key = "/a"}, "{\"key\":\"L2E=\"}"},
        {{.call = ETCD_READ, .key = "/ab"}, "{\"key\":\"L2Fi\"}"},
        {{.call = ETCD_READ, .key = "abcd"}, "{\"key\":\"YWJjZA==\"}"},
        {{.call = ETCD_GRANT, .ttl = 10}, "{\"TTL\":\"10\"}"},
        {{.call = ETCD_KEEP, .lease = INT64_MAX}, "{\"ID\":\"9223372036854775807\"}"},
        {{.call = ETCD_PUT, .key = "a", .value = "b", .lease = 7},
         "{\"compare\":[{\"key\":\"YQ==\",\"target\":\"CREATE\",\"create_revision\":\"0\"}],"
         "\"success\":[{\"request_put\":{\"key\":\"YQ==\",\"value\":\"Yg==\",\"lease\":\"7\"}}]}"},
        {{.call = ETCD_PUT, .key = "a", .value = "b", .lease = 7, .revision = 5},
         "{\"compare\":[{\"key\":\"YQ==\",\"target\":\"MOD\",\"mod_revision\":\"5\"}],"
         "\"success\":[{\"request_put\":{\"key\":\"YQ==\",\"value\":\"Yg==\",\"lease\":\"7\"}}]}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(free) char *body = NULL;
        assert_int_equal(etcd_ask_encode(&body, &rows[i].ask), 0);
        assert_string_equal(body, rows[i].body);
    }
}

static void a_host_writes_what_others_read(void **state)
{
    (void)state;
    DD_AUTO(entry) struct entry e = {
        .id = "0123456789abcdef", .node = "n1", .port = 31000, .epoch = 65537, .started = true};
    DD_AUTO(entry) struct entry r = {0};
    DD_AUTO(free) char *text = NULL;
    memset(e.secret, 'a', ENTRY_SECRET);
    assert_int_equal(dd_strv_push(&e.addrs, "10.0.0.1"), 0);
    assert_int_equal(dd_strv_push(&e.addrs, "fd00::1"), 0);
    assert_int_equal(entry_encode(&text, &e), 0);
    assert_int_equal(entry_decode(&r, text, NULL), 0);
    assert_string_equal(r.node, "n1");
    assert_string_equal(r.secret, e.secret);
    assert_string_equal(r.addrs.v[1], "fd00::1");
    assert_int_equal(r.epoch, 65537);
    assert_true(r.started && r.port == 31000);
}

static void what_no_host_writes_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "{}",
        "x",
#define ENTRY(v, id, node, addrs, port, secret)                                                    \
    "{\"v\":" v ",\"id\":\"" id "\",\"node\":\"" node "\",\"addrs\":" addrs ",\"port\":" port      \
    ",\"epoch\":0,\"started\":0,\"secret\":\"" secret "\"}"
        ENTRY("2", "0123456789abcdef", "n", "[\"1.2.3.4\"]", "1", ""),
        ENTRY("1", "0123", "n", "[\"1.2.3.4\"]", "1", ""),
        ENTRY("1", "0123456789abcdef", "n\\n", "[\"1.2.3.4\"]", "1", ""),
        ENTRY("1", "0123456789abcdef", "n", "[]", "1", ""),
        ENTRY("1", "0123456789abcdef", "n", "[1]", "1", ""),
        ENTRY("1", "0123456789abcdef", "n", "[\"a b\"]", "1", ""),
        ENTRY("1", "0123456789abcdef", "n", "[\"1.2.3.4\"]", "0", ""),
        ENTRY("1", "0123456789abcdef", "n", "[\"1.2.3.4\"]", "1", "ab"),
        ENTRY("1", "0123456789abcdef", "", "[\"1.2.3.4\"]", "1", ""),
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(entry) struct entry e = {0};
        struct dd_err err = {0};
        if (entry_decode(&e, rows[i], &err) == 0)
            fail_msg("%s was taken", rows[i]);
        assert_string_not_equal(err.text, "");
    }
}

/* ---- claim of the host ---- */

/* A transition: state and event, and the resulting request and action. */
struct edge_row {
    const struct claim *from;
    enum claim_event e;
    const struct claim_seen *seen;
    enum claim_ask ask;
    enum claim_do act;
    int64_t revision;
};

static void check_edge(const struct edge_row *row, size_t i)
{
    struct claim c = *row->from;
    struct claim_out out = claim_step(&c, row->e, row->seen);
    if (out.ask != row->ask || out.act != row->act ||
        (out.ask == CLAIM_ASK_PUT && out.revision != row->revision))
        fail_msg("row %zu: asks %d, does %d, revision %lld", i, (int)out.ask, (int)out.act,
                 (long long)out.revision);
    assert_true(c.asked == (out.ask != CLAIM_ASK_NOTHING) || row->e == CLAIM_CHECK);
    assert_true(out.ask != CLAIM_ASK_NOTHING || out.wait_ms > 0 ||
                row->e == CLAIM_CHECK); /* no state is final */
}

static const struct claim from_seek = {.asked = true};
static const struct claim from_seek_leased = {.asked = true, .lease = true};
static const struct claim from_fresh = {.hosting = true, .lease = true, .asked = true};
static const struct claim from_begun = {
    .hosting = true, .lease = true, .started = true, .epoch = 5, .asked = true};
static const struct claim from_idle = {.hosting = true, .lease = true};
static const struct claim_seen seen_none = {.there = false};
static const struct claim_seen seen_mine = {
    .there = true, .mine = true, .same = true, .revision = 3};
static const struct claim_seen seen_mine_old = {.there = true, .mine = true, .revision = 3};
static const struct claim_seen seen_other = {.there = true, .revision = 4};
static const struct claim_seen seen_other_begun = {
    .there = true, .revision = 4, .started = true, .epoch = 4};
static const struct claim_seen seen_other_later = {
    .there = true, .revision = 4, .started = true, .epoch = 6};

static void each_edge_of_a_claim_that_seeks_a_host(void **state)
{
    (void)state;
    static const struct edge_row rows[] = {
        {&from_seek, CLAIM_READ, &seen_none, CLAIM_ASK_GRANT, CLAIM_DO_NOTHING, 0},
        {&from_seek, CLAIM_GRANTED, NULL, CLAIM_ASK_PUT, CLAIM_DO_NOTHING, 0},
        {&from_seek, CLAIM_WON, NULL, CLAIM_ASK_NOTHING, CLAIM_DO_HOST, 0},
        {&from_seek, CLAIM_BEATEN, NULL, CLAIM_ASK_READ, CLAIM_DO_NOTHING, 0},
        {&from_seek, CLAIM_LEASE_GONE, NULL, CLAIM_ASK_READ, CLAIM_DO_NOTHING, 0},
        {&from_seek, CLAIM_READ, &seen_other, CLAIM_ASK_NOTHING, CLAIM_DO_FOLLOW, 0},
        {&from_seek_leased, CLAIM_READ, &seen_none, CLAIM_ASK_PUT, CLAIM_DO_NOTHING, 0},
        {&from_seek_leased, CLAIM_READ, &seen_mine, CLAIM_ASK_NOTHING, CLAIM_DO_HOST,
         0}, /* the reply to the PUT was lost */
        {&from_seek, CLAIM_FAILED, NULL, CLAIM_ASK_NOTHING, CLAIM_DO_NOTHING, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_edge(&rows[i], i);
}

static void each_edge_of_a_claim_that_hosts(void **state)
{
    (void)state;
    static const struct edge_row rows[] = {
        {&from_idle, CLAIM_TIME, NULL, CLAIM_ASK_KEEP, CLAIM_DO_NOTHING, 0},
        {&from_idle, CLAIM_CHANGED, NULL, CLAIM_ASK_READ, CLAIM_DO_NOTHING, 0},
        {&from_fresh, CLAIM_KEPT, NULL, CLAIM_ASK_READ, CLAIM_DO_NOTHING, 0},
        {&from_fresh, CLAIM_READ, &seen_mine, CLAIM_ASK_NOTHING, CLAIM_DO_STAY, 0},
        {&from_fresh, CLAIM_READ, &seen_mine_old, CLAIM_ASK_PUT, CLAIM_DO_NOTHING, 3},
        {&from_fresh, CLAIM_READ, &seen_none, CLAIM_ASK_PUT, CLAIM_DO_NOTHING, 0},
        {&from_fresh, CLAIM_READ, &seen_other, CLAIM_ASK_NOTHING, CLAIM_DO_YIELD, 0},
        {&from_fresh, CLAIM_READ, &seen_other_begun, CLAIM_ASK_NOTHING, CLAIM_DO_YIELD, 0},
        {&from_fresh, CLAIM_WON, NULL, CLAIM_ASK_NOTHING, CLAIM_DO_STAY, 0},
        {&from_begun, CLAIM_READ, &seen_other, CLAIM_ASK_PUT, CLAIM_DO_NOTHING, 4},
        {&from_begun, CLAIM_READ, &seen_other_begun, CLAIM_ASK_PUT, CLAIM_DO_NOTHING, 4},
        {&from_begun, CLAIM_READ, &seen_other_later, CLAIM_ASK_NOTHING, CLAIM_DO_STAY, 0},
        {&from_begun, CLAIM_FAILED, NULL, CLAIM_ASK_NOTHING, CLAIM_DO_NOTHING, 0},
        {&from_begun, CLAIM_CHECK, NULL, CLAIM_ASK_NOTHING, CLAIM_DO_NOTHING,
         0}, /* a request is pending */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_edge(&rows[i], i);
}

static void failures_come_at_growing_intervals_and_free_who_waits(void **state)
{
    (void)state;
    struct claim c = {.hosting = true, .lease = true, .asked = true, .check = true};
    struct claim_out out = claim_step(&c, CLAIM_FAILED, NULL);
    assert_int_equal(out.act, CLAIM_DO_STAY);
    unsigned last = out.wait_ms;
    for (int i = 0; i < 40; i++) {
        (void)claim_step(&c, CLAIM_TIME, NULL);
        (void)claim_step(&c, CLAIM_KEPT, NULL);
        out = claim_step(&c, CLAIM_FAILED, NULL);
        assert_true(out.wait_ms >= last && out.wait_ms <= CLAIM_KEEP_MS);
        last = out.wait_ms;
    }
    assert_int_equal(last, CLAIM_KEEP_MS);
}

/* A full etcd answers reads and refuses writes: the claim must not retry at the rate of its
 * replies. */
static void an_etcd_that_only_reads_is_asked_at_growing_intervals(void **state)
{
    (void)state;
    struct claim c = {0};
    unsigned last = 0;
    (void)claim_step(&c, CLAIM_BEGIN, NULL);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(claim_step(&c, CLAIM_READ, &seen_none).ask, CLAIM_ASK_GRANT);
        const struct claim_out out = claim_step(&c, CLAIM_FAILED, NULL);
        assert_true(out.wait_ms >= last && out.wait_ms <= CLAIM_LOOK_MS);
        last = out.wait_ms;
        assert_int_equal(claim_step(&c, CLAIM_TIME, NULL).ask, CLAIM_ASK_READ);
    }
    assert_int_equal(last, CLAIM_LOOK_MS);
    assert_int_equal(claim_step(&c, CLAIM_READ, &seen_other).act, CLAIM_DO_FOLLOW);
    (void)claim_step(&c, CLAIM_TIME, NULL);
    assert_true(claim_step(&c, CLAIM_FAILED, NULL).wait_ms < CLAIM_LOOK_MS);
}

/* The claim waits between requests to an etcd that grants leases, but does not know them. */
static void leases_that_are_gone_at_once_are_waited_for(void **state)
{
    (void)state;
    static const enum claim_event answers[] = {[CLAIM_ASK_READ] = CLAIM_READ,
                                               [CLAIM_ASK_GRANT] = CLAIM_GRANTED,
                                               [CLAIM_ASK_PUT] = CLAIM_LEASE_GONE};
    struct claim c = {0};
    struct claim_out out = claim_step(&c, CLAIM_BEGIN, NULL);
    int asked = 0;
    while (out.ask != CLAIM_ASK_NOTHING && asked < 100) {
        asked++;
        out = claim_step(&c, answers[out.ask], &seen_none);
    }
    assert_true(asked < 100);
    assert_true(out.wait_ms > 0);
}

/* A simulation of nodes and an etcd whose replies are lost at random. A lease ends when its node
 * cannot reach etcd for too long. */
enum { NODES = 6, STEPS = 4000 };

struct sim_node {
    struct claim c;
    int lease; /* 0: none */
    bool dead, daemon;
    struct claim_out todo; /* request without a reply yet */
    bool timer;
};

struct sim {
    struct sim_node nodes[NODES];
    int leases, owner; /* owner: node that owns the key; -1: none */
    int key_lease;
    struct claim_seen key;
    int64_t revision;
    uint64_t random;
};

static unsigned roll(struct sim *s, unsigned n)
{
    s->random = s->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(s->random >> 33) % n;
}

static void drop_key(struct sim *s)
{
    s->owner = -1;
    s->key = (struct claim_seen){0};
}

static void handle(struct sim *s, struct sim_node *n, struct claim_out out)
{
    (void)s;
    if (out.ask != CLAIM_ASK_NOTHING) {
        n->todo = out;
        n->timer = false;
    } else if (out.wait_ms > 0) {
        n->timer = true;
    }
    if (out.act == CLAIM_DO_HOST) {
        n->daemon = true;
        claim_set(&n->c, true, 0, false);
    }
    if (out.act == CLAIM_DO_YIELD)
        n->daemon = false;
}

static void answer(struct sim *s, int i)
{
    struct sim_node *n = &s->nodes[i];
    const struct claim_out todo = n->todo;
    const bool lost = roll(s, 10) == 0;
    struct claim_seen seen = s->key;
    enum claim_event e = CLAIM_READ;
    n->todo = (struct claim_out){0};
    if (todo.ask == CLAIM_ASK_GRANT && !lost) {
        n->lease = ++s->leases;
        e = CLAIM_GRANTED;
    } else if (todo.ask == CLAIM_ASK_KEEP) {
        e = n->lease > 0 ? CLAIM_KEPT : CLAIM_LEASE_GONE;
    } else if (todo.ask == CLAIM_ASK_PUT && n->lease == 0) {
        e = CLAIM_LEASE_GONE;
    } else if (todo.ask == CLAIM_ASK_PUT) {
        e = s->key.revision == todo.revision ? CLAIM_WON : CLAIM_BEATEN;
        if (e == CLAIM_WON) { /* takes effect even if the reply is lost */
            s->owner = i;
            s->key_lease = n->lease;
            s->key = (struct claim_seen){.there = true,
                                         .revision = ++s->revision,
                                         .started = n->c.started,
                                         .epoch = n->c.epoch};
        }
    }
    seen.mine = s->key.there && s->owner == i && s->key_lease == n->lease;
    seen.same = seen.mine && s->key.started == n->c.started;
    handle(s, n, claim_step(&n->c, lost ? CLAIM_FAILED : e, &seen));
}

static void end_lease(struct sim *s, int i)
{
    if (s->owner == i && s->key_lease == s->nodes[i].lease)
        drop_key(s);
    s->nodes[i].lease = 0;
}

static void one_step(struct sim *s, bool calm)
{
    const int i = (int)roll(s, NODES);
    struct sim_node *n = &s->nodes[i];
    const unsigned what = calm ? 0 : roll(s, 200);
    if (what == 1)
        end_lease(s, i); /* without connection to etcd for too long */
    if (what == 2 && n->daemon &&
        !n->c.started) { /* The job begins; it never does while another one runs. */
        bool other = false;
        for (int k = 0; k < NODES; k++)
            other |= k != i && s->nodes[k].c.started;
        if (!other && s->owner == i) {
            claim_set(&n->c, true, 0, true);
            handle(s, n, claim_step(&n->c, CLAIM_CHANGED, NULL));
        }
    }
    if (n->todo.ask != CLAIM_ASK_NOTHING)
        answer(s, i);
    else if (n->timer)
        handle(s, n, claim_step(&n->c, CLAIM_TIME, NULL));
}

/* After all faults there is one host, it owns the key, and its job is the one that has begun. */
static void there_is_one_host_in_the_end(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct sim s = {.owner = -1, .random = seed};
        int hosts = 0;
        int begun = -1;
        for (int i = 0; i < NODES; i++)
            handle(&s, &s.nodes[i], claim_step(&s.nodes[i].c, CLAIM_BEGIN, NULL));
        for (int k = 0; k < STEPS; k++)
            one_step(&s, false);
        for (int k = 0; k < STEPS; k++)
            one_step(&s, true);
        for (int i = 0; i < NODES; i++) {
            hosts += s.nodes[i].daemon;
            if (s.nodes[i].c.started)
                begun = i;
        }
        if (hosts != 1 || !s.nodes[s.owner].daemon || (begun >= 0 && s.owner != begun))
            fail_msg("seed %u: %d hosts, the key is of %d, begun has %d", seed, hosts, s.owner,
                     begun);
    }
}

/* ---- the helper's packets ---- */

static void packets_come_out_as_they_went_in(void **state)
{
    (void)state;
    const struct web_request r = {.urls = {"http://a", "http://b"},
                                  .headers = {"A: b"},
                                  .body = "{}",
                                  .key = "/k",
                                  .limit_ms = 7,
                                  .direct = true};
    const struct web_answer a = {.status = 404, .from = 1, .body = "x\"y"};
    DD_AUTO(free) char *text = NULL;
    DD_AUTO(free) char *answered = NULL;
    DD_AUTO(web_answer) struct web_answer b = {0};
    struct web_asked q;
    assert_int_equal(web_request_encode(&text, &r), 0);
    assert_int_equal(web_request_decode(&q, text, strlen(text)), 0);
    assert_string_equal(q.request.urls[1], "http://b");
    assert_null(q.request.urls[2]);
    assert_string_equal(q.request.headers[0], "A: b");
    assert_string_equal(q.request.key, "/k");
    assert_null(q.request.cert);
    assert_true(q.request.direct && q.request.limit_ms == 7);
    web_asked_done(&q);
    assert_int_equal(web_answer_encode(&answered, &a), 0);
    assert_int_equal(web_answer_decode(&b, answered, strlen(answered)), 0);
    assert_string_equal(b.body, "x\"y");
    assert_true(b.status == 404 && b.from == 1);
    assert_int_equal(web_answer_decode(&b, "{}", 2), -EPROTO);
}

/* The error of a TLS failure may quote the server's certificate. */
static void what_a_server_says_does_not_reach_a_terminal_as_it_is(void **state)
{
    (void)state;
    const struct web_answer a = {.error = "subject 'a\x1b[31mb\n' \xc3\xa9"};
    DD_AUTO(free) char *text = NULL;
    DD_AUTO(web_answer) struct web_answer b = {0};
    assert_int_equal(web_answer_encode(&text, &a), 0);
    assert_int_equal(web_answer_decode(&b, text, strlen(text)), 0);
    assert_string_equal(b.error, "subject 'a\\x1b[31mb\\x0a' \\xc3\\xa9");
}

/* Act as the helper: reply with the requested URL as the error, or exit without a reply. */
static int be_the_helper(void)
{
    static char packet[WEB_PACKET_MAX];
    ssize_t n;
    while ((n = recv(WEB_FD, packet, sizeof(packet), 0)) > 0) {
        DD_AUTO(free) char *text = NULL;
        struct web_asked asked;
        if (web_request_decode(&asked, packet, (size_t)n) < 0)
            return 1;
        const struct web_answer a = {.error = asked.request.urls[0]};
        if (strcmp(a.error, "http://kill") == 0)
            (void)raise(SIGKILL);
        if (strcmp(a.error, "http://exit") == 0)
            _exit(127);
        const int rc = web_answer_encode(&text, &a);
        web_asked_done(&asked);
        if (rc < 0 || send(WEB_FD, text, strlen(text), MSG_NOSIGNAL) < 0)
            return 1;
    }
    return 0;
}

static void keep_error(void *arg, const struct web_answer *a)
{
    (void)snprintf(arg, 100, "%s", a->error);
}

/* The first request fails, as no helper can be started; the second one starts a helper. Each gets
 * its own reply. */
static void each_request_has_its_own_answer(void **state)
{
    (void)state;
    char *const env[] = {NULL};
    char said[2][100] = {"", ""};
    const struct web_request r[] = {{.urls = {"http://first"}, .body = "{}", .limit_ms = 1000},
                                    {.urls = {"http://second"}, .body = "{}", .limit_ms = 1000}};
    struct web_cfg cfg = {.base = event_base_new(), .helper = "/proc/self/exe", .env = env};
    struct web *w = NULL;
    struct rlimit before;
    assert_int_equal(web_new(&w, &cfg, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max}), 0);
    assert_int_equal(web_post(w, &r[0], keep_error, said[0]), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(web_post(w, &r[1], keep_error, said[1]), 0);
    for (int i = 0; i < 100 && said[1][0] == '\0'; i++)
        assert_true(event_base_loop(cfg.base, EVLOOP_ONCE) >= 0);
    assert_string_equal(said[0], "cannot start the helper ddrun-web, or send it the request: "
                                 "Too many open files");
    assert_string_equal(said[1], "http://second");
    web_free(w);
    event_base_free(cfg.base);
}

static void count(void *arg, pid_t pid)
{
    assert_true(pid > 0);
    ++*(int *)arg;
}

/* A killed helper is replaced, since the OOM killer or an operator may have killed it; but a
 * request that kills every helper is retried a few times only. */
static void a_killed_helper_is_started_again_for_the_same_request_but_not_for_ever(void **state)
{
    (void)state;
    static const struct {
        const char *url, *says;
        int started;
    } rows[] = {
        {"http://exit",
         "the helper ddrun-web ended without an answer (exit status 127; ddrun-web --check "
         "tests it)",
         1},
        {"http://kill",
         "the helper ddrun-web ended without an answer (signal 9; ddrun-web --check tests it)", 3},
        {"http://idle", "http://idle", 1},
        {"http://next", "http://next", 1}};
    char *const env[] = {NULL};
    int started = 0;
    struct web_cfg cfg = {.base = event_base_new(),
                          .helper = "/proc/self/exe",
                          .env = env,
                          .started = count,
                          .arg = &started};
    struct web *w = NULL;
    assert_int_equal(web_new(&w, &cfg, NULL), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++, started = 0) {
        const struct web_request r = {.urls = {rows[i].url}, .body = "{}", .limit_ms = 1000};
        char said[100] = "";
        if (strcmp(rows[i].url, "http://next") ==
            0) { /* killed, but not reaped before the request */
            const pid_t idle = web_pid(w);
            assert_true(idle > 0 && kill(idle, SIGKILL) == 0);
            assert_int_equal(waitid(P_PID, (id_t)idle, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
        }
        assert_int_equal(web_post(w, &r, keep_error, said), 0);
        for (int k = 0; k < 100 && said[0] == '\0'; k++)
            assert_true(event_base_loop(cfg.base, EVLOOP_ONCE) >= 0);
        assert_string_equal(said, rows[i].says);
        assert_int_equal(started, rows[i].started);
    }
    web_free(w);
    event_base_free(cfg.base);
}

int main(int argc, char **argv)
{
    if (argc == 1 && strcmp(argv[0], "ddrun-web") == 0)
        return be_the_helper();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_taken_apart),
        cmocka_unit_test(malformed_urls_are_refused),
        cmocka_unit_test(a_refused_url_does_not_tell_its_password),
        cmocka_unit_test(answers_to_reads_are_understood),
        cmocka_unit_test(answers_about_tokens_leases_and_writes_are_understood),
        cmocka_unit_test(questions_are_what_etcd_expects),
        cmocka_unit_test(a_host_writes_what_others_read),
        cmocka_unit_test(what_no_host_writes_is_refused),
        cmocka_unit_test(each_edge_of_a_claim_that_seeks_a_host),
        cmocka_unit_test(each_edge_of_a_claim_that_hosts),
        cmocka_unit_test(failures_come_at_growing_intervals_and_free_who_waits),
        cmocka_unit_test(an_etcd_that_only_reads_is_asked_at_growing_intervals),
        cmocka_unit_test(leases_that_are_gone_at_once_are_waited_for),
        cmocka_unit_test(there_is_one_host_in_the_end),
        cmocka_unit_test(packets_come_out_as_they_went_in),
        cmocka_unit_test(what_a_server_says_does_not_reach_a_terminal_as_it_is),
        cmocka_unit_test(each_request_has_its_own_answer),
        cmocka_unit_test(a_killed_helper_is_started_again_for_the_same_request_but_not_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
