/* store/c10d: recorded requests and replies, whole, byte by byte and truncated; invalid input. */
#include "store/c10d.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "failing_alloc.h"

enum { CONNS = 3, MIB = 1 << 20 };

#define VALIDATE "00cef7853c"

struct rig {
    struct c10d c10d;
    struct c10d_conn conn[CONNS];
    struct store_out out[CONNS];
    struct dd_err err;
};

static void *xmalloc(size_t n)
{
    void *p = malloc(n > 0 ? n : 1);
    if (p == NULL)
        abort();
    return p;
}

static void on_woken(struct c10d_conn *c)
{
    struct rig *r = (struct rig *)(void *)((char *)c->c10d - offsetof(struct rig, c10d));
    (void)store_out_u8(&r->out[c - r->conn], 0);
}

static const struct c10d_calls calls = {.woken = on_woken};

static void rig_limits(struct store_limits *l)
{
    *l = (struct store_limits){.max_key = 8192,
                               .max_value = 8 * MIB,
                               .max_count = 131072,
                               .max_bytes = (size_t)1024 * MIB,
                               .max_request = (size_t)256 * MIB,
                               .max_output = MIB};
}

static struct rig *rig_new(enum store_old_clients old)
{
    static const unsigned char seed[DD_SIPHASH_SEED] = "fixed for tests";
    struct rig *r = xmalloc(sizeof(*r));
    *r = (struct rig){.c10d = {.old = old, .calls = &calls}};
    rig_limits(&r->c10d.limits);
    struct store_engine_limits el = {r->c10d.limits.max_value, r->c10d.limits.max_bytes};
    assert_int_equal(store_engine_new(&r->c10d.engine, &el, seed), 0);
    for (int i = 0; i < CONNS; i++) {
        c10d_conn_init(&r->conn[i], &r->c10d);
        store_out_init(&r->out[i], store_engine_account(r->c10d.engine), (size_t)256 * MIB);
    }
    return r;
}

static void rig_free(struct rig *r)
{
    for (int i = 0; i < CONNS; i++) {
        c10d_conn_done(&r->conn[i]);
        store_out_done(&r->out[i]);
    }
    store_engine_clear(r->c10d.engine);
    assert_int_equal(store_engine_account(r->c10d.engine)->used, 0);
    store_engine_free(r->c10d.engine);
    free(r);
}

static size_t unhex(const char *hex, unsigned char *out)
{
    size_t n = 0;
    for (; hex[0] != '\0' && hex[1] != '\0'; hex += 2) {
        unsigned v;
        assert_int_equal(sscanf(hex, "%2x", &v), 1);
        out[n++] = (unsigned char)v;
    }
    return n;
}

static int feed(struct rig *r, int i, const void *p, size_t n)
{
    return c10d_feed(&r->conn[i], p, n, &r->out[i], &r->err);
}

static int feed_hex(struct rig *r, int i, const char *hex)
{
    unsigned char bytes[4096];
    return feed(r, i, bytes, unhex(hex, bytes));
}

/* Return all unsent replies as hex in `text`, and mark them as sent. */
static const char *replies(struct rig *r, int i, char *text, size_t size)
{
    struct store_out *o = &r->out[i];
    struct iovec iov[8];
    size_t at = 0;
    text[0] = '\0';
    while (o->total > 0) {
        size_t n = store_out_iov(o, iov, 8), sent = 0;
        for (size_t k = 0; k < n; k++) {
            const unsigned char *p = iov[k].iov_base;
            for (size_t j = 0; j < iov[k].iov_len; j++, at += 2)
                assert_true(snprintf(text + at, size - at, "%02x", p[j]) == 2 && at + 3 < size);
            sent += iov[k].iov_len;
        }
        store_out_sent(o, sent);
    }
    return text;
}

static void answers(struct rig *r, int i, const char *want)
{
    char text[16384];
    assert_string_equal(replies(r, i, text, sizeof(text)), want);
}

/* ---- the recorded vectors ---- */

struct step {
    const char *what, *send, *want;
};

/* clang-format off */
/* Each step depends on those before it. Src: recorded from torch 2.13.0. */
static const struct step vectors[] = {
    {"validate", VALIDATE, ""},
    {"ping", "0dda360000", "da360000"},
    {"set k=v", "0102000000000000002f6b010000000000000076", ""},
    {"set e empty", "0102000000000000002f650000000000000000", ""},
    {"wait [k]", "06010000000000000002000000000000002f6b", "00"},
    {"get k", "0302000000000000002f6b", "010000000000000076"},
    {"get e", "0302000000000000002f65", "0000000000000000"},
    {"add n 5", "0402000000000000002f6e0500000000000000", "0500000000000000"},
    {"add n -7", "0402000000000000002f6ef9ffffffffffffff", "feffffffffffffff"},
    {"get n", "0302000000000000002f6e", "02000000000000002d32"},
    {"check [k]", "05010000000000000002000000000000002f6b", "00"},
    {"check [k,zz]", "05020000000000000002000000000000002f6b03000000000000002f7a7a", "01"},
    {"check []", "050000000000000000", "00"},
    {"wait [k,n]", "06020000000000000002000000000000002f6b02000000000000002f6e", "00"},
    {"wait []", "060000000000000000", "00"},
    {"num_keys", "07", "0300000000000000"},
    {"compare_set cs '' A", "0203000000000000002f63730000000000000000010000000000000041",
     "010000000000000041"},
    {"compare_set cs A B", "0203000000000000002f6373010000000000000041010000000000000042",
     "010000000000000042"},
    {"compare_set cs A C", "0203000000000000002f6373010000000000000041010000000000000043",
     "010000000000000042"},
    {"compare_set cs '' D", "0203000000000000002f63730000000000000000010000000000000044",
     "010000000000000042"},
    {"compare_set cs2 x y", "0204000000000000002f637332010000000000000078010000000000000079",
     "010000000000000078"},
    {"num_keys without cs2", "07", "0400000000000000"},
    {"delete k", "0802000000000000002f6b", "0100000000000000"},
    {"delete k again", "0802000000000000002f6b", "0000000000000000"},
    {"append ap po", "0903000000000000002f61700200000000000000706f", ""},
    {"append ap tato", "0903000000000000002f617004000000000000007461746f", ""},
    {"get ap", "0303000000000000002f6170", "0600000000000000706f7461746f"},
    {"multi_set m1=11 m2=''",
     "0b020000000000000003000000000000002f6d310200000000000000313103000000000000002f6d3"
     "20000000000000000",
     ""},
    {"multi_get [m1,m2]", "0a020000000000000003000000000000002f6d3103000000000000002f6d32",
     "020000000000000031310000000000000000"},
    {"multi_get []", "0a0000000000000000", ""},
    {"multi_set []", "0b0000000000000000", ""},
    {"wait [nope]", "06010000000000000005000000000000002f6e6f7065", ""},
    {"cancel_wait", "0c", "01"},
    {"cancel_wait, nothing waits", "0c", "01"},
    {"queue_len q", "1002000000000000002f71", "0000000000000000"},
    {"queue_push q x", "0e02000000000000002f71010000000000000078", ""},
    {"queue_push q yy", "0e02000000000000002f7102000000000000007979", ""},
    {"check [q]", "05010000000000000002000000000000002f71", "00"},
    {"num_keys without queues", "07", "0600000000000000"},
    {"queue_pop q", "0f02000000000000002f71", "0200000000000000010000000000000078"},
    {"queue_pop q", "0f02000000000000002f71", "010000000000000002000000000000007979"},
    {"queue_pop q, empty", "0f02000000000000002f71", "0000000000000000"},
    {"barrier b1 world 1", "1203000000000000002f62310100000000000000", "00"},
    {"barrier b2 world 2", "1203000000000000002f62320200000000000000", ""},
    {"cancel_wait of the barrier", "0c", "01"},
    {"get b2", "0303000000000000002f6232", "010000000000000031"},
    {"barrier b2 world 2", "1203000000000000002f62320200000000000000", "00"},
    {"barrier b2 third", "1203000000000000002f62320200000000000000", "00"},
    {"get b2 is 3", "0303000000000000002f6232", "010000000000000033"},
    {"add mx INT64_MAX", "0403000000000000002f6d78ffffffffffffff7f", "ffffffffffffff7f"},
    {"add mx 1 wraps", "0403000000000000002f6d780100000000000000", "0000000000000080"},
    {"set num ' 12abc'", "0104000000000000002f6e756d0600000000000000203132616263", ""},
    {"add num 1", "0404000000000000002f6e756d0100000000000000", "0d00000000000000"},
    {"init counter", "040500000000000000696e69742f0100000000000000", "0100000000000000"},
    {"get of a missing key", "0302000000000000002f3f", "0000000000000000"},
    {"multi_get with a missing key", "0a020000000000000002000000000000002f3f03000000000000002f6d31",
     "000000000000000002000000000000003131"},
};
/* clang-format on */
enum { VECTORS = sizeof(vectors) / sizeof(vectors[0]) };

static void run_step(struct rig *r, int i, const struct step *s)
{
    assert_int_equal(feed_hex(r, i, s->send), 0);
    answers(r, i, s->want);
}

static void vectors_are_answered_as_recorded(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    for (size_t i = 0; i < VECTORS; i++)
        run_step(r, 0, &vectors[i]);
    assert_int_equal(r->c10d.ops_done, VECTORS - 1);
    rig_free(r);
}

static void vectors_are_answered_byte_by_byte(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    for (size_t i = 0; i < VECTORS; i++) {
        unsigned char bytes[256];
        size_t n = unhex(vectors[i].send, bytes);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(r->out[0].total, 0);
            assert_int_equal(feed(r, 0, &bytes[k], 1), 0);
        }
        answers(r, 0, vectors[i].want);
        assert_null(r->conn[0].pend);
    }
    rig_free(r);
}

static void vectors_are_answered_all_in_one_piece(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < 200; cut += 7) { /* whole, and cut in two */
        struct rig *r = rig_new(STORE_OLD_REFUSE);
        unsigned char bytes[8192];
        char want[16384] = "";
        size_t n = 0;
        for (size_t i = 0; i < VECTORS; i++) {
            n += unhex(vectors[i].send, bytes + n);
            strcat(want, vectors[i].want);
        }
        assert_int_equal(feed(r, 0, bytes, cut), 0);
        assert_int_equal(feed(r, 0, bytes + cut, n - cut), 0);
        answers(r, 0, want);
        rig_free(r);
    }
}

/* An incomplete request is not carried out and leaves no memory allocated. */
static void broken_off_requests_change_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < VECTORS; i++) {
        unsigned char bytes[256];
        size_t n = unhex(vectors[i].send, bytes);
        struct rig *r = rig_new(STORE_OLD_REFUSE);
        for (size_t k = 0; k < i; k++)
            run_step(r, 0, &vectors[k]);
        size_t used = store_engine_account(r->c10d.engine)->used;
        uint64_t ops = r->c10d.ops_done;
        for (size_t len = 0; len < n; len++) {
            c10d_conn_done(&r->conn[1]);
            c10d_conn_init(&r->conn[1], &r->c10d);
            assert_int_equal(feed_hex(r, 1, i > 0 ? VALIDATE : ""), 0);
            assert_int_equal(feed(r, 1, bytes, len), 0);
            assert_int_equal(c10d_end(&r->conn[1], &r->out[1], &r->err), 0);
            assert_int_equal(r->out[1].total, 0);
        }
        c10d_conn_done(&r->conn[1]);
        store_out_done(&r->out[1]);
        assert_int_equal(store_engine_account(r->c10d.engine)->used, used);
        assert_int_equal(r->c10d.ops_done, ops);
        rig_free(r);
    }
}

static void list_keys_gives_each_key_once(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    char text[1024];
    for (size_t i = 0; i < 42; i++) /* up to the last queue operation */
        run_step(r, 0, &vectors[i]);
    assert_int_equal(feed_hex(r, 0, "11"), 0);
    (void)replies(r, 0, text, sizeof(text));
    static const char *const names[] = {"2f6d32", "2f6170", "2f6373", "2f6d31", "2f65", "2f6e"};
    assert_memory_equal(text, "0600000000000000", 16);
    assert_int_equal(strlen(text), 2 * (8 + 6 * 8 + 4 * 3 + 2 * 2));
    for (size_t i = 0; i < 6; i++) {
        char want[32];
        (void)snprintf(want, sizeof(want), "%02zx00000000000000%s", strlen(names[i]) / 2, names[i]);
        assert_non_null(strstr(text, want));
    }
    rig_free(r);
}

/* ---- older clients ---- */

/* clang-format off */
static const struct step table_21[] = {
    {"set k=v", "0002000000000000002f6b010000000000000076", ""},
    {"compare_set c '' A", "0102000000000000002f630000000000000000010000000000000041",
     "010000000000000041"},
    {"get k", "0202000000000000002f6b", "010000000000000076"},
    {"add n 5", "0302000000000000002f6e0500000000000000", "0500000000000000"},
    {"check [k]", "04010000000000000002000000000000002f6b", "00"},
    {"wait [k]", "05010000000000000002000000000000002f6b", "00"},
    {"num_keys", "06", "0300000000000000"},
    {"delete k", "0702000000000000002f6b", "0100000000000000"},
    {"append a b", "0802000000000000002f61010000000000000062", ""},
    {"multi_get [a]", "09010000000000000002000000000000002f61", "010000000000000062"},
    {"multi_set m=1", "0a010000000000000002000000000000002f6d010000000000000031", ""},
    {"wait [nope]", "05010000000000000005000000000000002f6e6f7065", ""},
    {"cancel", "0b", "01"},
};

static const struct step table_113[] = {
    {"set k=v", "0002000000000000002f6b010000000000000076", ""},
    {"compare_set c '' A", "0102000000000000002f630000000000000000010000000000000041",
     "010000000000000041"},
    {"get k", "0202000000000000002f6b", "010000000000000076"},
    {"add n 5", "0302000000000000002f6e0500000000000000", "0500000000000000"},
    {"check [k]", "04010000000000000002000000000000002f6b", "00"},
    {"wait [k]", "05010000000000000002000000000000002f6b", "00"},
    {"num_keys", "06", "0300000000000000"},
    {"watch k", "0702000000000000002f6b", "03"},
    {"delete k", "0802000000000000002f6b", "0100000000000000"},
    {"wait [nope]", "05010000000000000005000000000000002f6e6f7065", ""},
    {"goes on without it", "0202000000000000002f6e", "010000000000000035"},
};
/* clang-format on */

static void old_table(enum store_old_clients old, const struct step *steps, size_t n,
                      const char *unknown)
{
    struct rig *r = rig_new(old);
    for (size_t i = 0; i < n; i++)
        run_step(r, 0, &steps[i]);
    /* A cancelled wait sends no byte when its key is set. */
    assert_int_equal(feed_hex(r, 1, "0005000000000000002f6e6f70650000000000000000"), 0);
    answers(r, 0, "");
    /* A new client on the same server; its first requests arrive byte by byte. */
    for (size_t i = 0; i < VECTORS; i++) {
        unsigned char bytes[256];
        size_t len = unhex(vectors[i].send, bytes);
        for (size_t k = 0; i < 2 && k < len; k++)
            assert_int_equal(feed(r, 2, &bytes[k], 1), 0);
    }
    answers(r, 2, "da360000");
    assert_int_equal(feed_hex(r, 1, unknown), -EPROTO);
    rig_free(r);
}

static void torch_21_is_served_when_allowed(void **state)
{
    (void)state;
    old_table(STORE_OLD_21, table_21, sizeof(table_21) / sizeof(table_21[0]), "0c");
}

static void torch_113_is_served_when_allowed(void **state)
{
    (void)state;
    old_table(STORE_OLD_113, table_113, sizeof(table_113) / sizeof(table_113[0]), "09");
}

/* ---- bad input ---- */

/* clang-format off */
static const struct {
    const char *what, *send;
    int rc;
    const char *says;
} bad[] = {
    {"other op first", "07", -EPROTO, "VALIDATE"},
    {"http", "474554202f20", -EPROTO, "VALIDATE"},
    {"old client", "0002000000000000002f6b", -EPROTO, "VALIDATE"},
    {"wrong magic", "00cef7853d", -EPROTO, "VALIDATE"},
    {"wrong early in magic", "00cf", -EPROTO, "VALIDATE"},
    {"validate twice", VALIDATE VALIDATE, -EPROTO, "duplicate"},
    {"unknown op", VALIDATE "13", -EPROTO, "operation 0x13"},
    {"unknown op ff", VALIDATE "ff", -EPROTO, "operation 0xff"},
    {"key too long", VALIDATE "030120000000000000", -EMSGSIZE, "key length"},
    {"key huge", VALIDATE "03ffffffffffffffff", -EMSGSIZE, "key length"},
    {"value too long", VALIDATE "0102000000000000002f6b0100800000000000", -EMSGSIZE, "value length"},
    {"value 2^63", VALIDATE "0102000000000000002f6b0000000000000080", -EMSGSIZE, "value length"},
    {"count too large", VALIDATE "060100020000000000", -EMSGSIZE, "count"},
    {"count huge", VALIDATE "0affffffffffffffff", -EMSGSIZE, "count"},
    {"key in a list", VALIDATE "05010000000000000001200000000000ff", -EMSGSIZE, "key length"},
    {"add on empty", VALIDATE "0102000000000000002f6e0000000000000000"
                                      "0402000000000000002f6e0100000000000000", -EINVAL, "'/n' is not a"},
    {"barrier on text", VALIDATE "0102000000000000002f6e010000000000000078"
                                      "1202000000000000002f6e0200000000000000", -EINVAL, "'/n' is not a"},
};
/* clang-format on */

static void bad_input_closes_with_a_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        for (int bytewise = 0; bytewise < 2; bytewise++) {
            struct rig *r = rig_new(STORE_OLD_REFUSE);
            unsigned char bytes[256];
            size_t n = unhex(bad[i].send, bytes);
            int rc = bytewise ? 0 : feed(r, 0, bytes, n);
            for (size_t k = 0; bytewise && rc == 0 && k < n; k++)
                rc = feed(r, 0, &bytes[k], 1);
            assert_int_equal(rc, bad[i].rc);
            assert_non_null(strstr(r->err.text, bad[i].says));
            assert_int_equal(r->out[0].total, 0);
            rig_free(r);
        }
}

static void nothing_is_carried_out_before_the_handshake(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, "0102000000000000002f6b010000000000000076" VALIDATE), -EPROTO);
    assert_int_equal(store_keys(r->c10d.engine), 0);
    rig_free(r);
}

static void request_over_the_limit_is_refused_before_it_is_read(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    r->c10d.limits.max_request = 1000;
    assert_int_equal(feed_hex(r, 0, VALIDATE "0101000000000000006bd803000000000000"), -EMSGSIZE);
    assert_non_null(strstr(r->err.text, "request length 1002"));
    rig_free(r);
}

/* The store allocates memory for received bytes only, not for declared lengths. */
static void declared_length_is_not_allocated(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE "0101000000000000006b0000800000000000ff"), 0);
    assert_in_range(store_engine_account(r->c10d.engine)->used, 1, 10000);
    rig_free(r);
}

static void full_store_closes(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE "0101000000000000006b010000000000000076"), 0);
    struct store_account *account = store_engine_account(r->c10d.engine);
    account->max = account->used + 250;
    /* All or nothing: there would be room for the first key. */
    assert_int_equal(feed_hex(r, 0,
                              "0b0200000000000000"
                              "010000000000000061"
                              "0000000000000000"
                              "010000000000000062"
                              "0000000000000000"),
                     -ENOSPC);
    assert_non_null(strstr(r->err.text, "MULTI_SET: the store is full"));
    assert_int_equal(store_keys(r->c10d.engine), 1);
    rig_free(r);
}

/* ---- order ---- */

#define GET_K "0301000000000000006b"
#define WAIT_K                                                                                     \
    "0601000000000000000100000000000000"                                                           \
    "6b"
#define SET_K "0101000000000000006b010000000000000076"
#define PING_1 "0d01000000"

static void requests_behind_a_wait_stay_behind_it(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE WAIT_K GET_K PING_1), 0);
    answers(r, 0, "");
    assert_int_equal(feed_hex(r, 1, VALIDATE SET_K), 0);
    answers(r, 0, "00");
    assert_true(r->conn[0].busy);
    assert_int_equal(c10d_resume(&r->conn[0], &r->out[0], &r->err), 0);
    answers(r, 0,
            "010000000000000076"
            "01000000");
    assert_false(r->conn[0].busy || r->conn[0].blocked);
    rig_free(r);
}

static void ping_overtakes_a_wait(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE WAIT_K PING_1), 0);
    answers(r, 0, "01000000");
    assert_int_equal(feed_hex(r, 1, VALIDATE SET_K), 0);
    answers(r, 0, "00");
    rig_free(r);
}

static void cancel_behind_other_requests_ends_the_wait(void **state)
{
    (void)state;
    unsigned char bytes[256];
    size_t n = unhex(WAIT_K GET_K SET_K "0c", bytes);
    for (size_t cut = 0; cut <= n; cut++) {
        struct rig *r = rig_new(STORE_OLD_REFUSE);
        assert_int_equal(feed_hex(r, 0, VALIDATE), 0);
        assert_int_equal(feed(r, 0, bytes, cut), 0);
        assert_int_equal(feed(r, 0, bytes + cut, n - cut), 0);
        answers(r, 0,
                "0000000000000000"
                "01");
        assert_int_equal(store_keys(r->c10d.engine), 1);
        assert_int_equal(store_waiters(r->c10d.engine), 0);
        rig_free(r);
    }
}

static void cancel_that_crosses_the_end_comes_second(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE WAIT_K), 0);
    assert_int_equal(feed_hex(r, 1, VALIDATE SET_K), 0);
    assert_int_equal(feed_hex(r, 0, "0c"), 0);
    answers(r, 0, "0001");
    rig_free(r);
}

static void cancelled_wait_is_silent_for_good(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE WAIT_K "0c"), 0);
    assert_int_equal(feed_hex(r, 1, VALIDATE SET_K), 0);
    answers(r, 0, "01");
    rig_free(r);
}

static void what_was_sent_before_the_end_is_carried_out(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE WAIT_K "0101000000000000006a0000000000000000"), 0);
    assert_int_equal(store_keys(r->c10d.engine), 0);
    assert_int_equal(c10d_end(&r->conn[0], &r->out[0], &r->err), 0);
    assert_int_equal(store_keys(r->c10d.engine), 1);
    assert_int_equal(store_waiters(r->c10d.engine), 0);
    rig_free(r);
}

static void connection_that_goes_leaves_no_wait(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE WAIT_K), 0);
    c10d_conn_done(&r->conn[0]);
    assert_int_equal(store_waiters(r->c10d.engine), 0);
    assert_int_equal(feed_hex(r, 1, VALIDATE SET_K), 0);
    assert_int_equal(r->out[0].total, 0);
    rig_free(r);
}

static void item_of_a_queue_is_not_lost_with_the_one_it_woke(void **state)
{
    static const char wait_q[] = VALIDATE "06010000000000000001000000000000007"
                                          "1";
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, wait_q), 0);
    assert_int_equal(feed_hex(r, 1, wait_q), 0);
    assert_int_equal(feed_hex(r, 2, VALIDATE "0e010000000000000071010000000000000078"), 0);
    answers(r, 0, "00");
    answers(r, 1, "");
    c10d_conn_done(&r->conn[0]);
    answers(r, 1, "00");
    rig_free(r);
}

/* ---- load ---- */

static void put_str(unsigned char **p, const void *s, uint64_t n)
{
    for (int i = 0; i < 8; i++)
        *(*p)++ = (unsigned char)(n >> (8 * i));
    memcpy(*p, s, n);
    *p += n;
}

/* Return a MULTI_SET of n keys of 8 digits and values of `len` bytes. */
static unsigned char *multi_set(size_t n, size_t len, size_t *ret_n)
{
    unsigned char *buf = xmalloc(9 + n * (24 + len)), *p = buf, *value = xmalloc(len);
    memset(value, 'v', len);
    *p++ = 0x0b;
    for (int i = 0; i < 8; i++)
        *p++ = (unsigned char)(n >> (8 * i));
    for (size_t i = 0; i < n; i++) {
        char key[24];
        (void)snprintf(key, sizeof(key), "%08zu", i);
        put_str(&p, key, 8);
        put_str(&p, value, len);
    }
    free(value);
    *ret_n = (size_t)(p - buf);
    return buf;
}

/* A parser that restarts at each byte would need 10^13 steps here. */
static void multi_set_of_32000_keys_is_parsed_once(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    size_t n;
    unsigned char *req = multi_set(32000, 100, &n);
    assert_int_equal(feed_hex(r, 0, VALIDATE), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(store_keys(r->c10d.engine), 0);
        assert_int_equal(feed(r, 0, req + i, 1), 0);
    }
    assert_int_equal(store_keys(r->c10d.engine), 32000);
    free(req);
    rig_free(r);
}

/* Feed like the server: through the scratch buffer, and in place once the value is long. */
static void feed_as_server(struct rig *r, int i, const unsigned char *p, size_t n, size_t piece)
{
    while (n > 0) {
        void *room;
        size_t room_n, now = n < piece ? n : piece;
        assert_int_equal(c10d_room(&r->conn[i], &room, &room_n, &r->err), 0);
        if (room_n > 0) {
            now = now < room_n ? now : room_n;
            memcpy(room, p, now);
            assert_int_equal(c10d_got(&r->conn[i], now, &r->out[i], &r->err), 0);
        } else {
            assert_int_equal(feed(r, i, p, now), 0);
        }
        p += now;
        n -= now;
    }
}

static void long_values_are_taken_with_their_buffer(void **state)
{
    static const size_t sizes[] = {40000, 65536, 1000000, 8 * MIB};
    static const size_t pieces[] = {1000, 65536, 3 * MIB};
    (void)state;
    for (size_t k = 0; k < 12; k++) {
        struct rig *r = rig_new(STORE_OLD_REFUSE);
        size_t len = sizes[k / 3];
        unsigned char *value = xmalloc(len), *req = xmalloc(len + 64), *p = req;
        for (size_t i = 0; i < len; i++)
            value[i] = (unsigned char)(i * 7 + i / 251);
        *p++ = k % 2 ? 0x0e : 0x01; /* queue item or key */
        put_str(&p, "k", 1);
        put_str(&p, value, len);
        assert_int_equal(feed_hex(r, 0, VALIDATE), 0);
        feed_as_server(r, 0, req, (size_t)(p - req), pieces[k % 3]);
        assert_null(r->conn[0].pend);
        assert_in_range(store_engine_account(r->c10d.engine)->used, len, len + len / 8 + 66000);
        assert_int_equal(feed_hex(r, 0, k % 2 ? "0f01000000000000006b" : GET_K), 0);
        struct iovec iov[4];
        assert_int_equal(store_out_iov(&r->out[0], iov, 4), 2);
        assert_int_equal(iov[1].iov_len, len); /* shared, not copied */
        assert_memory_equal(iov[1].iov_base, value, len);
        store_out_sent(&r->out[0], r->out[0].total);
        free(value);
        free(req);
        rig_free(r);
    }
}

static void flood_is_carried_out_in_turns(void **state)
{
    enum { PINGS = 10000 };
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    unsigned char *req = xmalloc(PINGS * 5);
    for (size_t i = 0; i < PINGS; i++)
        memcpy(req + i * 5, "\x0d\x01\x02\x03\x04", 5);
    assert_int_equal(feed_hex(r, 0, VALIDATE), 0);
    assert_int_equal(feed(r, 0, req, PINGS * 5), 0);
    int turns = 1;
    for (; r->conn[0].busy; turns++) {
        assert_in_range(r->c10d.ops_done, 1, PINGS - 1);
        assert_int_equal(c10d_resume(&r->conn[0], &r->out[0], &r->err), 0);
    }
    assert_int_equal(r->c10d.ops_done, PINGS);
    assert_int_equal(r->out[0].total, PINGS * 4);
    assert_in_range(turns, 5, PINGS / 10);
    free(req);
    rig_free(r);
}

static void replies_nobody_reads_stop_the_requests(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    size_t n;
    unsigned char *req = multi_set(1, 100000, &n);
    assert_int_equal(feed_hex(r, 0, VALIDATE), 0);
    assert_int_equal(feed(r, 0, req, n), 0);
    for (int i = 0; i < 100 && !r->conn[0].busy; i++)
        assert_int_equal(feed_hex(r, 0, "0308000000000000003030303030303030"), 0);
    assert_true(r->conn[0].busy);
    assert_in_range(r->out[0].total, MIB, MIB + 100100);
    store_out_sent(&r->out[0], r->out[0].total);
    assert_int_equal(c10d_resume(&r->conn[0], &r->out[0], &r->err), 0);
    assert_false(r->conn[0].busy);
    assert_int_equal(r->out[0].total, 100008);
    free(req);
    rig_free(r);
}

static void little_is_kept_behind_a_wait(void **state)
{
    (void)state;
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    assert_int_equal(feed_hex(r, 0, VALIDATE WAIT_K), 0);
    int n = 0;
    for (; c10d_wants_input(&r->conn[0]) && n < 100000; n++)
        assert_int_equal(feed_hex(r, 0, GET_K), 0);
    assert_in_range(n, 1000, 10000);
    rig_free(r);
}

/* ---- out of memory ---- */

/* Run all vectors with the nth allocation failing; false: there were fewer allocations. */
static bool vectors_with_failure(size_t n, bool bytewise)
{
    struct rig *r = rig_new(STORE_OLD_REFUSE);
    int rc = 0;
    fail_at = n;
    for (size_t i = 0; rc == 0 && i < VECTORS; i++) {
        unsigned char bytes[256];
        size_t len = unhex(vectors[i].send, bytes);
        rc = bytewise ? 0 : feed(r, 0, bytes, len);
        for (size_t k = 0; bytewise && rc == 0 && k < len; k++)
            rc = feed(r, 0, &bytes[k], 1);
        if (rc == 0)
            answers(r, 0, vectors[i].want);
    }
    bool hit = fail_at == 0;
    fail_at = 0;
    if (rc < 0) {
        assert_true(hit);
        assert_int_equal(rc, -ENOMEM);
        assert_non_null(strstr(r->err.text, "out of memory"));
    }
    rig_free(r); /* checks that no memory remains charged to the account */
    return hit;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        size_t n = 1;
        while (vectors_with_failure(n, bytewise))
            n++;
        assert_in_range(n, 20, 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_input_closes_with_a_sentence),
        cmocka_unit_test(nothing_is_carried_out_before_the_handshake),
        cmocka_unit_test(request_over_the_limit_is_refused_before_it_is_read),
        cmocka_unit_test(declared_length_is_not_allocated),
        cmocka_unit_test(full_store_closes),
        cmocka_unit_test(vectors_are_answered_as_recorded),
        cmocka_unit_test(vectors_are_answered_byte_by_byte),
        cmocka_unit_test(vectors_are_answered_all_in_one_piece),
        cmocka_unit_test(broken_off_requests_change_nothing),
        cmocka_unit_test(list_keys_gives_each_key_once),
        cmocka_unit_test(torch_21_is_served_when_allowed),
        cmocka_unit_test(torch_113_is_served_when_allowed),
        cmocka_unit_test(requests_behind_a_wait_stay_behind_it),
        cmocka_unit_test(ping_overtakes_a_wait),
        cmocka_unit_test(cancel_behind_other_requests_ends_the_wait),
        cmocka_unit_test(cancel_that_crosses_the_end_comes_second),
        cmocka_unit_test(cancelled_wait_is_silent_for_good),
        cmocka_unit_test(what_was_sent_before_the_end_is_carried_out),
        cmocka_unit_test(connection_that_goes_leaves_no_wait),
        cmocka_unit_test(item_of_a_queue_is_not_lost_with_the_one_it_woke),
        cmocka_unit_test(multi_set_of_32000_keys_is_parsed_once),
        cmocka_unit_test(long_values_are_taken_with_their_buffer),
        cmocka_unit_test(flood_is_carried_out_in_turns),
        cmocka_unit_test(replies_nobody_reads_stop_the_requests),
        cmocka_unit_test(little_is_kept_behind_a_wait),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
