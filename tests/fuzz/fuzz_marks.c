/* rdzv: any text as the marks of a scheduler; each is found by its name. */
#include "rdzv/marks.h"

#include "base/auto.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(marks) struct rdzv_marks m = {0};
    if (text == NULL)
        return 0;
    const int rc = rdzv_marks_parse(&m, text);
    if (rc < 0 && (rc != -EPROTO || m.n != 0))
        abort();
    for (size_t i = 0; i < m.n; i++) {
        if (m.v[i].name[0] == '\0' || strlen(m.v[i].name) > RDZV_MARK_NAME ||
            strlen(m.v[i].why) > RDZV_MARK_WHY || rdzv_marks_why(&m, m.v[i].name) != m.v[i].why)
            abort();
    }
    (void)rdzv_marks_why(&m, text);
    return 0;
}
