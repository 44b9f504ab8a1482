#include "http/rendezvous.h"

#include "base/cursor.h"
#include "base/num.h"
#include "base/strv.h"
#include "http/delta.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 1 << 20, OK = 200, NOT_FOUND = 404, NO_ROOM = 507 };

enum scope_kind { SCOPE_GLOBAL, SCOPE_CROSS, SCOPE_OTHER };

/* Data that is exchanged once all workers of this node have put theirs. */
struct topic {
    const char *name;
    unsigned times; /* number of exchanges so far */
    int have;       /* number of workers of this node that have put their key */
    bool *has;      /* [local_size]: the worker has put its key */
    bool due;       /* an exchange is to be started */
};

enum { TOPICS = 4, SUFFIX_MAX = 64 };

struct rendezvous {
    struct rendezvous_cfg cfg;
    int local_size;
    struct kv *kv;
    struct topic topics[TOPICS]; /* scopes global and cross_* of all workers, then those two of the
                                    process set of all workers */
    char world[SUFFIX_MAX]; /* suffix of the scopes of the process set of all workers; "": not known
                               yet */
    size_t world_len;       /* length of values in "global": an address for each other worker */
    struct dd_strv news; /* names in scopes of other process sets, to be sent to the other nodes */
};

int rendezvous_new(struct rendezvous **ret, const struct rendezvous_cfg *cfg,
                   const unsigned char seed[KV_SEED], struct dd_err *err)
{
    static const char *const names[TOPICS] = {"global", "cross", "set-global", "set-cross"};
    const struct kv_limits limits = {.max_keys = MAX_KEYS,
                                     .max_value = RENDEZVOUS_PART_MAX - 4 * KV_NAME_MAX,
                                     .max_bytes = (size_t)2 << 30};
    struct rendezvous *r = calloc(1, sizeof(*r));
    bool ok = r != NULL && kv_new(&r->kv, &limits, seed) == 0;
    if (ok) {
        r->cfg = *cfg;
        r->local_size = cfg->sizes[cfg->node_rank];
    }
    for (int i = 0; i < TOPICS && ok; i++) {
        r->topics[i].name = names[i];
        r->topics[i].has = calloc((size_t)r->local_size, sizeof(bool));
        ok = r->topics[i].has != NULL;
    }
    if (!ok) {
        rendezvous_free(r);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    *ret = r;
    return 0;
}

void rendezvous_free(struct rendezvous *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < TOPICS; i++)
        free(r->topics[i].has);
    dd_strv_done(&r->news);
    kv_free(r->kv);
    free(r);
}

struct kv *rendezvous_kv(struct rendezvous *r)
{
    return r->kv;
}

/* ---- names ---- */

static bool scope_is(struct kv_name n, const char *scope)
{
    return n.scope_len == strlen(scope) && memcmp(n.text, scope, n.scope_len) == 0;
}

/* Parse the whole text as a decimal number; -1: not a number, or above max. */
static int rendezvous_number(const char *text, size_t len, int max)
{
    char digits[12];
    int n;
    if (len == 0 || len >= sizeof(digits))
        return -1;
    memcpy(digits, text, len);
    digits[len] = '\0';
    return dd_num_int(digits, 0, max, &n) == 0 && (digits[0] != '0' || len == 1) ? n : -1;
}

/* True for "rank_R", the name of R's host for messages, which no worker waits for or deletes. */
static bool is_label(struct kv_name name)
{
    static const char label[] = "rank_";
    return name.len - name.scope_len > sizeof(label) &&
           memcmp(name.text + name.scope_len + 1, label, sizeof(label) - 1) == 0;
}

/* Return R for the keys "R" and "rank_R"; -1: another key. */
static int key_number(struct kv_name n)
{
    const size_t lead = n.scope_len + 1 + (is_label(n) ? 5 : 0);
    return rendezvous_number(n.text + lead, n.len - lead, INT32_MAX);
}

/* The parts of a scope's name: "global", "cross_1", "global_process_set_hash_77ab" … */
struct scope {
    enum scope_kind kind;
    int local_rank; /* for SCOPE_CROSS */
    const char *suffix;
    size_t suffix_len; /* 0: scope of all workers; else of a process set */
};

static struct scope scope_of(struct kv_name n)
{
    static const char mark[] = "_process_set_hash_";
    static const char cross[] = "cross_";
    const size_t lead = sizeof(cross) - 1;
    const char *suffix = memmem(n.text, n.scope_len, mark, sizeof(mark) - 1);
    const size_t len = suffix != NULL ? (size_t)(suffix - n.text) : n.scope_len;
    struct scope s = {.kind = SCOPE_OTHER, .suffix = suffix, .suffix_len = n.scope_len - len};
    if (len == 6 && memcmp(n.text, "global", 6) == 0)
        s.kind = SCOPE_GLOBAL;
    else if (len > lead && memcmp(n.text, cross, lead) == 0 &&
             (s.local_rank = rendezvous_number(n.text + lead, len - lead, PLAN_MAX_SLOTS)) >= 0)
        s.kind = SCOPE_CROSS;
    return s;
}

/* Return the topic of a scope in which all workers of all nodes take part; NULL: another scope. */
static struct topic *topic_of(struct rendezvous *r, const struct scope *s)
{
    const bool world = s->suffix_len > 0 && s->suffix_len == strlen(r->world) &&
                       memcmp(s->suffix, r->world, s->suffix_len) == 0;
    if (s->kind == SCOPE_OTHER || (s->suffix_len > 0 && !world))
        return NULL;
    return &r->topics[(world ? 2 : 0) + (s->kind == SCOPE_CROSS)];
}

/* Return the number of workers with this local rank on the first `nnodes` nodes. */
static int cross_count(const struct rendezvous *r, int local_rank, int nnodes)
{
    int n = 0;
    for (int i = 0; i < nnodes; i++)
        n += r->cfg.sizes[i] > local_rank;
    return n;
}

/* Return the rank of this node's worker among those with its local rank. */
static int cross_rank(const struct rendezvous *r, int local_rank)
{
    return cross_count(r, local_rank, r->cfg.node_rank);
}

/* Return the local rank of the worker that puts this key into a scope of all workers, and set *ret
 * to the topic of the scope; -1: no worker of this node. */
static int owner(struct rendezvous *r, struct kv_name name, struct topic **ret)
{
    const struct scope s = scope_of(name);
    const int no = key_number(name);
    const int local = s.kind == SCOPE_CROSS ? s.local_rank : no - r->cfg.first_rank;
    *ret = topic_of(r, &s);
    if (*ret == NULL || no < 0 || local < 0 || local >= r->local_size)
        return -1;
    return s.kind == SCOPE_CROSS && no != cross_rank(r, local) ? -1 : local;
}

/* ---- requests of workers ---- */

/* Reset the scope of this key for Horovod's next rendezvous in this round. */
static void forget(struct rendezvous *r, struct topic *t, struct kv_name name, int local)
{
    const bool all = scope_of(name).kind == SCOPE_GLOBAL;
    for (int i = all ? 0 : local; i < (all ? r->local_size : local + 1); i++) {
        t->have -= t->has[i];
        t->has[i] = false;
    }
}

/* Learn the scope suffix of the process set of all workers, which each Horovod job has. Only the
 * number of members of a process set is known, from the length of the values. */
static void rendezvous_learn(struct rendezvous *r, struct kv_name name,
                             const struct kv_value *value)
{
    const struct scope s = scope_of(name);
    if (s.kind != SCOPE_GLOBAL || is_label(name) || s.suffix_len >= SUFFIX_MAX)
        return;
    if (s.suffix_len == 0)
        r->world_len = value->len;
    else if (r->world[0] == '\0' && value->len == r->world_len)
        memcpy(r->world, s.suffix, s.suffix_len);
}

/* Queue a name, whose value goes to the other nodes. The members of a process set are unknown here,
 * so each node sends all values of its workers. */
static int note_news(struct rendezvous *r, struct kv_name name)
{
    const struct scope s = scope_of(name);
    if (r->cfg.nnodes == 1 || s.kind == SCOPE_OTHER || topic_of(r, &s) != NULL ||
        (is_label(name) && r->world[0] == '\0'))
        return 0;
    return r->news.n < MAX_KEYS ? dd_strv_pushn(&r->news, name.text, name.len) : -ENOSPC;
}

/* True if the client repeats a request whose reply was lost. A different value starts a new
 * rendezvous. */
static bool is_repeated(struct rendezvous *r, struct kv_name name, const struct kv_value *value)
{
    DD_AUTO(kv_value) struct kv_value *old = kv_get(r->kv, name);
    return old != NULL && old->len == value->len && memcmp(old->data, value->data, value->len) == 0;
}

int rendezvous_put(struct rendezvous *r, struct kv_name name, struct kv_value *value)
{
    struct topic *t;
    if (scope_is(name, "worker_addresses")) { /* for a driver that calls workers; ddrun has none */
        kv_value_unref(value);
        return OK;
    }
    rendezvous_learn(r, name, value);
    int local = is_label(name) ? -1 : owner(r, name, &t);
    if (local >= 0 && t->has[local]) {
        if (is_repeated(r, name, value)) {
            kv_value_unref(value);
            return OK;
        }
        kv_clear(r->kv, name.text, name.scope_len);
        forget(r, t, name, local);
    }
    if (kv_put(r->kv, name, value, !is_label(name)) < 0 || note_news(r, name) < 0)
        return NO_ROOM;
    if (local >= 0) {
        t->has[local] = true;
        t->have++;
        t->due |= t->have == r->local_size && r->cfg.nnodes > 1;
    }
    return OK;
}

/* Elastic Horovod asks for rank and size after another init(); within a round they do not change.
 */
static int rank_and_size(struct rendezvous *r, struct kv_name name, struct kv_value **ret)
{
    const struct rendezvous_cfg *c = &r->cfg;
    const char *colon = memrchr(name.text, ':', name.len);
    int local = colon != NULL
                    ? rendezvous_number(colon + 1, (size_t)(name.text + name.len - colon) - 1,
                                        INT32_MAX)
                    : -1;
    char text[80];
    if (local < 0 || local >= r->local_size)
        return NOT_FOUND;
    int n = snprintf(text, sizeof(text), "%d,%d,%d,%d,%d,%d", c->first_rank + local, c->world_size,
                     local, r->local_size, cross_rank(r, local), cross_count(r, local, c->nnodes));
    if (kv_value_new(ret, r->kv, (size_t)n) < 0)
        return NO_ROOM;
    memcpy((*ret)->data, text, (size_t)n);
    return OK;
}

int rendezvous_get(struct rendezvous *r, struct kv_name name, struct kv_waiter *w,
                   struct kv_value **ret)
{
    if (scope_is(name, "rank_and_size"))
        return rank_and_size(r, name, ret);
    *ret = kv_get(r->kv, name);
    if (*ret != NULL)
        return OK;
    if (is_label(name))
        return NOT_FOUND;
    return kv_wait(r->kv, name, w) < 0 ? NO_ROOM : 0;
}

int rendezvous_delete(struct rendezvous *r, struct kv_name name)
{
    struct topic *t;
    int local = owner(r, name, &t);
    if (kv_finish(r->kv, name) == 1 && local >= 0)
        forget(r, t, name, local);
    return OK;
}

/* ---- exchange between nodes ---- */

/*   part = record*
 *   record = u32 name length, u32 value length, u32 packed length, name, packed */
static int put_record(struct dd_buf *out, struct rendezvous *r, const char *text)
{
    struct kv_name name = {.text = text, .len = strlen(text), .scope_len = strcspn(text, "/")};
    DD_AUTO(kv_value) struct kv_value *v = kv_get(r->kv, name);
    const int peers = r->cfg.world_size - 1;
    if (v == NULL)
        return 0;
    const size_t head = out->len;
    int rc = dd_wr_le(out, name.len, 4);
    if (rc == 0)
        rc = dd_wr_le(out, v->len, 4);
    if (rc == 0)
        rc = dd_wr_le(out, 0, 4);
    if (rc == 0)
        rc = dd_buf_append(out, name.text, name.len);
    const size_t begin = out->len;
    if (rc == 0)
        rc = delta_pack(out, v->data, v->len, peers > 0 ? r->world_len / (size_t)peers : 0);
    for (int i = 0; i < 4 && rc == 0; i++)
        out->data[head + 8 + (size_t)i] = (unsigned char)((out->len - begin) >> (8 * i));
    return rc;
}

static int put_both(struct dd_buf *out, struct rendezvous *r, const char *scope, int no)
{
    char name[KV_NAME_MAX];
    (void)snprintf(name, sizeof(name), "%s/rank_%d", scope, no);
    int rc = put_record(out, r, name);
    (void)snprintf(name, sizeof(name), "%s/%d", scope, no);
    return rc < 0 ? rc : put_record(out, r, name);
}

static int make_part(struct rendezvous *r, int topic, struct dd_buf *out)
{
    char scope[2 * SUFFIX_MAX];
    const char *suffix = topic >= 2 ? r->world : "";
    const bool cross = topic % 2 == 1;
    int rc = 0;
    for (int i = 0; i < r->local_size && rc == 0; i++) {
        if (cross)
            (void)snprintf(scope, sizeof(scope), "cross_%d%s", i, suffix);
        else
            (void)snprintf(scope, sizeof(scope), "global%s", suffix);
        rc = put_both(out, r, scope, cross ? cross_rank(r, i) : r->cfg.first_rank + i);
    }
    return rc;
}

int rendezvous_next_part(struct rendezvous *r, struct rendezvous_part *ret)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(RENDEZVOUS_PART_MAX);
    int i = 0;
    while (i < TOPICS && !r->topics[i].due)
        i++;
    if (i == TOPICS)
        return 0;
    struct topic *t = &r->topics[i];
    t->due = false;
    int rc = make_part(r, i, &out);
    if (rc < 0)
        return rc;
    (void)snprintf(ret->name, sizeof(ret->name), "hvd/%s/%u", t->name, t->times++);
    ret->data = out;
    out = DD_BUF_INIT(0);
    return 1;
}

bool rendezvous_has_news(const struct rendezvous *r)
{
    return r->news.n > 0;
}

int rendezvous_take_news(struct rendezvous *r, struct dd_buf *out)
{
    int rc = 0;
    for (size_t i = 0; i < r->news.n && rc == 0; i++)
        rc = put_record(out, r, r->news.v[i]);
    dd_strv_done(&r->news);
    return rc;
}

/* True for keys of workers of other nodes: another node must not overwrite a key of this node's
 * workers. */
static bool is_foreign(struct rendezvous *r, struct kv_name name)
{
    struct topic *t;
    const int no = key_number(name);
    return no >= 0 && no < r->cfg.world_size && scope_of(name).kind != SCOPE_OTHER &&
           owner(r, name, &t) < 0 && !kv_is_mine(r->kv, name);
}

static int take_record(struct rendezvous *r, struct dd_rd *rd, struct dd_err *err)
{
    size_t name_len = dd_rd_u32(rd);
    size_t len = dd_rd_u32(rd);
    size_t packed = dd_rd_u32(rd);
    const char *text = (const char *)dd_rd_bytes(rd, name_len);
    const unsigned char *bytes = dd_rd_bytes(rd, packed);
    struct kv_name name;
    struct kv_value *v;
    if (text == NULL || bytes == NULL || !kv_name_parse(&name, text, name_len) ||
        !is_foreign(r, name))
        return dd_err_set(
            err, -EPROTO,
            "invalid Horovod addresses from another node: malformed, or for a worker of this node");
    int rc = kv_value_new(&v, r->kv, len);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot store Horovod addresses from another node: %s",
                          rc == -ENOSPC     ? "the values exceed 2 GiB in total"
                          : rc == -EMSGSIZE ? "a value exceeds 16 MiB"
                                            : strerror(-rc));
    if (delta_unpack(v->data, len, bytes, packed) < 0) {
        kv_value_unref(v);
        return dd_err_set(err, -EPROTO, "malformed value in Horovod addresses from another node");
    }
    rc = kv_put(r->kv, name, v, false);
    return rc < 0 ? dd_err_set(err, rc, "cannot store Horovod addresses from another node: %s",
                               rc == -ENOSPC ? "too many keys" : strerror(-rc))
                  : 0;
}

int rendezvous_take_part(struct rendezvous *r, const void *data, size_t len, struct dd_err *err)
{
    struct dd_rd rd = dd_rd_of(data, len);
    int rc = 0;
    while (rc == 0 && dd_rd_left(&rd) > 0)
        rc = take_record(r, &rd, err);
    return rc;
}
