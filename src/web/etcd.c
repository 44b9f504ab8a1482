#include "web/etcd.h"

#include "base/log.h"
#include "base/num.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const paths[ETCD_CALLS] = {
    [ETCD_AUTH] = "/v3/auth/authenticate", [ETCD_READ] = "/v3/kv/range",
    [ETCD_GRANT] = "/v3/lease/grant",      [ETCD_KEEP] = "/v3/lease/keepalive",
    [ETCD_REVOKE] = "/v3/lease/revoke",    [ETCD_PUT] = "/v3/kv/txn",
};

const char *etcd_path(enum etcd_call call)
{
    return paths[call];
}

/* ---- base64, the encoding of keys and values ---- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *to_base64(const char *text)
{
    const size_t n = strlen(text);
    char *out = malloc((n + 2) / 3 * 4 + 1);
    size_t len = 0;
    for (size_t i = 0; out != NULL && i < n; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < n ? (unsigned char)text[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            out[len++] = i + k <= n ? letters[v >> (18 - 6 * k) & 63] : '=';
    }
    if (out != NULL)
        out[len] = '\0';
    return out;
}

/* Decode; NULL: malformed, too long, contains a NUL, or out of memory. */
static char *from_base64(const char *text)
{
    size_t n = strlen(text);
    if (n % 4 != 0 || n / 4 * 3 > ETCD_VALUE_MAX + 3)
        return NULL;
    for (int pads = 0; pads < 2 && n > 0 && text[n - 1] == '='; pads++)
        n--;
    char *out = malloc(n / 4 * 3 + 4);
    size_t len = 0;
    uint32_t v = 0;
    for (size_t i = 0; out != NULL && i < n; i++) {
        const char *at = memchr(letters, text[i], sizeof(letters) - 1);
        v = v << 6 | (at != NULL ? (uint32_t)(at - letters) : 0);
        if (i % 4 != 0)
            out[len++] = (char)(v >> (4 - 2 * (i % 4 - 1)) & 255);
        if (at == NULL || (i % 4 != 0 && out[len - 1] == '\0')) {
            free(out);
            return NULL;
        }
    }
    if (out != NULL)
        out[len] = '\0';
    return out;
}

/* ---- requests ---- */

static json_t *etcd_number(int64_t v)
{
    return json_sprintf("%" PRId64, v); /* the gateway encodes 64-bit numbers as text */
}

static json_t *put_body(const char *key, const char *value, const struct etcd_ask *a)
{
    json_t *if_ = a->revision == 0 ? json_pack("{s:s s:s s:o}", "key", key, "target", "CREATE",
                                               "create_revision", etcd_number(0))
                                   : json_pack("{s:s s:s s:o}", "key", key, "target", "MOD",
                                               "mod_revision", etcd_number(a->revision));
    return json_pack("{s:[o] s:[{s:{s:s s:s s:o}}]}", "compare", if_, "success", "request_put",
                     "key", key, "value", value, "lease", etcd_number(a->lease));
}

int etcd_ask_encode(char **ret, const struct etcd_ask *a)
{
    DD_AUTO(free) char *key = to_base64(a->key != NULL ? a->key : "");
    DD_AUTO(free) char *value = to_base64(a->value != NULL ? a->value : "");
    json_t *o = NULL;
    if (key == NULL || value == NULL)
        return -ENOMEM;
    switch (a->call) {
    case ETCD_AUTH:
        o = json_pack("{s:s s:s}", "name", a->user, "password", a->password);
        break;
    case ETCD_READ:
        o = json_pack("{s:s}", "key", key);
        break;
    case ETCD_GRANT:
        o = json_pack("{s:o}", "TTL", etcd_number(a->ttl));
        break;
    case ETCD_KEEP:
    case ETCD_REVOKE:
        o = json_pack("{s:o}", "ID", etcd_number(a->lease));
        break;
    case ETCD_PUT:
        o = put_body(key, value, a);
        break;
    case ETCD_CALLS:
    default:
        break;
    }
    *ret = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return *ret != NULL ? 0 : -ENOMEM;
}

/* ---- answers ---- */

/* The fields of each reply and their paths; a step "0" is the first element of a list. */
enum kind { NUMBER, BASE64, TOKEN, TRUTH };

static const struct part {
    enum etcd_call call;
    const char *path[4];
    enum kind kind;
    bool must;
    size_t offset;
} parts[] = {
    {ETCD_AUTH, {"token"}, TOKEN, true, offsetof(struct etcd_answer, token)},
    {ETCD_GRANT, {"ID"}, NUMBER, true, offsetof(struct etcd_answer, lease)},
    {ETCD_KEEP, {"result", "TTL"}, NUMBER, false, offsetof(struct etcd_answer, lease)},
    {ETCD_PUT, {"succeeded"}, TRUTH, false, offsetof(struct etcd_answer, there)},
    {ETCD_PUT, {"header", "revision"}, NUMBER, false, offsetof(struct etcd_answer, revision)},
    {ETCD_READ, {"kvs", "0"}, TRUTH, false, offsetof(struct etcd_answer, there)},
    {ETCD_READ,
     {"kvs", "0", "mod_revision"},
     NUMBER,
     false,
     offsetof(struct etcd_answer, revision)},
    {ETCD_READ, {"kvs", "0", "lease"}, NUMBER, false, offsetof(struct etcd_answer, lease)},
    {ETCD_READ, {"kvs", "0", "value"}, BASE64, false, offsetof(struct etcd_answer, value)},
};

static const json_t *etcd_find(const json_t *o, const char *const path[4])
{
    for (size_t i = 0; i < 4 && path[i] != NULL && o != NULL; i++)
        o = strcmp(path[i], "0") == 0 ? json_array_get(o, 0) : json_object_get(o, path[i]);
    return o;
}

/* proto3 encodes 64-bit numbers as text; plain numbers are accepted, too. */
static int etcd_take_number(int64_t *to, const json_t *v)
{
    uint64_t n = 0;
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        n = (uint64_t)json_integer_value(v);
    else if (!json_is_string(v) || dd_num_u64(json_string_value(v), 0, INT64_MAX, &n) < 0)
        return -EPROTO;
    *to = (int64_t)n;
    return 0;
}

static bool is_token(const char *text)
{
    const size_t n = strlen(text);
    bool ok = n > 0 && n <= ETCD_TOKEN_MAX;
    for (size_t i = 0; i < n && ok; i++) /* the token becomes part of a header line */
        ok = text[i] > ' ' && text[i] <= '~';
    return ok;
}

static int take_part(struct etcd_answer *a, const struct part *p, const json_t *v)
{
    void *to = (char *)a + p->offset;
    const char *text = json_string_value(v);
    char **string = to;
    switch (p->kind) {
    case NUMBER:
        return etcd_take_number(to, v);
    case TRUTH:
        *(bool *)to = json_is_true(v) || json_is_object(v);
        return 0;
    case TOKEN:
        *string = text != NULL && is_token(text) ? strdup(text) : NULL;
        return *string != NULL ? 0 : -EPROTO;
    case BASE64:
        *string = text != NULL ? from_base64(text) : NULL;
        return *string != NULL ? 0 : -EPROTO;
    default:
        return -EPROTO;
    }
}

static int take_parts(struct etcd_answer *a, enum etcd_call call, const json_t *o)
{
    int rc = json_is_object(o) ? 0 : -EPROTO;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && rc == 0; i++) {
        const json_t *v = parts[i].call == call ? etcd_find(o, parts[i].path) : NULL;
        if (v != NULL)
            rc = take_part(a, &parts[i], v);
        else if (parts[i].call == call && parts[i].must)
            rc = -EPROTO;
    }
    return rc;
}

static enum etcd_result not_understood(struct dd_err *err, int status, const char *body)
{
    char shown[80];
    (void)dd_err_set(err, -EPROTO, "unexpected reply (HTTP status %d): '%s'", status,
                     dd_log_escape(shown, sizeof(shown), body, strnlen(body, 40)));
    return ETCD_FAILED;
}

/* Classify an error reply. Src: etcd's gateway sends gRPC codes: 3 invalid argument, 5 not found, 7
 * permission denied, 9 failed precondition, 16 unauthenticated (observed with 3.4.23). */
static enum etcd_result refusal(enum etcd_call call, const json_t *o, int status, const char *body,
                                struct dd_err *err)
{
    static const struct {
        int code, call;   /* call -1: any */
        const char *says; /* text in the message; NULL: any */
        enum etcd_result result;
    } rows[] = {
        {16, -1, NULL, ETCD_NO_TOKEN},
        {7, -1, NULL, ETCD_REFUSED},
        {9, ETCD_AUTH, "not enabled", ETCD_NO_AUTH},
        {3, -1, "revision of auth store is old",
         ETCD_NO_TOKEN}, /* JWT token issued before users were changed */
        {3, ETCD_AUTH, NULL, ETCD_REFUSED},
        {3, -1, "user name is empty", ETCD_REFUSED},
        {5, -1, "lease", ETCD_NO_LEASE},
    };
    const char *text = json_string_value(json_object_get(o, "error"));
    const json_int_t code = json_integer_value(json_object_get(o, "code"));
    char shown[200];
    if (text == NULL || *text == '\0')
        return not_understood(err, status, body);
    (void)dd_err_set(err, -EPROTO, "%s",
                     dd_log_escape(shown, sizeof(shown), text, strnlen(text, 150)));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].code == code && (rows[i].call < 0 || rows[i].call == (int)call) &&
            (rows[i].says == NULL || strstr(text, rows[i].says) != NULL))
            return rows[i].result;
    return ETCD_FAILED;
}

static enum etcd_result result_of(const struct etcd_answer *a, enum etcd_call call)
{
    if (call == ETCD_PUT)
        return a->there ? ETCD_DONE : ETCD_LOST;
    if (call == ETCD_KEEP)
        return a->lease > 0 ? ETCD_DONE : ETCD_NO_LEASE;
    return ETCD_DONE;
}

enum etcd_result etcd_answer_decode(struct etcd_answer *ret, enum etcd_call call, int status,
                                    const char *body, struct dd_err *err)
{
    DD_AUTO(etcd_answer) struct etcd_answer a = {0};
    json_t *o = json_loads(body, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK,
                           NULL); /* the reply to KEEP is a stream */
    enum etcd_result result;
    if (status != 200)
        result = refusal(call, o, status, body, err);
    else if (take_parts(&a, call, o) < 0 ||
             (call == ETCD_READ && a.there && (a.value == NULL || a.revision == 0)))
        result = not_understood(err, status, body);
    else
        result = result_of(&a, call);
    json_decref(o);
    if (result == ETCD_DONE) {
        *ret = a;
        a = (struct etcd_answer){0};
    }
    return result;
}

void etcd_answer_done(struct etcd_answer *a)
{
    free(a->value);
    free(a->token);
    *a = (struct etcd_answer){0};
}
