/* Encodes the result of a node as short lines in the output of a starter: srun mixes lines of
 * several tasks that are longer than 2 KB. Pure.
 *
 *   "ddrun-doctor" INDEX ("more" | "last") PIECE
 */
#ifndef DD_DOCTOR_LOOK_LINES_H
#define DD_DOCTOR_LOOK_LINES_H

#include "base/buf.h"

#include <stdbool.h>

/* Append a node's result as lines. -ENOMEM; -EMSGSIZE: the limit of `out` is exceeded. */
int look_lines_write(struct dd_buf *out, int index, const char *look, size_t n);

/* Joins the lines of all nodes to results. */
struct look_lines;

int look_lines_new(struct look_lines **ret, int nnodes); /* -ENOMEM */
void look_lines_free(struct look_lines *l);
/* Take one line without its newline. Return false if it is not part of a result. Pass each complete
 * result to on_look, lent. */
bool look_lines_take(struct look_lines *l, const char *line, size_t n,
                     void (*on_look)(void *arg, const void *data, size_t n), void *arg);

#endif
