#include "store/engine_inner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DIGITS = 24 };

static struct store_entry *engine_find(const struct store_engine *e, struct store_bytes key)
{
    return store_table_find(&e->names, key);
}

/* ---- values ---- */

static int value_new(struct store_engine *e, struct store_bytes b, struct store_value *ret)
{
    if (b.n > e->max_value)
        return -EMSGSIZE;
    struct store_value v = {.len = b.n};
    if (b.n > 0) {
        int rc = store_blob_new(&v.blob, &e->account, b.n);
        if (rc < 0)
            return rc;
        memcpy(v.blob->data, b.p, b.n);
    }
    *ret = v;
    return 0;
}

/* Create the key or replace its value; takes v. */
static void engine_put(struct store_engine *e, struct store_entry *en, struct store_value v)
{
    store_blob_unref(en->value.blob);
    en->value = v;
    if (!en->is_key) {
        en->is_key = true;
        e->keys++;
    }
}

/* Overwrite the old value in place if that saves an allocation and wastes little memory. */
static bool overwrite(struct store_entry *en, struct store_bytes b)
{
    struct store_value *v = &en->value;
    if (v->blob == NULL || v->blob->refs > 1 || v->blob->cap < b.n || v->blob->cap / 2 > b.n)
        return false;
    if (b.n > 0)
        memcpy(v->blob->data, b.p, b.n);
    v->off = 0;
    v->len = b.n;
    return true;
}

static int assign(struct store_engine *e, struct store_entry *en, struct store_bytes b)
{
    struct store_value v;
    if (b.n <= e->max_value && overwrite(en, b))
        return 0;
    int rc = value_new(e, b, &v);
    if (rc == 0)
        engine_put(e, en, v);
    return rc;
}

int store_set(struct store_engine *e, struct store_bytes key, struct store_bytes value)
{
    struct store_entry *en;
    int rc = store_table_get(&e->names, key, &en);
    if (rc < 0)
        return rc;
    rc = assign(e, en, value);
    if (rc == 0)
        store_wake_all(e, en);
    else
        store_table_drop_unused(&e->names, en);
    return rc;
}

int store_set_value(struct store_engine *e, struct store_bytes key, struct store_value value)
{
    struct store_entry *en;
    int rc = value.len > e->max_value ? -EMSGSIZE : store_table_get(&e->names, key, &en);
    if (rc < 0) {
        store_blob_unref(value.blob);
        return rc;
    }
    engine_put(e, en, value);
    store_wake_all(e, en);
    return 0;
}

/* Reserve `more` bytes after a value. Other holders of the blob never read beyond the end of their
 * slice, so the bytes after it may be written. Doubling keeps many small appends linear. */
static int value_reserve(struct store_engine *e, struct store_value *v, size_t more)
{
    size_t need = v->len + more;
    if (v->blob != NULL && v->blob->cap - v->off >= need)
        return 0;
    size_t cap = need < v->len * 2 ? v->len * 2 : need;
    cap = cap < e->max_value ? cap : e->max_value;
    if (v->blob != NULL && v->blob->refs == 1 && v->off == 0)
        return store_blob_resize(&v->blob, cap);
    struct store_blob *b;
    int rc = store_blob_new(&b, &e->account, cap);
    if (rc < 0)
        return rc;
    if (v->len > 0)
        memcpy(b->data, v->blob->data + v->off, v->len);
    store_blob_unref(v->blob);
    v->blob = b;
    v->off = 0;
    return 0;
}

int store_append(struct store_engine *e, struct store_bytes key, struct store_bytes value)
{
    struct store_entry *en = engine_find(e, key);
    if (en == NULL || !en->is_key)
        return store_set(e, key, value);
    if (value.n > e->max_value - en->value.len)
        return -EMSGSIZE;
    int rc = value.n == 0 ? 0 : value_reserve(e, &en->value, value.n);
    if (rc < 0)
        return rc;
    if (value.n > 0)
        memcpy(en->value.blob->data + en->value.off + en->value.len, value.p, value.n);
    en->value.len += value.n;
    store_wake_all(e, en);
    return 0;
}

bool store_has_room(const struct store_engine *e, size_t n, size_t bytes)
{
    size_t left = e->account.max > e->account.used ? e->account.max - e->account.used : 0;
    size_t each = sizeof(struct store_entry) + sizeof(struct store_blob) +
                  sizeof(*e->names.buckets) * 2;
    return n <= left / each && bytes <= left - n * each;
}

const struct store_value *store_get(struct store_engine *e, struct store_bytes key)
{
    const struct store_entry *en = engine_find(e, key);
    return en != NULL && en->is_key ? &en->value : NULL;
}

/* Parse like strtoll with base 10: leading blanks, a sign, digits, any rest. */
static int parse_number(struct store_bytes b, int64_t *ret)
{
    const unsigned char *p = b.p, *end = b.n > 0 ? p + b.n : p;
    while (p < end && (*p == ' ' || (*p >= '\t' && *p <= '\r')))
        p++;
    bool minus = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end || *p < '0' || *p > '9')
        return -EINVAL;
    int64_t v = 0; /* negative, because the negative range is larger by one */
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, *p - '0', &v))
            return -EINVAL;
    if (!minus && v == INT64_MIN)
        return -EINVAL;
    *ret = minus ? v : -v;
    return 0;
}

/* Add without waking waiters. */
static int engine_add(struct store_engine *e, struct store_bytes key, int64_t delta, int64_t *ret,
                      struct store_entry **ret_entry)
{
    struct store_entry *en = engine_find(e, key);
    int64_t v = 0;
    char text[MAX_DIGITS];
    int rc = en != NULL && en->is_key ? parse_number(store_value_bytes(&en->value), &v) : 0;
    if (rc == 0 && en == NULL)
        rc = store_table_get(&e->names, key, &en);
    if (rc < 0)
        return rc;
    v = (int64_t)((uint64_t)v + (uint64_t)delta);
    int n = snprintf(text, sizeof(text), "%lld", (long long)v);
    rc = assign(e, en, (struct store_bytes){(const unsigned char *)text, (size_t)n});
    if (rc < 0) {
        store_table_drop_unused(&e->names, en);
        return rc;
    }
    *ret = v;
    *ret_entry = en;
    return 0;
}

int store_add(struct store_engine *e, struct store_bytes key, int64_t delta, int64_t *ret)
{
    struct store_entry *en;
    int rc = engine_add(e, key, delta, ret, &en);
    if (rc == 0)
        store_wake_all(e, en);
    return rc;
}

int store_barrier(struct store_engine *e, struct store_waiter *w, struct store_bytes key,
                  int64_t world)
{
    int64_t count;
    struct store_entry *en;
    int rc = store_alloc_nodes(e, w, 1);
    if (rc < 0)
        return rc;
    rc = engine_add(e, key, 1, &count, &en);
    if (rc < 0 || count >= world) {
        store_forget_nodes(e, w);
        if (rc == 0)
            store_wake_all(e, en);
        return rc;
    }
    store_wake_waiters(e, en); /* the key exists now */
    w->barrier = true;
    store_add_node(w, en);
    return 1;
}

static bool equal(struct store_bytes a, struct store_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

int store_compare_set(struct store_engine *e, struct store_bytes key, struct store_bytes expected,
                      struct store_bytes desired, struct store_value *ret, bool *ret_echo)
{
    const struct store_entry *en = engine_find(e, key);
    bool is_key = en != NULL && en->is_key;
    *ret_echo = !is_key && expected.n > 0;
    *ret = (struct store_value){0};
    if (*ret_echo)
        return 0; /* not created, so no waiter is woken */
    if (!is_key || equal(store_value_bytes(&en->value), expected)) {
        int rc = store_set(e, key, desired);
        if (rc < 0)
            return rc;
        en = engine_find(e, key);
    } else {
        store_wake_all(
            e,
            engine_find(e, key)); /* waiters of a barrier treat any write to its key as its end */
    }
    *ret = en->value;
    return 0;
}

bool store_delete(struct store_engine *e, struct store_bytes key)
{
    struct store_entry *en = engine_find(e, key);
    if (en == NULL || !en->is_key)
        return false;
    store_lease_deleted(e, en);
    store_blob_unref(en->value.blob);
    en->value = (struct store_value){0};
    en->is_key = false;
    e->keys--;
    store_table_drop_unused(&e->names, en);
    return true;
}

bool store_exists(const struct store_engine *e, struct store_bytes key)
{
    return store_entry_exists(engine_find(e, key));
}

/* ---- queues ---- */

static int item_new(struct store_engine *e, struct store_item **ret)
{
    int rc = store_account_take(&e->account, sizeof(**ret));
    if (rc < 0)
        return rc;
    *ret = malloc(sizeof(**ret));
    if (*ret == NULL) {
        store_account_give(&e->account, sizeof(**ret));
        return -ENOMEM;
    }
    return 0;
}

static void item_free(struct store_engine *e, struct store_item *item)
{
    store_account_give(&e->account, sizeof(*item));
    free(item);
}

static int engine_push(struct store_engine *e, struct store_bytes name, struct store_value value)
{
    struct store_entry *en;
    struct store_item *item;
    int rc = value.len > e->max_value ? -EMSGSIZE : item_new(e, &item);
    if (rc < 0)
        return rc;
    rc = store_table_get(&e->names, name, &en);
    if (rc < 0) {
        item_free(e, item);
        return rc;
    }
    item->value = value;
    STAILQ_INSERT_TAIL(&en->queue, item, link);
    en->queue_len++;
    store_wake_one(e, en);
    return 0;
}

int store_queue_push_value(struct store_engine *e, struct store_bytes name,
                           struct store_value value)
{
    int rc = engine_push(e, name, value);
    if (rc < 0)
        store_blob_unref(value.blob);
    return rc;
}

int store_queue_push(struct store_engine *e, struct store_bytes name, struct store_bytes value)
{
    struct store_value v;
    int rc = value_new(e, value, &v);
    return rc < 0 ? rc : store_queue_push_value(e, name, v);
}

size_t store_queue_len(const struct store_engine *e, struct store_bytes name)
{
    const struct store_entry *en = engine_find(e, name);
    return en != NULL ? en->queue_len : 0;
}

static struct store_value pop(struct store_engine *e, struct store_entry *en)
{
    struct store_item *item = STAILQ_FIRST(&en->queue);
    struct store_value v = item->value;
    STAILQ_REMOVE_HEAD(&en->queue, link);
    en->queue_len--;
    item_free(e, item);
    return v;
}

struct store_value store_queue_pop(struct store_engine *e, struct store_bytes name)
{
    struct store_entry *en = engine_find(e, name);
    struct store_value v = pop(e, en);
    store_table_drop_unused(&e->names, en);
    return v;
}

/* ---- engine ---- */

int store_engine_new(struct store_engine **ret, const struct store_engine_limits *limits,
                     const unsigned char *seed)
{
    struct store_engine *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return -ENOMEM;
    e->account.max = limits->max_bytes;
    e->max_value = limits->max_value;
    TAILQ_INIT(&e->released);
    int rc = store_table_init(&e->names, &e->account, seed);
    if (rc < 0)
        free(e);
    else
        *ret = e;
    return rc;
}

static void forget_waiters(struct store_engine *e, struct store_wait_nodes *list)
{
    struct store_wait_node *node;
    while ((node = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, node, link);
        node->entry = NULL;
        if (--node->waiter->missing == 0)
            store_forget_nodes(e, node->waiter);
    }
}

static void engine_empty(struct store_engine *e, struct store_entry *en)
{
    struct store_waiter *w;
    forget_waiters(e, &en->waiters);
    forget_waiters(e, &en->barriers);
    while ((w = LIST_FIRST(&en->called)) != NULL) {
        LIST_REMOVE(w, called);
        w->called_by = NULL;
    }
    while (en->queue_len > 0)
        store_blob_unref(pop(e, en).blob);
    store_blob_unref(en->value.blob);
}

void store_engine_clear(struct store_engine *e)
{
    struct store_entry *en;
    size_t from = 0;
    while (store_released(e) != NULL)
        ;
    store_holders_clear(e);
    while ((en = store_table_pop(&e->names, &from)) != NULL) {
        engine_empty(e, en);
        store_table_free(&e->names, en);
    }
    e->keys = 0;
    store_table_shrink(&e->names);
}

void store_engine_free(struct store_engine *e)
{
    if (e == NULL)
        return;
    store_engine_clear(e);
    store_table_done(&e->names);
    free(e);
}

struct store_account *store_engine_account(struct store_engine *e)
{
    return &e->account;
}

int store_each_key(const struct store_engine *e, int (*fn)(void *arg, struct store_bytes key),
                   void *arg)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i <= e->names.mask; i++)
        for (const struct store_entry *en = e->names.buckets[i]; rc == 0 && en; en = en->next)
            if (en->is_key)
                rc = fn(arg, (struct store_bytes){en->key, en->key_len});
    return rc;
}

size_t store_keys(const struct store_engine *e)
{
    return e->keys;
}

size_t store_waiters(const struct store_engine *e)
{
    return e->waiters;
}
