/* report: any bytes as the error file of a worker; an accepted one is bounded and valid UTF-8. */
#include "base/utf8.h"
#include "report/error_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text, size_t max)
{
    char *clean = strdup(text);
    if (clean == NULL || strlen(text) > max || strcmp(dd_utf8_clean(clean), text) != 0)
        abort();
    free(clean);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct report_error e = {0};
    if (report_error_parse(&e, data, size) < 0)
        return 0;
    check(e.message, ERROR_MESSAGE_MAX);
    check(e.trace, ERROR_TRACE_MAX);
    (void)report_is_exception(e.message, strlen(e.message));
    report_error_done(&e);
    return 0;
}
