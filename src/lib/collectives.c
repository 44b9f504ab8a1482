/* Groups and their collectives.
 *
 * Every collective is one exchange. For collective number N of a group, each member appends its
 * record to the key dN, arrives at the barrier bN and requests dN, in one batch; the store delays
 * the reply to the last request until all members have arrived. Data that is too long for a record
 * is stored under a key of its own, xN.PLACE.
 *
 * When all members have arrived at N, all have left N-1: no member needs bN, and the keys d and x
 * of N-1, any more. With its next collective the first member deletes b and d, and each member its
 * own x. */
#include "lib/lib_inner.h"
#include "lib/allgather_records.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATH_MAX_LEN = PREFIX_MAX + DDRUN_GROUP_NAME_MAX + 64,
    TOGETHER_MAX = 32 << 20, /* total size of the records of a collective */
    ONE_MAX = 64 << 10, /* maximum size of the data in one record; longer data is stored apart */
    RECORDS_MAX = 64 << 20, /* maximum bytes of all records that a member accepts */
    CHUNK_KEYS = 256,       /* keys of data stored apart that are fetched in one request */
    CHUNK_BYTES = 64 << 20,
    CHUNK_MAX = 2 * CHUNK_BYTES,
    CLEAN_MOST = 64,   /* collectives cleaned up with one request */
    MISSING_NAMED = 8, /* ranks listed in a message */
    ASK_MS = 2000,     /* time limit to fetch the list of missing ranks */
    ALIGNED = 16,      /* alignment of every piece */
};
#define GATHERED_MAX ((uint64_t)1 << 30)

struct ddrun_group {
    struct ddrun_group *next;
    char path[PATH_MAX_LEN]; /* "ddrun/ROUND/g/NAME.HASH/" */
    int *ranks;              /* NULL: all ranks */
    int n, me;
    /* protected by the handle's lock */
    bool busy;       /* a collective is in progress */
    uint64_t number; /* number of the next collective */
    uint64_t done;   /* all members have arrived at the collectives below this number */
    uint64_t cleaned_b, cleaned_d, cleaned_x; /* keys b, d, x of collectives below are deleted */
    bool has_apart;
};

/* ---- groups ---- */

static int group_make(struct ddrun_group **ret, const char *path, const int *ranks, int n, int me)
{
    struct ddrun_group *g = calloc(1, sizeof(*g));
    size_t bytes = (size_t)n * sizeof(*ranks);
    if (g != NULL && ranks != NULL && (g->ranks = malloc(bytes)) != NULL)
        memcpy(g->ranks, ranks, bytes);
    if (g == NULL || (ranks != NULL && g->ranks == NULL)) {
        free(g);
        return -ENOMEM;
    }
    g->n = n;
    g->me = me;
    memcpy(g->path, path, strlen(path) + 1);
    *ret = g;
    return 0;
}

int group_world(struct ddrun *d)
{
    char path[PATH_MAX_LEN];
    (void)snprintf(path, sizeof(path), "%sw/", d->prefix);
    return group_make(&d->world, path, NULL, d->size, d->rank);
}

static void group_free(struct ddrun_group *g)
{
    if (g != NULL)
        free(g->ranks);
    free(g);
}

void groups_free(struct ddrun *d)
{
    for (struct ddrun_group *g = d->groups, *next; g != NULL; g = next) {
        next = g->next;
        group_free(g);
    }
    group_free(d->world);
}

/* FNV-1a: members that disagree about the ranks of the group must not share its keys. */
static uint64_t group_hash_of(const int *ranks, int n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < n; i++)
        for (int shift = 0; shift < 32; shift += 8)
            h = (h ^ ((unsigned)ranks[i] >> shift & 0xff)) * UINT64_C(0x100000001b3);
    return h;
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Return this process's index among the ranks, or < 0 with a message. */
static int check_ranks(const struct ddrun *d, const char *name, const int *ranks, int n)
{
    int me = -1;
    if (name == NULL || name[0] == '\0' ||
        strnlen(name, DDRUN_GROUP_NAME_MAX + 1) > DDRUN_GROUP_NAME_MAX)
        return lib_fail_as(-EINVAL, "the name of a group must have 1 to %d bytes",
                           DDRUN_GROUP_NAME_MAX);
    if (ranks == NULL || n < 1 || n > d->size)
        return lib_fail_as(-EINVAL,
                           ranks == NULL ? "group '%s': the list of ranks is NULL"
                                         : "group '%s' of %d ranks: expected 1 to %d",
                           name, n, d->size);
    int *sorted = malloc((size_t)n * sizeof(*sorted));
    if (sorted == NULL)
        return lib_fail(-ENOMEM, "group '%s'", name);
    memcpy(sorted, ranks, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), compare);
    int bad = sorted[0] < 0 ? sorted[0] : sorted[n - 1] >= d->size ? sorted[n - 1] : -1;
    bool is_bad = sorted[0] < 0 || sorted[n - 1] >= d->size;
    for (int i = 1; i < n && !is_bad; i++)
        if (sorted[i] == sorted[i - 1]) {
            bad = sorted[i];
            is_bad = true;
        }
    free(sorted);
    for (int i = 0; i < n && me < 0; i++)
        if (ranks[i] == d->rank)
            me = i;
    if (is_bad)
        return lib_fail_as(-EINVAL,
                           bad < 0 || bad >= d->size
                               ? "group '%s': rank %d is out of range for world size %d"
                               : "group '%s' contains rank %d more than once",
                           name, bad, d->size);
    return me >= 0
               ? me
               : lib_fail_as(-EINVAL, "group '%s' does not contain this rank (%d)", name, d->rank);
}

int ddrun_group(struct ddrun *d, struct ddrun_group **ret, const char *name, const int *ranks,
                int n)
{
    char path[PATH_MAX_LEN];
    struct ddrun_group *g;
    int me = check_ranks(d, name, ranks, n);
    if (me < 0)
        return me;
    int rc = d->pid == getpid() ? 0 : lib_fail(-EPERM, "group '%s'", name);
    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof(path), "%sg/%s.%016llx/", d->prefix, name,
                   (unsigned long long)group_hash_of(ranks, n));
    (void)pthread_mutex_lock(&d->lock);
    for (g = d->groups; g != NULL; g = g->next)
        if (strcmp(g->path, path) == 0 && g->n == n)
            break;
    if (g == NULL && (rc = group_make(&g, path, ranks, n, me)) == 0) {
        g->next = d->groups;
        d->groups = g;
    }
    (void)pthread_mutex_unlock(&d->lock);
    if (rc < 0)
        return lib_fail(rc, "group '%s'", name);
    *ret = g;
    return 0;
}

int ddrun_group_rank(const struct ddrun *d, const struct ddrun_group *g)
{
    return g != NULL ? g->me : d->rank;
}

int ddrun_group_size(const struct ddrun *d, const struct ddrun_group *g)
{
    return g != NULL ? g->n : d->size;
}

/* ---- a collective in progress ---- */

struct ddrun_request {
    struct ddrun *d;
    struct ddrun_group *g;
    struct conn *conn;
    struct wire w;
    size_t sent;
    uint64_t number;
    bool fetching; /* fetching data stored apart; before that: waiting for all members */
    bool held;     /* the group's busy flag is set for this request */
    int rc;        /* 1: complete, < 0: failed */
    struct record *records;
    struct ddrun_piece *pieces; /* one allocation that includes the data */
    int fetched;                /* data of members below this is complete */
    int chunk_end;              /* the current fetch covers members below this */
};

static void group_write_key(char *ret, size_t size, const struct ddrun_group *g, char what,
                            uint64_t number, int place)
{
    if (place < 0)
        (void)snprintf(ret, size, "%s%c%llu", g->path, what, (unsigned long long)number);
    else
        (void)snprintf(ret, size, "%s%c%llu.%d", g->path, what, (unsigned long long)number, place);
}

static void delete_up_to(struct ddrun_request *r, char what, uint64_t *cleaned, uint64_t end,
                         int place)
{
    char key[PATH_MAX_LEN + 64];
    for (int i = 0; i < CLEAN_MOST && *cleaned < end; i++, (*cleaned)++) {
        group_write_key(key, sizeof(key), r->g, what, *cleaned, place);
        wire_delete(&r->w, (struct wire_key){"", key});
    }
}

static void clean_up(struct ddrun_request *r)
{
    struct ddrun_group *g = r->g;
    if (g->me == 0) {
        delete_up_to(r, 'b', &g->cleaned_b, g->done, -1);
        delete_up_to(r, 'd', &g->cleaned_d, g->done > 0 ? g->done - 1 : 0, -1);
    }
    if (g->has_apart)
        delete_up_to(r, 'x', &g->cleaned_x, g->done > 0 ? g->done - 1 : 0, g->me);
    else
        g->cleaned_x = g->done > 0 ? g->done - 1 : 0;
}

static void write_request(struct ddrun_request *r, const void *in, size_t len, bool wants)
{
    char key[PATH_MAX_LEN + 64];
    unsigned char head[RECORD_HEAD];
    struct ddrun_group *g = r->g;
    size_t most = TOGETHER_MAX / (size_t)g->n;
    bool apart = len > (most < ONE_MAX ? most : ONE_MAX);
    wire_init(&r->w, RECORDS_MAX);
    clean_up(r);
    if (apart) {
        g->has_apart = true;
        group_write_key(key, sizeof(key), g, 'x', r->number, g->me);
        wire_set(&r->w, (struct wire_key){"", key}, (struct wire_value){.body = in, .nbody = len});
    }
    record_head(head, (uint32_t)g->me, len, apart);
    group_write_key(key, sizeof(key), g, 'd', r->number, -1);
    wire_append(&r->w, (struct wire_key){"", key},
                (struct wire_value){head, sizeof(head), in, apart ? 0 : len});
    group_write_key(key, sizeof(key), g, 'b', r->number, -1);
    wire_barrier(&r->w, (struct wire_key){"", key}, g->n);
    group_write_key(key, sizeof(key), g, 'd', r->number, -1);
    if (wants)
        wire_get(&r->w, (struct wire_key){"", key});
}

/* Allocate all pieces and copy the data that the records contain. */
static int lay_out(struct ddrun_request *r)
{
    size_t n = (size_t)r->g->n;
    uint64_t total = (n * sizeof(struct ddrun_piece) + ALIGNED - 1) / ALIGNED * ALIGNED;
    for (size_t i = 0; i < n; i++) {
        if (r->records[i].len > DDRUN_VALUE_MAX)
            return -EPROTO;
        total += (r->records[i].len + ALIGNED) / ALIGNED * ALIGNED;
        if (total > GATHERED_MAX)
            return -EMSGSIZE;
    }
    r->pieces = aligned_alloc(ALIGNED, total);
    if (r->pieces == NULL)
        return -ENOMEM;
    unsigned char *p = (unsigned char *)r->pieces +
                       (n * sizeof(struct ddrun_piece) + ALIGNED - 1) / ALIGNED * ALIGNED;
    for (size_t i = 0; i < n; i++) {
        const struct record *rec = &r->records[i];
        r->pieces[i] = (struct ddrun_piece){p, rec->len};
        if (!rec->apart && rec->len > 0)
            memcpy(p, rec->p, rec->len);
        p[rec->len] = '\0';
        p += (rec->len + ALIGNED) / ALIGNED * ALIGNED;
    }
    return 0;
}

/* Request the next data stored apart. 1, or 0 if there is none left. */
static int fetch_some(struct ddrun_request *r)
{
    char key[PATH_MAX_LEN + 64];
    uint64_t bytes = 0;
    uint32_t keys = 0;
    int i;
    for (i = r->fetched; i < r->g->n && keys < CHUNK_KEYS && bytes < CHUNK_BYTES; i++)
        if (r->records[i].apart) {
            keys++;
            bytes += r->records[i].len;
        }
    r->chunk_end = i;
    wire_done_with(&r->w);
    if (keys == 0)
        return 0;
    wire_init(&r->w, CHUNK_MAX);
    wire_multi_get(&r->w, keys);
    for (int k = r->fetched; k < r->chunk_end; k++)
        if (r->records[k].apart) {
            group_write_key(key, sizeof(key), r->g, 'x', r->number, k);
            wire_key(&r->w, (struct wire_key){"", key});
        }
    r->fetching = true;
    r->sent = 0;
    return 1;
}

static int group_take_fetched(struct ddrun_request *r)
{
    unsigned char *room = (unsigned char *)r->pieces;
    size_t k = 0;
    for (int i = r->fetched; i < r->chunk_end; i++) {
        if (!r->records[i].apart)
            continue;
        size_t len = r->w.strs[k].len;
        if (len != r->records[i].len)
            return -EPROTO;
        memcpy(room + ((const unsigned char *)r->pieces[i].data - room), wire_str(&r->w, k++), len);
    }
    r->fetched = r->chunk_end;
    return 0;
}

/* Process the records after all members have arrived. 1: complete; 0: more data to fetch. */
static int take_records(struct ddrun_request *r)
{
    int n = r->g->n;
    if (r->w.nstrs == 0)
        return 1; /* a barrier has no data */
    r->records = calloc((size_t)n, sizeof(*r->records));
    if (r->records == NULL)
        return -ENOMEM;
    int rc = records_parse(r->records, (uint32_t)n, wire_str(&r->w, 0), r->w.in.len);
    if (rc >= 0)
        rc = rc == n ? lay_out(r) : -EPROTO;
    return rc < 0 ? rc : !fetch_some(r);
}

/* Release connection and group; rc as in struct ddrun_request. */
static int over(struct ddrun_request *r, int rc)
{
    r->rc = rc;
    wire_done_with(&r->w);
    free(r->records);
    r->records = NULL;
    if (r->conn != NULL)
        (void)lib_give(r->d, r->conn, rc < 0 ? rc : 0);
    r->conn = NULL;
    if (r->held) {
        (void)pthread_mutex_lock(&r->d->lock);
        r->g->busy = false;
        (void)pthread_mutex_unlock(&r->d->lock);
    }
    r->held = false;
    return rc;
}

static void arrived(struct ddrun_request *r)
{
    (void)pthread_mutex_lock(&r->d->lock);
    r->g->done = r->number + 1;
    (void)pthread_mutex_unlock(&r->d->lock);
}

/* Continue without blocking, like conn_step(). */
static int group_step(struct ddrun_request *r, short *events)
{
    while (r->rc == 0) {
        int rc = conn_step(r->conn, &r->w, &r->sent, events);
        if (rc == 0)
            return 0;
        if (rc < 0)
            return over(r, rc);
        if (r->fetching) {
            rc = group_take_fetched(r);
            if (rc == 0)
                rc = !fetch_some(r);
        } else {
            arrived(r);
            rc = take_records(r);
        }
        if (rc != 0)
            return over(r, rc);
    }
    return r->rc;
}

/* Complete a collective of a group with one member, whose own data is the result. */
static int with_myself(struct ddrun_request *r, const void *in, size_t len)
{
    r->records = calloc(1, sizeof(*r->records));
    if (r->records == NULL)
        return over(r, -ENOMEM);
    r->records[0] = (struct record){.p = in, .len = len};
    int rc = lay_out(r);
    return over(r, rc < 0 ? rc : 1);
}

struct collective {
    const char *name;       /* for messages */
    struct ddrun_piece own; /* data of this member, borrowed */
    bool wants;             /* the data of all members, not only their arrival */
    uint64_t deadline;      /* limit for the connection to the store */
};

/* Start a collective. 0 or 1: *ret is in progress or complete; < 0 with a message: not started. */
static int group_begin(struct ddrun *d, struct ddrun_group *g, const struct collective *c,
                       struct ddrun_request **ret)
{
    int rc = c->own.len > DDRUN_VALUE_MAX ? -EMSGSIZE : lib_check(d);
    struct ddrun_request *r = rc == 0 ? calloc(1, sizeof(*r)) : NULL;
    if (r == NULL)
        return lib_fail(rc < 0 ? rc : -ENOMEM,
                        rc == -EMSGSIZE ? "%s of %zu bytes (limit %d)" : "%s", c->name, c->own.len,
                        DDRUN_VALUE_MAX);
    *r = (struct ddrun_request){.d = d, .g = g};
    (void)pthread_mutex_lock(&d->lock);
    r->held = !g->busy;
    if (r->held) {
        g->busy = true;
        r->number = g->number++;
    }
    (void)pthread_mutex_unlock(&d->lock);
    if (!r->held)
        rc = over(r, lib_fail(-EBUSY, "%s", c->name));
    else if (g->n == 1)
        rc = with_myself(r, c->own.data, c->own.len) < 0 ? lib_fail(-ENOMEM, "%s", c->name) : 1;
    else if ((rc = lib_take(d, &r->conn, c->deadline)) < 0)
        rc = over(r, rc);
    else
        write_request(r, c->own.data, c->own.len, c->wants);
    if (rc < 0)
        ddrun_request_free(r);
    else
        *ret = r;
    return rc;
}

void ddrun_request_free(struct ddrun_request *r)
{
    if (r == NULL)
        return;
    if (r->rc == 0)
        (void)over(r, -ETIMEDOUT);
    free(r->pieces);
    free(r);
}

/* ---- missing members ---- */

static int rank_of(const struct ddrun_group *g, int place)
{
    return g->ranks != NULL ? g->ranks[place] : place;
}

/* Write "rank 3" or "ranks 3 5 6 and 12 more". */
static void name_missing(const struct ddrun_group *g, const struct record *v, char *text,
                         size_t size)
{
    int missing = 0, at = 0;
    for (int i = 0; i < g->n; i++)
        missing += v[i].p == NULL;
    at += snprintf(text, size, missing == 1 ? "rank" : "ranks");
    for (int i = 0, named = 0; i < g->n && named < MISSING_NAMED; i++)
        if (v[i].p == NULL) {
            at += snprintf(text + at, size - (size_t)at, " %d", rank_of(g, i));
            named++;
        }
    if (missing > MISSING_NAMED)
        (void)snprintf(text + at, size - (size_t)at, " and %d more", missing - MISSING_NAMED);
}

/* Report the time-out and name the missing ranks, if the store still answers. */
static int timed_out(struct ddrun *d, struct ddrun_group *g, const char *what, uint64_t number)
{
    char key[PATH_MAX_LEN + 64], text[200] = "";
    struct wire w;
    struct record *v = calloc((size_t)g->n, sizeof(*v));
    wire_init(&w, RECORDS_MAX);
    group_write_key(key, sizeof(key), g, 'd', number, -1);
    wire_get(&w, (struct wire_key){"", key});
    int rc = v == NULL ? -ENOMEM : lib_call(d, &w, deadline_in(ASK_MS));
    if (rc == 0)
        rc = records_parse(v, (uint32_t)g->n, wire_str(&w, 0), w.in.len);
    if (rc >= 0 && rc < g->n)
        name_missing(g, v, text, sizeof(text));
    wire_done_with(&w);
    free(v);
    if (text[0] == '\0')
        return lib_fail(-ETIMEDOUT, "%s", what);
    return lib_fail_as(-ETIMEDOUT, "%s: timed out waiting for %s", what, text);
}

/* ---- interface ---- */

static int group_collective(struct ddrun *d, struct ddrun_group *g, const char *what,
                            const struct ddrun_piece *in, int timeout_ms, struct ddrun_piece **ret)
{
    struct ddrun_request *r = NULL;
    uint64_t deadline = deadline_in(timeout_ms);
    const struct collective c = {
        .name = what, .own = *in, .wants = ret != NULL, .deadline = deadline};
    int rc = group_begin(d, g, &c, &r);
    if (rc < 0)
        return rc;
    while (rc == 0) {
        short events;
        rc = group_step(r, &events);
        if (rc == 0)
            rc = deadline_poll(r->conn->fd, events, deadline);
    }
    uint64_t number = r->number;
    if (rc == 1 && ret != NULL) {
        *ret = r->pieces;
        r->pieces = NULL;
    }
    ddrun_request_free(r);
    if (rc == -ETIMEDOUT)
        return timed_out(d, g, what, number);
    return rc < 0 ? lib_fail(rc, "%s", what) : 0;
}

static struct ddrun_group *group_of(struct ddrun *d, struct ddrun_group *g)
{
    return g != NULL ? g : d->world;
}

int ddrun_barrier(struct ddrun *d, struct ddrun_group *g, int timeout_ms)
{
    const struct ddrun_piece nothing = {"", 0};
    return group_collective(d, group_of(d, g), "barrier", &nothing, timeout_ms, NULL);
}

int ddrun_allgatherv(struct ddrun *d, struct ddrun_group *g, const void *in, size_t len,
                     struct ddrun_piece **ret, int timeout_ms)
{
    const struct ddrun_piece mine = {in, len};
    return group_collective(d, group_of(d, g), "allgather", &mine, timeout_ms, ret);
}

int ddrun_allgather(struct ddrun *d, struct ddrun_group *g, const void *in, size_t len, void *out,
                    int timeout_ms)
{
    struct ddrun_piece *v = NULL;
    g = group_of(d, g);
    int rc = ddrun_allgatherv(d, g, in, len, &v, timeout_ms);
    for (int i = 0; v != NULL && i < g->n && rc == 0; i++) {
        if (v[i].len != len)
            rc = lib_fail_as(-EMSGSIZE, "allgather: rank %d contributed %zu bytes, this rank %zu",
                             rank_of(g, i), v[i].len, len);
        else if (len > 0)
            memcpy((unsigned char *)out + (size_t)i * len, v[i].data, len);
    }
    free(v);
    return rc;
}

int ddrun_broadcast(struct ddrun *d, struct ddrun_group *g, int root, void *data, size_t len,
                    int timeout_ms)
{
    struct ddrun_piece *v = NULL;
    g = group_of(d, g);
    if (root < 0 || root >= g->n)
        return lib_fail_as(-EINVAL, "broadcast: no member %d in a group of %d", root, g->n);
    const struct ddrun_piece mine = {data, g->me == root ? len : 0};
    int rc = group_collective(d, g, "broadcast", &mine, timeout_ms, &v);
    if (v != NULL && v[root].len != len)
        rc = lib_fail_as(-EMSGSIZE, "broadcast: rank %d sent %zu bytes, this rank expects %zu",
                         rank_of(g, root), v[root].len, len);
    if (rc == 0 && v != NULL && len > 0 && g->me != root)
        memcpy(data, v[root].data, len);
    free(v);
    return rc;
}

int ddrun_allgatherv_begin(struct ddrun *d, struct ddrun_group *g, const void *in, size_t len,
                           struct ddrun_request **ret)
{
    const struct collective c = {
        .name = "allgather", .own = {in, len}, .wants = true, .deadline = deadline_in(ANSWER_MS)};
    short events;
    int rc = group_begin(d, group_of(d, g), &c, ret);
    if (rc == 0)
        (void)group_step(*ret, &events); /* send the first data now */
    return rc < 0 ? rc : 0;
}

int ddrun_test(struct ddrun_request *r, struct ddrun_piece **ret)
{
    short events;
    int rc = r->d->pid == getpid() ? group_step(r, &events) : -EPERM;
    if (rc == 1 && ret != NULL) {
        *ret = r->pieces;
        r->pieces = NULL;
    }
    return rc < 0 ? lib_fail(rc, "allgather") : rc;
}
