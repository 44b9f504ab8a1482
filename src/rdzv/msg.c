#include "rdzv/msg.h"

#include "base/utf8.h"
#include "config.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

enum kind { INT, STR, LIST };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
    int64_t min, max; /* of numbers; of strings: max is the length in bytes */
    unsigned in;      /* bit per message type that carries it */
};

#define BIT(type) (1U << (type))
#define OF(member) offsetof(struct msg, member)

static const struct field fields[] = {
    {"round", INT, OF(round), 0, INT32_MAX,
     BIT(MSG_PLAN) | BIT(MSG_STARTED) | BIT(MSG_COMMIT) | BIT(MSG_EXIT) | BIT(MSG_ENOUGH) |
         BIT(MSG_DONE) | BIT(MSG_STOP)},
    {"index", INT, OF(index), -1, PLAN_MAX_NODES - 1, BIT(MSG_JOIN)},
    {"nnodes", INT, OF(nnodes), 1, PLAN_MAX_NODES, BIT(MSG_JOIN)},
    {"min_nodes", INT, OF(min_nodes), 0, PLAN_MAX_NODES, BIT(MSG_JOIN)},
    {"epoch", INT, OF(epoch), 0, INT64_MAX, BIT(MSG_JOIN) | BIT(MSG_WELCOME) | BIT(MSG_REFUSE)},
    {"elsewhere", INT, OF(elsewhere), 0, 1, BIT(MSG_JOIN)},
    {"ended_well", INT, OF(ended_well), 0, 1, BIT(MSG_JOIN)},
    {"slots", INT, OF(slots), 1, PLAN_MAX_SLOTS, BIT(MSG_JOIN)},
    {"pid", INT, OF(pid), 0, INT32_MAX, BIT(MSG_JOIN) | BIT(MSG_EXIT)},
    {"name", STR, OF(name), 0, 255, BIT(MSG_JOIN) | BIT(MSG_HERE)},
    {"addr", STR, OF(addr), 0, 63,
     BIT(MSG_JOIN) | BIT(MSG_PLAN) | BIT(MSG_ROUND) | BIT(MSG_LOOK) | BIT(MSG_LOOKED)},
    {"addrs", LIST, OF(addrs), 0, 63, BIT(MSG_JOIN) | BIT(MSG_PLAN) | BIT(MSG_ROUND)},
    {"node_rank", INT, OF(node_rank), 0, PLAN_MAX_NODES - 1, BIT(MSG_PLAN)},
    {"restart_count", INT, OF(restart_count), 0, INT32_MAX, BIT(MSG_PLAN)},
    {"max_restarts", INT, OF(max_restarts), 0, INT32_MAX, BIT(MSG_PLAN)},
    {"master_port", INT, OF(master_port), 1, 65535, BIT(MSG_PLAN)},
    {"sizes", STR, OF(sizes), 0, MSG_MAX_BYTES / 2, BIT(MSG_PLAN)},
    {"nodes", STR, OF(nodes), 0, MSG_MAX_BYTES / 2, BIT(MSG_PLAN)},
    {"members", STR, OF(members), 0, MSG_MAX_BYTES / 2,
     BIT(MSG_JOIN) | BIT(MSG_PLAN) | BIT(MSG_ROUND)},
    {"committed", STR, OF(committed), 0, MSG_MAX_BYTES / 4, BIT(MSG_JOIN)},
    {"spent", STR, OF(spent), 0, 1024, BIT(MSG_JOIN) | BIT(MSG_PLAN)},
    {"local_rank", INT, OF(local_rank), 0, PLAN_MAX_SLOTS - 1, BIT(MSG_EXIT)},
    {"code", INT, OF(code), 0, 255, BIT(MSG_EXIT) | BIT(MSG_STOP_REQUEST) | BIT(MSG_FINISH)},
    {"signal", INT, OF(signal), 0, 64,
     BIT(MSG_EXIT) | BIT(MSG_STOP) | BIT(MSG_STOP_REQUEST) | BIT(MSG_SIGNAL_REQUEST) |
         BIT(MSG_SIGNAL)},
    {"heard", INT, OF(heard), 0, 1, BIT(MSG_SIGNAL_REQUEST)},
    {"end_near", INT, OF(end_near), 0, 1, BIT(MSG_SIGNAL_REQUEST) | BIT(MSG_SIGNAL)},
    {"lost", INT, OF(lost), 0, 1, BIT(MSG_FINISH)},
    {"asked", INT, OF(asked), 0, 1, BIT(MSG_FINISH)},
    {"report", INT, OF(report), 0, 1, BIT(MSG_FINISH)},
    {"id", INT, OF(id), 0, INT64_MAX,
     BIT(MSG_WHOIS) | BIT(MSG_WHOIS_REPLY) | BIT(MSG_ASK) | BIT(MSG_ANSWER)},
    {"ok", INT, OF(ok), 0, 1, BIT(MSG_WHOIS_REPLY) | BIT(MSG_ANSWER)},
    {"ends", INT, OF(ends), 0, 1, BIT(MSG_ANSWER)},
    {"what", STR, OF(what), 0, 32, BIT(MSG_ASK)},
    {"local", STR, OF(local), 0, 79, BIT(MSG_WHOIS)},
    {"remote", STR, OF(remote), 0, 79, BIT(MSG_WHOIS)},
    {"sent_ns", INT, OF(sent_ns), 0, INT64_MAX, BIT(MSG_JOIN) | BIT(MSG_EXIT) | BIT(MSG_DONE)},
    {"ended_ns", INT, OF(ended_ns), 0, INT64_MAX, BIT(MSG_EXIT)},
    {"rank", INT, OF(rank), 0, INT32_MAX, BIT(MSG_EXIT)},
    {"oom", INT, OF(oom), 0, 1, BIT(MSG_EXIT)},
    {"error", STR, OF(error), 0, 1024, BIT(MSG_EXIT)},
    {"trace", STR, OF(trace), 0, 4096, BIT(MSG_EXIT)},
    {"log", STR, OF(log), 0, 4096, BIT(MSG_EXIT)},
    {"left", INT, OF(left), 0, PLAN_MAX_SLOTS, BIT(MSG_DONE)},
    {"stopped", INT, OF(stopped), 0, PLAN_MAX_SLOTS, BIT(MSG_DONE)},
    {"killed", INT, OF(killed), 0, PLAN_MAX_SLOTS, BIT(MSG_DONE)},
    {"unfit", STR, OF(unfit), 0, 400, BIT(MSG_JOIN) | BIT(MSG_DONE)},
    {"ports", STR, OF(ports), 0, MSG_MAX_BYTES / 2, BIT(MSG_JOIN) | BIT(MSG_DONE) | BIT(MSG_PLAN)},
    {"token", STR, OF(token), 0, 32, BIT(MSG_PLAN)},
    {"detail", STR, OF(detail), 0, MSG_MAX_BYTES / 4, BIT(MSG_FINISH) | BIT(MSG_ANSWER)},
    {"text", STR, OF(text), 0, 16384,
     BIT(MSG_JOIN) | BIT(MSG_STATUS) | BIT(MSG_REFUSE) | BIT(MSG_EXIT) | BIT(MSG_STOP_REQUEST) |
         BIT(MSG_STOP) | BIT(MSG_FINISH) | BIT(MSG_HERE) | BIT(MSG_ASK)},
};

enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

static const char *const type_names[MSG_TYPE_MAX] = {
    [MSG_JOIN] = "join",       [MSG_STATUS] = "status", [MSG_REFUSE] = "refuse",
    [MSG_WELCOME] = "welcome", [MSG_PLAN] = "plan",     [MSG_BEGUN] = "begun",
    [MSG_STARTED] = "started", [MSG_COMMIT] = "commit", [MSG_ROUND] = "round",
    [MSG_LOOK] = "look",       [MSG_LOOKED] = "looked", [MSG_EXIT] = "exit",
    [MSG_ENOUGH] = "enough",   [MSG_DONE] = "done",     [MSG_STOP_REQUEST] = "stop-request",
    [MSG_STOP] = "stop",       [MSG_FINISH] = "finish", [MSG_SIGNAL_REQUEST] = "signal-request",
    [MSG_SIGNAL] = "signal",   [MSG_WHOIS] = "whois",   [MSG_WHOIS_REPLY] = "whois-reply",
    [MSG_HERE] = "here",       [MSG_ASK] = "ask",       [MSG_ANSWER] = "answer",
};

const char *msg_type_name(enum msg_type type)
{
    return type < MSG_TYPE_MAX ? type_names[type] : "?";
}

static void *member(const struct field *f, const struct msg *m)
{
    return (char *)m + f->offset;
}

/* What a worker wrote, or what a node is called, need not be UTF-8; JSON takes nothing else. */
static json_t *encode_str(const char *s)
{
    json_t *v = json_string(s);
    DD_AUTO(free) char *clean = v == NULL ? strdup(s) : NULL;
    return clean != NULL ? json_string(dd_utf8_clean(clean)) : v;
}

static json_t *encode_list(const struct dd_strv *sv)
{
    json_t *a = json_array();
    for (size_t i = 0; i < sv->n && i < MSG_MAX_LIST; i++)
        if (json_array_append_new(a, encode_str(sv->v[i])) < 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static json_t *encode_field(const struct field *f, const struct msg *m)
{
    switch (f->kind) {
    case INT:
        return json_integer(*(const int64_t *)member(f, m));
    case STR: {
        const char *s = *(char *const *)member(f, m);
        return encode_str(s != NULL ? s : "");
    }
    case LIST:
        return encode_list(member(f, m));
    }
    return NULL;
}

int msg_encode(char **ret, const struct msg *m)
{
    json_t *o = json_object();
    int rc = json_object_set_new(o, "type", json_string(msg_type_name(m->type)));
    rc |= json_object_set_new(o, "v", json_integer(MSG_VERSION));
    rc |= json_object_set_new(o, "ddrun", json_string(PACKAGE_VERSION));
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i].in & BIT(m->type))
            rc |= json_object_set_new(o, fields[i].name, encode_field(&fields[i], m));
    char *text = rc == 0 ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text == NULL)
        return -ENOMEM;
    *ret = text;
    return 0;
}

static int decode_int(const struct field *f, int64_t *to, json_t *v, struct dd_err *err)
{
    if (!json_is_integer(v) || json_integer_value(v) < f->min || json_integer_value(v) > f->max)
        return dd_err_set(err, -EPROTO, "field '%s' is not a number from %lld to %lld", f->name,
                          (long long)f->min, (long long)f->max);
    *to = json_integer_value(v);
    return 0;
}

/* A JSON string without NUL bytes and not too long; lent. */
static const char *plain_string(const struct field *f, json_t *v, struct dd_err *err)
{
    if (json_is_string(v) && json_string_length(v) <= (size_t)f->max &&
        strlen(json_string_value(v)) == json_string_length(v))
        return json_string_value(v);
    (void)dd_err_set(err, -EPROTO, "field '%s' is not text of at most %lld bytes", f->name,
                     (long long)f->max);
    return NULL;
}

static int decode_str(const struct field *f, char **to, json_t *v, struct dd_err *err)
{
    const char *s = plain_string(f, v, err);
    if (s == NULL)
        return -EPROTO;
    *to = strdup(s);
    return *to == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

static int decode_list(const struct field *f, struct dd_strv *to, json_t *v, struct dd_err *err)
{
    if (!json_is_array(v) || json_array_size(v) > MSG_MAX_LIST)
        return dd_err_set(err, -EPROTO, "field '%s' is not a list of at most %d", f->name,
                          MSG_MAX_LIST);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = plain_string(f, json_array_get(v, i), err);
        if (s == NULL)
            return -EPROTO;
        if (dd_strv_push(to, s) < 0)
            return dd_err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static int decode_field(const struct field *f, struct msg *m, json_t *o, struct dd_err *err)
{
    json_t *v = json_object_get(o, f->name);
    int rc = -EPROTO;
    if (v == NULL)
        return dd_err_set(err, rc, "'%s' lacks the field '%s'", msg_type_name(m->type), f->name);
    switch (f->kind) {
    case INT:
        rc = decode_int(f, member(f, m), v, err);
        break;
    case STR:
        rc = decode_str(f, member(f, m), v, err);
        break;
    case LIST:
        rc = decode_list(f, member(f, m), v, err);
        break;
    }
    return rc < 0 ? dd_err_where(err, rc, "'%s'", msg_type_name(m->type)) : 0;
}

/* Of a peer, for a person. */
static bool is_plain(const char *s)
{
    size_t n = 0;
    while (n <= 32 && s[n] > ' ' && s[n] <= '~')
        n++;
    return n > 0 && n <= 32 && s[n] == '\0';
}

/* `v` is the least version of these messages that one must know to read this one. */
static int decode_type(struct msg *m, json_t *o, struct dd_err *err)
{
    const char *name = json_string_value(json_object_get(o, "type"));
    const json_int_t v = json_integer_value(json_object_get(o, "v"));
    for (int t = 0; name != NULL && t < MSG_TYPE_MAX && v <= MSG_VERSION; t++)
        if (strcmp(name, type_names[t]) == 0) {
            m->type = (enum msg_type)t;
            return 0;
        }
    if (name == NULL)
        return dd_err_set(err, -EPROTO, "not a message of this protocol");
    return dd_err_set(err, v > MSG_VERSION ? -EPROTO : -ENOMSG,
                      "'%.32s' is a message of a later version", is_plain(name) ? name : "?");
}

/* Where programs differ, that is most likely why. */
static int tell_versions(json_t *o, int rc, struct dd_err *err)
{
    const char *theirs = json_string_value(json_object_get(o, "ddrun"));
    if (err == NULL || rc != -EPROTO)
        return rc;
    if (theirs != NULL && strcmp(theirs, PACKAGE_VERSION) == 0)
        return rc;
    const struct dd_err why = *err;
    return dd_err_set(
        err, rc,
        "%.400s; it is from ddrun %.32s, and read by ddrun %s: all nodes need the same one",
        why.text, theirs != NULL && is_plain(theirs) ? theirs : "(unknown version)",
        PACKAGE_VERSION);
}

int msg_decode(struct msg *ret, const void *p, size_t n, struct dd_err *err)
{
    DD_AUTO(msg) struct msg m = {0};
    json_error_t je;
    if (n > MSG_MAX_BYTES)
        return dd_err_set(err, -EPROTO, "a message of %zu bytes is too long", n);
    json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, &je);
    if (o == NULL)
        return dd_err_set(err, -EPROTO, "not JSON: %s", je.text);
    int rc = decode_type(&m, o, err);
    for (size_t i = 0; i < FIELDS && rc == 0; i++)
        if (fields[i].in & BIT(m.type))
            rc = decode_field(&fields[i], &m, o, err);
    rc = tell_versions(o, rc, err);
    json_decref(o);
    if (rc == 0) {
        *ret = m;
        m = (struct msg){0};
    }
    return rc;
}

void msg_clear(struct msg *m)
{
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i].kind == STR)
            free(*(char **)member(&fields[i], m));
    dd_strv_done(&m->addrs);
    *m = (struct msg){0};
}
