#include "store/lease.h"

#include "store/engine_inner.h"

#include <errno.h>
#include <stdlib.h>

enum { FEW = 12 };

struct store_lease {
    size_t awaited; /* recalls without an answer */
    uint32_t n;     /* nodes with a lease, or that wait for a name that does not exist */
    uint32_t ids[FEW];
    bool everybody; /* more than FEW: assume that all nodes are among them */
    bool granted;   /* the nodes have the value */
    bool changed;   /* the key was changed under a lease: grant no further one */
};

struct store_recall {
    STAILQ_ENTRY(store_recall) link;
    struct store_entry *entry;
};

/* ---- the nodes of a lease ---- */

static int lease_of(struct store_engine *e, struct store_entry *en)
{
    if (en->lease != NULL)
        return 0;
    int rc = store_account_take(&e->account, sizeof(*en->lease));
    if (rc < 0)
        return rc;
    en->lease = calloc(1, sizeof(*en->lease));
    if (en->lease == NULL)
        store_account_give(&e->account, sizeof(*en->lease));
    return en->lease != NULL ? 0 : -ENOMEM;
}

static bool lease_has(const struct store_lease *l, uint32_t id)
{
    if (l->everybody)
        return true;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->ids[i] == id)
            return true;
    return false;
}

static void lease_add(struct store_lease *l, uint32_t id)
{
    if (lease_has(l, id))
        return;
    l->everybody = l->n == FEW;
    if (!l->everybody)
        l->ids[l->n++] = id;
}

static void lease_clear(struct store_lease *l)
{
    l->n = 0;
    l->everybody = l->granted = false;
}

/* Return the node after *at, or NULL. */
static struct store_holder *lease_next(const struct store_engine *e, const struct store_lease *l,
                                       size_t *at)
{
    const size_t end = l->everybody ? e->holders_n : l->n;
    while (*at < end) {
        const size_t i = (*at)++;
        struct store_holder *h = e->holders[l->everybody ? i : l->ids[i]];
        if (h != NULL)
            return h;
    }
    return NULL;
}

static struct store_bytes name_of(const struct store_entry *en)
{
    return (struct store_bytes){en->key, en->key_len};
}

static void lease_tell(struct store_engine *e, const struct store_entry *en,
                       enum store_lease_news news)
{
    struct store_holder *h;
    size_t at = 0;
    while ((h = lease_next(e, en->lease, &at)) != NULL)
        h->tell(h, news, name_of(en), &en->value);
}

/* ---- for the engine ---- */

bool store_lease_in_use(const struct store_entry *en)
{
    return en->lease != NULL && (en->lease->n > 0 || en->lease->awaited > 0);
}

void store_lease_free(struct store_account *account, struct store_entry *en)
{
    if (en->lease == NULL)
        return;
    store_account_give(account, sizeof(*en->lease));
    free(en->lease);
    en->lease = NULL;
}

static void free_recalls(struct store_recall *first)
{
    while (first != NULL) {
        struct store_recall *next = STAILQ_NEXT(first, link);
        free(first);
        first = next;
    }
}

/* Make a chain with one recall for each node of the lease. */
static int make_recalls(const struct store_engine *e, const struct store_lease *l,
                        struct store_recall **ret)
{
    *ret = NULL;
    for (size_t at = 0; lease_next(e, l, &at) != NULL;) {
        struct store_recall *r = calloc(1, sizeof(*r));
        if (r == NULL) {
            free_recalls(*ret);
            return -ENOMEM;
        }
        STAILQ_NEXT(r, link) = *ret;
        *ret = r;
    }
    return 0;
}

static int recall(struct store_engine *e, struct store_entry *en)
{
    struct store_lease *l = en->lease;
    struct store_recall *free_ones;
    struct store_holder *h;
    size_t at = 0;
    int rc = make_recalls(e, l, &free_ones);
    if (rc < 0)
        return rc;
    while ((h = lease_next(e, l, &at)) != NULL) {
        struct store_recall *r = free_ones;
        free_ones = STAILQ_NEXT(r, link);
        r->entry = en;
        STAILQ_INSERT_TAIL(&h->recalls, r, link);
        l->awaited++;
        h->tell(h, STORE_RECALL, name_of(en), NULL);
    }
    l->changed = true;
    lease_clear(l);
    return 0;
}

void store_lease_written(struct store_engine *e, struct store_entry *en)
{
    struct store_lease *l = en->lease;
    if (l == NULL || (l->n == 0 && !l->everybody))
        return;
    if (l->granted) {
        (void)recall(e, en); /* changed without store_lease_recall() */
    } else if (en->value.len > STORE_LEASE_VALUE_MAX) {
        lease_tell(e, en, STORE_EACH);
        lease_clear(l);
    } else {
        l->granted = true;
        lease_tell(e, en, STORE_VALUE);
    }
}

void store_lease_deleted(struct store_engine *e, struct store_entry *en)
{
    if (en->lease != NULL && en->lease->granted)
        (void)recall(e, en);
}

/* Forget the nodes; the entries are about to be freed. */
void store_holders_clear(struct store_engine *e)
{
    for (size_t i = 0; i < e->holders_n; i++) {
        struct store_holder *h = e->holders[i];
        if (h == NULL)
            continue;
        free_recalls(STAILQ_FIRST(&h->recalls));
        STAILQ_INIT(&h->recalls);
        h->engine = NULL;
    }
    free(e->holders);
    e->holders = NULL;
    e->holders_n = 0;
}

/* ---- interface ---- */

/* Return the id of a holder that is gone, or holders_n. The next holder with the id takes over its
 * leases: a RECALL or VALUE for a key that a node has not asked for does no harm. */
static size_t holder_free_id(const struct store_engine *e)
{
    size_t i = 0;
    while (i < e->holders_n && e->holders[i] != NULL)
        i++;
    return i;
}

int store_holder_add(struct store_engine *e, struct store_holder *h)
{
    const size_t id = holder_free_id(e);
    if (id == e->holders_n) {
        struct store_holder **v = realloc(e->holders, (id + 1) * sizeof(*v));
        if (v == NULL)
            return -ENOMEM;
        e->holders = v;
        e->holders_n++;
    }
    h->engine = e;
    h->id = (uint32_t)id;
    STAILQ_INIT(&h->recalls);
    e->holders[id] = h;
    return 0;
}

bool store_holder_remove(struct store_holder *h)
{
    bool done = false;
    if (h->engine == NULL)
        return false;
    while (!STAILQ_EMPTY(&h->recalls))
        done |= store_lease_answered(h);
    h->engine->holders[h->id] = NULL;
    h->engine = NULL;
    return done;
}

void store_lease_ask(struct store_holder *h, struct store_bytes key)
{
    struct store_engine *e = h->engine;
    struct store_entry *en;
    if (store_table_get(&e->names, key, &en) < 0) {
        h->tell(h, STORE_EACH, key, NULL);
        return;
    }
    struct store_lease *l = lease_of(e, en) == 0 ? en->lease : NULL;
    if (l == NULL || l->changed || en->queue_len > 0 || en->value.len > STORE_LEASE_VALUE_MAX) {
        h->tell(h, STORE_EACH, key, NULL);
        store_table_drop_unused(&e->names, en);
        return;
    }
    lease_add(l, h->id);
    if (!en->is_key)
        return;
    l->granted = true;
    h->tell(h, STORE_VALUE, key, &en->value);
}

int store_lease_recall(struct store_engine *e, struct store_bytes key, bool push)
{
    struct store_entry *en = e->holders_n > 0 ? store_table_find(&e->names, key) : NULL;
    struct store_lease *l = en != NULL ? en->lease : NULL;
    if (l == NULL)
        return 0;
    if (l->granted || (push && (l->n > 0 || l->everybody))) {
        int rc = recall(e, en);
        if (rc < 0)
            return rc;
    }
    return l->awaited > 0;
}

bool store_lease_answered(struct store_holder *h)
{
    struct store_recall *r = h->engine != NULL ? STAILQ_FIRST(&h->recalls) : NULL;
    if (r == NULL)
        return false;
    STAILQ_REMOVE_HEAD(&h->recalls, link);
    struct store_entry *en = r->entry;
    free(r);
    if (--en->lease->awaited > 0)
        return false;
    store_table_drop_unused(&h->engine->names, en);
    return true;
}
