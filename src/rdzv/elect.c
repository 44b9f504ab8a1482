#include "rdzv/elect.h"

#include <stdbool.h>

enum { FIRST_PORT = 30000, LAST_PORT = 32767 };

/* FNV-1a, then a finaliser (splitmix64's constants): job ids differ in few low bits. */
static uint64_t hash(const char *text, uint64_t salt)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ salt;
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

static bool taken(const uint16_t *ports, int n, uint16_t port)
{
    for (int i = 0; i < n; i++)
        if (ports[i] == port)
            return true;
    return false;
}

void elect_some(const char *job_id, uint16_t *out, int count)
{
    uint64_t salt = 0;
    for (int n = 0; n < count; salt++) {
        uint16_t port = (uint16_t)(FIRST_PORT + hash(job_id, salt) % (LAST_PORT - FIRST_PORT + 1));
        if (!taken(out, n, port))
            out[n++] = port;
    }
}

void elect_ports(const char *job_id, uint16_t out[ELECT_PORTS])
{
    elect_some(job_id, out, ELECT_PORTS);
}
