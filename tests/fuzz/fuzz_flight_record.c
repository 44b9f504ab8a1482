/* report: any bytes as the dump of PyTorch's flight recorder; what is read can be described, and
 * compared with itself. */
#include "base/utf8.h"
#include "report/flight_record.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text)
{
    for (const char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            abort();
    if (strlen(text) >= FLIGHT_TEXT_MAX || !dd_utf8_is(text))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
    struct flight_of_rank ranks[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    if (flight_record_read(&ranks[0].record, data, size) < 0)
        return 0;
    check(ranks[0].record.group);
    check(ranks[0].record.name);
    check(ranks[0].record.place);
    ranks[1].record = ranks[0].record;
    if (flight_record_describe(&out, &ranks[0].record) < 0 ||
        flight_record_compare(&out, ranks, 2) != 0)
        abort();
    if (flight_record_compare(&out, ranks, 3) < 0)
        abort();
    return 0;
}
