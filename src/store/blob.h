/* Counted memory: an account with a limit, and reference-counted byte buffers charged to it.
 *
 * A value that is sent to a slow reader is shared, not copied. It stays charged until the last
 * reference is dropped, so overwriting a value that is still being sent cannot exceed the limit. */
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

/* A slice of a blob; its holder owns one reference. blob may be NULL if len is 0. */
struct store_value {
    struct store_blob *blob;
    size_t off;
    size_t len;
};

/* Bytes borrowed for one call. */
struct store_bytes {
    const unsigned char *p;
    size_t n;
};

/* Return 0, -ENOSPC or -ENOMEM. A new blob has one reference. */
int store_blob_new(struct store_blob **ret, struct store_account *account, size_t cap);
/* Enlarge the blob to cap bytes; may change *blob. Requires that there is only one reference. */
int store_blob_resize(struct store_blob **blob, size_t cap);

struct store_blob *store_blob_ref(struct store_blob *b);
void store_blob_unref(struct store_blob *b); /* NULL does nothing */

static inline struct store_bytes store_value_bytes(const struct store_value *v)
{
    return (struct store_bytes){v->blob != NULL ? v->blob->data + v->off : NULL, v->len};
}

#endif
