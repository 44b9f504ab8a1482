/* torchrun's options that are more than a word: --rdzv-conf, --signals-to-handle, --rdzv-backend, --logs-specs.
 * The first byte chooses. What is refused has a sentence. */
#include "cmd/torchrun.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const parsers[])(const char *, void *, struct dd_err *) = {
        torchrun_parse_conf, torchrun_parse_signals, torchrun_parse_backend, torchrun_parse_logs_specs};
    union {
        struct rdzv_conf conf;
        struct signal_list signals;
        const char *text;
    } field;
    struct dd_err err = {0};
    char *text = size > 0 ? malloc(size) : NULL;
    if (text == NULL)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    memset(&field, 0, sizeof(field));
    if (parsers[data[0] % 4](text, &field, &err) < 0 && err.text[0] == '\0')
        abort();
    free(text);
    return 0;
}
