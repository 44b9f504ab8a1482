#include "rdzv/elect.h"

#include <stdbool.h>

enum { FIRST_PORT = 30000, LAST_PORT = 32767 };

/* FNV-1a with the finalizer of splitmix64, since job ids differ in few low bits. */
static uint64_t hash(const char *text, uint64_t salt)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ salt;
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

void elect_ports(const char *job_id, uint64_t seed, uint16_t *out, int count)
{
    bool taken[LAST_PORT - FIRST_PORT + 1] = {false};
    uint64_t salt = 0;
    for (int n = 0; n < count; salt++) {
        const unsigned at = (unsigned)(hash(job_id, n < ELECT_PUBLIC ? salt : seed + salt) %
                                       (LAST_PORT - FIRST_PORT + 1));
        if (taken[at])
            continue;
        taken[at] = true;
        out[n++] = (uint16_t)(FIRST_PORT + at);
    }
}
