/* Keys and values. A value is stored with a prefix byte, so that an empty value differs from a
 * missing one. Counters have separate keys, because the store closes the connection on an addition
 * to a value that is not a number. */
#include "lib/lib_inner.h"

#include <errno.h>
#include <string.h>

enum { MAX_KEYS = 65536 }; /* maximum number of keys of one wait */

static const char mark = 'v';

/* Key prefix: "ddrun/ROUND/v/" or ".../n/". */
struct place {
    char text[PREFIX_MAX + 4];
};

static struct place values_place_of(const struct ddrun *d, char what)
{
    struct place p;
    (void)snprintf(p.text, sizeof(p.text), "%s%c/", d->prefix, what);
    return p;
}

static int values_check_key(const char *call, const char *key)
{
    size_t n = key != NULL ? strnlen(key, DDRUN_KEY_MAX + 1) : 0;
    if (n == 0 || n > DDRUN_KEY_MAX)
        return lib_fail_as(-EINVAL, "%s: a key must have 1 to %d bytes", call, DDRUN_KEY_MAX);
    return 0;
}

/* Check the key and the handle of a call. */
static int values_check(const struct ddrun *d, const char *call, const char *key)
{
    int rc = values_check_key(call, key);
    if (rc < 0)
        return rc;
    rc = lib_check(d);
    return rc < 0 ? lib_fail(rc, "%s of '%.200s'", call, key) : 0;
}

static int done(int rc, const char *call, const char *key)
{
    return rc < 0 ? lib_fail(rc, "%s of '%.200s'", call, key) : rc;
}

int ddrun_put(struct ddrun *d, const char *key, const void *value, size_t len, int timeout_ms)
{
    struct wire w;
    int rc = values_check(d, "put", key);
    if (rc < 0)
        return rc;
    if (len > DDRUN_VALUE_MAX)
        return lib_fail_as(-EMSGSIZE, "put of '%.200s': %zu bytes exceed the limit of %d", key, len,
                           DDRUN_VALUE_MAX);
    if (d->local != NULL)
        return done(local_store_put(d->local, key, value, len), "put", key);
    const struct place p = values_place_of(d, 'v');
    wire_init(&w, 0);
    wire_set(&w, (struct wire_key){p.text, key}, (struct wire_value){&mark, 1, value, len});
    wire_ping(&w, 0); /* the reply to PING shows that SET was executed */
    rc = lib_call(d, &w, lib_answer_in(timeout_ms));
    wire_done_with(&w);
    return done(rc, "put", key);
}

/* Get a value without waiting. 1: *ret is given; 0: the key does not exist. */
static int values_get_now(struct ddrun *d, const char *key, void **ret, size_t *ret_len,
                          uint64_t deadline)
{
    struct wire w;
    const struct place p = values_place_of(d, 'v');
    wire_init(&w, DDRUN_VALUE_MAX + 4096);
    wire_get(&w, (struct wire_key){p.text, key});
    int rc = lib_call(d, &w, deadline);
    size_t len = w.in.len;
    if (rc == 0 && len > 0 && w.in.data[0] != (unsigned char)mark)
        rc = -EPROTO;
    if (rc == 0 && len > 0) {
        dd_buf_consume(&w.in, 1);
        *ret = dd_buf_steal(&w.in);
        rc = *ret != NULL ? 1 : -ENOMEM;
    }
    if (rc == 1 && ret_len != NULL)
        *ret_len = len - 1;
    wire_done_with(&w);
    return rc;
}

static int wait_for_keys(struct ddrun *d, const char *const *keys, int n, uint64_t deadline)
{
    struct wire w;
    const struct place p = values_place_of(d, 'v');
    wire_init(&w, 0);
    wire_wait(&w, p.text, keys, (size_t)n);
    int rc = lib_call(d, &w, deadline);
    wire_done_with(&w);
    return rc;
}

int ddrun_get(struct ddrun *d, const char *key, void **ret, size_t *ret_len, int timeout_ms)
{
    int rc = values_check(d, "get", key);
    if (rc < 0)
        return rc;
    uint64_t deadline = deadline_in(timeout_ms);
    if (d->local != NULL)
        return done(local_store_get(d->local, key, ret, ret_len, deadline), "get", key);
    for (;;) { /* the key may be deleted between the end of the wait and the get */
        rc = values_get_now(d, key, ret, ret_len, timeout_ms == 0 ? lib_answer_in(0) : deadline);
        if (rc == 0 && timeout_ms == 0)
            rc = -ETIMEDOUT;
        if (rc != 0)
            return rc < 0 ? done(rc, "get", key) : 0;
        rc = wait_for_keys(d, &key, 1, deadline);
        if (rc < 0)
            return done(rc, "get", key);
    }
}

static int wait_local(struct ddrun *d, const char *const *keys, int n, uint64_t deadline)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = done(local_store_get(d->local, keys[i], NULL, NULL, deadline), "wait", keys[i]);
    return rc;
}

int ddrun_wait(struct ddrun *d, const char *const *keys, int n, int timeout_ms)
{
    char what[40];
    if (n < 0 || n > MAX_KEYS)
        return lib_fail_as(-EINVAL, "wait for %d keys: expected 0 to %d", n, MAX_KEYS);
    for (int i = 0; i < n; i++)
        if (values_check_key("wait", keys[i]) < 0)
            return -EINVAL;
    (void)snprintf(what, sizeof(what), "wait for %d key%s", n, n == 1 ? "" : "s");
    int rc = lib_check(d);
    if (rc < 0 || n == 0)
        return rc < 0 ? lib_fail(rc, "%s", what) : 0;
    uint64_t deadline = deadline_in(timeout_ms);
    if (d->local != NULL)
        return wait_local(d, keys, n, deadline);
    rc = wait_for_keys(d, keys, n, timeout_ms == 0 ? deadline_in(1) : deadline);
    return rc < 0 ? lib_fail(rc, "%s ('%.100s'%s)", what, keys[0], n > 1 ? ", ..." : "") : 0;
}

int ddrun_delete(struct ddrun *d, const char *key, int timeout_ms)
{
    struct wire w;
    int rc = values_check(d, "delete", key);
    if (rc < 0)
        return rc;
    if (d->local != NULL)
        return local_store_delete(d->local, key);
    const struct place p = values_place_of(d, 'v');
    wire_init(&w, 0);
    wire_delete(&w, (struct wire_key){p.text, key});
    rc = lib_call(d, &w, lib_answer_in(timeout_ms));
    wire_done_with(&w);
    return rc < 0 ? done(rc, "delete", key) : w.number != 0;
}

int ddrun_add(struct ddrun *d, const char *key, int64_t delta, int64_t *ret, int timeout_ms)
{
    struct wire w;
    int rc = values_check(d, "add", key);
    if (rc < 0)
        return rc;
    const struct place p = values_place_of(d, 'n');
    wire_init(&w, 0);
    wire_add(&w, (struct wire_key){p.text, key}, delta);
    if (d->local != NULL)
        rc = local_store_add(d->local, key, delta, &w.number);
    else
        rc = lib_call(d, &w, lib_answer_in(timeout_ms));
    wire_done_with(&w);
    if (rc == 0 && ret != NULL)
        *ret = w.number;
    return done(rc, "add", key);
}
