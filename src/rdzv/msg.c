#include "rdzv/msg.h"

#include "base/utf8.h"
#include "config.h"
#include "rdzv/charges.h"
#include "rdzv/plan.h"
#include "report/phases.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

struct message {
    const char *name;               /* on the wire */
    const struct msg_field *fields; /* in the order in which they are sent; ends with name NULL */
};

#define KIND_OF(member)                                                                            \
    _Generic((member),                                                                             \
        int: MSG_INT,                                                                              \
        int64_t: MSG_INT64,                                                                        \
        bool: MSG_BOOL,                                                                            \
        const char *: MSG_STR,                                                                     \
        const struct dd_strv *: MSG_LIST)
/* The kind follows from the type of the member, so that the two cannot differ. */
#define FIELD(message, name, min, max)                                                             \
    {#name, KIND_OF(((const struct msg *)0)->message.name), offsetof(struct msg, message.name),    \
     min, max}
#define FLAG(message, name) FIELD(message, name, 0, 1)
#define TEXT(message, name, max) FIELD(message, name, 0, max)
#define FIELDS(...) ((const struct msg_field[]){__VA_ARGS__, {0}})

enum {
    ADDR_BYTES = 63,
    TEXT_BYTES = 16384,
    LONG_BYTES = MSG_MAX_BYTES / 2, /* limit of texts that cover all nodes */
    DETAIL_BYTES = MSG_MAX_BYTES / 4,
    SPENT_BYTES = 1024,
    UNFIT_BYTES = 400,
    CHECK_BYTES = 255,
    WARNINGS_BYTES = 8192, /* limit for the texts of the health check and --collect together */
};

static const struct message messages[MSG_TYPE_MAX] = {
    [MSG_JOIN] = {"join",
                  FIELDS(FIELD(join, index, -1, PLAN_MAX_NODES - 1),
                         FIELD(join, nnodes, 1, PLAN_MAX_NODES),
                         FIELD(join, min_nodes, 0, PLAN_MAX_NODES),
                         FIELD(join, epoch, 0, INT64_MAX), FLAG(join, elsewhere),
                         FLAG(join, ended_well), FIELD(join, slots, 1, PLAN_MAX_SLOTS),
                         FIELD(join, pid, 0, INT32_MAX), TEXT(join, name, 255),
                         TEXT(join, addr, ADDR_BYTES), TEXT(join, addrs, ADDR_BYTES),
                         TEXT(join, members, LONG_BYTES), TEXT(join, committed, MSG_MAX_BYTES / 4),
                         TEXT(join, spent, SPENT_BYTES), TEXT(join, charges, CHARGES_BYTES),
                         FIELD(join, sent_ns, 0, INT64_MAX), TEXT(join, unfit, UNFIT_BYTES),
                         TEXT(join, check, CHECK_BYTES), TEXT(join, ports, LONG_BYTES),
                         TEXT(join, text, TEXT_BYTES))},
    [MSG_STATUS] = {"status", FIELDS(TEXT(status, text, TEXT_BYTES))},
    [MSG_REFUSE] = {"refuse",
                    FIELDS(FIELD(refuse, epoch, 0, INT64_MAX), TEXT(refuse, text, TEXT_BYTES))},
    [MSG_WELCOME] = {"welcome", FIELDS(FIELD(welcome, epoch, 0, INT64_MAX))},
    [MSG_PLAN] = {"plan", FIELDS(FIELD(plan, round, 0, INT32_MAX), TEXT(plan, addr, ADDR_BYTES),
                                 TEXT(plan, addrs, ADDR_BYTES),
                                 FIELD(plan, node_rank, 0, PLAN_MAX_NODES - 1),
                                 FIELD(plan, restart_count, 0, INT32_MAX),
                                 FIELD(plan, max_restarts, 0, INT32_MAX),
                                 FIELD(plan, master_port, 1, 65535), TEXT(plan, sizes, LONG_BYTES),
                                 TEXT(plan, nodes, LONG_BYTES), TEXT(plan, members, LONG_BYTES),
                                 TEXT(plan, spent, SPENT_BYTES), TEXT(plan, charges, CHARGES_BYTES),
                                 TEXT(plan, ports, LONG_BYTES), TEXT(plan, token, 32))},
    [MSG_ROUND_STARTED] = {"begun", (const struct msg_field[]){{0}}},
    [MSG_RECORD_PHASES] = {"record-phases", (const struct msg_field[]){{0}}},
    [MSG_PHASES] = {"phases", FIELDS(FIELD(phases, round, -1, INT32_MAX),
                                     FIELD(phases, sent_ns, 0, INT64_MAX),
                                     TEXT(phases, phases, PHASE_TEXT_MAX - 1))},
    [MSG_WARNINGS] = {"warnings", FIELDS(TEXT(warnings, text, WARNINGS_BYTES))},
    [MSG_NODE_MARKS] = {"node-marks", FIELDS(TEXT(node_marks, text, LONG_BYTES))},
    [MSG_STARTED] = {"started", FIELDS(FIELD(started, round, 0, INT32_MAX))},
    [MSG_COMMIT] = {"commit", FIELDS(FIELD(commit, round, 0, INT32_MAX))},
    [MSG_ROUND_MEMBERS] = {"round", FIELDS(TEXT(round_members, addr, ADDR_BYTES),
                                           TEXT(round_members, addrs, ADDR_BYTES),
                                           TEXT(round_members, members, LONG_BYTES))},
    [MSG_PROBE_REQUEST] = {"look", FIELDS(TEXT(probe_request, addr, ADDR_BYTES))},
    [MSG_PROBE_RESULT] = {"looked", FIELDS(TEXT(probe_result, addr, ADDR_BYTES))},
    [MSG_EXIT] = {"exit",
                  FIELDS(FIELD(exit, round, 0, INT32_MAX), FIELD(exit, pid, 0, INT32_MAX),
                         FIELD(exit, local_rank, 0, PLAN_MAX_SLOTS - 1), FIELD(exit, code, 0, 255),
                         FIELD(exit, signal, 0, 64), FIELD(exit, sent_ns, 0, INT64_MAX),
                         FIELD(exit, ended_ns, 0, INT64_MAX), FIELD(exit, rank, 0, INT32_MAX),
                         FLAG(exit, oom), TEXT(exit, error, 1024), TEXT(exit, trace, 4096),
                         TEXT(exit, log, 4096), TEXT(exit, text, TEXT_BYTES))},
    [MSG_SUCCESS_CRITERIA_MET] = {"enough",
                                  FIELDS(FIELD(success_criteria_met, round, 0, INT32_MAX))},
    [MSG_PROGRESS] = {"progress", FIELDS(FIELD(progress, round, 0, INT32_MAX),
                                         FIELD(progress, step, 0, INT64_MAX))},
    [MSG_STEPS] = {"steps",
                   FIELDS(FIELD(steps, round, 0, INT32_MAX), TEXT(steps, text, LONG_BYTES))},
    [MSG_LOAD] = {"load", FIELDS(FIELD(load, round, 0, INT32_MAX), TEXT(load, text, LONG_BYTES))},
    [MSG_LEFT] = {"left", FIELDS(FIELD(left, round, 0, INT32_MAX), TEXT(left, ranks, TEXT_BYTES))},
    [MSG_DONE] = {"done",
                  FIELDS(FIELD(done, round, 0, INT32_MAX), FIELD(done, sent_ns, 0, INT64_MAX),
                         FIELD(done, left, 0, PLAN_MAX_SLOTS),
                         FIELD(done, stopped, 0, PLAN_MAX_SLOTS),
                         FIELD(done, killed, 0, PLAN_MAX_SLOTS),
                         FIELD(done, first_rank, 0, INT32_MAX), FIELD(done, first_ns, 0, INT64_MAX),
                         TEXT(done, unfit, UNFIT_BYTES), TEXT(done, ports, LONG_BYTES))},
    [MSG_STOP_REQUEST] = {"stop-request", FIELDS(FIELD(stop_request, code, 0, 255),
                                                 FIELD(stop_request, signal, 0, 64),
                                                 TEXT(stop_request, text, TEXT_BYTES))},
    [MSG_STOP] = {"stop", FIELDS(FIELD(stop, round, 0, INT32_MAX), FIELD(stop, signal, 0, 64),
                                 FLAG(stop, first_lost), TEXT(stop, text, TEXT_BYTES))},
    [MSG_FINISH] = {"finish",
                    FIELDS(FIELD(finish, code, 0, 255), FLAG(finish, lost), FLAG(finish, asked),
                           FLAG(finish, report), TEXT(finish, detail, DETAIL_BYTES),
                           TEXT(finish, text, TEXT_BYTES))},
    [MSG_SIGNAL_REQUEST] = {"signal-request",
                            FIELDS(FIELD(signal_request, signal, 0, 64),
                                   FLAG(signal_request, heard), FLAG(signal_request, end_near))},
    [MSG_SIGNAL] = {"signal", FIELDS(FIELD(signal, signal, 0, 64), FLAG(signal, end_near),
                                     FIELD(signal, id, 0, INT64_MAX))},
    [MSG_SIGNALLED] = {"signalled", FIELDS(FIELD(signalled, id, 0, INT64_MAX),
                                           FIELD(signalled, reached, 0, INT32_MAX))},
    [MSG_IDLE] = {"idle",
                  FIELDS(FIELD(idle, round, 0, INT32_MAX), FLAG(idle, idle), FLAG(idle, stopped))},
    [MSG_HUNG] = {"hung", FIELDS(FIELD(hung, round, 0, INT32_MAX))},
    [MSG_STACKS_WANTED] = {"stacks-wanted", FIELDS(FIELD(stacks_wanted, round, 0, INT32_MAX))},
    [MSG_STACKS_REQUEST] = {"stacks-request",
                            FIELDS(FIELD(stacks_request, id, 0, INT64_MAX),
                                   FIELD(stacks_request, round, 0, INT32_MAX),
                                   FIELD(stacks_request, limit_ms, 0, 600000),
                                   FLAG(stacks_request, all), FLAG(stacks_request, keep),
                                   FLAG(stacks_request, native),
                                   TEXT(stacks_request, ranks, TEXT_BYTES))},
    [MSG_STACKS] = {"stacks",
                    FIELDS(FIELD(stacks, id, 0, INT64_MAX), TEXT(stacks, text, DETAIL_BYTES))},
    [MSG_STACKS_TAKEN] = {"stacks-taken", FIELDS(FIELD(stacks_taken, round, 0, INT32_MAX))},
    [MSG_USAGE_REQUEST] = {"usage-request", FIELDS(FIELD(usage_request, id, 0, INT64_MAX),
                                                   FIELD(usage_request, round, 0, INT32_MAX),
                                                   FLAG(usage_request, all_lines),
                                                   TEXT(usage_request, ranks, TEXT_BYTES))},
    [MSG_USAGE] = {"usage",
                   FIELDS(FIELD(usage, id, 0, INT64_MAX), TEXT(usage, text, DETAIL_BYTES))},
    [MSG_WHOIS] = {"whois", FIELDS(FIELD(whois, id, 0, INT64_MAX), TEXT(whois, local, 79),
                                   TEXT(whois, remote, 79))},
    [MSG_WHOIS_REPLY] = {"whois-reply",
                         FIELDS(FIELD(whois_reply, id, 0, INT64_MAX), FLAG(whois_reply, ok))},
    [MSG_IDENTITY] = {"here", FIELDS(TEXT(identity, name, 255), TEXT(identity, text, TEXT_BYTES))},
    [MSG_CTL_REQUEST] = {"ask",
                         FIELDS(FIELD(ctl_request, id, 0, INT64_MAX), TEXT(ctl_request, what, 32),
                                TEXT(ctl_request, text, TEXT_BYTES))},
    [MSG_CTL_REPLY] = {"answer",
                       FIELDS(FIELD(ctl_reply, id, 0, INT64_MAX), FLAG(ctl_reply, ok),
                              FLAG(ctl_reply, ends), TEXT(ctl_reply, detail, DETAIL_BYTES))},
};

/* Owns the data of a decoded message, whose strings are those of the parsed object. */
struct msg_storage {
    json_t *object;
    struct dd_strv list; /* a message has at most one list */
};

const char *msg_type_name(enum msg_type type)
{
    return type < MSG_TYPE_MAX ? messages[type].name : "?";
}

const struct msg_field *msg_fields(enum msg_type type)
{
    return messages[type].fields;
}

static const void *member(const struct msg_field *f, const struct msg *m)
{
    return (const char *)m + f->offset;
}

/* ---- encode ---- */

/* Replace invalid UTF-8, which a worker's output or a node name may contain and JSON forbids. */
static json_t *encode_str(const char *s)
{
    json_t *v = json_string(s);
    DD_AUTO(free) char *clean = v == NULL ? strdup(s) : NULL;
    return clean != NULL ? json_string(dd_utf8_clean(clean)) : v;
}

static json_t *encode_list(const struct dd_strv *sv)
{
    json_t *a = json_array();
    for (size_t i = 0; sv != NULL && i < sv->n && i < MSG_MAX_LIST; i++)
        if (json_array_append_new(a, encode_str(sv->v[i])) < 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static json_t *encode_field(const struct msg_field *f, const struct msg *m)
{
    const void *at = member(f, m);
    switch (f->kind) {
    case MSG_INT:
        return json_integer(*(const int *)at);
    case MSG_INT64:
        return json_integer(*(const int64_t *)at);
    case MSG_BOOL:
        return json_integer(*(const bool *)at);
    case MSG_STR: {
        const char *s = *(const char *const *)at;
        return encode_str(s != NULL ? s : "");
    }
    case MSG_LIST:
        return encode_list(*(const struct dd_strv *const *)at);
    }
    return NULL;
}

int msg_encode(char **ret, const struct msg *m)
{
    json_t *o = json_object();
    int rc = json_object_set_new(o, "type", json_string(msg_type_name(m->type)));
    rc |= json_object_set_new(o, "v", json_integer(MSG_VERSION));
    rc |= json_object_set_new(o, "ddrun", json_string(PACKAGE_VERSION));
    for (const struct msg_field *f = msg_fields(m->type); f->name != NULL; f++)
        rc |= json_object_set_new(o, f->name, encode_field(f, m));
    char *text = rc == 0 ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text == NULL)
        return -ENOMEM;
    *ret = text;
    return 0;
}

/* ---- decode ---- */

static int decode_int(const struct msg_field *f, int64_t *to, const json_t *v, struct dd_err *err)
{
    if (!json_is_integer(v) || json_integer_value(v) < f->min || json_integer_value(v) > f->max)
        return dd_err_set(err, -EPROTO, "field '%s' is not an integer from %lld to %lld", f->name,
                          (long long)f->min, (long long)f->max);
    *to = json_integer_value(v);
    return 0;
}

/* Decode a JSON string within the limit and without NUL bytes; *to is lent by v. */
static int decode_str(const struct msg_field *f, const char **to, const json_t *v,
                      struct dd_err *err)
{
    if (!json_is_string(v) || json_string_length(v) > (size_t)f->max ||
        strlen(json_string_value(v)) != json_string_length(v))
        return dd_err_set(err, -EPROTO,
                          "field '%s' is not a string of at most %lld bytes without NUL", f->name,
                          (long long)f->max);
    *to = json_string_value(v);
    return 0;
}

static int decode_list(const struct msg_field *f, struct dd_strv *to, const json_t *v,
                       struct dd_err *err)
{
    if (!json_is_array(v) || json_array_size(v) > MSG_MAX_LIST)
        return dd_err_set(err, -EPROTO, "field '%s' is not an array of at most %d items", f->name,
                          MSG_MAX_LIST);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = NULL;
        int rc = decode_str(f, &s, json_array_get(v, i), err);
        if (rc < 0)
            return rc;
        if (dd_strv_push(to, s) < 0)
            return dd_err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static int decode_value(const struct msg_field *f, struct msg *m, const json_t *v,
                        struct dd_err *err)
{
    void *at = (char *)m + f->offset;
    int64_t number = 0;
    if (f->kind == MSG_STR)
        return decode_str(f, at, v, err);
    if (f->kind == MSG_LIST) {
        *(const struct dd_strv **)at = &m->storage->list;
        return decode_list(f, &m->storage->list, v, err);
    }
    int rc = decode_int(f, &number, v, err);
    if (f->kind == MSG_INT)
        *(int *)at = (int)number;
    else if (f->kind == MSG_INT64)
        *(int64_t *)at = number;
    else
        *(bool *)at = number != 0;
    return rc;
}

static int decode_field(const struct msg_field *f, struct msg *m, struct dd_err *err)
{
    const json_t *v = json_object_get(m->storage->object, f->name);
    if (v == NULL)
        return dd_err_set(err, -EPROTO, "message '%s' has no field '%s'", msg_type_name(m->type),
                          f->name);
    int rc = decode_value(f, m, v, err);
    return rc < 0 ? dd_err_where(err, rc, "message '%s'", msg_type_name(m->type)) : 0;
}

/* True if s is printable and short enough to appear in a message about a peer. */
static bool is_plain(const char *s)
{
    size_t n = 0;
    while (n <= 32 && s[n] > ' ' && s[n] <= '~')
        n++;
    return n > 0 && n <= 32 && s[n] == '\0';
}

/* `v` is the lowest version that a receiver of this message must support. */
static int decode_type(enum msg_type *ret, const json_t *o, struct dd_err *err)
{
    const char *name = json_string_value(json_object_get(o, "type"));
    const json_int_t v = json_integer_value(json_object_get(o, "v"));
    for (int t = 0; name != NULL && t < MSG_TYPE_MAX && v <= MSG_VERSION; t++)
        if (strcmp(name, messages[t].name) == 0) {
            *ret = (enum msg_type)t;
            return 0;
        }
    if (name == NULL)
        return dd_err_set(err, -EPROTO, "not a message of this protocol: no string 'type'");
    return dd_err_set(
        err, v > MSG_VERSION ? -EPROTO : -ENOMSG,
        v > MSG_VERSION
            ? "'%.32s' is a message of a later version (%lld; this ddrun reads up to %d)"
            : "'%.32s' is not a known message",
        is_plain(name) ? name : "?", (long long)v, MSG_VERSION);
}

/* Name the versions of sender and reader, whose difference likely causes an invalid message. */
static int name_versions(const json_t *o, int rc, struct dd_err *err)
{
    const char *theirs = json_string_value(json_object_get(o, "ddrun"));
    if (err == NULL || rc != -EPROTO)
        return rc;
    if (theirs != NULL && strcmp(theirs, PACKAGE_VERSION) == 0)
        return rc;
    const struct dd_err why = *err;
    return dd_err_set(
        err, rc, "%.400s (sent by ddrun %.32s, read by ddrun %s); all nodes need the same version",
        why.text, theirs != NULL && is_plain(theirs) ? theirs : "(unknown version)",
        PACKAGE_VERSION);
}

int msg_decode(struct msg *ret, const void *p, size_t n, struct dd_err *err)
{
    DD_AUTO(msg) struct msg m = {0};
    json_error_t je;
    if (n > MSG_MAX_BYTES)
        return dd_err_set(err, -EPROTO, "message of %zu bytes is too long (limit %d)", n,
                          MSG_MAX_BYTES);
    m.storage = calloc(1, sizeof(*m.storage));
    if (m.storage == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    json_t *o = m.storage->object = json_loadb(p, n, JSON_REJECT_DUPLICATES, &je);
    if (o == NULL)
        return dd_err_set(err, -EPROTO, "invalid JSON: %s", je.text);
    int rc = decode_type(&m.type, o, err);
    for (const struct msg_field *f = msg_fields(m.type); rc == 0 && f->name != NULL; f++)
        rc = decode_field(f, &m, err);
    rc = name_versions(o, rc, err);
    if (rc == 0) {
        *ret = m;
        m.storage = NULL;
    }
    return rc;
}

void msg_clear(struct msg *m)
{
    if (m->storage != NULL) {
        json_decref(m->storage->object);
        dd_strv_done(&m->storage->list);
        free(m->storage);
    }
    *m = (struct msg){0};
}
