/* report: any text for 'ddctl metrics --format=json'. What is accepted becomes valid JSON. */
#include "base/auto.h"
#include "report/metrics_json.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(8 << 20);
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    if (size > 16384 || text == NULL)
        return 0;
    const int rc = metrics_json(text, &out);
    json_t *o = rc == 0 ? json_loadb((char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL)
                        : NULL;
    if (rc == 0 ? o == NULL : rc != -EINVAL && rc != -ENOMEM)
        abort();
    json_decref(o);
    return 0;
}
