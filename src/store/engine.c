#include "store/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_BUCKETS = 64, MAX_DIGITS = 24 };

struct store_wait_node {
    TAILQ_ENTRY(store_wait_node) link;
    struct entry *entry; /* NULL once the name exists */
    struct store_waiter *waiter;
};

struct queue_item {
    STAILQ_ENTRY(queue_item) link;
    struct store_value value;
};

/* A name: a key, a queue, or only something that somebody waits for. */
struct entry {
    struct entry *next; /* in its bucket */
    uint64_t hash;
    struct store_value value;
    TAILQ_HEAD(store_wait_nodes, store_wait_node) waiters;
    STAILQ_HEAD(, queue_item) queue;
    size_t queue_len;
    size_t key_len;
    bool is_key;
    unsigned char key[];
};

struct store_engine {
    struct store_account account;
    size_t max_value;
    unsigned char seed[DD_SIPHASH_SEED];
    struct entry **buckets;
    size_t mask;    /* number of buckets - 1 */
    size_t entries; /* names of any kind */
    size_t keys;
    size_t waiters;
    TAILQ_HEAD(, store_waiter) released;
};

/* ---- the table ---- */

static struct entry **slot(const struct store_engine *e, struct store_bytes key, uint64_t hash)
{
    struct entry **at = &e->buckets[hash & e->mask];
    for (; *at != NULL; at = &(*at)->next) {
        const struct entry *en = *at;
        if (en->hash == hash && en->key_len == key.n &&
            (key.n == 0 || memcmp(en->key, key.p, key.n) == 0))
            break;
    }
    return at;
}

static uint64_t hash_of(const struct store_engine *e, struct store_bytes key)
{
    return dd_siphash13(e->seed, key.p, key.n);
}

static struct entry *find(const struct store_engine *e, struct store_bytes key)
{
    return *slot(e, key, hash_of(e, key));
}

static bool exists(const struct entry *en)
{
    return en != NULL && (en->is_key || en->queue_len > 0);
}

/* Doubles the table; when there is no memory for that it only gets slower. */
static void grow_table(struct store_engine *e)
{
    size_t n = (e->mask + 1) * 2;
    if (store_account_take(&e->account, n / 2 * sizeof(*e->buckets)) < 0)
        return;
    struct entry **buckets = calloc(n, sizeof(*buckets));
    if (buckets == NULL) {
        store_account_give(&e->account, n / 2 * sizeof(*e->buckets));
        return;
    }
    for (size_t i = 0; i <= e->mask; i++)
        for (struct entry *en = e->buckets[i], *next; en != NULL; en = next) {
            next = en->next;
            en->next = buckets[en->hash & (n - 1)];
            buckets[en->hash & (n - 1)] = en;
        }
    free(e->buckets);
    e->buckets = buckets;
    e->mask = n - 1;
}

static int find_or_add(struct store_engine *e, struct store_bytes key, struct entry **ret)
{
    uint64_t hash = hash_of(e, key);
    struct entry **at = slot(e, key, hash);
    if (*at != NULL) {
        *ret = *at;
        return 0;
    }
    int rc = store_account_take(&e->account, sizeof(struct entry) + key.n);
    if (rc < 0)
        return rc;
    struct entry *en = malloc(sizeof(*en) + key.n);
    if (en == NULL) {
        store_account_give(&e->account, sizeof(*en) + key.n);
        return -ENOMEM;
    }
    *en = (struct entry){.hash = hash, .key_len = key.n};
    TAILQ_INIT(&en->waiters);
    STAILQ_INIT(&en->queue);
    if (key.n > 0)
        memcpy(en->key, key.p, key.n);
    *at = en;
    if (++e->entries > e->mask)
        grow_table(e);
    *ret = en;
    return 0;
}

/* Frees a name that is no key, no queue and not waited for. */
static void drop_if_unused(struct store_engine *e, struct entry *en)
{
    if (exists(en) || !TAILQ_EMPTY(&en->waiters))
        return;
    struct entry **at = &e->buckets[en->hash & e->mask];
    while (*at != en)
        at = &(*at)->next;
    *at = en->next;
    store_account_give(&e->account, sizeof(*en) + en->key_len);
    free(en);
    e->entries--;
}

/* ---- waiters ---- */

static void forget_nodes(struct store_engine *e, struct store_waiter *w)
{
    store_account_give(&e->account, w->n * sizeof(*w->nodes));
    free(w->nodes);
    w->nodes = NULL;
    w->n = w->missing = 0;
    e->waiters--;
}

/* One name of a waiter exists now. True when that was the last one. */
static bool satisfy(struct store_engine *e, struct entry *en, struct store_wait_node *node)
{
    struct store_waiter *w = node->waiter;
    TAILQ_REMOVE(&en->waiters, node, link);
    node->entry = NULL;
    if (--w->missing > 0)
        return false;
    forget_nodes(e, w);
    w->released = true;
    TAILQ_INSERT_TAIL(&e->released, w, link);
    return true;
}

/* Keys wake everybody. */
static void wake_all(struct store_engine *e, struct entry *en)
{
    while (!TAILQ_EMPTY(&en->waiters))
        satisfy(e, en, TAILQ_FIRST(&en->waiters));
}

/* An item of a queue releases one. Those who need other names too are passed over. */
static void wake_one(struct store_engine *e, struct entry *en)
{
    while (!TAILQ_EMPTY(&en->waiters))
        if (satisfy(e, en, TAILQ_FIRST(&en->waiters)))
            return;
}

/* A barrier makes its key: that ends waits for the key, but not those of the barrier itself. */
static void wake_plain(struct store_engine *e, struct entry *en)
{
    struct store_wait_node *node = TAILQ_FIRST(&en->waiters), *next;
    for (; node != NULL; node = next) {
        next = TAILQ_NEXT(node, link);
        if (!node->waiter->barrier)
            satisfy(e, en, node);
    }
}

static int alloc_nodes(struct store_engine *e, struct store_waiter *w, size_t n)
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

static void add_node(struct store_waiter *w, struct entry *en)
{
    const struct store_wait_node *last = TAILQ_LAST(&en->waiters, store_wait_nodes);
    if (last != NULL && last->waiter == w)
        return; /* the same name twice in one request */
    struct store_wait_node *node = &w->nodes[w->missing++];
    node->entry = en;
    node->waiter = w;
    TAILQ_INSERT_TAIL(&en->waiters, node, link);
}

int store_wait(struct store_engine *e, struct store_waiter *w, const struct store_bytes *keys,
               size_t n)
{
    size_t missing = 0;
    for (size_t i = 0; i < n; i++)
        missing += !exists(find(e, keys[i]));
    if (missing == 0)
        return 0;
    int rc = alloc_nodes(e, w, missing);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct entry *en = find(e, keys[i]);
        if (!exists(en) && (rc = find_or_add(e, keys[i], &en)) == 0)
            add_node(w, en);
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
    if (w->nodes == NULL)
        return;
    for (size_t i = 0; i < w->n; i++) {
        struct entry *en = w->nodes[i].entry;
        if (en == NULL)
            continue;
        TAILQ_REMOVE(&en->waiters, &w->nodes[i], link);
        drop_if_unused(e, en);
    }
    forget_nodes(e, w);
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

/* The key exists from now on, with this value, which is taken. */
static void put(struct store_engine *e, struct entry *en, struct store_value v)
{
    store_blob_unref(en->value.blob);
    en->value = v;
    if (!en->is_key) {
        en->is_key = true;
        e->keys++;
    }
}

/* Writes over the old value where that saves an allocation and wastes little. */
static bool overwrite(struct entry *en, struct store_bytes b)
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

static int assign(struct store_engine *e, struct entry *en, struct store_bytes b)
{
    struct store_value v;
    if (b.n <= e->max_value && overwrite(en, b))
        return 0;
    int rc = value_new(e, b, &v);
    if (rc == 0)
        put(e, en, v);
    return rc;
}

int store_set(struct store_engine *e, struct store_bytes key, struct store_bytes value)
{
    struct entry *en;
    int rc = find_or_add(e, key, &en);
    if (rc < 0)
        return rc;
    rc = assign(e, en, value);
    if (rc == 0)
        wake_all(e, en);
    else
        drop_if_unused(e, en);
    return rc;
}

int store_set_value(struct store_engine *e, struct store_bytes key, struct store_value value)
{
    struct entry *en;
    int rc = value.len > e->max_value ? -EMSGSIZE : find_or_add(e, key, &en);
    if (rc < 0) {
        store_blob_unref(value.blob);
        return rc;
    }
    put(e, en, value);
    wake_all(e, en);
    return 0;
}

/* Room for `more` bytes behind a value. Others may share the blob: they never look beyond the end
 * of what they share, so bytes there are ours. Doubling keeps many small appends linear. */
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
    struct entry *en = find(e, key);
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
    wake_all(e, en);
    return 0;
}

bool store_has_room(const struct store_engine *e, size_t n, size_t bytes)
{
    size_t left = e->account.max > e->account.used ? e->account.max - e->account.used : 0;
    size_t each = sizeof(struct entry) + sizeof(struct store_blob) + sizeof(*e->buckets) * 2;
    return n <= left / each && bytes <= left - n * each;
}

const struct store_value *store_get(struct store_engine *e, struct store_bytes key)
{
    const struct entry *en = find(e, key);
    return en != NULL && en->is_key ? &en->value : NULL;
}

/* As strtoll with base 10 reads it: leading blanks, a sign, digits, anything. */
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
    int64_t v = 0; /* negative, because there is one more of those */
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, *p - '0', &v))
            return -EINVAL;
    if (!minus && v == INT64_MIN)
        return -EINVAL;
    *ret = minus ? v : -v;
    return 0;
}

/* Adds without waking anybody. */
static int add(struct store_engine *e, struct store_bytes key, int64_t delta, int64_t *ret,
               struct entry **ret_entry)
{
    struct entry *en = find(e, key);
    int64_t v = 0;
    char text[MAX_DIGITS];
    int rc = en != NULL && en->is_key ? parse_number(store_value_bytes(&en->value), &v) : 0;
    if (rc == 0 && en == NULL)
        rc = find_or_add(e, key, &en);
    if (rc < 0)
        return rc;
    v = (int64_t)((uint64_t)v + (uint64_t)delta);
    int n = snprintf(text, sizeof(text), "%lld", (long long)v);
    rc = assign(e, en, (struct store_bytes){(const unsigned char *)text, (size_t)n});
    if (rc < 0) {
        drop_if_unused(e, en);
        return rc;
    }
    *ret = v;
    *ret_entry = en;
    return 0;
}

int store_add(struct store_engine *e, struct store_bytes key, int64_t delta, int64_t *ret)
{
    struct entry *en;
    int rc = add(e, key, delta, ret, &en);
    if (rc == 0)
        wake_all(e, en);
    return rc;
}

int store_barrier(struct store_engine *e, struct store_waiter *w, struct store_bytes key,
                  int64_t world)
{
    int64_t count;
    struct entry *en;
    int rc = alloc_nodes(e, w, 1);
    if (rc < 0)
        return rc;
    rc = add(e, key, 1, &count, &en);
    if (rc < 0 || count >= world) {
        forget_nodes(e, w);
        if (rc == 0)
            wake_all(e, en);
        return rc;
    }
    wake_plain(e, en);
    w->barrier = true;
    add_node(w, en);
    return 1;
}

static bool equal(struct store_bytes a, struct store_bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

int store_compare_set(struct store_engine *e, struct store_bytes key, struct store_bytes expected,
                      struct store_bytes desired, struct store_value *ret, bool *ret_echo)
{
    const struct entry *en = find(e, key);
    bool is_key = en != NULL && en->is_key;
    *ret_echo = !is_key && expected.n > 0;
    *ret = (struct store_value){0};
    if (*ret_echo)
        return 0; /* not created, nobody is woken */
    if (!is_key || equal(store_value_bytes(&en->value), expected)) {
        int rc = store_set(e, key, desired);
        if (rc < 0)
            return rc;
        en = find(e, key);
    } else {
        wake_all(e, find(e, key)); /* those of a barrier: they take any write as the end */
    }
    *ret = en->value;
    return 0;
}

bool store_delete(struct store_engine *e, struct store_bytes key)
{
    struct entry *en = find(e, key);
    if (en == NULL || !en->is_key)
        return false;
    store_blob_unref(en->value.blob);
    en->value = (struct store_value){0};
    en->is_key = false;
    e->keys--;
    drop_if_unused(e, en);
    return true;
}

bool store_exists(const struct store_engine *e, struct store_bytes key)
{
    return exists(find(e, key));
}

/* ---- queues ---- */

static int item_new(struct store_engine *e, struct queue_item **ret)
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

static void item_free(struct store_engine *e, struct queue_item *item)
{
    store_account_give(&e->account, sizeof(*item));
    free(item);
}

static int push(struct store_engine *e, struct store_bytes name, struct store_value value)
{
    struct entry *en;
    struct queue_item *item;
    int rc = value.len > e->max_value ? -EMSGSIZE : item_new(e, &item);
    if (rc < 0)
        return rc;
    rc = find_or_add(e, name, &en);
    if (rc < 0) {
        item_free(e, item);
        return rc;
    }
    item->value = value;
    STAILQ_INSERT_TAIL(&en->queue, item, link);
    en->queue_len++;
    wake_one(e, en);
    return 0;
}

int store_queue_push_value(struct store_engine *e, struct store_bytes name,
                           struct store_value value)
{
    int rc = push(e, name, value);
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
    const struct entry *en = find(e, name);
    return en != NULL ? en->queue_len : 0;
}

static struct store_value pop(struct store_engine *e, struct entry *en)
{
    struct queue_item *item = STAILQ_FIRST(&en->queue);
    struct store_value v = item->value;
    STAILQ_REMOVE_HEAD(&en->queue, link);
    en->queue_len--;
    item_free(e, item);
    return v;
}

struct store_value store_queue_pop(struct store_engine *e, struct store_bytes name)
{
    struct entry *en = find(e, name);
    struct store_value v = pop(e, en);
    drop_if_unused(e, en);
    return v;
}

/* ---- the whole ---- */

int store_engine_new(struct store_engine **ret, const struct store_engine_limits *limits,
                     const unsigned char *seed)
{
    struct store_engine *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return -ENOMEM;
    e->account.max = limits->max_bytes;
    e->max_value = limits->max_value;
    memcpy(e->seed, seed, sizeof(e->seed));
    TAILQ_INIT(&e->released);
    e->mask = FIRST_BUCKETS - 1;
    e->buckets = calloc(FIRST_BUCKETS, sizeof(*e->buckets));
    if (e->buckets == NULL) {
        free(e);
        return -ENOMEM;
    }
    *ret = e;
    return 0;
}

static void free_entry(struct store_engine *e, struct entry *en)
{
    struct store_wait_node *node;
    while ((node = TAILQ_FIRST(&en->waiters)) != NULL) {
        TAILQ_REMOVE(&en->waiters, node, link);
        node->entry = NULL;
        if (--node->waiter->missing == 0)
            forget_nodes(e, node->waiter);
    }
    while (en->queue_len > 0)
        store_blob_unref(pop(e, en).blob);
    store_blob_unref(en->value.blob);
    store_account_give(&e->account, sizeof(*en) + en->key_len);
    free(en);
}

/* A table as small as at the start. It is empty. */
static void shrink_table(struct store_engine *e)
{
    size_t n = e->mask + 1;
    struct entry **buckets = n > FIRST_BUCKETS ? calloc(FIRST_BUCKETS, sizeof(*buckets)) : NULL;
    if (buckets == NULL)
        return;
    free(e->buckets);
    e->buckets = buckets;
    e->mask = FIRST_BUCKETS - 1;
    store_account_give(&e->account, (n - FIRST_BUCKETS) * sizeof(*buckets));
}

void store_engine_clear(struct store_engine *e)
{
    while (store_released(e) != NULL)
        ;
    for (size_t i = 0; i <= e->mask; i++) {
        for (struct entry *en = e->buckets[i], *next; en != NULL; en = next) {
            next = en->next;
            free_entry(e, en);
        }
        e->buckets[i] = NULL;
    }
    e->entries = e->keys = 0;
    shrink_table(e);
}

void store_engine_free(struct store_engine *e)
{
    if (e == NULL)
        return;
    store_engine_clear(e);
    free(e->buckets);
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
    for (size_t i = 0; rc == 0 && i <= e->mask; i++)
        for (const struct entry *en = e->buckets[i]; rc == 0 && en != NULL; en = en->next)
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
