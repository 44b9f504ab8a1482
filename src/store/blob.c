#include "store/blob.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

int store_account_take(struct store_account *a, size_t n)
{
    if (a->used > a->max || n > a->max - a->used)
        return -ENOSPC;
    a->used += n;
    return 0;
}

void store_account_give(struct store_account *a, size_t n)
{
    a->used -= n;
}

int store_blob_new(struct store_blob **ret, struct store_account *account, size_t cap)
{
    if (cap > SIZE_MAX / 2)
        return -ENOSPC;
    int rc = store_account_take(account, sizeof(struct store_blob) + cap);
    if (rc < 0)
        return rc;
    struct store_blob *b = malloc(sizeof(*b) + cap);
    if (b == NULL) {
        store_account_give(account, sizeof(*b) + cap);
        return -ENOMEM;
    }
    b->account = account;
    b->cap = cap;
    b->refs = 1;
    *ret = b;
    return 0;
}

int store_blob_resize(struct store_blob **blob, size_t cap)
{
    struct store_blob *b = *blob;
    size_t more = cap > b->cap ? cap - b->cap : 0;
    if (cap > SIZE_MAX / 2)
        return -ENOSPC;
    int rc = store_account_take(b->account, more);
    if (rc < 0)
        return rc;
    struct store_blob *grown = realloc(b, sizeof(*b) + cap);
    if (grown == NULL) {
        store_account_give(b->account, more);
        return -ENOMEM;
    }
    if (cap < grown->cap)
        store_account_give(grown->account, grown->cap - cap);
    grown->cap = cap;
    *blob = grown;
    return 0;
}

struct store_blob *store_blob_ref(struct store_blob *b)
{
    if (b != NULL)
        b->refs++;
    return b;
}

void store_blob_unref(struct store_blob *b)
{
    if (b == NULL || --b->refs > 0)
        return;
    store_account_give(b->account, sizeof(*b) + b->cap);
    free(b);
}
