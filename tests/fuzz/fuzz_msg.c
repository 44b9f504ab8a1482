/* rdzv: any bytes as a control message; an accepted one survives encoding and decoding. */
#include "rdzv/msg.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(msg) struct msg m = {0};
    DD_AUTO(msg) struct msg again = {0};
    DD_AUTO(free) char *text = NULL;
    DD_AUTO(free) char *twice = NULL;
    struct dd_err err = {0};
    if (msg_decode(&m, data, size, &err) < 0) {
        if (err.text[0] == '\0')
            abort();
        return 0;
    }
    if (msg_encode(&text, &m) < 0 || msg_decode(&again, text, strlen(text), NULL) < 0 ||
        msg_encode(&twice, &again) < 0 || strcmp(text, twice) != 0)
        abort();
    return 0;
}
