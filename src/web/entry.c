#include "web/entry.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 };

static const char hex[] = "0123456789abcdef";
/* Characters of names and addresses; none needs escaping in a message. */
static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%";

static const struct text {
    const char *name;
    size_t offset, max;
    bool fixed; /* exactly max characters, or none if empty is allowed */
    bool empty;
    const char *of;
} texts[] = {
    {"id", offsetof(struct entry, id), ENTRY_ID, true, false, hex},
    {"node", offsetof(struct entry, node), ENTRY_NODE_MAX, false, false, plain},
    {"secret", offsetof(struct entry, secret), ENTRY_SECRET, true, true, hex},
};

static const struct number {
    const char *name;
    int64_t min, max;
} numbers[] = {
    {"v", VERSION, VERSION}, {"port", 1, 65535}, {"epoch", 0, INT64_MAX}, {"started", 0, 1}};

enum { V, PORT, EPOCH, STARTED, NUMBERS };
_Static_assert(sizeof(numbers) / sizeof(numbers[0]) == NUMBERS, "a row per number");

void entry_done(struct entry *e)
{
    dd_strv_done(&e->addrs);
    explicit_bzero(e->secret, sizeof(e->secret));
}

int entry_encode(char **ret, const struct entry *e)
{
    const int64_t values[NUMBERS] = {
        [V] = VERSION, [PORT] = e->port, [EPOCH] = e->epoch, [STARTED] = e->started};
    json_t *addrs = json_array();
    json_t *o = json_pack("{s:O}", "addrs", addrs);
    for (size_t i = 0; i < e->addrs.n; i++)
        (void)json_array_append_new(addrs, json_string(e->addrs.v[i]));
    for (size_t i = 0; i < NUMBERS; i++)
        (void)json_object_set_new(o, numbers[i].name, json_integer(values[i]));
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        (void)json_object_set_new(o, texts[i].name, json_string((const char *)e + texts[i].offset));
    *ret = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(addrs);
    json_decref(o);
    return *ret != NULL ? 0 : -ENOMEM;
}

static bool entry_is_text(const json_t *v, const struct text *t)
{
    const char *s = json_string_value(v);
    const size_t n = s != NULL ? json_string_length(v) : 0;
    if (s == NULL || n > t->max || strspn(s, t->of) != n)
        return false;
    return n == 0 ? t->empty : !t->fixed || n == t->max;
}

static int take_addrs(struct dd_strv *to, const json_t *a)
{
    static const struct text addr = {.max = 63, .of = plain};
    int rc = json_is_array(a) && json_array_size(a) > 0 && json_array_size(a) <= ENTRY_ADDRS_MAX
                 ? 0
                 : -EPROTO;
    for (size_t i = 0; rc == 0 && i < json_array_size(a); i++) {
        const json_t *v = json_array_get(a, i);
        rc = entry_is_text(v, &addr) ? dd_strv_push(to, json_string_value(v)) : -EPROTO;
    }
    return rc;
}

static int entry_decode_object(struct entry *e, const json_t *o)
{
    int64_t values[NUMBERS];
    int rc = take_addrs(&e->addrs, json_object_get(o, "addrs"));
    for (size_t i = 0; rc == 0 && i < NUMBERS; i++) {
        const json_t *v = json_object_get(o, numbers[i].name);
        values[i] = json_integer_value(v);
        rc = json_is_integer(v) && values[i] >= numbers[i].min && values[i] <= numbers[i].max
                 ? 0
                 : -EPROTO;
    }
    for (size_t i = 0; rc == 0 && i < sizeof(texts) / sizeof(texts[0]); i++) {
        const json_t *v = json_object_get(o, texts[i].name);
        rc = entry_is_text(v, &texts[i]) ? 0 : -EPROTO;
        if (rc == 0)
            memcpy((char *)e + texts[i].offset, json_string_value(v), json_string_length(v) + 1);
    }
    if (rc < 0)
        return rc;
    e->port = (int)values[PORT];
    e->epoch = values[EPOCH];
    e->started = values[STARTED] != 0;
    return 0;
}

int entry_decode(struct entry *ret, const char *text, struct dd_err *err)
{
    DD_AUTO(entry) struct entry e = {0};
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    int rc = o != NULL ? entry_decode_object(&e, o) : -EPROTO;
    json_decref(o);
    if (rc < 0)
        return dd_err_set(
            err, rc,
            rc == -ENOMEM ? "out of memory for the leader entry of etcd"
                          : "malformed leader entry in etcd, or one of another version of ddrun");
    *ret = e;
    e = (struct entry){0};
    return 0;
}
