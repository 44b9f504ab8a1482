/* report: any text as a phase of an agent; an accepted one survives encoding and decoding. */
#include "report/phases.h"

#include "base/auto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    struct phase p;
    struct phase again;
    char out[PHASE_TEXT_MAX];
    if (text == NULL || phase_parse(&p, text) < 0)
        return 0;
    phase_format(out, &p);
    if (phase_parse(&again, out) < 0 || again.kind != p.kind || again.rank != p.rank ||
        again.value != p.value || again.begin_ns != p.begin_ns || again.end_ns != p.end_ns ||
        p.begin_ns < 0 || p.end_ns < p.begin_ns)
        abort();
    return 0;
}
