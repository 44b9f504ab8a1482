/* Frames of the link. */
#include "net/frame.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void frame_that_is_too_long_is_refused_by_its_header(void **state)
{
    (void)state;
    static const struct {
        const char bytes[5];
        uint32_t max;
        long rc;
    } rows[] = {
        {"\x00\x00\x00\x05", 4, -EPROTO},
        {"\x00\x00\x00\x04", 4, 0},
        {"\xff\xff\xff\xff", UINT32_MAX, -EPROTO},
        {"\x01\x00\x00\x01", UINT32_MAX, -EPROTO}, /* FRAME_MAX + 1 */
        {"\x01\x00\x00\x00", UINT32_MAX, 0},
    };
    struct frame f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t need = 0;
        assert_int_equal(frame_decode(&f, rows[i].bytes, 3, rows[i].max, &need), 0);
        assert_int_equal(need, FRAME_HEADER);
        assert_int_equal(frame_decode(&f, rows[i].bytes, 4, rows[i].max, NULL), rows[i].rc);
    }
}

static void frame_longer_than_the_limit_is_not_made(void **state)
{
    (void)state;
    static char big[FRAME_MAX + 1];
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(FRAME_MAX + 100);
    assert_int_equal(frame_encode(&b, FRAME_CONTROL, big, FRAME_MAX + 1), -EMSGSIZE);
    assert_int_equal(b.len, 0);
    assert_int_equal(frame_encode(&b, FRAME_CONTROL, big, FRAME_MAX), 0);
    assert_int_equal(frame_encode(&b, FRAME_CONTROL, big, 200), -EMSGSIZE); /* the buffer's limit */
    assert_int_equal(b.len, FRAME_HEADER + FRAME_MAX);
}

static void frame_has_the_documented_bytes(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(100);
    assert_int_equal(frame_encode(&b, FRAME_OUTPUT, "abc", 3), 0);
    assert_int_equal(frame_encode(&b, FRAME_BYE, NULL, 0), 0);
    static const char want[] = "\0\0\0\3\0\3\0\1abc\0\0\0\0\0\2\0\1";
    assert_int_equal(b.len, sizeof(want) - 1);
    assert_memory_equal(b.data, want, b.len);
}

static void frame_is_read_at_every_cut(void **state)
{
    (void)state;
    static const unsigned char in[] = "\0\0\0\3\0\3\0\1abc\0\0\0\0\1\2\3\4";
    struct frame f = {.len = 99};
    size_t need;
    for (size_t n = 0; n < 11; n++) {
        assert_int_equal(frame_decode(&f, in, n, 10, &need), 0);
        assert_int_equal(need, n < 4 ? FRAME_HEADER : 11);
        assert_int_equal(f.len, 99);
    }
    for (size_t n = 11; n < sizeof(in); n++) {
        assert_int_equal(frame_decode(&f, in, n, 10, &need), 11);
        assert_int_equal(f.type, FRAME_OUTPUT);
        assert_int_equal(f.version, 1);
        assert_int_equal(f.len, 3);
        assert_memory_equal(f.data, "abc", 3);
    }
    assert_int_equal(frame_decode(&f, in + 11, 8, 0, NULL), 8);
    assert_int_equal(f.type, 0x0102);
    assert_int_equal(f.version, 0x0304);
    assert_int_equal(f.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_that_is_too_long_is_refused_by_its_header),
        cmocka_unit_test(frame_longer_than_the_limit_is_not_made),
        cmocka_unit_test(frame_has_the_documented_bytes),
        cmocka_unit_test(frame_is_read_at_every_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
