/* Waits of clients for keys of the store. */
#include "store/engine_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void store_forget_nodes(struct store_engine *e, struct store_waiter *w)
{
    store_account_give(&e->account, w->n * sizeof(*w->nodes));
    free(w->nodes);
    w->nodes = NULL;
    w->n = w->missing = 0;
    e->waiters--;
}

static struct store_wait_nodes *store_waiters_list_of(struct store_entry *en,
                                                      const struct store_waiter *w)
{
    return w->barrier ? &en->barriers : &en->waiters;
}

/* Record that one name of a waiter exists now. Return true if it was the last missing name. */
static bool satisfy(struct store_engine *e, struct store_entry *en, struct store_wait_node *node)
{
    struct store_waiter *w = node->waiter;
    TAILQ_REMOVE(store_waiters_list_of(en, w), node, link);
    node->entry = NULL;
    if (--w->missing > 0)
        return false;
    store_forget_nodes(e, w);
    w->released = true;
    TAILQ_INSERT_TAIL(&e->released, w, link);
    return true;
}

void store_wake_waiters(struct store_engine *e, struct store_entry *en)
{
    store_lease_written(e, en);
    while (!TAILQ_EMPTY(&en->waiters))
        satisfy(e, en, TAILQ_FIRST(&en->waiters));
}

void store_wake_all(struct store_engine *e, struct store_entry *en)
{
    store_wake_waiters(e, en);
    while (!TAILQ_EMPTY(&en->barriers))
        satisfy(e, en, TAILQ_FIRST(&en->barriers));
}

void store_wake_one(struct store_engine *e, struct store_entry *en)
{
    while (!TAILQ_EMPTY(&en->waiters)) {
        struct store_wait_node *node = TAILQ_FIRST(&en->waiters);
        struct store_waiter *w = node->waiter;
        if (!satisfy(e, en, node))
            continue;
        w->called_by = en;
        LIST_INSERT_HEAD(&en->called, w, called);
        return;
    }
}

void store_answered(struct store_engine *e, struct store_waiter *w)
{
    struct store_entry *en = w->called_by;
    if (en == NULL)
        return;
    LIST_REMOVE(w, called);
    w->called_by = NULL;
    store_table_drop_unused(&e->names, en);
}

/* Release the next waiter if a waiter released by a push has left without taking the item. */
static void call_next(struct store_engine *e, struct store_waiter *w)
{
    if (w->called_by != NULL && w->called_by->queue_len > 0)
        store_wake_one(e, w->called_by);
    store_answered(e, w);
}

int store_alloc_nodes(struct store_engine *e, struct store_waiter *w, size_t n)
{
    int rc = store_account_take(&e->account, n * sizeof(*w->nodes));
    if (rc < 0)
        return rc;
    w->nodes = calloc(n, sizeof(*w->nodes));
    if (w->nodes == NULL) {
        store_account_give(&e->account, n * sizeof(*w->nodes));
        return -ENOMEM;
    }
    w->n = n;
    w->missing = 0;
    w->barrier = false;
    e->waiters++;
    return 0;
}

void store_add_node(struct store_waiter *w, struct store_entry *en)
{
    struct store_wait_nodes *list = store_waiters_list_of(en, w);
    const struct store_wait_node *last = TAILQ_LAST(list, store_wait_nodes);
    if (last != NULL && last->waiter == w)
        return; /* the same name twice in one request */
    struct store_wait_node *node = &w->nodes[w->missing++];
    node->entry = en;
    node->waiter = w;
    TAILQ_INSERT_TAIL(list, node, link);
}

int store_wait(struct store_engine *e, struct store_waiter *w, const struct store_bytes *keys,
               size_t n)
{
    size_t missing = 0;
    for (size_t i = 0; i < n; i++)
        missing += !store_entry_exists(store_table_find(&e->names, keys[i]));
    if (missing == 0)
        return 0;
    int rc = store_alloc_nodes(e, w, missing);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct store_entry *en = store_table_find(&e->names, keys[i]);
        if (!store_entry_exists(en) && (rc = store_table_get(&e->names, keys[i], &en)) == 0)
            store_add_node(w, en);
    }
    if (rc < 0) {
        store_cancel(e, w);
        return rc;
    }
    return 1;
}

void store_cancel(struct store_engine *e, struct store_waiter *w)
{
    if (w->released) {
        TAILQ_REMOVE(&e->released, w, link);
        w->released = false;
    }
    call_next(e, w);
    if (w->nodes == NULL)
        return;
    for (size_t i = 0; i < w->n; i++) {
        struct store_entry *en = w->nodes[i].entry;
        if (en == NULL)
            continue;
        TAILQ_REMOVE(store_waiters_list_of(en, w), &w->nodes[i], link);
        store_table_drop_unused(&e->names, en);
    }
    store_forget_nodes(e, w);
}

struct store_waiter *store_released(struct store_engine *e)
{
    struct store_waiter *w = TAILQ_FIRST(&e->released);
    if (w != NULL) {
        TAILQ_REMOVE(&e->released, w, link);
        w->released = false;
    }
    return w;
}

bool store_waits_for(const struct store_waiter *w, const char *prefix)
{
    size_t n = strlen(prefix);
    for (size_t i = 0; w->nodes != NULL && i < w->n; i++) {
        const struct store_entry *en = w->nodes[i].entry;
        if (en != NULL && en->key_len >= n && memcmp(en->key, prefix, n) == 0)
            return true;
    }
    return false;
}
