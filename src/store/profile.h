/* Counters of the store's operations, for metrics and the profile. The clock is a callback. */
#ifndef DD_STORE_PROFILE_H
#define DD_STORE_PROFILE_H

#include "store/hot_keys.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* STORE_PROFILE_OPS: at least C10D_OPS. A message of n bytes counts in the class of the least power
 * of two above n: class 0 has empty messages, class k those of 2^(k-1) to 2^k - 1 bytes. */
enum { STORE_PROFILE_OPS = 24, STORE_PROFILE_SIZES = 40 };

struct store_op_profile {
    uint64_t n, bytes_in, bytes_out; /* executed requests; bytes of requests and of replies */
    /* Zero if the profile has no clock: */
    uint64_t service_ns, service_max_ns; /* time of execution */
    uint64_t waits;                      /* number of waits that ended with a reply */
    uint64_t wait_ns, wait_max_ns;       /* time of these waits, from request to reply */
};

struct store_profile {
    struct store_op_profile ops[STORE_PROFILE_OPS];
    uint64_t requests[STORE_PROFILE_SIZES], replies[STORE_PROFILE_SIZES]; /* messages by size */
    uint64_t (*now)(void); /* clock; NULL: measure neither times nor keys, to save their cost */
    struct hot_keys *keys; /* owned by the code that sets `now` */
};

static inline unsigned store_profile_class(size_t n)
{
    const unsigned k = n == 0 ? 0 : 64 - (unsigned)__builtin_clzll(n);
    return k < STORE_PROFILE_SIZES ? k : STORE_PROFILE_SIZES - 1;
}

static inline void store_profile_reply(struct store_profile *p, int op, size_t n)
{
    p->ops[op].bytes_out += n;
    p->replies[store_profile_class(n)]++;
}

static inline void store_profile_request(struct store_profile *p, int op, size_t n)
{
    p->ops[op].n++;
    p->ops[op].bytes_in += n;
    p->requests[store_profile_class(n)]++;
}

/* 0 without a clock. */
static inline uint64_t store_profile_now(const struct store_profile *p)
{
    return p->now != NULL ? p->now() : 0;
}

static inline void store_profile_service(struct store_profile *p, int op, uint64_t ns)
{
    struct store_op_profile *o = &p->ops[op];
    o->service_ns += ns;
    o->service_max_ns = ns > o->service_max_ns ? ns : o->service_max_ns;
}

static inline void store_profile_wait(struct store_profile *p, int op, uint64_t ns)
{
    struct store_op_profile *o = &p->ops[op];
    o->waits++;
    o->wait_ns += ns;
    o->wait_max_ns = ns > o->wait_max_ns ? ns : o->wait_max_ns;
}

#endif
