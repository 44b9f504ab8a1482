/* launch: any text as the node file of a PBS job; the first line is the host to look up. */
#include "base/auto.h"
#include "launch/tm.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = malloc(size + 1); /* AddressSanitizer guards its end */
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    const char *nl = size > 0 ? memchr(text, '\n', size) : NULL;
    const size_t n = nl != NULL ? (size_t)(nl - text) : size;
    DD_AUTO(free) char *host = strndup(size > 0 ? text : "", n);
    int lines = -1;
    if (host == NULL)
        return 0;
    const size_t from = n < size ? n + 1 : size;
    const int line = tm_line_of(text + from, size - from, host, &lines);
    if (lines < 0 || lines > TM_NODES_MAX || line < -1 || line >= lines)
        abort();
    return 0;
}
