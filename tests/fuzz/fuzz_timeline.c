/* report: any file for 'ddctl timeline'. */
#include "report/timeline_summary.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    struct dd_err err;
    const int rc = timeline_summary(&out, size > 0 ? (const char *)data : "", size, &err);
    if (rc != 0 && rc != -EINVAL && rc != -ENOMEM)
        abort();
    dd_buf_clear(&out);
    if (timeline_summary_json(&out, size > 0 ? (const char *)data : "", size, &err) == 0) {
        json_t *o = json_loadb((char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
        if (o == NULL)
            abort();
        json_decref(o);
    }
    return 0;
}
