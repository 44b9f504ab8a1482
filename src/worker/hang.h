/* Computes how long each worker has shown no activity, from the caller's observations; no I/O, no
 * clock. */
#ifndef DD_WORKER_HANG_H
#define DD_WORKER_HANG_H

#include <stdbool.h>
#include <stdint.h>

struct hang;

/* All times are monotonic, in ns. The caller owns *ret. Return 0 or -ENOMEM. */
int hang_new(struct hang **ret, int n, uint64_t timeout_ns, uint64_t now);
void hang_free(struct hang *h);

/* Return the time between two checks. */
uint64_t hang_interval(const struct hang *h);
/* To be called before each round of checks. If it is called much later than planned, this process
 * was stopped, probably together with the workers: that time does not count. */
void hang_tick(struct hang *h, uint64_t now);
/* sign: any number that changes whenever worker i is active. Return true if the worker has been
 * silent for the timeout. */
bool hang_look(struct hang *h, int i, uint64_t sign, uint64_t now);
void hang_alive(struct hang *h, int i, uint64_t now); /* treat worker i as active now */
uint64_t hang_silent(const struct hang *h, int i,
                     uint64_t now); /* returns how long worker i has been silent */

#endif
