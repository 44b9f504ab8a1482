/* http_request: any bytes as the head of a request. An accepted one has a valid name, parsing byte
 * by byte gives the same result, and no further input makes a rejected one valid. */
#include "http/request.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct http_request r;
    struct kv_name again;
    int all = http_request_parse(&r, text, size);
    int rc = 0;
    must(all >= 0 || all == -EINVAL || all == -EMSGSIZE);
    must(all <= HTTP_HEAD_MAX && (all <= 0 || (size_t)all <= size));
    if (all > 0) {
        must(kv_name_parse(&again, r.name.text, r.name.len) && again.scope_len == r.name.scope_len);
        must(r.name.text > text && r.name.text + r.name.len < text + all);
        must(r.method == HTTP_PUT || r.body == 0);
    }
    for (size_t n = 0; rc == 0 && n < size && size < 4096; n++)
        rc = http_request_parse(&r, text, n);
    must(rc == 0 || rc == all);
    return 0;
}
