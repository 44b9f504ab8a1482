#include "store/profile_json.h"

#include "base/log.h"
#include "store/c10d_ops.h"

static json_t *profile_json_operation(const char *name, const struct store_op_profile *o,
                                      bool measured)
{
    json_t *j = json_pack("{s:s,s:I,s:I,s:I}", "operation", name, "count", (json_int_t)o->n,
                          "bytes_in", (json_int_t)o->bytes_in, "bytes_out",
                          (json_int_t)o->bytes_out);
    const struct {
        const char *name;
        uint64_t v;
    } times[] = {{"service_ns", o->service_ns},
                 {"service_max_ns", o->service_max_ns},
                 {"waits", o->waits},
                 {"wait_ns", o->wait_ns},
                 {"wait_max_ns", o->wait_max_ns}};
    for (size_t i = 0; measured && i < sizeof(times) / sizeof(times[0]); i++)
        (void)json_object_set_new(j, times[i].name, json_integer((json_int_t)times[i].v));
    return j;
}

static json_t *profile_json_operations(const struct store_profile *p)
{
    json_t *list = json_array();
    for (int op = 0; op < C10D_OPS; op++)
        if (p->ops[op].n > 0)
            (void)json_array_append_new(
                list, profile_json_operation(c10d_ops[op].name, &p->ops[op], p->now != NULL));
    return list;
}

static json_t *profile_json_sizes(const struct store_profile *p)
{
    json_t *list = json_array();
    for (int k = 0; k < STORE_PROFILE_SIZES; k++)
        if (p->requests[k] > 0 || p->replies[k] > 0)
            (void)json_array_append_new(
                list, json_pack("{s:I,s:I,s:I,s:I}", "from",
                                (json_int_t)(k == 0 ? 0 : UINT64_C(1) << (k - 1)), "to",
                                (json_int_t)((UINT64_C(1) << k) - 1), "requests",
                                (json_int_t)p->requests[k], "replies", (json_int_t)p->replies[k]));
    return list;
}

/* Keys are bytes: write backslashes and all but printable ASCII as \xNN. A long key is truncated.
 */
static json_t *profile_json_keys(const struct hot_keys *keys)
{
    const struct hot_key *top[HOT_KEYS_SHOWN];
    const size_t n = hot_keys_top(keys, top);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        char name[4 * HOT_KEY_MAX + 1];
        const size_t len = top[i]->len < HOT_KEY_MAX ? top[i]->len : HOT_KEY_MAX;
        (void)json_array_append_new(
            list, json_pack("{s:s,s:I,s:I,s:I}", "key",
                            dd_log_escape(name, sizeof(name), top[i]->key, len), "length",
                            (json_int_t)top[i]->len, "count", (json_int_t)top[i]->n, "over",
                            (json_int_t)top[i]->over));
    }
    return list;
}

json_t *store_profile_json(const struct store_profile *p, const struct store_stats *st)
{
    json_t *o = json_pack("{s:i,s:b,s:o,s:o,s:{s:I,s:I,s:I}}", "version", 1, "measured",
                          p->now != NULL, "operations", profile_json_operations(p), "sizes",
                          profile_json_sizes(p), "connections", "open", (json_int_t)st->conns,
                          "opened", (json_int_t)st->conns_total, "refused",
                          (json_int_t)st->refused);
    if (p->keys != NULL)
        (void)json_object_set_new(o, "keys", profile_json_keys(p->keys));
    return o;
}
