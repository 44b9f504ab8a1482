/* torchrun's options with a structured value: --rdzv-conf, --signals-to-handle, --rdzv-backend,
 * --logs-specs. The first byte chooses. A rejected value has an error message. */
#include "cmd/torchrun.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A value is a whole, non-empty part of the text without a comma. */
static void check_conf(const struct rdzv_conf *conf)
{
    static const char *const keys[] = {"protocol", "cert", "etcd_prefix"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char *value = NULL;
        const char *at = strstr(conf->text, keys[i]);
        if (torchrun_conf_get(&value, conf, keys[i], NULL) < 0)
            abort();
        if (value != NULL && (at == NULL || *value == '\0' || strchr(value, ',') != NULL ||
                              strstr(conf->text, value) == NULL))
            abort();
        free(value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const parsers[])(const char *, void *, struct dd_err *) = {
        torchrun_parse_conf, torchrun_parse_signals, torchrun_parse_backend,
        torchrun_parse_logs_specs};
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
    const int rc = parsers[data[0] % 4](text, &field, &err);
    if (rc < 0 && err.text[0] == '\0')
        abort();
    if (rc == 0 && data[0] % 4 == 0)
        check_conf(&field.conf);
    free(text);
    return 0;
}
