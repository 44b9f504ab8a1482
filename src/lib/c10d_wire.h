/* The client's side of the c10d protocol: requests out, reply bytes in. Pure.
 *
 * A struct wire is one exchange: append requests to `out`, each of which records the expected
 * reply, then feed received bytes until wire_done(). Replies are not trusted: lengths are bounded,
 * and memory grows only with received data. Src: docs/protocol/store-c10d.md. */
#ifndef DD_LIB_C10D_WIRE_H
#define DD_LIB_C10D_WIRE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WIRE_STEPS = 8 }; /* consecutive replies of one kind are one step */

enum wire_kind {
    WIRE_ZERO,      /* one byte 0: a wait has ended */
    WIRE_U32,       /* the nonce of a PING */
    WIRE_I64,       /* stored in `number` */
    WIRE_STR,       /* appended to `strs` */
    WIRE_CANCELLED, /* one byte 1, possibly after the 0 of a wait that ended at the same time */
};

struct wire_str {
    size_t off, len; /* position in `in` */
};

struct wire {
    struct dd_buf out;
    struct {
        enum wire_kind kind;
        uint32_t times;
    } steps[WIRE_STEPS];
    int nsteps;
    int rc; /* first failure of a request: -ENOMEM, -EMSGSIZE */

    int step;
    uint32_t times_done;
    unsigned char head[8]; /* first bytes of an incomplete number */
    size_t nhead;
    size_t left; /* missing bytes of an incomplete string */
    bool in_str;
    bool was_released; /* the wait ended before it was cancelled */
    uint32_t nonce;
    int64_t number; /* the last number received */
    struct dd_buf in;
    struct wire_str *strs;
    size_t nstrs, cap_strs;
};

void wire_init(struct wire *w, size_t max_in); /* max_in: total size of the strings in the reply */
void wire_done_with(struct wire *w);           /* frees all memory */

/* Append a request. Failures are kept in w->rc. A key is `prefix` followed by `key`. */
struct wire_key {
    const char *prefix, *key;
};
/* A value: `head` followed by `body`. */
struct wire_value {
    const void *head;
    size_t nhead;
    const void *body;
    size_t nbody;
};
void wire_hello(struct wire *w, uint32_t nonce); /* VALIDATE and PING */
void wire_ping(struct wire *w, uint32_t nonce);
void wire_set(struct wire *w, struct wire_key k, struct wire_value v);
void wire_append(struct wire *w, struct wire_key k, struct wire_value v);
void wire_get(struct wire *w, struct wire_key k);
void wire_add(struct wire *w, struct wire_key k, int64_t delta);
void wire_delete(struct wire *w, struct wire_key k);
void wire_barrier(struct wire *w, struct wire_key k, int64_t world);
void wire_cancel_wait(struct wire *w);
void wire_wait(struct wire *w, const char *prefix, const char *const *keys, size_t n);
/* The caller appends the n keys with wire_key(). */
void wire_multi_get(struct wire *w, uint32_t n);
void wire_key(struct wire *w, struct wire_key k);

/* Take at most n bytes and return the number taken, less than n only if the reply is complete.
 * -EPROTO: malformed reply; -EMSGSIZE: longer than max_in; -ENOMEM. */
ssize_t wire_feed(struct wire *w, const void *p, size_t n);
static inline bool wire_done(const struct wire *w)
{
    return w->step == w->nsteps;
}

/* Return string i of the reply, of strs[i].len bytes; valid until wire_done_with(). */
static inline const unsigned char *wire_str(const struct wire *w, size_t i)
{
    return w->strs[i].len > 0 ? w->in.data + w->strs[i].off : (const unsigned char *)"";
}

#endif
