/* Counted memory: an account with an upper limit, and shared runs of bytes that are charged to it.
 *
 * A value that is being sent to a slow reader is shared, not copied; it stays charged until the
 * last reader is done, so that overwriting values cannot get around the limit.
 */
#ifndef DD_STORE_BLOB_H
#define DD_STORE_BLOB_H

#include <stddef.h>

struct store_account {
    size_t used;
    size_t max;
};

int store_account_take(struct store_account *a, size_t n); /* 0 or -ENOSPC */
void store_account_give(struct store_account *a, size_t n);

struct store_blob {
    struct store_account *account; /* outlives the blob */
    size_t cap;                    /* bytes in data */
    unsigned refs;
    unsigned char data[];
};

/* A part of a blob; the holder owns one reference. blob may be NULL when len is 0. */
struct store_value {
    struct store_blob *blob;
    size_t off;
    size_t len;
};

/* Bytes that are borrowed for one call. */
struct store_bytes {
    const unsigned char *p;
    size_t n;
};

/* All return 0, -ENOSPC or -ENOMEM. A new blob has one reference. */
int store_blob_new(struct store_blob **ret, struct store_account *account, size_t cap);
/* Makes room for cap bytes and moves *blob; only while there is one reference. */
int store_blob_resize(struct store_blob **blob, size_t cap);

struct store_blob *store_blob_ref(struct store_blob *b);
void store_blob_unref(struct store_blob *b); /* NULL is fine */

static inline struct store_bytes store_value_bytes(const struct store_value *v)
{
    return (struct store_bytes){v->blob != NULL ? v->blob->data + v->off : NULL, v->len};
}

#endif
