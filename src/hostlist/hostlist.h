/* Host lists: "gpu[001-004,7],login" expanded to names, folded back, and set operations on them.
 *
 * A list keeps its order and its duplicates. It knows names only: nothing is resolved, and two
 * names are the same only when their bytes are.
 */
#ifndef DD_HOSTLIST_HOSTLIST_H
#define DD_HOSTLIST_HOSTLIST_H

#include "base/auto.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* More names than this in one list are refused, before anything is allocated for them. */
#define HOSTLIST_MAX 65536

struct hostlist;

int hostlist_new(struct hostlist **ret);
/* Expands an expression of names separated by commas or white space, with any number of brackets
 * ("r[1-4]n[01-16,20].site"). -EINVAL (what is wrong and where), -E2BIG (over HOSTLIST_MAX),
 * -ENOMEM. An empty expression is an empty list. Gives *ret. */
int hostlist_parse(struct hostlist **ret, const char *expr, struct dd_err *err);
void hostlist_free(struct hostlist *h);

size_t hostlist_count(const struct hostlist *h);
/* Lent until the list changes; NULL beyond the end. */
const char *hostlist_nth(const struct hostlist *h, size_t i);

/* Appends one literal name. -EINVAL, -E2BIG, -ENOMEM. */
int hostlist_push(struct hostlist *h, const char *name);

/* Linear time; give *ret. -E2BIG, -ENOMEM. The union has each name once, in the order of first
 * appearance in a, then b; the difference keeps order and duplicates of a, and so does the
 * intersection. */
int hostlist_union(struct hostlist **ret, const struct hostlist *a, const struct hostlist *b);
int hostlist_difference(struct hostlist **ret, const struct hostlist *a, const struct hostlist *b);
int hostlist_intersection(struct hostlist **ret, const struct hostlist *a,
                          const struct hostlist *b);
int hostlist_uniq(struct hostlist **ret, const struct hostlist *a); /* first appearances */

/* Appends the shortest expression that this room folds to; it expands to the same names in the same
 * order. -EMSGSIZE, -ENOMEM. */
int hostlist_fold(const struct hostlist *h, struct dd_buf *out);

/* True for what may stand in a host name: letters, digits, '-', '_', '.', ':' (IPv6), 1 to 255
 * bytes. */
bool hostlist_name_ok(const char *name);

DD_AUTO_DEFINE(hostlist, struct hostlist *, hostlist_free);

#endif
