#include "doctor/look_lines.h"

#include "doctor/answers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_LINES_PIECE = 1000 };

struct look_lines {
    int nnodes;
    struct dd_buf *pieces; /* [nnodes] incomplete results */
};

int look_lines_write(struct dd_buf *out, int index, const char *look, size_t n)
{
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0; at += LOOK_LINES_PIECE) {
        const size_t k = n - at < LOOK_LINES_PIECE ? n - at : LOOK_LINES_PIECE;
        rc = dd_buf_printf(out, "ddrun-doctor %d %s %.*s\n", index, at + k < n ? "more" : "last",
                           (int)k, look + at);
    }
    return rc;
}

int look_lines_new(struct look_lines **ret, int nnodes)
{
    struct look_lines *l = calloc(1, sizeof(*l));
    if (l == NULL || (l->pieces = calloc((size_t)nnodes, sizeof(*l->pieces))) == NULL) {
        free(l);
        return -ENOMEM;
    }
    l->nnodes = nnodes;
    for (int i = 0; i < nnodes; i++)
        l->pieces[i] = DD_BUF_INIT(ANSWER_MAX);
    *ret = l;
    return 0;
}

void look_lines_free(struct look_lines *l)
{
    if (l == NULL)
        return;
    for (int i = 0; i < l->nnodes; i++)
        dd_buf_done(&l->pieces[i]);
    free(l->pieces);
    free(l);
}

bool look_lines_take(struct look_lines *l, const char *line, size_t n,
                     void (*on_look)(void *arg, const void *data, size_t n), void *arg)
{
    int index;
    char word[5];
    int head = 0;
    if (sscanf(line, "ddrun-doctor %d %4s%n", &index, word, &head) != 2 || head <= 0 ||
        (size_t)head >= n || index < 0 || index >= l->nnodes)
        return false;
    head++; /* skip one blank only: the text may begin with more */
    struct dd_buf *b = &l->pieces[index];
    if (dd_buf_append(b, line + head, n - (size_t)head) < 0 || strcmp(word, "last") != 0)
        return true;
    on_look(arg, b->data, b->len);
    dd_buf_clear(b);
    return true;
}
