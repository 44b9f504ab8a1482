/* Union, difference, intersection and unique names in linear time, with a hash index from names to
 * positions in a list. */
#include "hostlist/list.h"

#include <errno.h>
#include <string.h>

struct index {
    const struct hostlist *list;
    uint32_t *slot; /* position in the list + 1; 0: free */
    size_t mask;
};

static void dd_auto_index(struct index *ix)
{
    free(ix->slot);
}

/* Make an index of `list` with space for `max` names, including ones added later. */
static int index_new(struct index *ix, const struct hostlist *list, size_t max)
{
    size_t size = 16;
    while (size < max * 2)
        size *= 2;
    ix->list = list;
    ix->mask = size - 1;
    ix->slot = calloc(size, sizeof(*ix->slot));
    return ix->slot == NULL ? -ENOMEM : 0;
}

static uint32_t
hash(const char *s) /* FNV-1a, unkeyed: the names come from the user's own scheduler */
{
    uint32_t h = 2166136261U;
    for (; *s != '\0'; s++)
        h = (h ^ (unsigned char)*s) * 16777619U;
    return h;
}

/* Return the slot of the name, or the free slot for it. */
static uint32_t *index_slot(const struct index *ix, const char *name)
{
    size_t i = hash(name) & ix->mask;
    while (ix->slot[i] != 0 && strcmp(hostlist_nth(ix->list, ix->slot[i] - 1), name) != 0)
        i = (i + 1) & ix->mask;
    return &ix->slot[i];
}

static int index_all(struct index *ix, const struct hostlist *list)
{
    int rc = index_new(ix, list, list->count);
    for (size_t i = 0; rc == 0 && i < list->count; i++)
        *index_slot(ix, hostlist_nth(list, i)) = (uint32_t)i + 1;
    return rc;
}

/* Append the names of `from` that are not in `to`; ix is the index of `to`. */
static int add_new(struct hostlist *to, struct index *ix, const struct hostlist *from)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->count; i++) {
        const char *name = hostlist_nth(from, i);
        uint32_t *slot = index_slot(ix, name);
        if (*slot != 0)
            continue;
        rc = hostlist_append(to, name, strlen(name));
        *slot = rc == 0 ? (uint32_t)to->count : 0;
    }
    return rc;
}

int hostlist_union(struct hostlist **ret, const struct hostlist *a, const struct hostlist *b)
{
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    DD_AUTO(index) struct index ix = {0};
    int rc = hostlist_new(&h);
    if (rc == 0)
        rc = index_new(&ix, h, a->count + b->count);
    if (rc == 0)
        rc = add_new(h, &ix, a);
    if (rc == 0)
        rc = add_new(h, &ix, b);
    if (rc == 0)
        *ret = DD_TAKE(h);
    return rc;
}

int hostlist_uniq(struct hostlist **ret, const struct hostlist *a)
{
    static const struct hostlist none = {0};
    return hostlist_union(ret, a, &none);
}

/* Select the names of a that are in b, or that are not. */
static int set_pick(struct hostlist **ret, const struct hostlist *a, const struct hostlist *b,
                    bool in_b)
{
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    DD_AUTO(index) struct index ix = {0};
    int rc = hostlist_new(&h);
    if (rc == 0)
        rc = index_all(&ix, b);
    for (size_t i = 0; rc == 0 && i < a->count; i++) {
        const char *name = hostlist_nth(a, i);
        if ((*index_slot(&ix, name) != 0) == in_b)
            rc = hostlist_append(h, name, strlen(name));
    }
    if (rc == 0)
        *ret = DD_TAKE(h);
    return rc;
}

int hostlist_difference(struct hostlist **ret, const struct hostlist *a, const struct hostlist *b)
{
    return set_pick(ret, a, b, false);
}

int hostlist_intersection(struct hostlist **ret, const struct hostlist *a, const struct hostlist *b)
{
    return set_pick(ret, a, b, true);
}
