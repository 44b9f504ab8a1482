/* SipHash-1-3: a keyed hash, so that peers cannot choose keys that collide.
 *
 * Src: Aumasson, Bernstein, "SipHash: a fast short-input PRF" (2012); 1-3 is the variant with one
 * round per word and three at the end. */
#ifndef DD_STORE_SIPHASH_H
#define DD_STORE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DD_SIPHASH_SEED 16

static inline uint64_t dd_sip_rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline void dd_sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = dd_sip_rotl(v[1], 13) ^ v[0];
    v[3] = dd_sip_rotl(v[3], 16) ^ v[2];
    v[0] = dd_sip_rotl(v[0], 32) + v[3];
    v[2] += v[1];
    v[3] = dd_sip_rotl(v[3], 21) ^ v[0];
    v[1] = dd_sip_rotl(v[1], 17) ^ v[2];
    v[2] = dd_sip_rotl(v[2], 32);
}

/* Read up to eight bytes as a little-endian number. */
static inline uint64_t dd_sip_word(const unsigned char *p, size_t n)
{
    uint64_t w = 0;
    for (size_t i = n; i > 0; i--)
        w = w << 8 | p[i - 1];
    return w;
}

static inline uint64_t dd_siphash13(const unsigned char seed[DD_SIPHASH_SEED], const void *key,
                                    size_t n)
{
    const unsigned char *p = key;
    uint64_t k0 = dd_sip_word(seed, 8), k1 = dd_sip_word(seed + 8, 8);
    uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                     k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    size_t left = n;
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t m = dd_sip_word(p, 8);
        v[3] ^= m;
        dd_sip_round(v);
        v[0] ^= m;
    }
    uint64_t last = (uint64_t)(n & 0xff) << 56 | (left > 0 ? dd_sip_word(p, left) : 0);
    v[3] ^= last;
    dd_sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        dd_sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
