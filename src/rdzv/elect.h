/* Election without a coordinator: what every agent computes alike from the job's name. Pure. */
#ifndef DD_RDZV_ELECT_H
#define DD_RDZV_ELECT_H

#include <stdint.h>

enum { ELECT_PORTS = 16, ELECT_MAX = 1040 };

/* ELECT_PORTS different ports, hashed from the job id. All lie in 30000-32767: below Linux's
 * ephemeral range (32768-60999) and away from the ports that frameworks take by themselves
 * (29500, 8888, 28028, 10000-29999, 61440-65535). */
void elect_ports(const char *job_id, uint16_t out[ELECT_PORTS]);
/* The same and those that follow them, up to ELECT_MAX. */
void elect_some(const char *job_id, uint16_t *out, int count);

#endif
