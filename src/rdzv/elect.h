/* Election without a coordinator: what every agent computes alike from the job's name. Pure. */
#ifndef DD_RDZV_ELECT_H
#define DD_RDZV_ELECT_H

#include <stdint.h>

enum {
    ELECT_PUBLIC = 4,  /* the first ones follow from the job id alone, so that nodes whose keys
                          differ meet, and say so */
    ELECT_PORTS = 16,  /* those that every daemon takes and every search tries */
    ELECT_WALK = 1024, /* as far as the first daemon goes when others hold all of those */
    ELECT_MAX = 1040,
};

/* Different ports, hashed from the job id and, behind ELECT_PUBLIC, from a seed that only the nodes
 * of the job know (net_key_seed(); 0: none). A longer list begins with the shorter ones. All lie in
 * 30000-32767: below Linux's ephemeral range (32768-60999) and away from the ports that frameworks
 * take by themselves (29500, 8888, 28028, 10000-29999, 61440-65535). */
void elect_ports(const char *job_id, uint64_t seed, uint16_t *out, int count);

#endif
