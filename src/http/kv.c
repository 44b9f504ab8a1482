#include "http/kv.h"

#include "store/siphash.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

TAILQ_HEAD(kv_waiters, kv_waiter);

struct kv_scope {
    UT_hash_handle hh;
    LIST_HEAD(, kv_entry) entries;
    size_t put, finished; /* keys that workers of this node have put, and finished with */
    size_t len;
    char name[];
};

struct kv_entry {
    UT_hash_handle hh;
    LIST_ENTRY(kv_entry) link; /* in the list of the scope */
    struct kv_scope *scope;
    struct kv_value *value; /* NULL: the key only has waiters */
    struct kv_waiters waiters;
    bool mine, finished;
    size_t len;
    char name[]; /* "scope/key" */
};

struct kv {
    struct kv_limits limits;
    unsigned char seed[KV_SEED];
    struct kv_scope *scopes;
    struct kv_entry *entries;
    struct kv_waiters ready;
    size_t keys, bytes;
};

int kv_new(struct kv **ret, const struct kv_limits *limits, const unsigned char seed[KV_SEED])
{
    struct kv *kv = calloc(1, sizeof(*kv));
    if (kv == NULL)
        return -ENOMEM;
    kv->limits = *limits;
    memcpy(kv->seed, seed, KV_SEED);
    TAILQ_INIT(&kv->ready);
    *ret = kv;
    return 0;
}

bool kv_name_parse(struct kv_name *ret, const char *text, size_t len)
{
    const char *slash = len > 0 && len <= KV_NAME_MAX ? memchr(text, '/', len) : NULL;
    if (slash == NULL || slash == text || slash == text + len - 1)
        return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || (text[i] == '/' && text + i != slash))
            return false;
    *ret = (struct kv_name){.text = text, .len = len, .scope_len = (size_t)(slash - text)};
    return true;
}

/* ---- values ---- */

int kv_value_new(struct kv_value **ret, struct kv *kv, size_t len)
{
    if (len > kv->limits.max_value)
        return -EMSGSIZE;
    size_t size = sizeof(struct kv_value) + len;
    if (size > kv->limits.max_bytes - kv->bytes)
        return -ENOSPC;
    struct kv_value *v = malloc(size);
    if (v == NULL)
        return -ENOMEM;
    kv->bytes += size;
    v->kv = kv;
    v->refs = 1;
    v->len = len;
    *ret = v;
    return 0;
}

void kv_value_unref(struct kv_value *v)
{
    if (v == NULL || --v->refs > 0)
        return;
    v->kv->bytes -= sizeof(*v) + v->len;
    free(v);
}

/* ---- names ---- */

static unsigned kv_hash_of(const struct kv *kv, const char *text, size_t len)
{
    return (unsigned)dd_siphash13(kv->seed, text, len);
}

static struct kv_entry *kv_entry_find(const struct kv *kv, struct kv_name name)
{
    struct kv_entry *e;
    HASH_FIND_BYHASHVALUE(hh, kv->entries, name.text, (unsigned)name.len,
                          kv_hash_of(kv, name.text, name.len), e);
    return e;
}

static struct kv_scope *find_scope(const struct kv *kv, const char *text, size_t len)
{
    struct kv_scope *s;
    HASH_FIND_BYHASHVALUE(hh, kv->scopes, text, (unsigned)len, kv_hash_of(kv, text, len), s);
    return s;
}

static struct kv_scope *get_scope(struct kv *kv, struct kv_name name)
{
    struct kv_scope *s = find_scope(kv, name.text, name.scope_len);
    if (s != NULL)
        return s;
    s = calloc(1, sizeof(*s) + name.scope_len);
    if (s == NULL)
        return NULL;
    s->len = name.scope_len;
    memcpy(s->name, name.text, s->len);
    LIST_INIT(&s->entries);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, kv->scopes, s->name, (unsigned)s->len,
                                kv_hash_of(kv, s->name, s->len), s);
    if (s->hh.tbl == NULL) {
        free(s);
        return NULL;
    }
    return s;
}

static void drop_scope_if_unused(struct kv *kv, struct kv_scope *s)
{
    if (!LIST_EMPTY(&s->entries))
        return;
    HASH_DEL(kv->scopes, s);
    free(s);
}

static int kv_entry_get(struct kv *kv, struct kv_name name, struct kv_entry **ret)
{
    *ret = kv_entry_find(kv, name);
    if (*ret != NULL)
        return 0;
    if (kv->keys >= kv->limits.max_keys)
        return -ENOSPC;
    struct kv_scope *s = get_scope(kv, name);
    struct kv_entry *e = s != NULL ? calloc(1, sizeof(*e) + name.len) : NULL;
    if (e != NULL) {
        e->len = name.len;
        memcpy(e->name, name.text, e->len);
        TAILQ_INIT(&e->waiters);
        HASH_ADD_KEYPTR_BYHASHVALUE(hh, kv->entries, e->name, (unsigned)e->len,
                                    kv_hash_of(kv, e->name, e->len), e);
    }
    if (e == NULL || e->hh.tbl == NULL) {
        free(e);
        if (s != NULL)
            drop_scope_if_unused(kv, s);
        return -ENOMEM;
    }
    e->scope = s;
    LIST_INSERT_HEAD(&s->entries, e, link);
    kv->keys++;
    *ret = e;
    return 0;
}

/* Remove the value, and the name unless it has waiters. */
static void kv_entry_empty(struct kv *kv, struct kv_entry *e)
{
    struct kv_scope *s = e->scope;
    kv_value_unref(e->value);
    e->value = NULL;
    s->put -= e->mine;
    s->finished -= e->finished;
    e->mine = e->finished = false;
    if (!TAILQ_EMPTY(&e->waiters))
        return;
    LIST_REMOVE(e, link);
    HASH_DEL(kv->entries, e);
    kv->keys--;
    free(e);
    drop_scope_if_unused(kv, s);
}

/* ---- operations ---- */

int kv_put(struct kv *kv, struct kv_name name, struct kv_value *v, bool mine)
{
    DD_AUTO(kv_value) struct kv_value *value = v;
    struct kv_entry *e;
    struct kv_waiter *w;
    int rc = kv_entry_get(kv, name, &e);
    if (rc < 0)
        return rc;
    kv_value_unref(e->value);
    e->value = DD_TAKE(value);
    e->scope->put += mine && !e->mine;
    e->scope->finished -= e->finished;
    e->finished = false;
    e->mine |= mine;
    while ((w = TAILQ_FIRST(&e->waiters)) != NULL) {
        TAILQ_REMOVE(&e->waiters, w, link);
        w->entry = NULL;
        w->value = e->value;
        e->value->refs++;
        TAILQ_INSERT_TAIL(&kv->ready, w, link);
    }
    return 0;
}

bool kv_is_mine(const struct kv *kv, struct kv_name name)
{
    const struct kv_entry *e = kv_entry_find(kv, name);
    return e != NULL && e->mine;
}

struct kv_value *kv_get(struct kv *kv, struct kv_name name)
{
    struct kv_entry *e = kv_entry_find(kv, name);
    if (e == NULL || e->value == NULL)
        return NULL;
    e->value->refs++;
    return e->value;
}

int kv_wait(struct kv *kv, struct kv_name name, struct kv_waiter *w)
{
    struct kv_entry *e;
    int rc = kv_entry_get(kv, name, &e);
    if (rc < 0)
        return rc;
    w->entry = e;
    TAILQ_INSERT_TAIL(&e->waiters, w, link);
    return 0;
}

void kv_wait_end(struct kv *kv, struct kv_waiter *w)
{
    struct kv_entry *e = w->entry;
    if (w->value != NULL)
        TAILQ_REMOVE(&kv->ready, w, link);
    kv_value_unref(w->value);
    w->value = NULL;
    w->entry = NULL;
    if (e == NULL)
        return;
    TAILQ_REMOVE(&e->waiters, w, link);
    if (e->value == NULL)
        kv_entry_empty(kv, e);
}

struct kv_waiter *kv_ready(struct kv *kv)
{
    struct kv_waiter *w = TAILQ_FIRST(&kv->ready);
    if (w != NULL)
        TAILQ_REMOVE(&kv->ready, w, link);
    return w;
}

void kv_clear(struct kv *kv, const char *scope, size_t len)
{
    struct kv_entry *next;
    struct kv_scope *s = find_scope(kv, scope, len);
    for (struct kv_entry *e = s != NULL ? LIST_FIRST(&s->entries) : NULL; e != NULL; e = next) {
        next = LIST_NEXT(e, link);
        kv_entry_empty(kv, e);
    }
}

int kv_finish(struct kv *kv, struct kv_name name)
{
    struct kv_entry *e = kv_entry_find(kv, name);
    if (e == NULL || !e->mine || e->finished)
        return 0;
    e->finished = true;
    e->scope->finished++;
    if (e->scope->finished < e->scope->put)
        return 0;
    kv_clear(kv, name.text, name.scope_len);
    return 1;
}

void kv_free(struct kv *kv)
{
    struct kv_entry *e;
    struct kv_entry *next;
    if (kv == NULL)
        return;
    HASH_ITER(hh, kv->entries, e, next)
    kv_entry_empty(kv, e);
    free(kv);
}
