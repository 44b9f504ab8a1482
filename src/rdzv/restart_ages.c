#include "rdzv/restart_ages.h"

#include "base/num.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const uint64_t AGE_MAX_MS = UINT64_C(1) << 43; /* fits in nanoseconds, too */

int restart_ages_format(struct dd_buf *out, const uint64_t *ages_ms, int n)
{
    int rc = dd_buf_printf(out, "%s", "");
    for (int i = 0; i < n && i < RESTART_AGES_MAX && rc >= 0; i++)
        rc = dd_buf_printf(out, "%s%" PRIu64, i > 0 ? " " : "",
                           ages_ms[i] < AGE_MAX_MS ? ages_ms[i] : AGE_MAX_MS);
    return rc < 0 ? rc : 0;
}

int restart_ages_parse(uint64_t ages_ms[RESTART_AGES_MAX], const char *text, struct dd_err *err)
{
    int n = 0;
    for (const char *c = text; *c != '\0'; n++) {
        char word[24];
        size_t len = strcspn(c, " ");
        if (n == RESTART_AGES_MAX || len >= sizeof(word) || (c[len] == ' ' && c[len + 1] == '\0'))
            return dd_err_set(err, -EPROTO, "invalid restart times '%.80s'", text);
        memcpy(word, c, len);
        word[len] = '\0';
        if (dd_num_u64(word, 0, AGE_MAX_MS, &ages_ms[n]) < 0)
            return dd_err_set(err, -EPROTO, "invalid restart times '%.80s'", text);
        c += len + (c[len] == ' ');
    }
    return n;
}
