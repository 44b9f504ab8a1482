/* ddrun-pmix: any bytes as messages between it and the agent; an accepted one must encode to the
 * same bytes. */
#include "pmi/hmsg.h"

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

static void check_texts(const struct hmsg *m)
{
    size_t at = 0;
    const char *text;
    while ((text = hmsg_text(m, &at)) != NULL)
        must(at <= m->len && (const unsigned char *)text + strlen(text) + 1 == m->data + at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hmsg m;
    DD_AUTO(buf) struct dd_buf again = DD_BUF_INIT(HMSG_MAX + HMSG_HEAD);
    int n = hmsg_decode(&m, data, size);
    must(n == -EPROTO || (n >= 0 && (size_t)n <= size));
    must(n <= 0 || hmsg_size(data, HMSG_HEAD) == n);
    if (n <= 0)
        return 0;
    check_texts(&m);
    must(hmsg_encode(&again, &m) == 0 && again.len == (size_t)n &&
         memcmp(again.data, data, again.len) == 0);
    return 0;
}
