/* worker: any text as --redirects, --tee or --local-ranks-filter, and as a stream of lines. */
#include "base/auto.h"
#include "worker/lines.h"
#include "worker/ranks.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

typedef int parse_f(struct rank_map *ret, const char *text, const char *option, struct dd_err *err);

static void parse(parse_f *fn, const char *text, int max)
{
    struct rank_map m = {0};
    struct dd_err err = {.text = ""};
    int rc = fn(&m, text, "--option", &err);
    if (rc < 0) {
        must(rc == -EINVAL && strstr(err.text, "--option") != NULL && m.v == NULL);
        return;
    }
    bool any = false;
    for (int rank = -1; rank < 300; rank++) {
        int bits = rank_map_get(&m, rank);
        must(bits >= 0 && bits <= max);
        any = any || bits != 0;
    }
    must(!any || rank_map_any(&m));
    rank_map_done(&m);
}

/* All bytes come out once and in order, in whatever steps they arrive. */
static void split(const uint8_t *data, size_t size, size_t step)
{
    struct lines l = {0};
    struct line_piece piece;
    struct tail tail = {0};
    size_t head = 0;
    for (size_t have = 0; have < size;) {
        size_t n = size - have < step ? size - have : step;
        tail_add(&tail, data + have, n);
        have += n;
        while (lines_next(&l, data + head, have - head, have == size, &piece)) {
            must(piece.len > 0 && piece.len <= have - head && piece.len <= LINES_MAX + 2);
            uint8_t last = data[head + piece.len - 1];
            must(piece.cut || last == '\n' || last == '\r');
            head += piece.len;
        }
    }
    must(head == size);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT((size_t)4 * TAIL_BYTES);
    must(tail_format(&tail, &out) == 0 && out.len <= TAIL_BYTES + 1);
    must(out.len == 0 || out.data[out.len - 1] == '\n');
    tail_done(&tail);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    if (text == NULL)
        return 0;
    parse(rank_map_parse, text, 3);
    parse(rank_list_parse, text, 1);
    split(data, size, 1);
    split(data, size, 7);
    split(data, size, SIZE_MAX);
    return 0;
}
