/* hello: any bytes as a call and as a reply; an accepted one must encode to the same bytes, and a
 * reader that reads as many bytes as hello_need() returns gets the same result. */
#include "net/hello.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static int as_call(const uint8_t *data, size_t n)
{
    struct hello_call c;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HELLO_MAX);
    int rc = hello_call_decode(&c, data, n);
    if (rc > 0) {
        must(hello_call_encode(&out, &c) == 0);
        must(out.len == (size_t)rc && memcmp(out.data, data, out.len) == 0);
    }
    return rc;
}

static int as_reply(const uint8_t *data, size_t n)
{
    struct hello_reply r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(HELLO_MAX);
    int rc = hello_reply_decode(&r, data, n);
    if (rc > 0) {
        must(hello_reply_encode(&out, &r) == 0);
        must(out.len == (size_t)rc && memcmp(out.data, data, out.len) == 0);
    }
    return rc;
}

static void check(int (*decode)(const uint8_t *, size_t), const uint8_t *data, size_t size)
{
    int all = decode(data, size);
    int rc = 0;
    must(all >= 0 || all == -EPROTO || all == -EPROTONOSUPPORT);
    must(all <= HELLO_MAX && (all <= 0 || (size_t)all <= size));
    for (size_t n = 0; rc == 0 && n < size;) {
        size_t need = hello_need(data, n);
        must(need > n); /* more bytes are needed while decode() returns 0 */
        n = need < size ? need : size;
        rc = decode(data, n);
    }
    must(rc == all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(as_call, data, size);
    check(as_reply, data, size);
    return 0;
}
