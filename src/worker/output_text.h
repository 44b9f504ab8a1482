/* What users write about the workers' output: filters, and the prefix of lines. No I/O. */
#ifndef DD_WORKER_OUTPUT_TEXT_H
#define DD_WORKER_OUTPUT_TEXT_H

#include "base/strv.h"

#include <stdbool.h>

/* "a,b" are two texts, "a,,b" is one with a comma in it. Appends to out; text may be NULL. 0 or
 * -ENOMEM. */
int output_filters_split(struct dd_strv *out, const char *text);
/* Whether one of them is in the line. */
bool output_filters_match(const struct dd_strv *filters, const void *line, size_t len);
/* torchrun's template with ${role_name}, ${rank} and ${local_rank}: names that it does not know
 * stay. Gives *ret. Src: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE. */
int output_prefix_fill(char **ret, const char *template, const char *role, int rank,
                       int local_rank);

#endif
