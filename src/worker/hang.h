/* Since when has each worker given no sign of life? Arithmetic on what the caller has seen; no I/O,
 * no clock. */
#ifndef DD_WORKER_HANG_H
#define DD_WORKER_HANG_H

#include <stdbool.h>
#include <stdint.h>

struct hang;

/* All times are monotonic nanoseconds. Gives *ret; 0 or -ENOMEM. */
int hang_new(struct hang **ret, int n, uint64_t timeout_ns, uint64_t now);
void hang_free(struct hang *h);

/* How long to wait between two looks. */
uint64_t hang_interval(const struct hang *h);
/* Before each round of looks. When it comes much later than it should, this process was stopped,
 * and so, most likely, were the workers: that time does not count. */
void hang_tick(struct hang *h, uint64_t now);
/* sign: any number that changes when worker i does something. True when it is silent for too long.
 */
bool hang_look(struct hang *h, int i, uint64_t sign, uint64_t now);
void hang_alive(struct hang *h, int i, uint64_t now); /* known to be well, or not to be judged */
uint64_t hang_silent(const struct hang *h, int i, uint64_t now); /* for so long */

#endif
