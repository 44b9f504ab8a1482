/* rdzv: any text as a file with charges; those of an accepted one survive writing and reading. */
#include "base/auto.h"
#include "rdzv/charges.h"
#include "tests/fuzz/input_text.h"

#include <stdbool.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char id[] = "slurm.c.7.0";
    static const uint64_t now_ms = UINT64_C(1795264803000);
    DD_AUTO(free) char *text = input_text(data, size);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT((size_t)1 << 24);
    const char *charges;
    const char *again;
    uint64_t age_ms;
    if (text == NULL || charges_file_parse(text, id, now_ms, &charges, &age_ms) < 0)
        return 0;
    if (charges < text || charges > text + strlen(text) || age_ms > now_ms)
        abort();
    if (charges_file_format(&out, id, now_ms - age_ms, charges) < 0)
        abort();
    if (charges_file_parse(dd_buf_str(&out), id, now_ms, &again, &age_ms) < 0 ||
        strcmp(charges, again) != 0)
        abort();
    return 0;
}
