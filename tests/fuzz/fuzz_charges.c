/* rdzv: any text as charges of nodes; accepted ones survive encoding and decoding. */
#include "rdzv/charges.h"

#include "base/auto.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_same(const struct charge *a, const struct charge *b)
{
    return a->index == b->index && a->n == b->n && a->fresh == b->fresh && a->rest == b->rest &&
           a->age_ms == b->age_ms && a->before_ms == b->before_ms &&
           strcmp(a->name, b->name) == 0 && strcmp(a->why, b->why) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(CHARGES_BYTES);
    DD_AUTO(charges) struct charges c = {0};
    DD_AUTO(charges) struct charges again = {0};
    if (text == NULL || charges_parse(&c, text, size) < 0)
        return 0;
    for (int i = 0; i < c.count; i++)
        if (charge_format(&out, &c.v[i]) < 0)
            abort();
    if (c.count == 0)
        return 0;
    if (charges_parse(&again, dd_buf_str(&out), 0) < 0 || again.count != c.count)
        abort();
    for (int i = 0; i < c.count; i++)
        if (!is_same(&c.v[i], &again.v[i]))
            abort();
    return 0;
}
