/* The store of a process that runs without ddrun: keys and values in its own memory. */
#ifndef DD_LIB_LOCAL_STORE_H
#define DD_LIB_LOCAL_STORE_H

#include <stddef.h>
#include <stdint.h>

struct alone;

int alone_new(struct alone **ret);
void alone_free(struct alone *a);

/* Like the functions of ddrun.h with these names; deadline as in conn.h. */
int alone_put(struct alone *a, const char *key, const void *value, size_t len);
int alone_get(struct alone *a, const char *key, void **ret, size_t *ret_len, uint64_t deadline);
int alone_delete(struct alone *a, const char *key);
int alone_add(struct alone *a, const char *key, int64_t delta, int64_t *ret);

#endif
