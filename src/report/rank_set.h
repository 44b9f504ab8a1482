/* Sets of ranks, which are written as "0-1,3-7". Pure. */
#ifndef DD_REPORT_RANK_SET_H
#define DD_REPORT_RANK_SET_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { RANK_SET_MAX = 1 << 28 /* ranks in a text are lower */ };

/* Ranks as ordered, disjoint ranges. */
struct rank_range {
    int first, last;
};
struct rank_set {
    struct rank_range *v;
    size_t n, cap;
};
int rank_set_add(struct rank_set *s, int first, int last); /* 0 or -ENOMEM */
bool rank_set_has(const struct rank_set *s, int rank);
bool rank_set_has_any(const struct rank_set *s, int first, int n); /* first to first + n - 1 */
size_t rank_set_count(const struct rank_set *s);
int rank_set_nth(const struct rank_set *s, size_t n); /* n: from 0; -1: the set has fewer ranks */
int rank_set_text(const struct rank_set *s, struct dd_buf *out); /* "0-1,3-7" */
/* Append "0-1,3-7"; a long list ends after about 60 bytes: "0,2,4,... (512 ranks)". */
int rank_set_text_short(const struct rank_set *s, struct dd_buf *out);
/* Append "rank 2" or "ranks 0-1,3-7", shortened as by rank_set_text_short(); "ranks" if the set is
 * empty. */
int rank_set_name(const struct rank_set *s, struct dd_buf *out);
/* Add the ranks of a text such as "0-1,3-7", which may come from a peer. 0, -EINVAL or -ENOMEM. */
int rank_set_parse(struct rank_set *s, const char *text);
void rank_set_done(struct rank_set *s);

static inline void dd_auto_rank_set(struct rank_set *s)
{
    rank_set_done(s);
}

#endif
