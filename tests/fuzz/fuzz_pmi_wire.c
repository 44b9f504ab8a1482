/* PMI-1: any bytes as lines of a worker, and as the part of another node. */
#include "pmi/kvs.h"
#include "pmi/pmi1_wire.h"

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

static void check_text(const char *text, const char *from, size_t n, size_t max)
{
    must(text == NULL || (text > from && text <= from + n && strlen(text) < max));
}

static void as_line(const uint8_t *data, size_t n)
{
    struct pmi_request r = {.cmd = PMI_CMD_MAX};
    char *line = malloc(n + 1); /* exact size: AddressSanitizer guards its end */
    must(line != NULL);
    if (n > 0)
        memcpy(line, data, n);
    int rc = pmi_request_parse(&r, line, n, NULL);
    must(rc == 0 || rc == -EPROTO);
    if (rc == 0) {
        must(r.cmd < PMI_CMD_MAX);
        check_text(r.kvsname, line, n, PMI_NAME_MAX);
        check_text(r.key, line, n, PMI_NAME_MAX);
        check_text(r.value, line, n, PMI_VALUE_MAX);
        must(r.cmd != PMI_PUT || (r.kvsname != NULL && r.key != NULL && r.value != NULL));
        must(r.cmd != PMI_GET || (r.kvsname != NULL && r.key != NULL));
    }
    free(line);
}

static void as_part(const uint8_t *data, size_t n)
{
    static const unsigned char seed[16];
    struct kvs *k;
    must(kvs_new(&k, seed) == 0);
    int rc = kvs_take(k, data, n, NULL);
    must(rc == 0 || rc == -EPROTO);
    size_t len;
    must(kvs_news(k, &len) != NULL && len == 0);
    kvs_free(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *from = data;
    for (const uint8_t *end;
         size > 0 && (end = memchr(from, '\n', (size_t)(data + size - from))) != NULL;
         from = end + 1)
        as_line(from, (size_t)(end - from));
    as_part(data, size);
    return 0;
}
