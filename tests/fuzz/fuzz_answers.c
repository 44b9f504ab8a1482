/* doctor: any text as the place to send answers to; an accepted one has a port and hosts. */
#include "doctor/answers.h"

#include "base/auto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(strv) struct dd_strv hosts = {0};
    struct dd_err err = {.text = ""};
    uint16_t port = 0;
    if (text == NULL)
        return 0;
    int rc = answer_parse_place(text, &port, &hosts, &err);
    if (rc == 0 ? port == 0 || hosts.n == 0 : err.text[0] == '\0')
        abort();
    return 0;
}
