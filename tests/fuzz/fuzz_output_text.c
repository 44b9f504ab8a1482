/* worker: the first line as filters and as the template of a prefix, the rest as the output of a
 * worker. */
#include "base/auto.h"
#include "worker/lines.h"
#include "worker/output_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* The pieces together are all bytes, and a filter that matches a piece matches all bytes, too. */
static void print(const struct dd_strv *filters, const uint8_t *p, size_t n)
{
    struct lines l = {0};
    struct line_piece piece;
    size_t head = 0;
    for (; head < n && lines_next(&l, p + head, n - head, true, &piece); head += piece.len) {
        must(piece.len > 0 && piece.len <= n - head);
        bool wanted = output_filters_match(filters, p + head, piece.len);
        must(!wanted || output_filters_match(filters, p, n));
    }
    must(head == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *lf = size > 0 ? memchr(data, '\n', size) : NULL;
    size_t len = lf != NULL ? (size_t)(lf - data) : size;
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", len);
    DD_AUTO(free) char *prefix = NULL;
    DD_AUTO(strv) struct dd_strv filters = {0};
    if (text == NULL || output_filters_split(&filters, text) < 0)
        return 0;
    size_t total = 0;
    for (size_t i = 0; i < filters.n; i++) {
        must(filters.v[i][0] != '\0');
        total += strlen(filters.v[i]);
    }
    must(total <= strlen(text));
    if (output_prefix_fill(&prefix, text, "trainer", 12, 3) == 0)
        must(strstr(prefix, "${rank}") == NULL || strstr(text, "$$") != NULL ||
             strstr(text, "${${") != NULL);
    print(&filters, lf != NULL ? lf + 1 : data, lf != NULL ? size - len - 1 : 0);
    return 0;
}
