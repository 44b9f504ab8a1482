/* Texts of options for the workers' output: filters, and the prefix of lines. No I/O. */
#ifndef DD_WORKER_OUTPUT_TEXT_H
#define DD_WORKER_OUTPUT_TEXT_H

#include "base/strv.h"

#include <stdbool.h>

/* Split "a,b" into two texts; "a,,b" is one text with a comma. Append to out; text may be NULL.
 * Return 0 or -ENOMEM. */
int output_filters_split(struct dd_strv *out, const char *text);
/* True if the line contains one of the filters. */
bool output_filters_match(const struct dd_strv *filters, const void *line, size_t len);
/* Fill torchrun's template with ${role_name}, ${rank} and ${local_rank}; unknown names are left as
 * they are. The caller owns *ret. Src: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE. */
int output_prefix_fill(char **ret, const char *template, const char *role, int rank,
                       int local_rank);

#endif
