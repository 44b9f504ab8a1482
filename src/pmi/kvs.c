#include "pmi/kvs.h"

#include "base/cursor.h"
#include "pmi/pmi1_wire.h"
#include "store/siphash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* uses the seed of the table in scope: see HASH_ADD_KEYPTR and HASH_FIND below */
#define HASH_FUNCTION(key, len, hash) (hash) = (unsigned)dd_siphash13(k->seed, (key), (len))
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct kvs_entry {
    UT_hash_handle hh;
    char *value;
    char key[];
};

struct kvs {
    unsigned char seed[DD_SIPHASH_SEED];
    struct kvs_entry *table;
    size_t bytes;
    struct dd_buf news;
};

int kvs_new(struct kvs **ret, const unsigned char *seed)
{
    struct kvs *k = calloc(1, sizeof(*k));
    if (k == NULL)
        return -ENOMEM;
    memcpy(k->seed, seed, sizeof(k->seed));
    k->news = DD_BUF_INIT(KVS_PART_MAX);
    *ret = k;
    return 0;
}

static struct kvs_entry *kvs_find(const struct kvs *k, const char *key)
{
    struct kvs_entry *e = NULL;
    HASH_FIND(hh, k->table, key, strlen(key), e);
    return e;
}

const char *kvs_get(const struct kvs *k, const char *key)
{
    const struct kvs_entry *e = kvs_find(k, key);
    return e != NULL ? e->value : NULL;
}

static int kvs_add(struct kvs *k, const char *key, char *value)
{
    size_t n = strlen(key);
    struct kvs_entry *e = calloc(1, sizeof(*e) + n + 1);
    if (e == NULL)
        return -ENOMEM;
    memcpy(e->key, key, n + 1);
    HASH_ADD_KEYPTR(hh, k->table, e->key, n, e);
    if (e->hh.tbl == NULL) { /* out of memory for the table */
        free(e);
        return -ENOMEM;
    }
    e->value = value;
    k->bytes += sizeof(*e) + n;
    return 0;
}

int kvs_set(struct kvs *k, const char *key, const char *value)
{
    struct kvs_entry *e = kvs_find(k, key);
    if (k->bytes + strlen(key) + strlen(value) + sizeof(*e) > KVS_MAX)
        return -EMSGSIZE;
    DD_AUTO(free) char *copy = strdup(value);
    if (copy == NULL)
        return -ENOMEM;
    if (e == NULL) {
        int rc = kvs_add(k, key, copy);
        if (rc < 0)
            return rc;
    } else {
        k->bytes -= strlen(e->value);
        free(e->value);
        e->value = copy;
    }
    k->bytes += strlen(value);
    copy = NULL;
    return 0;
}

static int kvs_put_text(struct dd_buf *out, const char *text)
{
    size_t n = strlen(text);
    int rc = dd_wr_le(out, n, sizeof(uint32_t));
    return rc < 0 ? rc : dd_buf_append(out, text, n);
}

int kvs_put(struct kvs *k, const char *key, const char *value)
{
    const size_t before = k->news.len;
    int rc = kvs_put_text(&k->news, key);
    if (rc == 0)
        rc = kvs_put_text(&k->news, value);
    if (rc == 0)
        rc = kvs_set(k, key, value);
    if (rc < 0)
        k->news.len = before;
    return rc;
}

const void *kvs_news(const struct kvs *k, size_t *ret_len)
{
    *ret_len = k->news.len;
    return k->news.data != NULL ? (const void *)k->news.data : "";
}

void kvs_news_told(struct kvs *k)
{
    dd_buf_clear(&k->news);
}

static int take_text(struct dd_rd *r, char *out, size_t max)
{
    size_t n = dd_rd_u32(r);
    const unsigned char *p = n < max ? dd_rd_bytes(r, n) : NULL;
    if (r->failed || p == NULL)
        return -EPROTO;
    memcpy(out, p, n);
    out[n] = '\0';
    return pmi_name_ok(out) && strlen(out) == n ? 0 : -EPROTO;
}

int kvs_take(struct kvs *k, const void *p, size_t n, struct dd_err *err)
{
    struct dd_rd r = dd_rd_of(p, n);
    char key[PMI_NAME_MAX];
    char value[PMI_VALUE_MAX];
    while (dd_rd_left(&r) > 0) {
        if (take_text(&r, key, sizeof(key)) < 0 || take_text(&r, value, sizeof(value)) < 0)
            return dd_err_set(err, -EPROTO, "malformed key-value data from another node");
        int rc = kvs_set(k, key, value);
        if (rc < 0)
            return dd_err_set(err, rc,
                              rc == -ENOMEM ? "out of memory for key-value data of another node"
                                            : "the key-value data of all nodes exceeds %d MiB",
                              KVS_MAX >> 20);
    }
    return 0;
}

void kvs_free(struct kvs *k)
{
    struct kvs_entry *e;
    struct kvs_entry *next;
    if (k == NULL)
        return;
    HASH_ITER(hh, k->table, e, next)
    {
        HASH_DEL(k->table, e);
        free(e->value);
        free(e);
    }
    dd_buf_done(&k->news);
    free(k);
}
