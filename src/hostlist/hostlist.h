/* Host lists: expand "gpu[001-004,7],login" to names, fold names, and set operations.
 *
 * A list keeps its order and duplicates. It contains names only: nothing is resolved, and two names
 * are equal only if their bytes are. */
#ifndef DD_HOSTLIST_HOSTLIST_H
#define DD_HOSTLIST_HOSTLIST_H

#include "base/auto.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Limit of names in a list, checked before memory is allocated for them. */
#define HOSTLIST_MAX 65536

struct hostlist;

int hostlist_new(struct hostlist **ret);
/* Expand an expression of names separated by commas or white space, with up to 16 brackets in a
 * name
 * ("r[1-4]n[01-16,20].site"). -EINVAL with a message that contains the position; -E2BIG: over
 * HOSTLIST_MAX; -ENOMEM. An empty expression is an empty list. */
int hostlist_parse(struct hostlist **ret, const char *expr, struct dd_err *err);
void hostlist_free(struct hostlist *h);

size_t hostlist_count(const struct hostlist *h);
/* Return name i, valid until the list changes; NULL beyond the end. */
const char *hostlist_nth(const struct hostlist *h, size_t i);

/* Append one literal name. -EINVAL, -E2BIG, -ENOMEM. */
int hostlist_push(struct hostlist *h, const char *name);

/* Set operations in linear time. -E2BIG, -ENOMEM. The union contains each name once, in order of
 * first appearance in a, then b. Difference and intersection keep order and duplicates of a. */
int hostlist_union(struct hostlist **ret, const struct hostlist *a, const struct hostlist *b);
int hostlist_difference(struct hostlist **ret, const struct hostlist *a, const struct hostlist *b);
int hostlist_intersection(struct hostlist **ret, const struct hostlist *a,
                          const struct hostlist *b);
int hostlist_uniq(struct hostlist **ret, const struct hostlist *a); /* keeps first appearances */

/* Append the folded expression, which expands to the same names in the same order. -EMSGSIZE,
 * -ENOMEM. */
int hostlist_fold(const struct hostlist *h, struct dd_buf *out);

/* Return 1 if the pattern names this host, else 0; -EINVAL, -E2BIG or -ENOMEM with a message. A
 * pattern is an expression in which '*' stands for any characters. Case does not matter. A name of
 * the pattern that has no dot is compared with the host's name up to its first dot. */
int hostlist_matches(const char *pattern, const char *name, struct dd_err *err);

/* True for a valid host name: 1 to 255 letters, digits, '-', '_', '.' or ':' (IPv6). */
bool hostlist_name_ok(const char *name);

DD_AUTO_DEFINE(hostlist, struct hostlist *, hostlist_free);

#endif
