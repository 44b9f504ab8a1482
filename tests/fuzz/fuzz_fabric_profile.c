/* fabric_profile: any text as a fabric profile; each variable that is read has a name and a value
 * that occur in the text. */
#include "doctor/fabric.h"

#include "base/auto.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(free) struct fabric_profile *p = malloc(sizeof(*p));
    char *const none[] = {NULL};
    if (text == NULL || p == NULL)
        return 0;
    fabric_profile_parse(p, text);
    must(p->n <= FABRIC_VARIABLES_MAX);
    for (size_t i = 0; i < p->n; i++) {
        must(p->v[i].name[0] != '\0' && strnlen(p->v[i].name, FABRIC_NAME) < FABRIC_NAME);
        must(p->v[i].value[0] != '\0' && strnlen(p->v[i].value, FABRIC_VALUE) < FABRIC_VALUE);
        must(strnlen(p->v[i].reason, FABRIC_REASON) < FABRIC_REASON);
        must(strstr(text, p->v[i].name) != NULL && strstr(text, p->v[i].value) != NULL);
    }
    json_t *advice = fabric_profile_advice(p, "roce", none);
    must(json_array_size(advice) <= p->n);
    json_decref(advice);
    return 0;
}
