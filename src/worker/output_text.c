#include "worker/output_text.h"

#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int output_filters_split(struct dd_strv *out, const char *text)
{
    DD_AUTO(buf) struct dd_buf one = DD_BUF_INIT(1 << 20);
    int rc = 0;
    for (const char *p = text == NULL ? "" : text; rc == 0 && *p != '\0';) {
        dd_buf_clear(&one);
        for (; rc == 0 && *p != '\0' && (*p != ',' || p[1] == ','); p++) {
            p += *p == ',';
            rc = dd_buf_append(&one, p, 1);
        }
        p += *p == ',';
        const char *s = rc == 0 && one.len > 0 ? dd_buf_str(&one) : NULL;
        if (s != NULL)
            rc = dd_strv_push(out, s);
    }
    return rc;
}

bool output_filters_match(const struct dd_strv *filters, const void *line, size_t len)
{
    for (size_t i = 0; i < filters->n; i++)
        if (memmem(line, len, filters->v[i], strlen(filters->v[i])) != NULL)
            return true;
    return false;
}

int output_prefix_fill(char **ret, const char *template, const char *role, int rank, int local_rank)
{
    const char *t = template;
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 16);
    int rc = 0;
    while (rc == 0 && *t != '\0') {
        size_t n = strcspn(t, "$");
        rc = dd_buf_append(&b, t, n);
        t += n;
        if (rc < 0 || *t == '\0')
            break;
        if (strncmp(t, "${role_name}", 12) == 0)
            rc = dd_buf_printf(&b, "%s", role), t += 12;
        else if (strncmp(t, "${rank}", 7) == 0)
            rc = dd_buf_printf(&b, "%d", rank), t += 7;
        else if (strncmp(t, "${local_rank}", 13) == 0)
            rc = dd_buf_printf(&b, "%d", local_rank), t += 13;
        else
            rc = dd_buf_append(&b, "$", 1), t += t[1] == '$' ? 2 : 1;
    }
    const char *s = rc == 0 ? dd_buf_str(&b) : NULL;
    *ret = s == NULL ? NULL : strdup(s);
    return *ret == NULL ? -ENOMEM : 0;
}
