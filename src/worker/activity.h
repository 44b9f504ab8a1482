/* What a worker and its descendants have used so far, by /proc: the signs of life of a program that
 * gives none itself. */
#ifndef DD_WORKER_ACTIVITY_H
#define DD_WORKER_ACTIVITY_H

#include "worker/hang.h"
#include "worker/socket_bytes.h"

#include <sys/types.h>

/* Add up the processes below pid. What cannot be read counts as 0. sockets: NULL if unknown. 0 or
 * -ENOMEM. */
int activity_read(pid_t pid, const struct socket_bytes *sockets, struct hang_counters *ret);
/* Return how long the main thread of a process has waited for a processor: on a machine with too
 * much to do, a program that computes gets little time. Other threads do not count, since those
 * that only wake up now and then wait most. 0 if the kernel does not say. */
uint64_t activity_delay_ns(pid_t pid);
/* Return how long the main thread of this process has run or has waited for a processor: time in
 * which nobody had stopped it. */
uint64_t activity_own_ns(void);

#endif
