#include "store/c10d_ops.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

enum { FEW_KEYS = 16, TAKE_FROM = 12 * 1024 };

/* The parser has checked all lengths, so these reads cannot fail. */
static struct store_bytes c10d_ops_str(struct c10d_request *r)
{
    uint64_t n = dd_rd_u64(&r->args);
    const unsigned char *p = dd_rd_bytes(&r->args, n);
    return (struct store_bytes){p, p != NULL ? n : 0};
}

static struct store_engine *engine(const struct c10d_request *r)
{
    return r->conn->c10d->engine;
}

static int answer_bytes(struct c10d_request *r, struct store_bytes b)
{
    int rc = store_out_u64(r->out, b.n);
    return rc < 0 ? rc : store_out_bytes(r->out, b.p, b.n);
}

static int answer_value(struct c10d_request *r, const struct store_value *v)
{
    int rc = store_out_u64(r->out, v->len);
    return rc < 0 ? rc : store_out_value(r->out, v);
}

/* True if the value is large enough to keep the whole input buffer for it. */
static bool can_take(const struct c10d_request *r, struct store_bytes value)
{
    return r->blob != NULL && value.n >= TAKE_FROM && value.n >= (*r->blob)->cap / 2;
}

static struct store_value c10d_ops_take(struct c10d_request *r, struct store_bytes value)
{
    struct store_blob *b = DD_TAKE(*r->blob);
    return (struct store_value){b, (size_t)(value.p - b->data), value.n};
}

static int run_set(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    struct store_bytes key = c10d_ops_str(r), value = c10d_ops_str(r);
    if (!can_take(r, value))
        return store_set(engine(r), key, value);
    struct store_value v = c10d_ops_take(r, value); /* the key remains in the buffer, too */
    return store_set_value(engine(r), key, v);
}

static int run_queue_push(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    struct store_bytes key = c10d_ops_str(r), value = c10d_ops_str(r);
    if (!can_take(r, value))
        return store_queue_push(engine(r), key, value);
    struct store_value v = c10d_ops_take(r, value);
    return store_queue_push_value(engine(r), key, v);
}

static int run_append(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    struct store_bytes key = c10d_ops_str(r), value = c10d_ops_str(r);
    return store_append(engine(r), key, value);
}

static int run_compare_set(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    struct store_bytes key = c10d_ops_str(r), expected = c10d_ops_str(r), desired = c10d_ops_str(r);
    struct store_value v;
    bool echo;
    int rc = 0;
    if (r->conn->run == NULL && store_runs_begins(key, expected, desired))
        rc = store_runs_join(&r->conn->c10d->runs, engine(r), key, &r->conn->run);
    if (rc == 0)
        rc = store_compare_set(engine(r), key, expected, desired, &v, &echo);
    if (rc < 0)
        return rc;
    return echo ? answer_bytes(r, expected) : answer_value(r, &v);
}

static int run_get(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    static const struct store_value nothing;
    const struct store_value *v = store_get(engine(r), c10d_ops_str(r));
    return answer_value(r, v != NULL ? v : &nothing);
}

static int no_number(struct dd_err *err, const char *op, struct store_bytes key)
{
    char text[80];
    return dd_err_set(err, -EINVAL, "%s: the value of key '%s' is not a number", op,
                      dd_log_escape(text, sizeof(text), key.p, key.n));
}

static int run_add(struct c10d_request *r, struct dd_err *err)
{
    struct store_bytes key = c10d_ops_str(r);
    int64_t sum;
    int rc = store_add(engine(r), key, dd_rd_i64(&r->args), &sum);
    if (rc == -EINVAL)
        return no_number(err, "ADD", key);
    return rc < 0 ? rc : store_out_u64(r->out, (uint64_t)sum);
}

static int run_check(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    uint64_t n = dd_rd_u64(&r->args);
    bool all = true;
    for (uint64_t i = 0; all && i < n; i++)
        all = store_exists(engine(r), c10d_ops_str(r));
    r->work = n;
    return store_out_u8(r->out, all ? 0 : 1);
}

/* Fail, which closes the connection, if the client waits for a key that will never be set. */
static int waits(const struct c10d_request *r, struct dd_err *err)
{
    const char *hopeless = r->conn->c10d->hopeless;
    if (hopeless == NULL || !store_waits_for(&r->conn->waiter, hopeless))
        return 0;
    return dd_err_set(err, -ECANCELED, "no key that begins with '%s' will be set any more",
                      hopeless);
}

static int run_wait(struct c10d_request *r, struct dd_err *err)
{
    struct store_bytes few[FEW_KEYS] = {0}, *keys = few;
    uint64_t n = dd_rd_u64(&r->args);
    if (n > FEW_KEYS && (keys = calloc(n, sizeof(*keys))) == NULL)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        keys[i] = c10d_ops_str(r);
    r->work = n;
    int rc = store_wait(engine(r), &r->conn->waiter, keys, n);
    if (keys != few)
        free(keys);
    if (rc == 1)
        return waits(r, err);
    return rc == 0 ? store_out_u8(r->out, 0) : rc;
}

static int run_barrier(struct c10d_request *r, struct dd_err *err)
{
    struct store_bytes key = c10d_ops_str(r);
    int rc = store_barrier(engine(r), &r->conn->waiter, key, dd_rd_i64(&r->args));
    if (rc == -EINVAL)
        return no_number(err, "BARRIER", key);
    if (rc == 1)
        return waits(r, err);
    return rc == 0 ? store_out_u8(r->out, 0) : rc;
}

static int run_cancel_wait(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    store_cancel(engine(r), &r->conn->waiter);
    return store_out_u8(r->out, 1);
}

static int run_getnumkeys(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    return store_out_u64(r->out, store_keys(engine(r)));
}

static int run_delete_key(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    return store_out_u64(r->out, store_delete(engine(r), c10d_ops_str(r)));
}

static int run_multi_get(struct c10d_request *r, struct dd_err *err)
{
    uint64_t n = dd_rd_u64(&r->args);
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        rc = run_get(r, err);
    r->work = n;
    return rc;
}

/* Set all keys or none: check for room before the first key is set. */
static int run_multi_set(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    uint64_t n = dd_rd_u64(&r->args);
    if (!store_has_room(engine(r), n, dd_rd_left(&r->args)))
        return -ENOSPC;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        struct store_bytes key = c10d_ops_str(r), value = c10d_ops_str(r);
        rc = store_set(engine(r), key, value);
    }
    r->work = n;
    return rc;
}

static int run_ping(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    return store_out_u32(r->out, dd_rd_u32(&r->args));
}

static int run_queue_pop(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    struct store_bytes key = c10d_ops_str(r);
    size_t len = store_queue_len(engine(r), key);
    int rc = store_out_u64(r->out, len);
    if (rc < 0 || len == 0)
        return rc;
    struct store_value v = store_queue_pop(engine(r), key);
    rc = answer_value(r, &v);
    store_blob_unref(v.blob);
    return rc;
}

static int run_queue_len(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    return store_out_u64(r->out, store_queue_len(engine(r), c10d_ops_str(r)));
}

static int list_one(void *arg, struct store_bytes key)
{
    struct c10d_request *r = arg;
    return answer_bytes(r, key);
}

static int run_list_keys(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    r->work = store_keys(engine(r));
    int rc = store_out_u64(r->out, r->work);
    return rc < 0 ? rc : store_each_key(engine(r), list_one, r);
}

/* Old clients register interest in a key on a second connection. torch never uses the
 * notifications, so confirm the request and send none. Src: docs/protocol/store-c10d.md. */
static int run_watch_key(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    return store_out_u8(r->out, 3);
}

/* Only the first message may be VALIDATE; it is handled before requests are executed. */
static int run_validate(struct c10d_request *r, struct dd_err *err)
{
    (void)r;
    return dd_err_set(err, -EPROTO, "duplicate VALIDATE");
}

_Static_assert((int)C10D_OPS <= (int)STORE_PROFILE_OPS, "room in the profile");

/* clang-format off */
const struct c10d_op_info c10d_ops[C10D_OPS] = {
    [C10D_VALIDATE] = {"VALIDATE", "u", run_validate},
    [C10D_SET] = {"SET", "kv", run_set},
    [C10D_COMPARE_SET] = {"COMPARE_SET", "kvv", run_compare_set},
    [C10D_GET] = {"GET", "k", run_get},
    [C10D_ADD] = {"ADD", "ki", run_add},
    [C10D_CHECK] = {"CHECK", "#k", run_check},
    [C10D_WAIT] = {"WAIT", "#k", run_wait},
    [C10D_GETNUMKEYS] = {"GETNUMKEYS", "", run_getnumkeys},
    [C10D_DELETE_KEY] = {"DELETE_KEY", "k", run_delete_key},
    [C10D_APPEND] = {"APPEND", "kv", run_append},
    [C10D_MULTI_GET] = {"MULTI_GET", "#k", run_multi_get},
    [C10D_MULTI_SET] = {"MULTI_SET", "#kv", run_multi_set},
    [C10D_CANCEL_WAIT] = {"CANCEL_WAIT", "", run_cancel_wait},
    [C10D_PING] = {"PING", "u", run_ping},
    [C10D_QUEUE_PUSH] = {"QUEUE_PUSH", "kv", run_queue_push},
    [C10D_QUEUE_POP] = {"QUEUE_POP", "k", run_queue_pop},
    [C10D_QUEUE_LEN] = {"QUEUE_LEN", "k", run_queue_len},
    [C10D_LIST_KEYS] = {"LIST_KEYS", "", run_list_keys},
    [C10D_BARRIER] = {"BARRIER", "ki", run_barrier},
    [C10D_WATCH_KEY] = {"WATCH_KEY", "k", run_watch_key},
};
/* clang-format on */

static const unsigned char table_a[] = {C10D_SET,        C10D_COMPARE_SET, C10D_GET,
                                        C10D_ADD,        C10D_CHECK,       C10D_WAIT,
                                        C10D_GETNUMKEYS, C10D_WATCH_KEY,   C10D_DELETE_KEY};

int c10d_op_of(enum c10d_table table, unsigned char code)
{
    switch (table) {
    case C10D_TABLE_A:
        return code < sizeof(table_a) ? table_a[code] : -1;
    case C10D_TABLE_B: /* like C without VALIDATE, up to CANCEL_WAIT */
        return code < C10D_CANCEL_WAIT ? code + 1 : -1;
    case C10D_TABLE_C:
        return code < C10D_WATCH_KEY ? code : -1;
    case C10D_UNKNOWN:
        break;
    }
    return -1;
}
