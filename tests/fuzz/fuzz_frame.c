/* frame: any bytes as a stream of frames; an accepted frame must encode to the same bytes. */
#include "net/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1000 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_again(const struct frame *f, const uint8_t *from, size_t n)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(FRAME_MAX + 100);
    if (f->version != FRAME_VERSION)
        return;
    must(frame_encode(&out, f->type, f->data, f->len) == 0);
    must(out.len == n && memcmp(out.data, from, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        struct frame f;
        size_t need = 0;
        long n = frame_decode(&f, data + at, size - at, LIMIT, &need);
        if (n <= 0) {
            must(n == -EPROTO || (n == 0 && need > size - at && need <= FRAME_HEADER + LIMIT));
            break;
        }
        must((size_t)n == need && (size_t)n <= size - at && f.len <= LIMIT);
        must(frame_decode(&f, data + at, (size_t)n - 1, LIMIT, NULL) == 0); /* incomplete */
        check_again(&f, data + at, (size_t)n);
        at += (size_t)n;
    }
    return 0;
}
