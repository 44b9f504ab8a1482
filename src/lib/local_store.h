/* The store of a process that runs without ddrun: keys and values in its own memory. */
#ifndef DD_LIB_LOCAL_STORE_H
#define DD_LIB_LOCAL_STORE_H

#include <stddef.h>
#include <stdint.h>

struct local_store;

int local_store_new(struct local_store **ret);
void local_store_free(struct local_store *s);

/* Like the functions of ddrun.h with these names; deadline as in conn.h. */
int local_store_put(struct local_store *s, const char *key, const void *value, size_t len);
int local_store_get(struct local_store *s, const char *key, void **ret, size_t *ret_len,
                    uint64_t deadline);
int local_store_delete(struct local_store *s, const char *key);
int local_store_add(struct local_store *s, const char *key, int64_t delta, int64_t *ret);

#endif
