/* rdzv: any text as rules of --exit-rules; accepted rules survive being written and read back. */
#include "rdzv/exit_rules.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(EXIT_RULES_TEXT);
    struct exit_rules rules = {0};
    struct exit_rules again = {0};
    struct dd_err err = {.text = ""};
    if (text == NULL || exit_rules_parse(&rules, text, &err) < 0)
        return 0;
    if (exit_rules_format(&out, &rules) < 0 ||
        exit_rules_parse(&again, dd_buf_str(&out), NULL) < 0 ||
        memcmp(&rules, &again, sizeof(rules)) != 0)
        abort();
    return 0;
}
