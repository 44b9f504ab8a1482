/* The hello messages of caller and daemon. */
#include "net/hello.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define BYTES(s) (s), sizeof(s) - 1
#define MAGIC "\xdd\x64r"

static const struct {
    const char *bytes;
    size_t n;
    int rc;
} bad_calls[] = {
    {BYTES("\x00"), -EPROTO},
    {BYTES("G"), -EPROTO},
    {BYTES("\xddx"), -EPROTO},
    {BYTES("\xdd\x64x"), -EPROTO},
    {BYTES(MAGIC "\x02"), -EPROTONOSUPPORT},
    {BYTES(MAGIC "\x00"), -EPROTONOSUPPORT},
    {BYTES(MAGIC "\x01\x20\x00"), -EPROTO}, /* longer than HELLO_MAX */
    {BYTES(MAGIC "\x01\xff\xff"), -EPROTO},
    {BYTES(MAGIC "\x01\x00\x00"), -EPROTO},
    {BYTES(MAGIC "\x01\x00\x02j\0"), -EPROTO},     /* no node */
    {BYTES(MAGIC "\x01\x00\x03j\0n"), -EPROTO},    /* not NUL-terminated */
    {BYTES(MAGIC "\x01\x00\x03\0n\0"), -EPROTO},   /* no job */
    {BYTES(MAGIC "\x01\x00\x05j\0n\0x"), -EPROTO}, /* trailing byte */
};

static void hello_call_refuses_garbage_at_its_first_bad_byte(void **state)
{
    (void)state;
    struct hello_call c;
    for (size_t i = 0; i < sizeof(bad_calls) / sizeof(bad_calls[0]); i++) {
        assert_int_equal(hello_call_decode(&c, bad_calls[i].bytes, bad_calls[i].n),
                         bad_calls[i].rc);
        for (size_t n = 0; n < bad_calls[i].n; n++)
            assert_int_equal(hello_call_decode(&c, bad_calls[i].bytes, n), 0);
    }
}

static void hello_call_refuses_names_that_do_not_fit(void **state)
{
    (void)state;
    unsigned char in[600] = MAGIC "\x01";
    struct hello_call c;
    memset(in + 6, 'j', sizeof(in) - 6);
    in[4] = (256 + 3) >> 8;
    in[5] = (256 + 3) & 255;
    in[6 + 256] = '\0'; /* 256 characters */
    in[6 + 258] = '\0';
    assert_int_equal(hello_call_decode(&c, in, sizeof(in)), -EPROTO);
    in[5]--;
    in[6 + 255] = '\0'; /* 255 */
    in[6 + 256] = 'j';
    in[6 + 257] = '\0';
    assert_int_equal(hello_call_decode(&c, in, sizeof(in)), 6 + 256 + 2);
    assert_int_equal(strlen(c.job_id), 255);
    assert_string_equal(c.node, "j");

    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HELLO_MAX);
    memset(c.node, 'n', sizeof(c.node)); /* not NUL-terminated */
    assert_int_equal(hello_call_encode(&out, &c), -EINVAL);
    c.node[0] = c.job_id[0] = '\0';
    assert_int_equal(hello_call_encode(&out, &c), -EINVAL);
    assert_int_equal(out.len, 0);
}

static void hello_call_has_the_documented_bytes_and_is_read_at_every_cut(void **state)
{
    (void)state;
    static const struct hello_call c = {.job_id = "slurm-1.0", .node = "node3"};
    static const char want[] = MAGIC "\x01\x00\x10slurm-1.0\0node3";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HELLO_MAX);
    struct hello_call back = {.node = "untouched"};
    assert_int_equal(hello_call_encode(&out, &c), 0);
    assert_int_equal(out.len, sizeof(want));
    assert_memory_equal(out.data, want, sizeof(want));
    for (size_t n = 0; n < out.len; n++) {
        assert_int_equal(hello_call_decode(&back, out.data, n), 0);
        assert_int_equal(hello_need(out.data, n), n < 6 ? 6 : out.len);
    }
    assert_string_equal(back.node, "untouched");
    assert_int_equal(dd_buf_puts(&out, "what follows"), 0);
    assert_int_equal(hello_call_decode(&back, out.data, out.len), sizeof(want));
    assert_string_equal(back.job_id, "slurm-1.0");
    assert_string_equal(back.node, "node3");
}

static void hello_reply_refuses_garbage(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int rc;
    } rows[] = {
        {BYTES("SSH-2.0"), -EPROTO},
        {BYTES(MAGIC "\x07"), -EPROTONOSUPPORT},
        {BYTES(MAGIC "\x01\x20\x00"), -EPROTO},
        {BYTES(MAGIC "\x01\x00\x00"), -EPROTO},
        {BYTES(MAGIC "\x01\x00\x02\x00\x01"), -EPROTO},     /* no credential */
        {BYTES(MAGIC "\x01\x00\x03\x04\x01\x00"), -EPROTO}, /* status */
        {BYTES(MAGIC "\x01\x00\x03\x00\x04\x00"), -EPROTO}, /* method */
        {BYTES(MAGIC "\x01\x00\x04\x00\x01\x00x"), -EPROTO},
        {BYTES(MAGIC "\x01\x00\x04\x00\x01xy"), -EPROTO},
        {BYTES(MAGIC "\x01\x00\x03\x00\x01\x00"), 9},
    };
    struct hello_reply r;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(hello_reply_decode(&r, rows[i].bytes, rows[i].n), rows[i].rc);
}

static void hello_reply_is_read_at_every_cut(void **state)
{
    (void)state;
    struct hello_reply r = {.status = HELLO_OK, .method = NET_KEY_MUNGE};
    struct hello_reply back = {.cred = "untouched"};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HELLO_MAX);
    memset(r.cred, 'c', sizeof(r.cred) - 1); /* maximum length */
    assert_int_equal(hello_reply_encode(&out, &r), 0);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(hello_reply_decode(&back, out.data, n), 0);
    assert_string_equal(back.cred, "untouched");
    assert_int_equal(hello_reply_decode(&back, out.data, out.len), out.len);
    assert_int_equal(back.status, HELLO_OK);
    assert_int_equal(back.method, NET_KEY_MUNGE);
    assert_string_equal(back.cred, r.cred);
    r.cred[sizeof(r.cred) - 1] = 'c';
    assert_int_equal(hello_reply_encode(&out, &r), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_call_refuses_garbage_at_its_first_bad_byte),
        cmocka_unit_test(hello_call_refuses_names_that_do_not_fit),
        cmocka_unit_test(hello_call_has_the_documented_bytes_and_is_read_at_every_cut),
        cmocka_unit_test(hello_reply_refuses_garbage),
        cmocka_unit_test(hello_reply_is_read_at_every_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
