/* The client's side of the c10d protocol: requests out, reply bytes in. Pure.
 *
 * A struct wire is one exchange: requests are written into `out`, one after the other, and each
 * notes what is to be answered; then the bytes that come are fed in until wire_done(). What the
 * other end says is not trusted: lengths are bounded, and memory grows only with what has arrived.
 * Src: docs/protocol/store-c10d.md.
 */
#ifndef DD_LIB_WIRE_H
#define DD_LIB_WIRE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WIRE_STEPS = 8 }; /* answers of one kind in a row are one step */

enum wire_kind {
    WIRE_ZERO,      /* one byte 0: a wait is over */
    WIRE_U32,       /* the nonce of a PING */
    WIRE_I64,       /* into `number` */
    WIRE_STR,       /* into `strs` */
    WIRE_CANCELLED, /* a byte 1, before it the 0 of a wait that has just ended, perhaps */
};

struct wire_str {
    size_t off, len; /* in `in` */
};

struct wire {
    struct dd_buf out;
    struct {
        enum wire_kind kind;
        uint32_t times;
    } steps[WIRE_STEPS];
    int nsteps;
    int rc; /* the first failure of a request: -ENOMEM, -EMSGSIZE */

    int step;
    uint32_t times_done;
    unsigned char head[8]; /* of a number that has not come whole */
    size_t nhead;
    size_t left; /* of a string that has begun */
    bool in_str;
    bool was_released; /* before it was cancelled */
    uint32_t nonce;
    int64_t number; /* the last one */
    struct dd_buf in;
    struct wire_str *strs;
    size_t nstrs, cap_strs;
};

void wire_init(struct wire *w, size_t max_in); /* max_in: bytes of all strings of the answer */
void wire_done_with(struct wire *w);           /* frees all */

/* Failures stick in w->rc. A key is `prefix` and then `key`. */
struct wire_key {
    const char *prefix, *key;
};
void wire_hello(struct wire *w, uint32_t nonce); /* VALIDATE and PING */
void wire_ping(struct wire *w, uint32_t nonce);
void wire_set(struct wire *w, struct wire_key k, const void *head, size_t nhead, const void *p,
              size_t n);
void wire_append(struct wire *w, struct wire_key k, const void *head, size_t nhead, const void *p,
                 size_t n);
void wire_get(struct wire *w, struct wire_key k);
void wire_add(struct wire *w, struct wire_key k, int64_t delta);
void wire_delete(struct wire *w, struct wire_key k);
void wire_barrier(struct wire *w, struct wire_key k, int64_t world);
void wire_cancel_wait(struct wire *w);
void wire_wait(struct wire *w, const char *prefix, const char *const *keys, size_t n);
/* n keys follow, each with wire_key(). */
void wire_multi_get(struct wire *w, uint32_t n);
void wire_key(struct wire *w, struct wire_key k);

/* Takes at most n bytes; how many were taken, fewer only when the answer is complete. -EPROTO: that
 * is no answer to this; -EMSGSIZE: it is longer than max_in; -ENOMEM. */
ssize_t wire_feed(struct wire *w, const void *p, size_t n);
static inline bool wire_done(const struct wire *w)
{
    return w->step == w->nsteps;
}

/* String number i of the answer, of strs[i].len bytes; lent until wire_done_with(). */
static inline const unsigned char *wire_str(const struct wire *w, size_t i)
{
    return w->strs[i].len > 0 ? w->in.data + w->strs[i].off : (const unsigned char *)"";
}

#endif
