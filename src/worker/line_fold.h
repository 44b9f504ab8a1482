/* Folds equal lines of several workers into one. Pure: the caller passes lines with times and takes
 * the folded ones out.
 *
 * Lines are equal if they differ only in numbers; a folded line has ranges of these. Groups of
 * equal lines form a queue in the order of their first lines. A worker's line joins only a group
 * behind the one of its previous line, so that its lines leave the queue in their order. Memory is
 * bounded: beyond LINE_FOLD_MAX bytes or LINE_FOLD_GROUPS groups, the first group is due at once.
 */
#ifndef DD_WORKER_LINE_FOLD_H
#define DD_WORKER_LINE_FOLD_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LINE_FOLD_MAX = 1 << 20,
    LINE_FOLD_GROUPS = 1024,
    LINE_FOLD_LINE = 4096, /* longer lines are not folded */
};

struct line_fold;

/* ranks: of the workers, ascending; copied. window_ns: how long a group waits for further lines.
 * 0 or -ENOMEM. */
int line_fold_new(struct line_fold **ret, const int *ranks, int n, uint64_t window_ns);
void line_fold_free(struct line_fold *f);

/* Add a line of worker i without its end. 0, or -ENOMEM, also if there are LINE_FOLD_GROUPS groups:
 * first take those that are due. */
int line_fold_add(struct line_fold *f, int i, const void *line, size_t len, uint64_t now_ns);
/* Append the next line that is due, "[0-3,7] loss 2.30…2.34\n", to out, and remove it. all: do not
 * wait for further lines. Return 1; 0: none is due; -ENOMEM or -EMSGSIZE. */
int line_fold_take(struct line_fold *f, uint64_t now_ns, bool all, struct dd_buf *out);
/* Return when the first group is due, in ns like now_ns; 1: at once; 0: there is none. */
uint64_t line_fold_due(const struct line_fold *f);
bool line_fold_empty(const struct line_fold *f);
/* Discard all lines. */
void line_fold_clear(struct line_fold *f);

#endif
