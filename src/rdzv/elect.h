/* Election of ports without a coordinator: every agent computes the same list from the job id.
 * Pure. */
#ifndef DD_RDZV_ELECT_H
#define DD_RDZV_ELECT_H

#include <stdint.h>

enum {
    ELECT_PUBLIC = 4,  /* ports that follow from the job id alone, so that nodes with different keys
                          meet and report the difference */
    ELECT_PORTS = 16,  /* ports that any daemon may use and every search tries */
    ELECT_WALK = 1024, /* ports that the first daemon tries if all others are taken */
    ELECT_MAX = 1040,
};

/* Compute `count` different ports, hashed from the job id and, after the first ELECT_PUBLIC, from a
 * seed that only nodes of the job have (net_key_seed(); 0: none). A longer list begins with the
 * shorter one. All ports are in 30000-32767: below Linux's ephemeral range (32768-60999) and apart
 * from the default ports of frameworks (29500, 8888, 28028, 10000-29999, 61440-65535). */
void elect_ports(const char *job_id, uint64_t seed, uint16_t *out, int count);

#endif
