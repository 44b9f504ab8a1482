/* report: any file for 'ddctl report'; what is printed is bounded and cannot control a terminal. */
#include "base/utf8.h"
#include "report/report_read.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    struct dd_err err = {0};
    const int rc = report_read(size > 0 ? (const char *)data : "", size, &out, &err);
    if (rc != 0 && rc != -EINVAL && rc != -ENOMEM)
        abort();
    for (size_t i = 0; i < out.len;) {
        const size_t n = dd_utf8_len((const char *)out.data + i, out.len - i);
        if (n == 0 || (out.data[i] < 0x20 && out.data[i] != '\n') || out.data[i] == 0x7f)
            abort();
        i += n;
    }
    return 0;
}
