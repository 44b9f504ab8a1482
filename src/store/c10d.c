#include "store/c10d.h"

#include "store/c10d_ops.h"

#include <errno.h>
#include <stdlib.h>

enum {
    MAGIC_LEN = 5,
    TURN_WORK = 1024,         /* requests, or keys of requests, that one turn executes */
    KEPT_BEHIND_WAIT = 65536, /* limit of input buffered while a wait blocks the connection */
    ROOM_FROM = 8 * 1024,     /* missing bytes from which reading in place is worthwhile */
    ROOM_MOST = 1024 * 1024,  /* bytes that one turn reads in place */
    GROW_TIMES = 256,         /* limit of a buffer's size: the bytes received so far, times this */
};

/* VALIDATE and its magic number on the wire. */
static const unsigned char magic[MAGIC_LEN] = {0x00, 0xce, 0xf7, 0x85, 0x3c};

/* State of the scan of an incomplete request; bytes before pos are not examined again. */
struct scan {
    size_t pos;    /* offset after the last complete field; 0: the operation code has not arrived */
    size_t need;   /* minimum size of the request */
    uint64_t left; /* remaining elements of a counted list */
    const char *arg;    /* descriptor of the field at pos, within the operation's args */
    const char *repeat; /* first field of a list element */
    int op;
};

struct c10d_pend {
    struct store_blob *blob;
    size_t off, len;  /* data[off..len) is not executed yet */
    struct scan scan; /* scan of the request at off */
    size_t ahead;     /* bytes after off that were searched for a CANCEL_WAIT */
    struct scan ahead_scan;
};

/* State of one call of c10d_feed(), c10d_got(), c10d_resume() or c10d_end(). */
struct turn {
    struct store_out *out;
    struct dd_err *err;
    size_t work; /* remaining budget */
    bool last;   /* the input has ended */
};

void c10d_conn_init(struct c10d_conn *c, struct c10d *c10d)
{
    *c = (struct c10d_conn){.c10d = c10d, .calls = c10d->calls};
}

static void drop_pend(struct c10d_conn *c)
{
    if (c->pend == NULL)
        return;
    store_blob_unref(c->pend->blob);
    free(c->pend);
    c->pend = NULL;
}

static void tell_released(struct c10d *c10d)
{
    struct store_waiter *w;
    while ((w = store_released(c10d->engine)) != NULL) {
        struct c10d_conn *c = (struct c10d_conn *)(void *)((char *)w -
                                                           offsetof(struct c10d_conn, waiter));
        c->busy = c->blocked;
        c->blocked = false;
        store_profile_reply(&c10d->profile, c->waiting_op, 1);
        if (c10d->profile.now != NULL)
            store_profile_wait(&c10d->profile, c->waiting_op, c10d->profile.now() - c->waiting_ns);
        c->calls->woken(c);
    }
}

static void set_stalled(struct c10d_conn *c, bool on)
{
    if (on && !c->stalled)
        LIST_INSERT_HEAD(&c->c10d->stalled, c, stalled_link);
    if (!on && c->stalled)
        LIST_REMOVE(c, stalled_link);
    c->stalled = on;
}

void c10d_unstall(struct c10d *c10d)
{
    struct c10d_conn *c;
    while ((c = LIST_FIRST(&c10d->stalled)) != NULL) {
        set_stalled(c, false);
        c->busy = true;
        c->calls->resume(c);
    }
}

void c10d_end_wait(struct c10d_conn *c)
{
    store_cancel(c->c10d->engine, &c->waiter);
    if (!c->blocked)
        return;
    c->blocked = false;
    c->busy = true;
    c->calls->resume(c);
}

int c10d_set(struct c10d *c10d, struct store_bytes key, struct store_bytes value)
{
    int rc = store_set(c10d->engine, key, value);
    tell_released(c10d);
    return rc;
}

void c10d_conn_done(struct c10d_conn *c)
{
    if (c->c10d->on_done != NULL)
        c->c10d->on_done(c);
    set_stalled(c, false);
    store_cancel(c->c10d->engine, &c->waiter);
    tell_released(c->c10d);
    drop_pend(c);
    store_runs_leave(&c->c10d->runs, c->c10d->engine, c->run);
    c->run = NULL;
    c->blocked = c->busy = false;
}

static size_t pend_len(const struct c10d_conn *c)
{
    return c->pend != NULL ? c->pend->len - c->pend->off : 0;
}

/* ---- finding the end of a request ---- */

static int too_much(struct dd_err *err, const struct scan *s, const char *what, uint64_t n,
                    size_t max)
{
    return dd_err_set(err, -EMSGSIZE, "%s: %s %llu exceeds the limit of %zu", c10d_ops[s->op].name,
                      what, (unsigned long long)n, max);
}

/* Get the length of the field at pos: 1 if known, 0 if its length word is incomplete. */
static int field_len(const struct store_limits *l, const unsigned char *p, size_t n,
                     const struct scan *s, size_t *ret, struct dd_err *err)
{
    *ret = *s->arg == 'u' ? 4 : 8;
    if (*s->arg == 'u' || *s->arg == 'i' || n - s->pos < 8)
        return *s->arg == 'u' || *s->arg == 'i';
    struct dd_rd r = dd_rd_of(p + s->pos, 8);
    uint64_t v = dd_rd_u64(&r);
    if (*s->arg == '#')
        return v > l->max_count ? too_much(err, s, "count", v, l->max_count) : 1;
    size_t max = *s->arg == 'k' ? l->max_key : l->max_value;
    if (v > max)
        return too_much(err, s, *s->arg == 'k' ? "key length" : "value length", v, max);
    *ret += v;
    return 1;
}

/* Advance to the next field. */
static void c10d_step(struct scan *s, const unsigned char *p, size_t len)
{
    if (*s->arg == '#') {
        struct dd_rd r = dd_rd_of(p + s->pos, 8);
        s->left = dd_rd_u64(&r);
        s->repeat = s->arg + 1;
        if (s->left == 0)
            s->arg += strlen(s->arg) - 1; /* last field */
    }
    s->pos += len;
    s->arg++;
    if (*s->arg == '\0' && s->left > 1) {
        s->left--;
        s->arg = s->repeat;
    }
}

static int scan_code(enum c10d_table table, unsigned char code, struct scan *s, struct dd_err *err)
{
    int op = c10d_op_of(table, code);
    if (op < 0)
        return dd_err_set(err, -EPROTO, "unknown operation 0x%02x", code);
    *s = (struct scan){.pos = 1, .op = op, .arg = c10d_ops[op].args};
    return 0;
}

/* Return 1 if the request is complete and pos bytes long, 0 if input is missing. */
static int scan(const struct c10d_conn *c, const unsigned char *p, size_t n, struct scan *s,
                struct dd_err *err)
{
    const struct store_limits *l = &c->c10d->limits;
    if (s->pos == 0) {
        int rc = scan_code(c->table, p[0], s, err);
        if (rc < 0)
            return rc;
    }
    while (*s->arg != '\0') {
        size_t len;
        int rc = field_len(l, p, n, s, &len, err);
        if (rc < 0)
            return rc;
        s->need = s->pos + len;
        if (s->need > l->max_request)
            return too_much(err, s, "request length", s->need, l->max_request);
        if (rc == 0 || s->need > n)
            return 0;
        c10d_step(s, p, len);
    }
    return 1;
}

/* ---- execution ---- */

/* Describe the error rc. -EMSGSIZE: an APPEND has made the value too long, or the reply is: other
 * values were checked by field_len(). */
static int c10d_fail(const struct c10d_conn *c, int rc, const char *op, struct dd_err *err)
{
    const struct store_limits *l = &c->c10d->limits;
    const bool append = strcmp(op, c10d_ops[C10D_APPEND].name) == 0;
    switch (rc) {
    case -ENOMEM:
        return dd_err_set(err, rc, "%s: out of memory", op);
    case -ENOSPC:
        return dd_err_set(err, rc, "%s: the store is full", op);
    case -EMSGSIZE:
        return dd_err_set(err, rc, "%s: the %s exceeds the limit of %zu bytes", op,
                          append ? "value" : "reply", append ? l->max_value : l->max_request);
    default:
        return rc; /* err is already set */
    }
}

/* Count the keys that a request names. */
static void count_keys(struct hot_keys *keys, const char *args, struct dd_rd r)
{
    uint64_t times = 1;
    if (*args == '#') {
        times = dd_rd_u64(&r);
        args++;
    }
    for (; times > 0; times--)
        for (const char *arg = args; *arg != '\0'; arg++) {
            if (*arg == 'u' || *arg == 'i') {
                (void)dd_rd_bytes(&r, *arg == 'u' ? 4 : 8);
                continue;
            }
            const uint64_t n = dd_rd_u64(&r);
            const struct store_bytes b = {dd_rd_bytes(&r, n), n};
            if (*arg == 'k' && !r.failed)
                hot_keys_add(keys, b);
        }
}

/* Count a request that has been executed; its reply has `out` bytes. */
static void count_request(struct c10d_conn *c, const struct scan *s, size_t out, uint64_t start_ns)
{
    struct store_profile *p = &c->c10d->profile;
    c->c10d->ops_done++;
    c->executed++;
    c->cancels = c->cancels && s->op != C10D_CANCEL_WAIT;
    store_profile_request(p, s->op, s->pos);
    if (out > 0)
        store_profile_reply(p, s->op, out);
    if (store_is_waiting(&c->waiter) && out == 0) {
        c->waiting_op = s->op;
        c->waiting_ns = start_ns;
    }
    if (p->now != NULL)
        store_profile_service(p, s->op, p->now() - start_ns);
}

static int carry_out(struct c10d_conn *c, const struct scan *s, struct dd_rd args,
                     struct store_blob **blob, struct turn *t)
{
    struct c10d_request r = {
        .conn = c, .args = args, .raw = {args.p - 1, s->pos}, .out = t->out, .blob = blob};
    const struct c10d_op_info *op = &(c->c10d->ops != NULL ? c->c10d->ops : c10d_ops)[s->op];
    const struct store_profile *p = &c->c10d->profile;
    const size_t before = t->out->total;
    const uint64_t start_ns = store_profile_now(p);
    if (p->keys != NULL)
        count_keys(p->keys, op->args, args);
    if (s->op != C10D_PING && s->op != C10D_CANCEL_WAIT)
        store_answered(c->c10d->engine, &c->waiter);
    int rc = op->run(&r, t->err);
    tell_released(c->c10d);
    if (rc < 0)
        return c10d_fail(c, rc, op->name, t->err);
    count_request(c, s, t->out->total - before, start_ns);
    t->work -= r.work + 1 < t->work ? r.work + 1 : t->work;
    return 0;
}

/* Return true if the request may be executed now; else set blocked or busy. */
static bool may_go_on(struct c10d_conn *c, int op, const struct turn *t)
{
    c->busy = t->work == 0 || t->out->total > c->c10d->limits.max_output;
    if (c->busy)
        return false;
    if (!store_is_waiting(&c->waiter) || op == C10D_PING || op == C10D_CANCEL_WAIT)
        return true;
    /* A client of table A sends no CANCEL_WAIT: after a timeout it just continues. A client whose
     * input has ended no longer needs the reply of its wait. */
    if (c->table == C10D_TABLE_A || t->last) {
        store_cancel(c->c10d->engine, &c->waiter);
        return true;
    }
    c->blocked = true;
    return false;
}

/* Call c10d->may_run(), and stall the connection if it returns 0. */
static int may_run(struct c10d_conn *c, int op, struct dd_rd args)
{
    if (c->c10d->may_run == NULL)
        return 1;
    int rc = c->c10d->may_run(c, op, args);
    set_stalled(c, rc == 0);
    return rc;
}

/* Execute the requests at p. s is the scan of the first one and becomes the scan of the first
 * unexecuted one. blob: the buffer that contains p if an operation may take it. Return the number
 * of bytes consumed, or < 0. */
static ssize_t c10d_run(struct c10d_conn *c, const unsigned char *p, size_t n, struct scan *s,
                        struct store_blob **blob, struct turn *t)
{
    size_t done = 0;
    c->blocked = c->busy = false;
    set_stalled(c, false);
    while (done < n) {
        int rc = scan(c, p + done, n - done, s, t->err);
        if (rc <= 0)
            return rc < 0 ? rc : (ssize_t)done;
        struct dd_rd args = dd_rd_of(p + done + 1, s->pos - 1);
        if (!may_go_on(c, s->op, t) || (rc = may_run(c, s->op, args)) == 0)
            break;
        if (rc < 0)
            return c10d_fail(c, rc, c10d_ops[s->op].name, t->err);
        bool only = done + s->pos == n;
        rc = carry_out(c, s, args, only ? blob : NULL, t);
        if (rc < 0)
            return rc;
        done += s->pos;
        *s = (struct scan){0};
    }
    return (ssize_t)done;
}

/* Detect the protocol version. 1: detected (*used bytes are consumed), 0: input is missing, < 0:
 * none. */
static int c10d_handshake(struct c10d_conn *c, const unsigned char *p, size_t n, size_t *used,
                          struct dd_err *err)
{
    static const enum c10d_table old[] = {
        [STORE_OLD_113] = C10D_TABLE_A,
        [STORE_OLD_21] = C10D_TABLE_B,
    };
    *used = 0;
    if (memcmp(p, magic, n < MAGIC_LEN ? n : MAGIC_LEN) != 0) {
        if (c->c10d->old == STORE_OLD_REFUSE)
            return dd_err_set(err, -EPROTO, "the client did not start with VALIDATE");
        c->table = old[c->c10d->old];
        return 1;
    }
    if (n < MAGIC_LEN)
        return 0;
    c->table = C10D_TABLE_C;
    *used = MAGIC_LEN;
    return 1;
}

/* ---- buffered input ---- */

/* Return the size for a buffer that contains `have` bytes and needs at least `cap`. */
static size_t pend_cap(const struct scan *s, size_t have, size_t cap)
{
    if (s->need < cap + ROOM_FROM) /* several fields; only the length of the next one is known */
        return cap + cap / 2;
    size_t most = have * GROW_TIMES;
    size_t want = s->need < most ? s->need : most;
    return want > cap ? want : cap;
}

static int pend_reserve(struct c10d_pend *pd, size_t more)
{
    if (pd->off > 0) {
        memmove(pd->blob->data, pd->blob->data + pd->off, pd->len - pd->off);
        pd->len -= pd->off;
        pd->off = 0;
    }
    size_t cap = pd->len + more;
    if (cap <= pd->blob->cap)
        return 0;
    return store_blob_resize(&pd->blob, pend_cap(&pd->scan, pd->len, cap));
}

static int pend_new(struct c10d_conn *c, size_t n, const struct scan *s)
{
    struct c10d_pend *pd = calloc(1, sizeof(*pd));
    if (pd == NULL)
        return -ENOMEM;
    size_t cap = s->need >= n + ROOM_FROM ? pend_cap(s, n, n) : n;
    int rc = store_blob_new(&pd->blob, store_engine_account(c->c10d->engine), cap);
    if (rc < 0) {
        free(pd);
        return rc;
    }
    pd->scan = *s;
    c->pend = pd;
    return 0;
}

static int keep(struct c10d_conn *c, const unsigned char *p, size_t n, const struct scan *s)
{
    int rc = c->pend == NULL ? pend_new(c, n, s) : pend_reserve(c->pend, n);
    if (rc < 0)
        return rc;
    memcpy(c->pend->blob->data + c->pend->len, p, n);
    c->pend->len += n;
    return 0;
}

/* Execute the buffered requests until the end or until one blocks. */
static int run_pend(struct c10d_conn *c, struct turn *t)
{
    struct c10d_pend *pd = c->pend;
    size_t used;
    int rc = 1;
    if (c->table == C10D_UNKNOWN && pend_len(c) > 0) {
        rc = c10d_handshake(c, pd->blob->data + pd->off, pd->len - pd->off, &used, t->err);
        if (rc <= 0)
            return rc;
        pd->off += used;
    }
    if (pend_len(c) > 0) {
        ssize_t n = c10d_run(c, pd->blob->data + pd->off, pd->len - pd->off, &pd->scan, &pd->blob,
                             t);
        if (n < 0)
            return (int)n;
        pd->off += (size_t)n;
        if ((size_t)n <= pd->ahead)
            pd->ahead -= (size_t)n;
        else
            pd->ahead = pd->ahead_scan.pos = 0;
    }
    if (pend_len(c) == 0)
        drop_pend(c);
    return 0;
}

/* True if the buffered input contains a CANCEL_WAIT. Requests after a wait are blocked, but the
 * client may give up the wait with a CANCEL_WAIT that it sends after them. */
static bool cancel_is_ahead(const struct c10d_conn *c)
{
    struct c10d_pend *pd = c->pend;
    while (pd->off + pd->ahead < pd->len) {
        const unsigned char *p = pd->blob->data + pd->off + pd->ahead;
        if (scan(c, p, pd->len - pd->off - pd->ahead, &pd->ahead_scan, NULL) <= 0)
            return false;
        if (pd->ahead_scan.op == C10D_CANCEL_WAIT)
            return true;
        pd->ahead += pd->ahead_scan.pos;
        pd->ahead_scan.pos = 0;
    }
    return false;
}

static int run_kept(struct c10d_conn *c, struct turn *t)
{
    int rc = run_pend(c, t);
    while (rc == 0 && c->blocked && cancel_is_ahead(c)) {
        store_cancel(c->c10d->engine, &c->waiter);
        rc = run_pend(c, t);
    }
    if (rc == 0 && c->stalled && !c->cancels && cancel_is_ahead(c)) {
        c->cancels = true;
        rc = run_pend(c, t);
    }
    return rc;
}

/* ---- interface ---- */

int c10d_feed(struct c10d_conn *c, const void *data, size_t n, struct store_out *out,
              struct dd_err *err)
{
    struct turn t = {.out = out, .err = err, .work = TURN_WORK};
    const unsigned char *p = data;
    struct scan s = {0};
    size_t used;
    if (n == 0)
        return 0;
    if (c->pend == NULL && c->table == C10D_UNKNOWN) {
        int rc = c10d_handshake(c, p, n, &used, err);
        if (rc < 0)
            return rc;
        p += used;
        n -= used;
    }
    if (c->pend == NULL && c->table != C10D_UNKNOWN) {
        ssize_t done = c10d_run(c, p, n, &s, NULL, &t);
        if (done < 0)
            return (int)done;
        p += done;
        n -= (size_t)done;
        if (n == 0)
            return 0;
        if (!c->blocked && !c->stalled)
            return c10d_fail(c, keep(c, p, n, &s), "input", err);
    }
    int rc = keep(c, p, n, &s);
    return rc < 0 ? c10d_fail(c, rc, "input", err) : run_kept(c, &t);
}

int c10d_resume(struct c10d_conn *c, struct store_out *out, struct dd_err *err)
{
    struct turn t = {.out = out, .err = err, .work = TURN_WORK};
    c->busy = false;
    return c->pend == NULL ? 0 : run_kept(c, &t);
}

int c10d_end(struct c10d_conn *c, struct store_out *out, struct dd_err *err)
{
    struct turn t = {.out = out, .err = err, .work = TURN_WORK, .last = true};
    c->busy = false;
    c->cancels = true;
    return c->pend == NULL ? 0 : run_kept(c, &t);
}

bool c10d_wants_input(const struct c10d_conn *c)
{
    return (!c->blocked && !c->stalled) || pend_len(c) < KEPT_BEHIND_WAIT;
}

size_t c10d_expects(const struct c10d_conn *c)
{
    return c->pend == NULL || c->blocked || c->stalled || c->busy ? 0 : c->pend->scan.need;
}

int c10d_room(struct c10d_conn *c, void **ret, size_t *ret_n, struct dd_err *err)
{
    struct c10d_pend *pd = c->pend;
    *ret_n = 0;
    if (c10d_expects(c) < pend_len(c) + ROOM_FROM)
        return 0;
    int rc = pend_reserve(pd, ROOM_FROM); /* may reserve more */
    if (rc < 0)
        return c10d_fail(c, rc, "input", err);
    size_t missing = pd->scan.need - pd->len;
    *ret = pd->blob->data + pd->len;
    missing = missing < ROOM_MOST ? missing : ROOM_MOST;
    *ret_n = pd->blob->cap - pd->len < missing ? pd->blob->cap - pd->len : missing;
    return 0;
}

int c10d_got(struct c10d_conn *c, size_t n, struct store_out *out, struct dd_err *err)
{
    struct turn t = {.out = out, .err = err, .work = TURN_WORK};
    c->pend->len += n;
    return run_kept(c, &t);
}
